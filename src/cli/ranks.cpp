#include "cli/ranks.h"

#include <fmt/format.h>

#include "core/error.h"
#include "dist/launch.h"

namespace ebclr::cli {

void with_ranks(const std::function<void(const std::shared_ptr<dist::Group>&)>& body) {
  const auto launch = dist::find_launch(dist::process_environment());
  const auto ranks = launch ? dist::connect(*launch) : dist::solo();
  if (!ranks->alone() && ranks->rank() == 0) fmt::print(stderr, "{}\n", ranks->describe());
  try {
    body(ranks);
  } catch (const std::exception& e) {
    ranks->abandon(e.what());
    throw;
  }
}

}  // namespace ebclr::cli
