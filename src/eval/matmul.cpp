#include "eval/matmul.h"

#include <omp.h>
#include <torch/torch.h>

#ifdef EBCLR_ONEDNN
#include <oneapi/dnnl/dnnl.h>
#endif

namespace ebclr::eval {

void matmul(const torch::Tensor& a, const torch::Tensor& b, torch::Tensor& out) {
#ifdef EBCLR_ONEDNN
  const bool a_turned = !a.is_contiguous(), b_turned = !b.is_contiguous();
  const bool plain = a.scalar_type() == torch::kFloat32 && b.scalar_type() == torch::kFloat32 &&
                     out.is_contiguous() && (!a_turned || a.t().is_contiguous()) &&
                     (!b_turned || b.t().is_contiguous());
  if (plain && out.numel() > 0 && a.size(1) > 0) {
    const int64_t m = a.size(0), k = a.size(1), n = b.size(1);
    const auto status =
        dnnl_sgemm(a_turned ? 'T' : 'N', b_turned ? 'T' : 'N', m, n, k, 1.0f, a.data_ptr<float>(),
                   a_turned ? m : k, b.data_ptr<float>(), b_turned ? k : n, 0.0f, out.data_ptr<float>(), n);
    if (status == dnnl_success) return;
  }
#endif
  torch::mm_out(out, a, b);
}

OneThread::OneThread() : before_(omp_get_max_threads()) {
  omp_set_num_threads(1);
}
OneThread::~OneThread() {
  omp_set_num_threads(before_);
}

}  // namespace ebclr::eval
