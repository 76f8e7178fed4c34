#pragma once
// What there is to look at: sheets of thumbnails and pages.

#include <string>
#include <vector>

#include "index/duplicates.h"
#include "index/index_file.h"

namespace ebclr::index {

/// Thumbnails uint8 [N, 3, kThumbnailSide, kThumbnailSide].
torch::Tensor thumbnails(const Index& index, const std::vector<int64_t>& rows);

/// A page of groups of copies, the first `most` of them.
std::string duplicates_page(const Index& index, const std::vector<DuplicateGroup>& groups, size_t most);
/// A page of the strangest images, strangest first; scores double [N] by row.
std::string outliers_page(const Index& index, const std::vector<int64_t>& rows, const torch::Tensor& scores,
                          const std::string& by);

}  // namespace ebclr::index
