#include "study/spread.h"

#include <algorithm>

#include "study/statistics.h"

namespace ebclr::study {
namespace {

double squares_of(const Values& values) {
  const double m = mean_of(values);
  double sum = 0;
  for (const double v : values) sum += (v - m) * (v - m);
  return sum;
}

// Mean squares of a complete block: between seeds, and what is left of cells and seeds.
struct Block {
  double seeds = 0, rest = 0, seed_degrees = 0, rest_degrees = 0;
};

Block block_of(const std::vector<Values>& cells) {
  const auto rows = static_cast<double>(cells.size());
  const size_t seeds = cells.front().size();
  Values seed_means(seeds);
  for (const auto& cell : cells)
    for (size_t i = 0; i < seeds; ++i) seed_means[i] += cell[i] / rows;
  const double all = mean_of(seed_means);
  double rest = 0;
  for (const auto& cell : cells) {
    const double m = mean_of(cell);
    for (size_t i = 0; i < seeds; ++i) {
      const double left = cell[i] - m - (seed_means[i] - all);
      rest += left * left;
    }
  }
  Block b{.seed_degrees = static_cast<double>(seeds - 1)};
  b.rest_degrees = (rows - 1) * b.seed_degrees;
  b.seeds = rows * squares_of(seed_means) / b.seed_degrees;
  b.rest = rest / b.rest_degrees;
  return b;
}

}  // namespace

double mean_of(const Values& values) {
  double sum = 0;
  for (const double v : values) sum += v;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

void Pool::add(const Values& values) {
  if (values.size() < 2) return;
  squares_ += squares_of(values);
  weight_ += static_cast<double>(values.size() - 1);
  degrees_ += static_cast<double>(values.size() - 1);
}

void Pool::add_sharing(const std::vector<Values>& differences) {
  Pool own;
  for (const auto& d : differences) own.add(d);
  own.degrees_ /= 1 + 0.25 * (static_cast<double>(std::max<size_t>(differences.size(), 1)) - 1);
  add(own);
}

void Pool::add_cells(const std::vector<Values>& cells, size_t seeds) {
  std::vector<Values> whole;
  for (const auto& cell : cells) {
    if (cell.size() == seeds && seeds > 1)
      whole.push_back(cell);
    else
      add(cell);
  }
  if (whole.size() < 2) {
    for (const auto& cell : whole) add(cell);
    return;
  }
  const auto b = block_of(whole);
  const auto rows = static_cast<double>(whole.size());
  const double a = b.seeds, c = (rows - 1) * b.rest;  // the variance of a cell is (a + c) / rows
  squares_ += (a + c) * b.seed_degrees;
  weight_ += rows * b.seed_degrees;
  if (a + c > 0) degrees_ += (a + c) * (a + c) / (a * a / b.seed_degrees + c * c / b.rest_degrees);
}

void Pool::add_block(const std::vector<Values>& cells) {
  if (cells.size() < 2 || cells.front().size() < 2) return;
  const auto b = block_of(cells);
  squares_ += b.rest * b.rest_degrees;
  weight_ += b.rest_degrees;
  degrees_ += b.rest_degrees;
}

void Pool::add(const Pool& other) {
  squares_ += other.squares_;
  weight_ += other.weight_;
  degrees_ += other.degrees_;
}

Spread Pool::spread() const {
  return weight_ > 0 ? Spread{squares_ / weight_, degrees_} : Spread{};
}

Spread Pool::without(const Values& values) const {
  const double n = values.size() < 2 ? 0 : static_cast<double>(values.size() - 1);
  if (weight_ - n < 0.5) return spread();
  return {std::max(0.0, squares_ - squares_of(values)) / (weight_ - n), std::max(1.0, degrees_ - n)};
}

const Pool& known(const Pool& column, const Pool& set) {
  constexpr double kEnough = 4;
  const double own = column.spread().degrees;
  return own >= kEnough || own >= set.spread().degrees ? column : set;
}

Spread fitting(const Values& own, const Spread& others, const Spread& common) {
  constexpr double kLevel = 0.25;  // as Bancroft (1964) advises for a test that decides whether to pool
  // Where the others have no spread to speak of there is nothing to be louder than.
  if (own.size() < 2 || others.degrees < 1 || !(others.variance > 0)) return common;
  const auto degrees = static_cast<double>(own.size() - 1);
  const double variance = squares_of(own) / degrees;
  const bool loud = f_tail(variance / others.variance, degrees, others.degrees) < kLevel;
  return loud && variance > common.variance ? Spread{variance, degrees} : common;
}

}  // namespace ebclr::study
