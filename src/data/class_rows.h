#pragma once
// Row numbers by class: what seeded, class-balanced choices are made of.

#include <torch/types.h>

#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "core/rng.h"

namespace ebclr::data {

/// Rows of each label, ascending until shuffled.
using ClassRows = std::map<int64_t, std::vector<int64_t>>;

/// Shuffles with a generator of its own.
template <typename T>
void shuffle(std::vector<T>& items, core::Rng rng) {
  for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[rng.below(i)]);
}

/// Rows of labels int64 [N] by label, each class in the seeded order of the generator that `rng` gives for
/// it.
ClassRows shuffled_rows(const torch::Tensor& labels, const std::function<core::Rng(int64_t label)>& rng);

/// Row numbers as int64, ascending.
torch::Tensor sorted_rows(std::vector<int64_t> rows);

/// Stratified split {rest, taken}: of each class the first `count(label, size)` rows are taken. Both
/// ascending.
std::pair<torch::Tensor, torch::Tensor> split_classes(
    const ClassRows& classes, const std::function<int64_t(int64_t label, int64_t size)>& count);

}  // namespace ebclr::data
