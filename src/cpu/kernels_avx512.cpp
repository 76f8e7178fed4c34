// Compiled for AVX-512; see CMakeLists.txt for the flags. Nothing here may run before the check in
// dispatch.cpp.
#include "cpu/simd_avx512.h"

#include "cpu/kernel_table.h"

namespace ebclr::cpu {

extern const Kernels kAvx512Kernels;
const Kernels kAvx512Kernels = kernel_table<Avx512>("avx512");

}  // namespace ebclr::cpu
