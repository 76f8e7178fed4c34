// Compiled for AVX2 with FMA; see CMakeLists.txt for the flags. Nothing here may run before the check in
// dispatch.cpp.
#include "cpu/simd_avx2.h"

#include "cpu/kernel_table.h"

namespace ebclr::cpu {

extern const Kernels kAvx2Kernels;
const Kernels kAvx2Kernels = kernel_table<Avx2>("avx2");

}  // namespace ebclr::cpu
