#include "cli/ranks.h"

#include <fmt/format.h>

#include "core/error.h"
#include "dist/launch.h"

namespace ebclr::cli {

void with_ranks(const std::function<void(const std::shared_ptr<dist::Group>&)>& body, bool announce) {
  const auto environment = dist::process_environment();
  const auto launch = dist::find_launch(environment);
  const auto ranks = launch ? dist::connect(*launch, dist::deadlines_of(environment)) : dist::solo();
  if (announce && !ranks->alone() && ranks->rank() == 0) fmt::print(stderr, "{}\n", ranks->describe());
  try {
    body(ranks);
  } catch (const core::Error& e) {
    // Interrupted ones have agreed to stop.
    if (e.code() != core::ExitCode::kInterrupted) ranks->abandon(e.what());
    throw;
  } catch (const std::exception& e) {
    ranks->abandon(e.what());
    throw;
  }
}

}  // namespace ebclr::cli
