#include "ebm/balance.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace ebclr::ebm {

Balance::Balance(const BalanceOptions& options, double first) : o_(options), state_{.value = first} {
  if (o_.low == 0) o_.low = first / 10;
  if (o_.high == 0) o_.high = first * (o_.kind == BalanceKind::kSteps ? 4 : 10);
  const auto require = [](bool ok, const std::string& text) {
    if (!ok) core::usage_error("ebm.balance", text);
  };
  require(o_.width > 0 && o_.rate > 0 && o_.window >= 1,
          "balance.width and balance.rate must be above 0, balance.window at least 1");
  require(o_.low <= first && first <= o_.high,
          fmt::format("balance.low {} and balance.high {} must enclose the configured {}", o_.low, o_.high,
                      first));
}

bool Balance::observe(double gap) {
  state_.sum += gap;
  if (++state_.count < o_.window) return false;
  const double error = state_.sum / static_cast<double>(state_.count) - o_.target;
  state_.sum = 0;
  state_.count = 0;
  const double before = state_.value;
  if (o_.increment > 0) {
    // A weight helps by being less. A value that was given beyond its limit stays where it is.
    if (error > 0)
      state_.value = o_.kind == BalanceKind::kLambda
                         ? std::max(state_.value - o_.increment, std::min(o_.low, state_.value))
                         : std::min(state_.value + o_.increment, std::max(o_.high, state_.value));
  } else {
    const double correction = o_.rate * std::clamp(error / o_.width, -1.0, 1.0);
    const double factor = std::exp(o_.kind == BalanceKind::kLambda ? -correction : correction);
    state_.value = std::clamp(state_.value * factor, o_.low, o_.high);
  }
  return state_.value != before;
}

}  // namespace ebclr::ebm
