#include "dist/group.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <cstdlib>

#include "core/error.h"

namespace ebclr::dist {
namespace {

class Solo : public Group {
 public:
  int rank() const override { return 0; }
  int world() const override { return 1; }
  std::string describe() const override { return "one process"; }
  void sum(torch::Tensor&) override {}
  torch::Tensor gather_rows(const torch::Tensor& rows, int64_t) override { return rows; }
  torch::Tensor exchange_rows(const torch::Tensor& rows, const std::vector<int64_t>&,
                              const std::vector<int64_t>&) override {
    return rows;
  }
  void broadcast(torch::Tensor&) override {}
  std::vector<std::string> gather_text(const std::string& mine) override { return {mine}; }
};

class GatherFunction : public torch::autograd::Function<GatherFunction> {
 public:
  static torch::Tensor forward(torch::autograd::AutogradContext* ctx, const torch::Tensor& rows,
                               int64_t group_address, int64_t total) {
    auto& group = *reinterpret_cast<Group*>(group_address);
    const auto [begin, end] = group.share(total);
    ctx->saved_data["begin"] = begin;
    ctx->saved_data["end"] = end;
    return group.gather_rows(rows, total);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grads) {
    const int64_t begin = ctx->saved_data["begin"].toInt(), end = ctx->saved_data["end"].toInt();
    return {grads[0].slice(0, begin, end), torch::Tensor(), torch::Tensor()};
  }
};

// Where two texts part, as one short line of each.
std::string first_difference(const std::string& a, const std::string& b) {
  size_t i = 0;
  while (i < a.size() && i < b.size() && a[i] == b[i]) ++i;
  const auto line = [i](const std::string& text) {
    const size_t before = i == 0 ? std::string::npos : text.rfind('\n', i - 1);
    const size_t from = before == std::string::npos ? 0 : before + 1;
    return text.substr(from, std::min<size_t>(text.find('\n', from), text.size()) - from).substr(0, 120);
  };
  return fmt::format("'{}' there, '{}' on rank 0", line(b), line(a));
}

}  // namespace

std::shared_ptr<Group> solo() {
  static const auto group = std::make_shared<Solo>();
  return group;
}

Deadlines deadlines_of(const Environment& environment) {
  Deadlines d;
  const std::pair<const char*, double*> named[] = {{"EBCLR_JOIN_SECONDS", &d.join},
                                                   {"EBCLR_SILENCE_SECONDS", &d.silence}};
  for (const auto& [name, value] : named) {
    const auto text = environment(name);
    if (!text) continue;
    char* end = nullptr;
    *value = std::strtod(text->c_str(), &end);
    if (text->empty() || *end != '\0' || !(*value >= 1 && *value <= 86400))
      core::usage_error("dist", fmt::format("{} is '{}'; expected seconds from 1 to 86400", name, *text));
  }
  return d;
}

bool Group::any(bool mine) {
  if (alone()) return mine;
  auto t = torch::full({1}, mine ? 1.0 : 0.0, torch::kFloat64);
  sum(t);
  return t.item<double>() > 0;
}

void Group::require_same(const std::string& what, const std::string& mine) {
  const auto all = gather_text(mine);
  for (size_t r = 1; r < all.size(); ++r) {
    if (all[r] == all[0]) continue;
    core::usage_error("dist", fmt::format("rank {} has another {} than rank 0: {}; start all ranks alike", r,
                                          what, first_difference(all[0], all[r])));
  }
}

torch::Tensor gather_for_loss(Group& group, const torch::Tensor& rows, int64_t total) {
  if (group.alone()) return rows;
  return GatherFunction::apply(rows, reinterpret_cast<int64_t>(&group), total);
}

std::vector<torch::Tensor> gather_for_loss(Group& group, const std::vector<torch::Tensor>& parts,
                                           int64_t total) {
  if (group.alone()) return parts;
  std::vector<int64_t> widths;
  for (const auto& p : parts) widths.push_back(p.size(1));
  return gather_for_loss(group, torch::cat(parts, 1), total).split_with_sizes(widths, 1);
}

void sum_gradients(Group& group, const std::vector<torch::Tensor>& parameters) {
  if (group.alone()) return;
  torch::NoGradGuard no_grad;
  // 8 MB: large enough that latency does not count, small enough that no second copy of the model is needed.
  constexpr int64_t kPiece = 2 << 20;
  std::vector<torch::Tensor> piece;
  int64_t floats = 0;
  const auto flush = [&] {
    if (piece.empty()) return;
    std::vector<torch::Tensor> flat;
    for (const auto& g : piece) flat.push_back(g.reshape({-1}));
    auto all = torch::cat(flat);
    group.sum(all);
    int64_t at = 0;
    for (auto& g : piece) {
      g.copy_(all.narrow(0, at, g.numel()).view_as(g));
      at += g.numel();
    }
    piece.clear();
    floats = 0;
  };
  for (auto p : parameters) {
    if (!p.grad().defined()) p.mutable_grad() = torch::zeros_like(p);
    piece.push_back(p.grad());
    floats += p.numel();
    if (floats >= kPiece) flush();
  }
  flush();
}

}  // namespace ebclr::dist
