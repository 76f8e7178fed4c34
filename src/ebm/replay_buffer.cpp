#include "ebm/replay_buffer.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <unordered_set>

#include "core/error.h"

namespace ebclr::ebm {
namespace {

// n distinct numbers below `bound` in random order: Floyd's way, O(n) whatever the bound.
std::vector<int64_t> distinct_below(int64_t n, int64_t bound, core::Rng& rng) {
  std::unordered_set<int64_t> seen;
  std::vector<int64_t> out;
  for (int64_t j = bound - n; j < bound; ++j) {
    auto t = static_cast<int64_t>(rng.below(static_cast<uint64_t>(j + 1)));
    if (!seen.insert(t).second) seen.insert(t = j);
    out.push_back(t);
  }
  return out;
}

constexpr int64_t kFillChunk = 1024;

}  // namespace

torch::Tensor uniform_images(int64_t n, const std::vector<int64_t>& shape, core::Rng& rng) {
  std::vector<int64_t> sizes = {n};
  sizes.insert(sizes.end(), shape.begin(), shape.end());
  auto out = torch::empty(sizes, torch::kFloat32);
  for (float *p = out.data_ptr<float>(), *end = p + out.numel(); p != end; ++p) *p = rng.uniform(-1.0f, 1.0f);
  return out;
}

ProposalSource uniform_proposals(std::vector<int64_t> shape) {
  return [shape = std::move(shape)](int64_t n, core::Rng& rng) { return uniform_images(n, shape, rng); };
}

ReplayBuffer::ReplayBuffer(const BufferOptions& options, torch::IntArrayRef image_shape,
                           const ProposalSource& propose, core::Rng& rng)
    : options_(options) {
  if (options.size < 1)
    core::usage_error("ebm.buffer", fmt::format("buffer.size {} must be at least 1", options.size));
  if (!(options.rho >= 0 && options.rho <= 1))
    core::usage_error("ebm.buffer", fmt::format("buffer.rho {} must lie in [0, 1]", options.rho));
  std::vector<int64_t> shape = {options.size};
  shape.insert(shape.end(), image_shape.begin(), image_shape.end());
  chains_ = torch::empty(shape, options.half ? torch::kFloat16 : torch::kFloat32);
  counts_ = torch::zeros({options.size}, torch::kInt64);
  reset(propose, rng);
}

void ReplayBuffer::reset(const ProposalSource& propose, core::Rng& rng) {
  torch::NoGradGuard guard;
  for (int64_t i = 0; i < size(); i += kFillChunk) {
    const int64_t n = std::min(kFillChunk, size() - i);
    chains_.narrow(0, i, n).copy_(propose(n, rng));
  }
  counts_.zero_();
}

PickedChains ReplayBuffer::pick(int64_t n, const ProposalSource& propose, core::Rng& rng) const {
  torch::NoGradGuard guard;
  if (n > size())
    core::usage_error("ebm.buffer", fmt::format("buffer.size {} is smaller than the batch of {}", size(), n));
  PickedChains out;
  out.slots = torch::tensor(distinct_below(n, size(), rng), torch::kInt64);
  out.fresh = torch::zeros({n}, torch::kBool);
  std::vector<int64_t> renewed;
  for (int64_t i = 0; i < n; ++i)
    if (rng.bernoulli(options_.rho)) renewed.push_back(i);
  out.chains = chains_.index_select(0, out.slots).to(torch::kFloat32);
  out.counts = counts_.index_select(0, out.slots);
  if (!renewed.empty()) {
    const auto index = torch::tensor(renewed, torch::kInt64);
    out.chains.index_copy_(0, index, propose(static_cast<int64_t>(renewed.size()), rng).to(torch::kFloat32));
    out.counts.index_fill_(0, index, 0);
    out.fresh.index_fill_(0, index, true);
  }
  return out;
}

void ReplayBuffer::put(const PickedChains& picked, const torch::Tensor& chains) {
  torch::NoGradGuard guard;
  chains_.index_copy_(0, picked.slots, chains.detach().to(torch::kCPU, chains_.scalar_type()));
  counts_.index_copy_(0, picked.slots, picked.counts + 1);
}

}  // namespace ebclr::ebm
