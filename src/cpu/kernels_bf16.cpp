// Compiled for AVX-512 with bfloat16; see CMakeLists.txt for the flags. Nothing here may run before the check
// in dispatch.cpp.
#include "cpu/bf16.h"

namespace ebclr::cpu {

extern const Kernels kAvx512Kernels;

// Stem, pooling and the head's products stay in float: they are a small part of the work.
const Kernels& avx512_bf16_kernels() {
  static const Kernels kernels = [] {
    Kernels k = kAvx512Kernels;
    k.name = "avx512_bf16";
    k.by_name_only = true;
    k.forward_taps = k.gradient_taps = false;
    k.weight_floats = bf16_weight_floats;
    k.cut = bf16_cut;
    k.transform_weights = bf16_weights;
    k.pack = bf16_pack;
    k.conv = k.conv_grad = conv<Avx512Bf16, CoarseInput, CoarseOutput>;
    k.down = down<Avx512Bf16>;
    k.down_grad = down_grad<Avx512Bf16>;
    k.weight_grad = nullptr;  // chains have none
    return k;
  }();
  return kernels;
}

}  // namespace ebclr::cpu
