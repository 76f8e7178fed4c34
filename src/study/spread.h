#pragma once
// How far seeds scatter, and so how sure a mean or a difference is.
//
// Seeds are few, so the spread of one cell alone says little: cells of one column share theirs. A column that
// knows too little asks the others on the same data set, never those on another: seeds scatter four times as
// far on CIFAR-100 as on MNIST. A cell or pair that scatters more than the others stands for itself. With
// three seeds only a coarse sieve finds those: at a level of 1 % a row four times as loud as the others was
// called different by chance 18 times in a hundred, at 25 % seven times, for a fifth of the power where all
// are alike (docs/decisions/0039).

#include <vector>

namespace ebclr::study {

/// A variance and how well it is known.
struct Spread {
  double variance = 0;
  double degrees = 0;  ///< of freedom; 0: nothing is known
};

/// Values of one cell, by seed.
using Values = std::vector<double>;

double mean_of(const Values& values);

/// Squares about their means, collected.
class Pool {
 public:
  /// Cells whose values scatter about a mean of their own. Those with all `seeds` of them share these: what a
  /// seed does to all is one draw and not as many as there are cells, and the degrees of freedom follow
  /// (Satterthwaite).
  void add_cells(const std::vector<Values>& cells, size_t seeds);
  /// The same for values that share nothing.
  void add(const Values& values);
  /// Differences from one side that they all share: each pair of them is correlated by a half, their
  /// variances by a quarter, and together they know less than as many that share nothing.
  void add_sharing(const std::vector<Values>& differences);
  /// Cells that share their seeds, all of them in each: what is left when each cell's and each seed's mean is
  /// taken off. Twice that is the variance of a difference of two of them, seed by seed.
  void add_block(const std::vector<Values>& cells);
  void add(const Pool& other);

  Spread spread() const;
  /// Without these values, which were added by themselves.
  Spread without(const Values& values) const;

 private:
  double squares_ = 0, weight_ = 0, degrees_ = 0;  // variance = squares / weight
};

/// The column's pool if it knows enough (four degrees of freedom), else that of all columns on its set.
const Pool& known(const Pool& column, const Pool& set);

/// `common`, unless `own` values scatter more than the `others` (F test at 25 %): then their own.
Spread fitting(const Values& own, const Spread& others, const Spread& common);

}  // namespace ebclr::study
