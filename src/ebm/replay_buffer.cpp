#include "ebm/replay_buffer.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <unordered_set>

#include "core/error.h"

namespace ebclr::ebm {
namespace {

// n distinct numbers below `bound`, any set of them as likely as any other (their order is not): Floyd's way,
// O(n) whatever the bound.
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

std::vector<int64_t> with_rows(int64_t rows, torch::IntArrayRef shape) {
  std::vector<int64_t> sizes = {rows};
  sizes.insert(sizes.end(), shape.begin(), shape.end());
  return sizes;
}

/// Rows that go from rank to rank: what to hand over, in the order of the receivers, and where to put what
/// comes, in the order of the senders.
struct Route {
  explicit Route(int world) : send(static_cast<size_t>(world)), receive(send), places(send.size()) {}

  void leaves(int64_t row, int to) {
    rows.push_back(row);
    ++send[static_cast<size_t>(to)];
  }
  void arrives(int64_t place, int from) {
    places[static_cast<size_t>(from)].push_back(place);
    ++receive[static_cast<size_t>(from)];
  }
  torch::Tensor outgoing() const { return torch::tensor(rows, torch::kInt64); }
  torch::Tensor incoming() const {
    std::vector<int64_t> all;
    for (const auto& p : places) all.insert(all.end(), p.begin(), p.end());
    return torch::tensor(all, torch::kInt64);
  }

  std::vector<int64_t> send, receive;
  std::vector<int64_t> rows = {};            // here
  std::vector<std::vector<int64_t>> places;  // here, by sender
};

}  // namespace

torch::Tensor uniform_images(int64_t n, const std::vector<int64_t>& shape, core::Rng& rng) {
  auto out = torch::empty(with_rows(n, shape), torch::kFloat32);
  for (float *p = out.data_ptr<float>(), *end = p + out.numel(); p != end; ++p) *p = rng.uniform(-1.0f, 1.0f);
  return out;
}

ProposalSource uniform_proposals(std::vector<int64_t> shape) {
  return [shape = std::move(shape)](int64_t n, core::Rng& rng) { return uniform_images(n, shape, rng); };
}

ReplayBuffer::ReplayBuffer(const BufferOptions& options, torch::IntArrayRef image_shape,
                           const ProposalSource& propose, core::Rng& rng, std::shared_ptr<dist::Group> ranks)
    : options_(options), ranks_(std::move(ranks)) {
  if (options.size < 1)
    core::usage_error("ebm.buffer", fmt::format("buffer.size {} must be at least 1", options.size));
  if (!(options.rho >= 0 && options.rho <= 1))
    core::usage_error("ebm.buffer", fmt::format("buffer.rho {} must lie in [0, 1]", options.rho));
  const auto [first, last] = slots();
  chains_ =
      torch::empty(with_rows(last - first, image_shape), options.half ? torch::kFloat16 : torch::kFloat32);
  counts_ = torch::zeros({last - first}, torch::kInt64);
  reset(propose, rng);
}

void ReplayBuffer::reset(const ProposalSource& propose, core::Rng& rng) {
  torch::NoGradGuard guard;
  const auto [first, last] = slots();
  for (int64_t i = 0; i < size(); i += kFillChunk) {
    const int64_t n = std::min(kFillChunk, size() - i);
    const int64_t begin = std::clamp(first - i, int64_t{0}, n), end = std::clamp(last - i, begin, n);
    const auto made = propose.part(n, rng, begin, end);  // also where nothing of it is kept: the draws count
    if (begin < end) chains_.narrow(0, i + begin - first, end - begin).copy_(made);
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
  if (!renewed.empty()) out.fresh.index_fill_(0, torch::tensor(renewed, torch::kInt64), true);
  fetch(out);
  if (renewed.empty()) return out;
  const auto [begin, end] = ranks_->share(n);
  const auto from = std::lower_bound(renewed.begin(), renewed.end(), begin);
  const auto to = std::lower_bound(from, renewed.end(), end);
  const auto made =
      propose.part(static_cast<int64_t>(renewed.size()), rng, from - renewed.begin(), to - renewed.begin());
  if (from != to)
    out.chains.index_copy_(0, torch::tensor(std::vector<int64_t>(from, to), torch::kInt64) - begin,
                           made.to(torch::kFloat32));
  return out;
}

void ReplayBuffer::fetch(PickedChains& picked) const {
  const int64_t n = picked.slots.numel(), first = slots().first;
  const int64_t* slot = picked.slots.data_ptr<int64_t>();
  const bool* fresh = picked.fresh.data_ptr<bool>();
  const auto [begin, end] = ranks_->share(n);
  Route route(ranks_->world());
  for (int64_t i = 0; i < n; ++i) {
    if (fresh[i]) continue;
    const int holder = ranks_->owner(slot[i], size()), mover = ranks_->owner(i, n);
    if (holder == ranks_->rank()) route.leaves(slot[i] - first, mover);
    if (mover == ranks_->rank()) route.arrives(i - begin, holder);
  }
  const auto rows = route.outgoing(), places = route.incoming();
  auto sizes = chains_.sizes().vec();
  sizes[0] = end - begin;
  picked.chains = torch::zeros(sizes);
  picked.counts = torch::zeros({end - begin}, torch::kInt64);
  picked.chains.index_copy_(
      0, places,
      ranks_->exchange_rows(chains_.index_select(0, rows), route.send, route.receive).to(torch::kFloat32));
  picked.counts.index_copy_(0, places,
                            ranks_->exchange_rows(counts_.index_select(0, rows), route.send, route.receive));
}

void ReplayBuffer::put(const PickedChains& picked, const torch::Tensor& chains) {
  torch::NoGradGuard guard;
  const int64_t n = picked.slots.numel(), first = slots().first;
  const int64_t* slot = picked.slots.data_ptr<int64_t>();
  const int64_t begin = ranks_->share(n).first;
  Route route(ranks_->world());
  std::vector<std::vector<int64_t>> going(route.send.size());
  std::vector<int64_t> renewed;
  for (int64_t i = 0; i < n; ++i) {
    const int holder = ranks_->owner(slot[i], size()), mover = ranks_->owner(i, n);
    if (mover == ranks_->rank()) going[static_cast<size_t>(holder)].push_back(i - begin);
    if (holder != ranks_->rank()) continue;
    route.arrives(slot[i] - first, mover);
    if (picked.fresh.data_ptr<bool>()[i]) renewed.push_back(slot[i] - first);
  }
  for (size_t r = 0; r < going.size(); ++r)
    for (const int64_t row : going[r]) route.leaves(row, static_cast<int>(r));
  const auto moved = chains.detach().to(torch::kCPU, chains_.scalar_type());
  const auto places = route.incoming();
  chains_.index_copy_(
      0, places, ranks_->exchange_rows(moved.index_select(0, route.outgoing()), route.send, route.receive));
  if (!renewed.empty()) counts_.index_fill_(0, torch::tensor(renewed, torch::kInt64), 0);
  counts_.index_add_(0, places, torch::ones_like(places));
}

double ReplayBuffer::mean_visits() const {
  auto total = counts_.sum().to(torch::kFloat64).view({1});
  ranks_->sum(total);
  return total.item<double>() / static_cast<double>(size());
}

}  // namespace ebclr::ebm
