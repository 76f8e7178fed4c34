#include "cpu/kernels.h"

#include <cstdlib>
#include <string_view>

#ifdef __x86_64__
#include <cpuid.h>
#endif

#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace ebclr::cpu {

#ifdef __x86_64__

extern const Kernels kAvx2Kernels;
extern const Kernels kAvx512Kernels;
const Kernels& amx_kernels();
const Kernels& avx512_bf16_kernels();

namespace {

/// How much of the processor is to be believed: EBCLR_INSTRUCTIONS=avx512, avx2 or none masks what is beyond,
/// so that tests meet processors that are not here.
enum class Mask { kNone, kAvx2, kAvx512, kAll };
Mask mask() {
  const char* word = std::getenv("EBCLR_INSTRUCTIONS");
  const std::string_view most = word == nullptr ? "" : word;
  return most == "none"     ? Mask::kNone
         : most == "avx2"   ? Mask::kAvx2
         : most == "avx512" ? Mask::kAvx512
                            : Mask::kAll;
}

bool has_avx2() {
  return mask() >= Mask::kAvx2 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

bool has_avx512() {
  // __builtin_cpu_supports asks the operating system's share (XGETBV) as well as the processor's.
  return mask() >= Mask::kAvx512 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("fma");
}

/// AVX-512's conversions to bfloat16 and products of it. (__builtin_cpu_supports knows the name in g++ only,
/// and those of the tile unit.)
bool has_bf16() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kBf16 = 1u << 5;
  return mask() == Mask::kAll && __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a & kBf16) != 0;
}

/// AMX with bfloat16.
bool has_tile_unit() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kBf16Tiles = 1u << 22, kTiles = 1u << 24;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & kBf16Tiles) != 0 && (d & kTiles) != 0;
}

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
  std::vector<const Kernels*> list;
  if (has_avx512()) {
    if (has_bf16() && has_tile_unit() && tile_unit_granted()) {
      list.push_back(&amx_kernels());
    }
    list.push_back(&kAvx512Kernels);
  }
  if (has_avx2()) list.push_back(&kAvx2Kernels);
  return list;
}

const Kernels* bf16_kernels() {
  return has_avx512() && has_bf16() ? &avx512_bf16_kernels() : nullptr;
}

#else

const Kernels* bf16_kernels() {
  return nullptr;
}

/// No kernels for this processor yet: the encoder runs on libtorch.
std::vector<const Kernels*> available_kernels() {
  return {};
}

#endif

const Kernels* find_kernels(const std::string& name) {
  for (const Kernels* k : available_kernels()) {
    if (name.empty() ? !k->by_name_only : name == k->name) return k;
  }
  return nullptr;
}

}  // namespace ebclr::cpu
