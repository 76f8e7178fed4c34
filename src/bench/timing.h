#pragma once
// Timing of rivals in one process: interleaved, so that a machine that slows down does so for all of them.

#include <functional>
#include <string>
#include <vector>

namespace ebclr::bench {

/// Seconds of one rival's runs.
struct Timing {
  double min = 0, median = 0;
};

/// One of the ways to do the same work.
struct Rival {
  std::string name;
  std::function<void()> run;
};

/// Runs every rival `warmup` times, then all of them in turn `repeats` times.
std::vector<Timing> interleave(const std::vector<Rival>& rivals, int warmup, int repeats);

}  // namespace ebclr::bench
