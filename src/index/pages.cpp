#include "index/pages.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include "core/error.h"
#include "core/files.h"
#include "image/decode.h"
#include "report/page.h"

namespace ebclr::index {
namespace {

report::Picture picture(const Index& index, int64_t row, const std::string& caption) {
  const auto bytes = index.thumbnail(row);
  const auto* p = reinterpret_cast<const std::byte*>(bytes.data());
  return {{p, p + bytes.size()}, caption};
}

}  // namespace

torch::Tensor thumbnails(const Index& index, const std::vector<int64_t>& rows) {
  auto out =
      torch::full({static_cast<int64_t>(rows.size()), 3, kThumbnailSide, kThumbnailSide}, 255, torch::kUInt8);
  constexpr int64_t plane = kThumbnailSide * kThumbnailSide;
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto jpeg = index.thumbnail(rows[i]);
    const auto image = image::decode(std::as_bytes(jpeg), "thumbnail");
    if (image.width != kThumbnailSide || image.height != kThumbnailSide || image.channels != 3) continue;
    auto* to = out.data_ptr<uint8_t>() + static_cast<int64_t>(i) * 3 * plane;
    for (int64_t k = 0; k < plane; ++k)
      for (int64_t c = 0; c < 3; ++c) to[c * plane + k] = image.data[static_cast<size_t>(3 * k + c)];
  }
  return out;
}

std::string duplicates_page(const Index& index, const std::vector<DuplicateGroup>& groups, size_t most) {
  report::Page page("Copies", fmt::format("{} groups among {} images of {}", groups.size(), index.size(),
                                          index.info().folder));
  page.text("The largest file of each group comes first. Nothing was deleted.");
  if (groups.size() > most)
    page.text(fmt::format("The first {} groups are shown; the list has all of them.", most));
  for (size_t g = 0; g < std::min(groups.size(), most); ++g) {
    const auto& group = groups[g];
    std::vector<report::Picture> row;
    for (size_t i = 0; i < group.rows.size() && i < 24; ++i)
      row.push_back(
          picture(index, group.rows[i],
                  fmt::format("{} ({}{})", index.path(group.rows[i]),
                              core::human_bytes(static_cast<double>(index.record(group.rows[i]).bytes)),
                              i > 0 && group.exact[i] ? ", same bytes" : "")));
    page.heading(fmt::format("Group {}: {} images", g + 1, group.rows.size()), 3);
    page.pictures(row);
  }
  return page.html();
}

std::string outliers_page(const Index& index, const std::vector<int64_t>& rows, const torch::Tensor& scores,
                          const std::string& by) {
  report::Page page("Strangers", fmt::format("the strangest {} of {} images of {}, by {}", rows.size(),
                                             index.size(), index.info().folder, by));
  for (size_t i = 0; i < rows.size(); i += 6) {
    std::vector<report::Picture> line;
    for (size_t k = i; k < std::min(rows.size(), i + 6); ++k)
      line.push_back(picture(
          index, rows[k],
          fmt::format("{}. {} ({:.3g})", k + 1, index.path(rows[k]), scores[rows[k]].item<double>())));
    page.pictures(line);
  }
  return page.html();
}

}  // namespace ebclr::index
