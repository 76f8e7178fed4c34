#include "data/class_rows.h"

#include <torch/torch.h>

#include <algorithm>

namespace ebclr::data {

ClassRows shuffled_rows(const torch::Tensor& labels, const std::function<core::Rng(int64_t label)>& rng) {
  ClassRows classes;
  const auto flat = labels.to(torch::kCPU, torch::kInt64).contiguous();
  const auto* label = flat.data_ptr<int64_t>();
  for (int64_t i = 0; i < flat.numel(); ++i) classes[label[i]].push_back(i);
  for (auto& [l, rows] : classes) shuffle(rows, rng(l));
  return classes;
}

torch::Tensor sorted_rows(std::vector<int64_t> rows) {
  std::sort(rows.begin(), rows.end());
  return torch::tensor(rows, torch::kInt64);
}

std::pair<torch::Tensor, torch::Tensor> split_classes(
    const ClassRows& classes, const std::function<int64_t(int64_t label, int64_t size)>& count) {
  std::vector<int64_t> rest, taken;
  for (const auto& [label, rows] : classes) {
    const auto first = rows.begin() + count(label, static_cast<int64_t>(rows.size()));
    taken.insert(taken.end(), rows.begin(), first);
    rest.insert(rest.end(), first, rows.end());
  }
  return {sorted_rows(std::move(rest)), sorted_rows(std::move(taken))};
}

}  // namespace ebclr::data
