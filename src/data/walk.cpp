#include "data/walk.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>

#include "core/error.h"
#include "image/formats.h"

namespace ebclr::data {
namespace fs = std::filesystem;
namespace {

bool starts_like_a_picture(const fs::path& path) {
  try {
    return image::sniff(image::read_regular(path, image::kSniffBytes)) != image::Format::kUnknown;
  } catch (const core::Error&) {
    return false;
  }
}

void walk(const fs::path& folder, const std::string& prefix, std::set<std::pair<dev_t, ino_t>>& seen,
          Found& found) {
  struct stat s {};
  if (::stat(folder.c_str(), &s) != 0 || !seen.insert({s.st_dev, s.st_ino}).second) return;
  std::error_code ec;
  fs::directory_iterator it(folder, ec);
  if (ec) {
    found.unreadable_folders.push_back(prefix.empty() ? "." : prefix);
    return;
  }
  std::vector<std::string> entries;
  for (; it != fs::directory_iterator(); it.increment(ec)) {
    if (ec) break;
    entries.push_back(it->path().filename().string());
  }
  std::sort(entries.begin(), entries.end());
  for (const auto& name : entries) {
    if (name.starts_with(".")) continue;
    const fs::path path = folder / name;
    std::string relative = prefix.empty() ? name : prefix + "/" + name;
    const bool named = image::has_picture_name(name);
    if (::stat(path.c_str(), &s) != 0) {
      if (named) found.problems.push_back({relative, std::strerror(errno)});
    } else if (S_ISDIR(s.st_mode)) {
      walk(path, relative, seen, found);
    } else if (!S_ISREG(s.st_mode)) {
      if (named) found.problems.push_back({relative, "not a regular file"});
    } else if (named || starts_like_a_picture(path)) {
      found.files.push_back({std::move(relative),
                             {static_cast<uint64_t>(s.st_size),
                              int64_t{s.st_mtim.tv_sec} * 1'000'000'000 + s.st_mtim.tv_nsec}});
    } else {
      ++found.others;
    }
  }
}

}  // namespace

Found find_pictures(const fs::path& folder) {
  Found found;
  std::set<std::pair<dev_t, ino_t>> seen;
  walk(folder, "", seen, found);
  return found;
}

}  // namespace ebclr::data
