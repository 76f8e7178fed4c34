#pragma once
// Golden vectors (tests/golden, made with PyTorch in double precision) and the weights of the golden
// networks.

#include <torch/torch.h>

#include <cmath>
#include <string>

#include "core/npy.h"
#include "core/rng.h"

namespace ebclr::testing {

/// One golden array.
inline torch::Tensor golden(const std::string& name) {
  return core::read_npy(std::string(EBCLR_GOLDEN_DIR) + "/" + name + ".npy");
}

/// The same in double precision (the files hold float32).
inline torch::Tensor golden_double(const std::string& name) {
  return golden(name).to(torch::kFloat64);
}

/// The same as float32.
inline torch::Tensor golden_float(const std::string& name) {
  return golden(name).to(torch::kFloat32);
}

/// Largest absolute difference over the largest absolute reference value.
inline double relative_error(const torch::Tensor& got, const torch::Tensor& want) {
  const auto g = got.detach().to(torch::kFloat64), w = want.detach().to(torch::kFloat64);
  return ((g - w).abs().max() / w.abs().max().clamp_min(1e-30)).item<double>();
}

/// Relative L2 distance.
inline double relative_l2(const torch::Tensor& got, const torch::Tensor& want) {
  const auto g = got.detach().to(torch::kFloat64), w = want.detach().to(torch::kFloat64);
  return ((g - w).norm() / w.norm().clamp_min(1e-30)).item<double>();
}

/// Fills parameters as the golden networks are: the k-th of all parameters at flat index i from a mix of
/// (k, i); `first` is k of the module's first parameter. Returns k of the next one.
inline uint64_t fill_golden(torch::nn::Module& module, uint64_t first) {
  torch::NoGradGuard guard;
  for (auto& p : module.parameters()) {
    const bool weight = p.dim() > 1;
    const double bound = weight ? std::sqrt(3.0 / static_cast<double>(p.numel() / p.size(0))) : 0.05;
    auto values = torch::empty({p.numel()}, torch::kFloat64);
    double* v = values.data_ptr<double>();
    for (int64_t i = 0; i < p.numel(); ++i) {
      const uint64_t mixed = core::mix64((first + 1) * 0x9E3779B97F4A7C15ull +
                                         (static_cast<uint64_t>(i) + 1) * 0xD1B54A32D192ED03ull);
      v[i] = bound * (2 * (static_cast<double>(mixed >> 40) / 16777216.0) - 1);
    }
    p.copy_(values.view(p.sizes()));
    ++first;
  }
  return first;
}

}  // namespace ebclr::testing
