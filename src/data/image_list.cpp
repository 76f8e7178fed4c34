#include "data/image_list.h"

#include <fmt/format.h>

#include <charconv>
#include <map>

#include "core/csv.h"
#include "core/error.h"
#include "core/files.h"
#include "core/text.h"
#include "data/csv.h"
#include "data/labels.h"

namespace ebclr::data {

std::string ImageList::fingerprint() const {
  std::string text;
  for (const auto& i : images)
    if (i.used()) text += fmt::format("{} {} {}\n", i.split, i.digest, i.path);
  return core::sha256(std::as_bytes(std::span(text.data(), text.size()))).substr(0, 32);
}

ListChanges compare(const ImageList& then, const ImageList& now) {
  std::map<std::string, const ListedImage*> before, after;
  for (const auto& i : then.images) before[i.path] = &i;
  for (const auto& i : now.images) after[i.path] = &i;
  ListChanges out;
  for (const auto& i : then.images) {
    if (!i.used()) continue;
    const auto it = after.find(i.path);
    if (it == after.end()) {
      out.missing.push_back(i.path);
    } else if (it->second->bytes == i.bytes && it->second->split == "rest" && it->second->digest.empty()) {
      out.left_out.push_back(i.path);
    } else if (it->second->bytes != i.bytes || it->second->digest != i.digest) {
      out.changed.push_back(i.path);
    }
  }
  for (const auto& i : now.images)
    if (!before.contains(i.path)) out.added.push_back(i.path);
  return out;
}

std::string ListChanges::text() const {
  std::vector<std::string> parts;
  const auto add = [&](const std::vector<std::string>& files, const char* one, const char* many) {
    if (!files.empty())
      parts.push_back(
          fmt::format("{} {} ({})", files.size(), files.size() == 1 ? one : many, some_of(files)));
  };
  add(added, "file is new", "files are new");
  add(missing, "file is missing", "files are missing");
  add(changed, "file has changed", "files have changed");
  add(left_out, "file is left out", "files are left out");
  return core::join(parts, ", ");
}

std::string to_csv(const ImageList& list) {
  std::string out = "path,split,bytes,digest\n";
  for (const auto& i : list.images)
    out += core::csv_line({i.path, i.split, std::to_string(i.bytes), i.digest});
  return out;
}

ImageList read_image_list(const std::filesystem::path& path) {
  constexpr std::string_view kComponent = "data.list";
  ImageList list;
  const auto rows = parse_csv(core::read_text(path, kComponent), path.string());
  for (size_t r = 0; r < rows.size(); ++r) {
    const auto& f = rows[r].fields;
    if (r == 0 && f.size() == 4 && f[0] == "path") continue;
    ListedImage i;
    const bool good = f.size() == 4 && !f[0].empty() &&
                      (f[1] == "train" || f[1] == "test" || f[1] == "rest" || f[1] == "unreadable");
    const auto end = good ? f[2].data() + f[2].size() : nullptr;
    if (!good || std::from_chars(f[2].data(), end, i.bytes).ptr != end)
      core::usage_error(kComponent, fmt::format("{}: line {}: expected path,split,bytes,digest",
                                                path.string(), rows[r].line));
    i.path = f[0];
    i.split = f[1];
    i.digest = f[3];
    list.images.push_back(std::move(i));
  }
  return list;
}

}  // namespace ebclr::data
