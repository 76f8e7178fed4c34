// Compiled for AVX-512 with AMX; see CMakeLists.txt for the flags. Nothing here may run before the check in
// dispatch.cpp.
#include "cpu/plane_weights.h"

namespace ebclr::cpu {

extern const Kernels kAvx512Kernels;

// Forward passes stay with AVX-512 in float: they decide on which side of zero an activation lies, and an
// error of 1e-5 turns one in 1e5 over, which changes gradients by some 3e-3. Gradients are linear in what
// flows back: there an error of 1e-5 stays one.
const Kernels& amx_kernels() {
  static const Kernels kernels = [] {
    Kernels k = kAvx512Kernels;
    k.name = "amx";
    k.sums_follow_threads = true;
    k.by_name_only = true;
    k.gradient_taps = false;
    k.weight_floats = [](int in, int out, int kernel, bool gradient) {
      if (!gradient) return kAvx512Kernels.weight_floats(in, out, kernel, gradient);
      return plane_weight_floats(out, in) / (kernel == 3 ? 1 : 18);
    };
    k.cut = [](const Layer& layer, std::size_t l2_bytes) {
      return layer.gradient ? plane_cut(layer, l2_bytes) : kAvx512Kernels.cut(layer, l2_bytes);
    };
    k.space = [](const Layer& layer, const Schedule& schedule) {
      return layer.gradient ? plane_space(layer, schedule) : kAvx512Kernels.space(layer, schedule);
    };
    k.transform_weights = [](const WeightJob& job, const Team& team) {
      job.transpose ? plane_weights(job, team) : kAvx512Kernels.transform_weights(job, team);
    };
    k.pack = [](const float* w, int out, int in, int out_padded, int in_padded, bool transpose,
                const float* scale, float* packed) {
      if (transpose) {
        plane_pack(w, out, in, out_padded, in_padded, scale, packed);
      } else {
        kAvx512Kernels.pack(w, out, in, out_padded, in_padded, transpose, scale, packed);
      }
    };
    k.conv_grad = plane_conv;
    k.down_grad = plane_down_grad;
    k.grad_cut = plane_grad_cut;
    k.grad_space = plane_grad_space;
    k.weight_grad = plane_weight_grad;
    return k;
  }();
  return kernels;
}

}  // namespace ebclr::cpu
