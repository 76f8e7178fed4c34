#pragma once
// Processes that a launcher started together, for commands that share their work.

#include <functional>
#include <memory>

#include "dist/group.h"

namespace ebclr::cli {

/// Runs `body` with the processes that were started together (one alone is a group too). When it throws here,
/// the others are told why. Only rank 0 prints and writes: that is the body's to keep. `announce`: rank 0
/// says on standard error who has met.
void with_ranks(const std::function<void(const std::shared_ptr<dist::Group>&)>& body, bool announce = true);

}  // namespace ebclr::cli
