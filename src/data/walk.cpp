#include "data/walk.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <set>
#include <unordered_set>
#include <utility>

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

FoundFile found_file(std::string path, const struct stat& s) {
  return {std::move(path),
          {static_cast<uint64_t>(s.st_size), int64_t{s.st_mtim.tv_sec} * 1'000'000'000 + s.st_mtim.tv_nsec},
          {s.st_dev, s.st_ino}};
}

// Is it a run of training, by what it holds? `entries` are its names, in order. Other programs write a
// config.yaml beside checkpoints too, so that these are looked at.
bool is_run(const fs::path& folder, const std::vector<std::string>& entries) {
  const auto holds = [&](const char* name) {
    return std::binary_search(entries.begin(), entries.end(), name);
  };
  if (!holds("config.yaml") || !holds("checkpoints")) return false;
  std::error_code ec;
  for (fs::directory_iterator it(folder / "checkpoints", ec); it != fs::directory_iterator();
       it.increment(ec)) {
    const auto name = it->path().filename().string();
    if (name.starts_with("step-") && name.ends_with(".safetensors")) return true;
  }
  return false;
}

class Walk {
 public:
  Walk(Found& found, const std::vector<std::string>& known) : found_(found), known_(known) {}

  // All that is below these folders, and only then what links in them lead to: a file that can be reached
  // without one is named so.
  void go(const fs::path& root, const std::vector<std::string>& names) {
    for (const auto& name : names) enter(root / name, name);
    for (size_t i = 0; i < links_.size(); ++i) {  // it grows
      const Link link = links_[i];
      struct stat s {};
      look(link.path, link.relative, ::stat(link.path.c_str(), &s) == 0 ? &s : nullptr);
    }
    links_.clear();
  }

 private:
  struct Link {
    fs::path path;
    std::string relative;
  };

  void enter(const fs::path& folder, const std::string& prefix) {
    struct stat s {};
    if (::stat(folder.c_str(), &s) != 0 || !folders_.insert({s.st_dev, s.st_ino}).second) return;
    std::error_code ec;
    std::vector<std::string> entries;
    // An error, at once or half-way, makes the iterator the end.
    for (fs::directory_iterator it(folder, ec); it != fs::directory_iterator(); it.increment(ec))
      entries.push_back(it->path().filename().string());
    if (ec) found_.unreadable_folders.push_back(prefix.empty() ? "." : prefix);
    std::sort(entries.begin(), entries.end());
    const bool run = is_run(folder, entries);
    if (run && !prefix.empty() && leave_out(prefix)) return;
    for (const auto& name : entries) {
      if (name.starts_with(".")) continue;
      const fs::path path = folder / name;
      const std::string relative = prefix.empty() ? name : prefix + "/" + name;
      if (run && prefix.empty() && name == "samples" && leave_out(relative)) continue;
      const bool known = ::lstat(path.c_str(), &s) == 0;
      if (!known && errno == ENOENT) continue;  // gone since it was listed
      if (known && S_ISLNK(s.st_mode)) {
        links_.push_back({path, relative});
      } else {
        look(path, relative, known ? &s : nullptr);
      }
    }
  }

  // Not where a list of images, from before runs were left out, has some of there.
  bool leave_out(const std::string& folder) {
    const bool listed = std::any_of(known_.begin(), known_.end(),
                                    [&](const auto& path) { return path.starts_with(folder + "/"); });
    if (!listed) found_.runs.push_back(folder);
    return !listed;
  }

  // `s` is null when it could not be asked, and errno says why. What is not named like a picture may then be
  // a folder: a link to a disk that is not mounted.
  void look(const fs::path& path, const std::string& relative, const struct stat* s) {
    const int error = errno;
    const bool named = image::has_picture_name(path.filename().string());
    if (!s) {
      if (named)
        found_.problems.push_back({relative, std::strerror(error)});
      else
        found_.unreadable_folders.push_back(relative);
    } else if (S_ISDIR(s->st_mode)) {
      enter(path, relative);
    } else if (!S_ISREG(s->st_mode)) {
      if (named) found_.problems.push_back({relative, "not a regular file"});
    } else {
      look_at_file(path, found_file(relative, *s), named);
    }
  }

  void look_at_file(const fs::path& path, FoundFile file, bool named) {
    const auto [known, fresh] = files_.try_emplace(file.id, Known{file.stamp, false});
    if (!fresh && known->second.stamp == file.stamp && (known->second.picture || !named)) {
      if (known->second.picture) found_.further_names.push_back(std::move(file));
      return;
    }
    if (named || starts_like_a_picture(path)) {
      known->second = {file.stamp, true};
      found_.files.push_back(std::move(file));
    } else {
      ++found_.others;
    }
  }

  struct Known {
    image::FileStamp stamp;
    bool picture;
  };

  Found& found_;
  const std::vector<std::string>& known_;
  std::set<FileId> folders_;
  std::map<FileId, Known> files_;
  std::vector<Link> links_;
};

}  // namespace

bool path_before(std::string_view a, std::string_view b) {
  // A name that ends comes before one that goes on: '/' is less than any other byte.
  const auto rank = [](char c) { return c == '/' ? -1 : static_cast<int>(static_cast<unsigned char>(c)); };
  return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end(),
                                      [&](char x, char y) { return rank(x) < rank(y); });
}

namespace {

constexpr auto in_order = [](const auto& a, const auto& b) { return path_before(a.path, b.path); };

}  // namespace

std::optional<FoundFile> file_at(const fs::path& folder, const std::string& path) {
  struct stat s {};
  if (::stat((folder / path).c_str(), &s) != 0 || !S_ISREG(s.st_mode)) return std::nullopt;
  return found_file(path, s);
}

void take_names(const std::vector<std::string>& names, const fs::path& folder, Found& found) {
  const std::unordered_set<std::string> wanted(names.begin(), names.end());
  std::unordered_set<std::string> listed;
  std::map<FileId, size_t> number;
  for (size_t i = 0; i < found.files.size(); ++i) {
    listed.insert(found.files[i].path);
    number[found.files[i].id] = i;
  }
  std::vector<FoundFile> files;
  std::vector<bool> renamed(found.files.size());
  size_t there = 0;
  for (const auto& path : wanted) {
    if (listed.contains(path)) {
      ++there;
      continue;
    }
    const auto file = file_at(folder, path);
    if (!file) continue;
    const auto it = number.find(file->id);
    if (it == number.end() || !found.files[it->second].same_file(*file)) continue;
    ++there;
    renamed[it->second] = !wanted.contains(found.files[it->second].path);
    files.push_back(*file);
  }
  if (files.empty() || there * 2 < wanted.size()) return;
  std::erase_if(found.further_names, [&](const FoundFile& f) { return wanted.contains(f.path); });
  for (size_t i = 0; i < renamed.size(); ++i)
    (renamed[i] ? found.further_names : files).push_back(std::move(found.files[i]));
  found.files = std::move(files);
  std::sort(found.files.begin(), found.files.end(), in_order);
  std::sort(found.further_names.begin(), found.further_names.end(), in_order);
}

Found find_pictures(const fs::path& folder, const std::vector<std::string>& first,
                    const std::vector<std::string>& known) {
  Found found;
  Walk walk(found, known);
  walk.go(folder, first);
  walk.go(folder, {""});
  std::sort(found.files.begin(), found.files.end(), in_order);
  std::sort(found.problems.begin(), found.problems.end(), in_order);
  std::sort(found.further_names.begin(), found.further_names.end(), in_order);
  std::sort(found.unreadable_folders.begin(), found.unreadable_folders.end(), path_before);
  std::sort(found.runs.begin(), found.runs.end(), path_before);
  return found;
}

}  // namespace ebclr::data
