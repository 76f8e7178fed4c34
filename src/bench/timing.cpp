#include "bench/timing.h"

#include <algorithm>
#include <chrono>

namespace ebclr::bench {

std::vector<Timing> interleave(const std::vector<Rival>& rivals, int warmup, int repeats) {
  using Clock = std::chrono::steady_clock;
  for (const Rival& rival : rivals) {
    for (int i = 0; i < warmup; ++i) rival.run();
  }
  std::vector<std::vector<double>> seconds(rivals.size());
  for (int i = 0; i < repeats; ++i) {
    for (size_t r = 0; r < rivals.size(); ++r) {
      const auto start = Clock::now();
      rivals[r].run();
      seconds[r].push_back(std::chrono::duration<double>(Clock::now() - start).count());
    }
  }
  std::vector<Timing> timings;
  for (std::vector<double>& s : seconds) {
    std::sort(s.begin(), s.end());
    timings.push_back({s.front(), s[s.size() / 2]});
  }
  return timings;
}

}  // namespace ebclr::bench
