#include "cpu/kernels.h"

namespace ebclr::cpu {

extern const Kernels kAvx2Kernels;
extern const Kernels kAvx512Kernels;

std::vector<const Kernels*> available_kernels() {
  // __builtin_cpu_supports asks the operating system's share (XGETBV) as well as the processor's.
  std::vector<const Kernels*> list;
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("fma")) {
    list.push_back(&kAvx512Kernels);
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) list.push_back(&kAvx2Kernels);
  return list;
}

const Kernels* find_kernels(const std::string& name) {
  for (const Kernels* k : available_kernels()) {
    if (name.empty() || name == k->name) return k;
  }
  return nullptr;
}

}  // namespace ebclr::cpu
