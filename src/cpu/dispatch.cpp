#include "cpu/kernels.h"

#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace ebclr::cpu {

extern const Kernels kAvx2Kernels;
extern const Kernels kAvx512Kernels;
const Kernels& amx_kernels();

namespace {

/// Linux hands out the tile unit's registers (8 KB more to save per thread) only to programs that ask.
bool tile_unit_granted() {
#ifdef __linux__
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  static const bool granted = syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  return granted;
#else
  return false;
#endif
}

}  // namespace

std::vector<const Kernels*> available_kernels() {
  // __builtin_cpu_supports asks the operating system's share (XGETBV) as well as the processor's.
  std::vector<const Kernels*> list;
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("fma")) {
    if (__builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("amx-tile") &&
        __builtin_cpu_supports("amx-bf16") && tile_unit_granted()) {
      list.push_back(&amx_kernels());
    }
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
