#pragma once
// Keeps sampler and energy in step: a slow feedback from the energy gap to one setting.

#include <cstdint>

namespace ebclr::ebm {

/// Which setting follows the gap.
enum class BalanceKind { kNone, kStepSize, kSteps, kLambda };

struct BalanceOptions {
  BalanceKind kind = BalanceKind::kNone;
  double target = 0;     ///< wanted mean of E(samples) - E(data)
  double width = 1;      ///< distance from the target at which a correction is at its largest
  double rate = 0.1;     ///< largest correction: the setting changes by the factor exp(rate)
  int64_t window = 20;   ///< steps between corrections, over which the mean gap is taken
  double low = 0;        ///< least value of the setting; 0: a tenth of the first one
  double high = 0;       ///< largest value; 0: ten times the first one (steps: four times)
  double increment = 0;  ///< above 0: the paper's rule, add this when the gap is above target (kLambda: take
                         ///< it off), never go back
};

/// The feedback. Chains that stay above the data's energy (gap above target) get larger or more steps, or the
/// generative term gets less weight; below the target the other way round.
class Balance {
 public:
  /// Throws Error when the options make no sense. `first` is the configured value of the setting.
  Balance(const BalanceOptions& options, double first);

  /// Takes the gap of one step; true when the setting has changed.
  bool observe(double gap);
  /// The setting as it is now.
  double value() const { return state_.value; }

  /// What a checkpoint keeps.
  struct State {
    double value = 0, sum = 0;
    int64_t count = 0;
  };
  const State& state() const { return state_; }
  void restore(const State& state) { state_ = state; }

 private:
  BalanceOptions o_;
  State state_;
};

}  // namespace ebclr::ebm
