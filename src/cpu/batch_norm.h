#pragma once
// BatchNorm in training as the network uses it: the kernels' passes and the arithmetic per channel between
// them.

#include <exception>
#include <vector>

#include "cpu/buffer.h"
#include "cpu/kernels.h"
#include "cpu/network.h"

namespace ebclr::cpu {

/// The sums of BatchNorm over all processes that share the batch, for a team: its first thread asks, the
/// others wait. A sum that fails must not throw inside the team: `rethrow` does it afterwards.
class TeamSum {
 public:
  explicit TeamSum(const BatchSum& sum) : sum_(sum) {}

  /// Whether there are other processes.
  bool shared() const { return static_cast<bool>(sum_); }
  /// Thread 0 calls fill(numbers), asks for the sum and calls use(numbers); begins and ends with a sync.
  template <class Fill, class Use>
  void run(const Team& team, std::size_t count, const Fill& fill, const Use& use) {
    team.sync();
    if (team.id == 0 && !failure_) {
      numbers_.assign(count, 0);
      fill(numbers_.data());
      ask();
      use(numbers_.data());
    }
    team.sync();
  }
  /// Throws what a sum has thrown.
  void rethrow() const {
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  void ask() noexcept;

  const BatchSum& sum_;
  std::vector<double> numbers_;
  std::exception_ptr failure_;
};

/// Scale and shift of one BatchNorm, from the batch's statistics. Shared by a team.
class NormScale {
 public:
  explicit NormScale(int channels) : scale_(channels), shift_(channels) {}

  /// Statistics of z into mean and var ([layer.out], padded), and from them scale and shift. `values` are
  /// those per channel: of this process before, of all after. Ends with a sync.
  void measure(const Kernels& kernels, const ConvLayer& layer, const ConvParameters& parameters,
               float epsilon, const float* z, int images, int pixels, float* mean, float* var, long& values,
               TeamSum& sum, const Team& team);

  const float* scale() const { return scale_.data(); }
  const float* shift() const { return shift_.data(); }

 private:
  Buffer scale_, shift_;
};

/// The way back through one BatchNorm after the other; work space for the widest. Shared by a team.
class NormGradient {
 public:
  explicit NormGradient(int channels)
      : sum_g_(channels),
        sum_gz_(channels),
        a_(channels),
        b_(channels),
        c_(channels),
        total_g_(channels),
        total_gz_(channels) {}

  /// From the gradient g of the result to that of z, in dz (which may be g), and to gamma and beta where
  /// `into` names them: this process's part of theirs. `values` as NormScale left them. Ends with a sync.
  void run(const Kernels& kernels, const ConvLayer& layer, const ConvParameters& parameters, float epsilon,
           const float* z, int images, int pixels, const float* mean, const float* var, long values,
           const float* g, const ConvGradients& into, float* dz, TeamSum& sum, const Team& team);

 private:
  Buffer sum_g_, sum_gz_, a_, b_, c_;
  std::vector<double> total_g_, total_gz_;  // over all processes
};

}  // namespace ebclr::cpu
