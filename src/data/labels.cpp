#include "data/labels.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>

#include "core/error.h"
#include "core/files.h"
#include "core/text.h"
#include "data/csv.h"
#include "data/image_set.h"

namespace ebclr::data {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kLabelsComponent = "data.labels";

// Sorts label names as numbers where all are numbers, so that "10" follows "9".
std::vector<std::string> sorted_names(const std::set<std::string>& names) {
  std::vector<std::string> out(names.begin(), names.end());
  const bool numbers = std::all_of(out.begin(), out.end(), [](const std::string& s) {
    return !s.empty() && s.size() < 18 &&
           std::all_of(s.begin(), s.end(), [](unsigned char c) { return std::isdigit(c); });
  });
  if (numbers)
    std::stable_sort(out.begin(), out.end(),
                     [](const auto& a, const auto& b) { return std::stoll(a) < std::stoll(b); });
  return out;
}

std::unordered_map<std::string, int64_t> numbers_of(const std::vector<std::string>& names) {
  std::unordered_map<std::string, int64_t> number;
  for (size_t i = 0; i < names.size(); ++i) number[names[i]] = static_cast<int64_t>(i);
  return number;
}

// Files by any of their names.
class Names {
 public:
  Names(const fs::path& folder, const std::vector<FoundFile>& files) : folder_(folder), files_(files) {
    for (size_t i = 0; i < files.size(); ++i) {
      by_path_.emplace(files[i].path, i);
      by_id_.emplace(files[i].id, i);
    }
  }

  // The number of the file; nothing where the path leads to none of them.
  std::optional<size_t> find(const fs::path& path) const {
    const auto known = by_path_.find(path.lexically_normal().generic_string());
    if (known != by_path_.end()) return known->second;
    // An absolute path, or a link, hard or symbolic, to a file that is listed under another name.
    const auto file = file_at(folder_, path.string());
    if (!file) return std::nullopt;
    const auto it = by_id_.find(file->id);
    if (it == by_id_.end() || !files_[it->second].same_file(*file)) return std::nullopt;
    return it->second;
  }

 private:
  const fs::path& folder_;
  const std::vector<FoundFile>& files_;
  std::unordered_map<std::string, size_t> by_path_;
  std::map<FileId, size_t> by_id_;
};

std::string first_folder(const std::string& path) {
  const auto slash = path.find('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

}  // namespace

std::string some_of(const std::vector<std::string>& items) {
  constexpr size_t kShown = 5;
  std::vector<std::string> first(items.begin(),
                                 items.begin() + static_cast<ptrdiff_t>(std::min(items.size(), kShown)));
  return core::join(first, ", ") +
         (items.size() > kShown ? fmt::format(" and {} more", items.size() - kShown) : "");
}

Labels labels_from_csv(const fs::path& csv, const fs::path& folder, const std::vector<FoundFile>& files) {
  const auto rows = parse_csv(core::read_text(csv, kLabelsComponent), csv.string());
  const Names named(folder, files);
  std::map<size_t, std::string> given;
  std::set<std::string> names;
  std::vector<std::string> unknown;
  for (const auto& row : rows) {
    const std::string where = fmt::format("{}: line {}", csv.string(), row.line);
    if (row.fields.size() != 2)
      core::usage_error(kLabelsComponent,
                        fmt::format("{}: {} field(s); expected path,label", where, row.fields.size()));
    if (&row == &rows.front() && row.fields[0] == "path" && row.fields[1] == "label") continue;
    if (row.fields[1].empty())
      core::usage_error(kLabelsComponent, where + ": the label is empty; leave the line out instead");
    const auto file = named.find(row.fields[0]);
    if (!file) {
      unknown.push_back(row.fields[0]);
      continue;
    }
    const auto [old, fresh] = given.emplace(*file, row.fields[1]);
    if (!fresh && old->second != row.fields[1])
      core::usage_error(kLabelsComponent, fmt::format("{}: {} is labelled {}, and {} further up", where,
                                                      row.fields[0], row.fields[1], old->second));
    names.insert(row.fields[1]);
  }
  if (given.empty())
    core::usage_error(
        kLabelsComponent,
        fmt::format("{}: none of its {} lines names an image of the folder; paths are relative "
                    "to it, e.g. {}",
                    csv.string(), unknown.size(), files.empty() ? "a.jpg" : files.front().path));
  Labels out;
  if (!unknown.empty())
    out.notes.push_back(fmt::format("{} line(s) of {} name no image of the folder: {}", unknown.size(),
                                    csv.filename().string(), some_of(unknown)));
  out.class_names = sorted_names(names);
  const auto number = numbers_of(out.class_names);
  out.label.assign(files.size(), kNoLabel);
  for (const auto& [i, name] : given) out.label[i] = number.at(name);
  return out;
}

Labels labels_from_folders(const std::vector<std::string>& files) {
  Labels out;
  out.label.assign(files.size(), kNoLabel);
  std::set<std::string> names;
  std::map<std::string, std::string> deeper;  // and a sub-folder in each
  size_t inside = 0;
  std::vector<std::string> class_of(files.size());
  for (size_t i = 0; i < files.size(); ++i) {
    const auto& f = files[i];
    const auto slash = f.find('/');
    if (slash == std::string::npos) continue;
    const std::string first = f.substr(0, slash), rest = f.substr(slash + 1);
    const bool images = rest.starts_with("images/") && rest.find('/', 7) == std::string::npos;
    if (rest.find('/') != std::string::npos && !images)
      deeper.emplace(first, f.substr(0, f.find('/', slash + 1)));
    names.insert(first);
    class_of[i] = first;
    ++inside;
  }
  if (!deeper.empty()) {
    if (names.size() > 1)  // otherwise there would be no classes anyway
      out.notes.push_back(fmt::format(
          "sub-folders lie in sub-folders ({}), so they do not count as classes; a CSV file "
          "(data.labels_csv) can label the images",
          deeper.size() == 1 ? deeper.begin()->second
                             : fmt::format("{}, and in {} more", deeper.begin()->second, deeper.size() - 1)));
    return out;
  }
  if (names.size() < 2 || inside * 2 <= files.size()) return out;
  out.class_names = sorted_names(names);
  const auto number = numbers_of(out.class_names);
  for (size_t i = 0; i < files.size(); ++i)
    if (!class_of[i].empty()) out.label[i] = number.at(class_of[i]);
  if (inside < files.size())
    out.notes.push_back(
        fmt::format("{} image(s) lie beside the class folders and have no label", files.size() - inside));
  return out;
}

Labels labels_from_links(const Found& found) {
  std::map<FileId, std::map<std::string, std::string>> names;  // the first in each sub-folder
  for (const auto& f : found.further_names)
    if (const auto folder = first_folder(f.path); !folder.empty()) names[f.id].emplace(folder, f.path);
  std::vector<std::string> as_linked;
  for (const auto& f : found.files) {
    auto it = names.find(f.id);
    if (it != names.end()) it->second.erase(first_folder(f.path));
    // Without a class of its own it counts as lying beside the class folders.
    as_linked.push_back(it != names.end() && it->second.size() == 1 ? it->second.begin()->second
                                                                    : fs::path(f.path).filename().string());
  }
  auto out = labels_from_folders(as_linked);
  if (!out.class_names.empty())
    out.notes.insert(out.notes.begin(),
                     fmt::format("classes are the sub-folders whose links lead to the images: {}",
                                 some_of(out.class_names)));
  return out;
}

}  // namespace ebclr::data
