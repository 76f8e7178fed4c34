#pragma once
// One matrix product for the judges. oneDNN looks at the processor's features, where OpenBLAS looks its model
// up in a table and falls back to SSE3 for models newer than itself (24 against 110 GFLOPS on a recent Xeon,
// Debian 12).

#include <torch/types.h>

namespace ebclr::eval {

/// out = a b for float matrices [M, K] and [K, N], each contiguous or the transpose of a contiguous one; out
/// [M, N] contiguous and allocated. By oneDNN where it was found when building, else by torch.
void matmul(const torch::Tensor& a, const torch::Tensor& b, torch::Tensor& out);

/// While alive, products of this thread use no other thread: worth it where they are small and many.
class OneThread {
 public:
  OneThread();
  ~OneThread();
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

}  // namespace ebclr::eval
