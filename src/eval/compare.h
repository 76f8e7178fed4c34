#pragma once
// Several runs against one: relative efficiency from their curves.

#include <filesystem>
#include <string>
#include <vector>

#include "eval/curve.h"

namespace ebclr::eval {

struct CompareOptions {
  std::vector<std::filesystem::path> runs;  ///< run folders with a curve
  std::filesystem::path reference = {};     ///< one of them; empty: the first of method ebclr, else the first
  std::string judge = "knn";
  std::string protocol = {};  ///< empty: paper for knn, honest for linear
};

struct Comparison {
  std::string judge, protocol, data;
  size_t reference = 0;                  ///< index of the run that the others are measured against
  bool reference_is_ebclr = false;       ///< else the first run was taken, or the one that was asked for
  std::vector<Curve> curves = {};        ///< by run
  std::vector<Efficiency> results = {};  ///< by run
  std::vector<std::string> notes = {};   ///< what a reader must know
};

/// Reads the curves of the runs and compares them; throws Error when one is missing or was judged otherwise.
Comparison compare(const CompareOptions& options);

}  // namespace ebclr::eval
