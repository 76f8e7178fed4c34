#pragma once

#include <memory>

#include "data/image_set.h"
#include "data/views.h"
#include "ebm/replay_buffer.h"

namespace ebclr::density {

/// Draws augmented training images as chain starts: q0 = p(v).
ebm::ProposalSource data_proposals(std::shared_ptr<const data::ImageSet> images,
                                   const data::ViewOptions& views);

}  // namespace ebclr::density
