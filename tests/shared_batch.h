#pragma once
// Several processes that share a batch, played by threads.

#include <barrier>
#include <functional>
#include <span>
#include <stdexcept>
#include <thread>
#include <vector>

namespace ebclr::testing {

/// Runs body(rank, sum) on `world` threads; the sums of all of them meet. Returns how many sums there were.
inline int run_ranks(int world,
                     const std::function<void(int, const std::function<void(std::span<double>)>&)>& body) {
  std::barrier meet(world);
  std::vector<std::vector<double>> parts(static_cast<std::size_t>(world));
  int sums = 0;
  const auto sum = [&](int rank, std::span<double> values) {
    parts[static_cast<std::size_t>(rank)].assign(values.begin(), values.end());
    if (rank == 0) ++sums;
    meet.arrive_and_wait();
    bool alike = true;
    for (const auto& part : parts) alike = alike && part.size() == values.size();
    if (alike) {
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = 0;
        for (const auto& part : parts) values[i] += part[i];
      }
    }
    meet.arrive_and_wait();
    if (!alike) throw std::logic_error("the ranks do not sum the same thing");
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank)
    threads.emplace_back([&, rank] { body(rank, [&, rank](std::span<double> v) { sum(rank, v); }); });
  for (auto& t : threads) t.join();
  return sums;
}

}  // namespace ebclr::testing
