#include "data/folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "core/error.h"
#include "core/files.h"
#include "data/copies.h"
#include "data/csv.h"
#include "data/labels.h"
#include "data/walk.h"
#include "image/decode.h"
#include "image/formats.h"
#include "image/read_file.h"
#include "image/resize.h"

namespace ebclr::data {
namespace fs = std::filesystem;

namespace {

constexpr std::string_view kFolderComponent = "data.folder";

// A folder before anything is decoded.
struct Listing {
  fs::path folder = {};
  std::string name = {};
  Found found = {};
  std::vector<std::string> files = {};
  Labels labels = {};
  fs::path labels_csv = {};  // where the labels are from; empty: from folders
};

void check_size(int64_t image_size) {
  if (image_size < 8 || image_size > 1024)
    core::usage_error(kFolderComponent, fmt::format("image_size is {}; expected 8 to 1024", image_size));
}

// Sub-folders that already are splits: train beside test, val or valid.
std::string test_beside_train(const fs::path& folder) {
  std::error_code ec;
  if (!fs::is_directory(folder / "train", ec)) return "";
  for (const char* name : {"test", "val", "valid"})
    if (fs::is_directory(folder / name, ec)) return name;
  return "";
}

std::vector<std::string> paths_of(const ImageList& list) {
  std::vector<std::string> out;
  for (const auto& i : list.images) out.push_back(i.path);
  return out;
}

// First-level sub-folders, be they those of the files or of links to them.
Labels labels_without_csv(const Found& found, const std::vector<std::string>& files) {
  auto labels = labels_from_folders(files);
  if (!labels.class_names.empty() || found.further_names.empty()) return labels;
  auto linked = labels_from_links(found);
  return linked.class_names.empty() ? labels : linked;
}

std::string left_out_runs(const Found& found) {
  return "left out, written by runs: " + some_of(found.runs);
}

Listing list_folder(const fs::path& folder, const fs::path& labels_csv, const LoadContext& context = {}) {
  std::error_code ec;
  if (!fs::is_directory(folder, ec))
    core::usage_error(kFolderComponent, fmt::format("{}: not a folder", folder.string()));
  Listing out{.folder = folder, .labels_csv = labels_csv};
  const auto test = test_beside_train(folder);
  const auto known = context.list ? paths_of(*context.list) : std::vector<std::string>{};
  // Splits may be made of links to files that lie beside them.
  out.found = find_pictures(
      folder, test.empty() ? std::vector<std::string>{} : std::vector<std::string>{"train", test}, known);
  if (context.list) take_names(known, folder, out.found);  // the images of a run stay what they were
  if (out.found.files.empty())
    core::usage_error(kFolderComponent,
                      fmt::format("{}: no images in it or its sub-folders; expected {}{}", folder.string(),
                                  image::readable_formats(),
                                  out.found.runs.empty() ? "" : "; " + left_out_runs(out.found)));
  for (const auto& f : out.found.files) out.files.push_back(f.path);
  out.name = fs::canonical(folder, ec).filename().string();
  if (out.name.empty()) out.name = folder.string();
  if (!context.labels)
    out.labels.label.assign(out.files.size(), kNoLabel);
  else
    out.labels = labels_csv.empty() ? labels_without_csv(out.found, out.files)
                                    : labels_from_csv(labels_csv, folder, out.found.files);
  return out;
}

torch::Tensor label_tensor(const Labels& labels) {
  return torch::tensor(labels.label, torch::kInt64);
}

// What was decoded of `rows` (numbers of files of the listing) as a set of its own.
ImageSet set_of(const Listing& l, const std::vector<int64_t>& rows, const DecodedImages& d, size_t first,
                size_t count, const std::string& split) {
  ImageSet set;
  set.name = l.name;
  set.split = split;
  set.class_names = l.labels.class_names;
  set.pixels = d.pixels.narrow(0, static_cast<int64_t>(first), static_cast<int64_t>(count));
  set.large = d.large.narrow(0, static_cast<int64_t>(first), static_cast<int64_t>(count));
  set.mapping = d.mapping;
  std::vector<int64_t> labels;
  for (size_t i = first; i < first + count; ++i) {
    const auto file = static_cast<size_t>(rows[d.kept[i]]);
    set.files.push_back(l.files[file]);
    set.digests.push_back(d.digests[i]);
    labels.push_back(l.labels.label[file]);
  }
  set.labels = torch::tensor(labels, torch::kInt64);
  return set;
}

// "a, b and 6 more; the first: a: why".
std::string names_of(const std::vector<FileProblem>& problems) {
  std::vector<std::string> paths;
  for (const auto& p : problems) paths.push_back(p.path);
  return fmt::format("{}; the first: {}: {}", some_of(paths), problems[0].path, problems[0].reason);
}

void refuse_most(const Listing& l, const std::vector<FileProblem>& problems, size_t all) {
  if (problems.size() * 2 > all)
    core::usage_error(kFolderComponent,
                      fmt::format("{}: {} of {} images cannot be read: {}", l.folder.string(),
                                  problems.size(), all, names_of(problems)));
}

// How many images a CSV labels, of those that can be read.
void note_labelled(const Listing& l, const DecodedImages& d, std::vector<std::string>& notes) {
  std::unordered_set<std::string> bad;
  for (const auto& p : d.problems) bad.insert(p.path);
  size_t all = 0, labelled = 0;
  for (size_t i = 0; i < l.files.size(); ++i) {
    if (bad.contains(l.files[i])) continue;
    ++all;
    labelled += l.labels.label[i] != kNoLabel;
  }
  if (labelled < all)
    notes.push_back(
        fmt::format("{} of {} images have a label in {}", labelled, all, l.labels_csv.filename().string()));
}

// The notes on what could not be read; an error when that is most of it.
std::vector<std::string> notes_of(const Listing& l, const DecodedImages& d,
                                  std::vector<FileProblem>& problems) {
  problems = l.found.problems;
  problems.insert(problems.end(), d.problems.begin(), d.problems.end());
  std::sort(problems.begin(), problems.end(), [](const auto& a, const auto& b) { return a.path < b.path; });
  const size_t all = l.found.files.size() + l.found.problems.size(),
               decoded = d.kept.size() + d.problems.size();
  if (decoded == l.found.files.size()) {
    refuse_most(l, problems, all);
  } else {  // a limit: broken links are known of the whole folder, damaged pictures of what was decoded
    refuse_most(l, l.found.problems, all);
    refuse_most(l, d.problems, decoded);
  }
  auto notes = l.labels.notes;
  if (!l.labels_csv.empty()) note_labelled(l, d, notes);
  if (!problems.empty())
    notes.insert(notes.begin(), fmt::format("{} of {} files could not be read and are left out: {}",
                                            problems.size(), all, names_of(problems)));
  if (!l.found.unreadable_folders.empty())
    notes.push_back(fmt::format("{} folder(s) or link(s) could not be read: {}",
                                l.found.unreadable_folders.size(), some_of(l.found.unreadable_folders)));
  if (!l.found.further_names.empty())
    notes.push_back(
        fmt::format("{} link(s) lead to images that the folder holds already: each image counts once",
                    l.found.further_names.size()));
  if (!l.found.runs.empty()) notes.push_back(left_out_runs(l.found));
  notes.insert(notes.end(), d.notes.begin(), d.notes.end());
  return notes;
}

// Classes of train/x/1.png and test/x/2.png: without the first part of the path. A test folder without
// classes (Tiny ImageNet's val/images) has no labels.
void label_splits(Listing& l, const std::string& test) {
  std::vector<std::string> inner_train, inner_test;
  std::vector<size_t> at_train, at_test;
  for (size_t i = 0; i < l.files.size(); ++i) {
    if (l.files[i].starts_with("train/")) {
      inner_train.push_back(l.files[i].substr(6));
      at_train.push_back(i);
    } else if (l.files[i].starts_with(test + "/")) {
      inner_test.push_back(l.files[i].substr(test.size() + 1));
      at_test.push_back(i);
    }
  }
  const auto train = labels_from_folders(inner_train), tests = labels_from_folders(inner_test);
  l.labels = {.label = std::vector<int64_t>(l.files.size(), kNoLabel),
              .class_names = train.class_names,
              .notes = train.notes};
  for (size_t i = 0; i < at_train.size(); ++i) l.labels.label[at_train[i]] = train.label[i];
  if (train.class_names == tests.class_names) {
    for (size_t i = 0; i < at_test.size(); ++i) l.labels.label[at_test[i]] = tests.label[i];
  } else if (tests.class_names.empty()) {
    l.labels.notes.push_back(fmt::format(
        "{} has no class folders: its images have no labels (a CSV file can give them: data.labels_csv)",
        test));
    for (const auto& n : tests.notes) l.labels.notes.push_back(fmt::format("in {}: {}", test, n));
  } else {
    core::usage_error(
        kFolderComponent,
        fmt::format("{}: train and {} have different class folders ({} and {}); make them equal{}",
                    l.folder.string(), test, train.class_names.size(), tests.class_names.size(),
                    train.class_names.empty() && !train.notes.empty() ? "; in train " + train.notes[0] : ""));
  }
}

struct Parts {
  std::vector<int64_t> train, test, rest;  // numbers of files
  std::vector<std::string> notes = {};     // on how they came about
};

std::vector<int64_t> chosen(const std::vector<int64_t>& from, const torch::Tensor& indices) {
  std::vector<int64_t> out;
  const auto* p = indices.data_ptr<int64_t>();
  for (int64_t i = 0; i < indices.numel(); ++i) out.push_back(from[static_cast<size_t>(p[i])]);
  return out;
}

// Takes `limit` of a part, the others go to `rest`.
void limit_part(const torch::Tensor& labels, std::vector<int64_t>& part, int64_t limit, uint64_t seed,
                std::vector<int64_t>& rest) {
  if (limit <= 0 || limit >= static_cast<int64_t>(part.size())) return;
  const auto kept = limit_indices(labels.index_select(0, torch::tensor(part, torch::kInt64)), limit, seed);
  std::vector<bool> keep(part.size());
  for (int64_t i = 0; i < kept.numel(); ++i) keep[static_cast<size_t>(kept.data_ptr<int64_t>()[i])] = true;
  for (size_t i = 0; i < part.size(); ++i)
    if (!keep[i]) rest.push_back(part[i]);
  part = chosen(part, kept);
}

// The list's own splits, when the folder holds its images: most of them, by name and size. Nothing otherwise.
std::optional<Parts> parts_of_list(const Listing& l, const ImageList& list) {
  std::unordered_map<std::string, int64_t> number;
  for (size_t i = 0; i < l.files.size(); ++i) number[l.files[i]] = static_cast<int64_t>(i);
  Parts out;
  std::vector<bool> used(l.files.size(), false);
  size_t same = 0;
  for (const auto& i : list.images) {
    const auto it = number.find(i.path);
    if (it == number.end()) continue;
    const auto file = static_cast<size_t>(it->second);
    used[file] = true;
    same += l.found.files[file].stamp.size == i.bytes;
    (i.split == "train" ? out.train : i.split == "test" ? out.test : out.rest).push_back(it->second);
  }
  if (same * 2 < list.images.size()) return std::nullopt;
  for (size_t i = 0; i < used.size(); ++i)
    if (!used[i]) out.rest.push_back(static_cast<int64_t>(i));
  return out;
}

// Labels are wanted, and those of images that are new to the list are not taken: the user may not know that a
// split is kept.
void note_unused(const Listing& l, const ImageList& list, Parts& parts) {
  std::unordered_set<std::string> listed;
  for (const auto& i : list.images) listed.insert(i.path);
  const auto unused = std::count_if(parts.rest.begin(), parts.rest.end(), [&](int64_t i) {
    const auto file = static_cast<size_t>(i);
    return l.labels.label[file] != kNoLabel && !listed.contains(l.files[file]);
  });
  if (unused > 0)
    parts.notes.push_back(fmt::format(
        "{} labelled image(s) are not in the split that the run keeps and are not used; labels of a "
        "CSV file (data.labels_csv) are split anew",
        unused));
}

// With data.labelled, images without a label are in neither split.
void leave_out_unlabelled(const Listing& l, Parts& parts) {
  const auto known = [&](int64_t i) { return l.labels.label[static_cast<size_t>(i)] != kNoLabel; };
  for (auto* part : {&parts.train, &parts.test}) {
    const auto end = std::stable_partition(part->begin(), part->end(), known);
    parts.rest.insert(parts.rest.end(), end, part->end());
    part->erase(end, part->end());
  }
  if (parts.train.empty())
    core::usage_error(kFolderComponent,
                      fmt::format("{}: no {}image has a label; give some with --labels FILE.csv, or sort "
                                  "them into one folder per class",
                                  l.folder.string(), parts.test.empty() ? "" : "train "));
}

// Moves a seeded, stratified part of train to test. Copies of one picture are all in it or all not: a test
// image that was trained on says nothing.
void hold_out_of_train(const Listing& l, const SourceOptions& o, int threads, Parts& parts) {
  const auto all = parts.train;
  std::vector<int64_t> labels;
  std::vector<FoundFile> files;
  for (const auto i : all) {
    labels.push_back(l.labels.label[static_cast<size_t>(i)]);
    files.push_back(l.found.files[static_cast<size_t>(i)]);
  }
  std::vector<size_t> first(files.size());
  std::iota(first.begin(), first.end(), size_t{0});
  if (o.test_fraction > 0) first = first_of_equals(l.folder, files, threads);
  size_t copies = 0;
  for (size_t i = 0; i < first.size(); ++i) copies += first[i] != i;
  const auto [rest, held] = hold_out(torch::tensor(labels, torch::kInt64), first, o.test_fraction, o.seed);
  parts.train = chosen(all, rest);
  parts.test = chosen(all, held);
  if (copies > 0)
    parts.notes.push_back(
        fmt::format("{} file(s) are copies of others, byte for byte: all copies of an image are on one side "
                    "of the split, which holds out {} of {} files",
                    copies, parts.test.size(), all.size()));
}

// All images (data.labelled: those with a label), of which a part is held out.
Parts held_out_parts(const Listing& l, const SourceOptions& o, int threads) {
  Parts parts;
  parts.train.resize(l.files.size());
  std::iota(parts.train.begin(), parts.train.end(), int64_t{0});
  if (o.labelled) leave_out_unlabelled(l, parts);
  hold_out_of_train(l, o, threads, parts);
  return parts;
}

// Folders train and `test` are the parts, whoever labels the images.
Parts parts_of_folders(const Listing& l, const std::string& test, const SourceOptions& o, int threads) {
  Parts parts;
  std::set<std::string> beside;
  for (size_t i = 0; i < l.files.size(); ++i) {
    const auto& file = l.files[i];
    auto& part = file.starts_with("train/")     ? parts.train
                 : file.starts_with(test + "/") ? parts.test
                                                : parts.rest;
    part.push_back(static_cast<int64_t>(i));
    if (&part == &parts.rest) beside.insert(file.substr(0, file.find('/')));
  }
  if (!beside.empty())
    parts.notes.push_back(fmt::format("{} image(s) lie beside train and {} and are in neither: {}",
                                      parts.rest.size(), test, some_of({beside.begin(), beside.end()})));
  if (!o.labelled) return parts;
  leave_out_unlabelled(l, parts);
  // A CSV that labels train alone: what is learnt from it can still be judged.
  if (parts.test.empty() && !l.labels_csv.empty()) hold_out_of_train(l, o, threads, parts);
  return parts;
}

Parts make_parts(Listing& l, const SourceOptions& o, const LoadContext& context) {
  const auto test = test_beside_train(l.folder);
  if (!test.empty() && l.labels_csv.empty() && context.labels) label_splits(l, test);
  Parts parts;
  if (auto known = context.list && !context.list->empty() ? parts_of_list(l, *context.list) : std::nullopt) {
    parts = std::move(*known);
    if (o.labelled) {
      note_unused(l, *context.list, parts);
      leave_out_unlabelled(l, parts);
    }
  } else if (!test.empty()) {
    parts = parts_of_folders(l, test, o, context.threads);
  } else {
    parts = held_out_parts(l, o, context.threads);
  }
  // The list of a run obeys the run's own limits already: only smaller ones take something away.
  const auto labels = label_tensor(l.labels);
  limit_part(labels, parts.train, o.limit, o.seed, parts.rest);
  limit_part(labels, parts.test, o.limit_test, o.seed, parts.rest);
  return parts;
}

}  // namespace

namespace {

// A split that is not ours to change may have copies of an image on both sides.
void note_copies(const DecodedImages& d, size_t trained, size_t tested, std::vector<std::string>& notes) {
  const auto at = [&](size_t i) { return d.digests.begin() + static_cast<ptrdiff_t>(i); };
  const std::unordered_set<std::string> known(at(0), at(trained));
  const auto both = std::count_if(at(trained), at(tested), [&](const auto& x) { return known.contains(x); });
  if (both > 0)
    notes.push_back(fmt::format("{} of {} test images are copies of train images, byte for byte", both,
                                tested - trained));
}

// Where cache files lie; empty where nobody said it and there is no HOME. Small sets want none, so that only
// what needs one may complain.
fs::path cache_folder(const SourceOptions& o) {
  if (!o.data_root.empty()) return o.data_root / "images";
  if (o.cache == CacheKind::kNone) return {};
  try {
    return default_data_root() / "images";
  } catch (const core::Error&) {
    if (o.cache == CacheKind::kDisk) throw;
    return {};
  }
}

}  // namespace

TrainTest load_folder(const SourceOptions& o, const LoadContext& context) {
  const int64_t image_size = o.image_size > 0 ? o.image_size : 32;
  check_size(image_size);
  Listing l = list_folder(o.source, o.labels_csv, context);
  const Parts parts = make_parts(l, o, context);
  std::vector<int64_t> rows = parts.train;
  rows.insert(rows.end(), parts.test.begin(), parts.test.end());
  if (context.rest) rows.insert(rows.end(), parts.rest.begin(), parts.rest.end());
  DecodeRequest request{.folder = l.folder,
                        .image_size = image_size,
                        .grayscale = o.grayscale,
                        .cache = o.cache,
                        .cache_folder = cache_folder(o),
                        .threads = context.threads,
                        .progress = context.progress};
  for (const auto r : rows) request.files.push_back(l.found.files[static_cast<size_t>(r)]);
  const auto decoded = decode_images(request);

  TrainTest out;
  out.train.notes = notes_of(l, decoded, out.problems);
  auto notes = out.train.notes;
  // Rows of a part: those of its files that could be read.
  const auto count_below = [&](size_t end) {
    return static_cast<size_t>(std::lower_bound(decoded.kept.begin(), decoded.kept.end(), end) -
                               decoded.kept.begin());
  };
  const size_t trained = count_below(parts.train.size()),
               tested = count_below(parts.train.size() + parts.test.size());
  out.train = set_of(l, rows, decoded, 0, trained, "train");
  out.train.notes = std::move(notes);
  out.test = set_of(l, rows, decoded, trained, tested - trained, "test");
  if (context.rest) out.rest = set_of(l, rows, decoded, tested, decoded.kept.size() - tested, "rest");
  for (size_t i = 0; i < decoded.kept.size(); ++i) {
    const auto& file = l.found.files[static_cast<size_t>(rows[decoded.kept[i]])];
    out.list.images.push_back({file.path,
                               i < trained  ? "train"
                               : i < tested ? "test"
                                            : "rest",
                               file.stamp.size, decoded.digests[i]});
  }
  out.train.notes.insert(out.train.notes.end(), parts.notes.begin(), parts.notes.end());
  note_copies(decoded, trained, tested, out.train.notes);
  // Files that cannot be read are listed too: on the next look they are not new.
  std::unordered_map<std::string, uint64_t> bytes_of;
  for (const auto& f : l.found.files) bytes_of[f.path] = f.stamp.size;
  for (const auto& p : decoded.problems)
    out.list.images.push_back({p.path, "unreadable", bytes_of[p.path], ""});
  if (!context.rest) {
    std::set<std::string> unreadable;
    if (context.list)
      for (const auto& i : context.list->images)
        if (i.split == "unreadable") unreadable.insert(i.path);
    for (const auto r : parts.rest) {
      const auto& file = l.found.files[static_cast<size_t>(r)];
      out.list.images.push_back(
          {file.path, unreadable.contains(file.path) ? "unreadable" : "rest", file.stamp.size, ""});
    }
  }
  out.decoded = decoded.decoded;
  return out;
}

ImageSet read_folder(const fs::path& folder, const FolderOptions& o) {
  check_size(o.image_size);
  const Listing l = list_folder(folder, o.labels_csv);
  std::vector<int64_t> rows(l.files.size());
  std::iota(rows.begin(), rows.end(), int64_t{0});
  const auto decoded = decode_images({.folder = folder,
                                      .files = l.found.files,
                                      .image_size = o.image_size,
                                      .grayscale = o.grayscale,
                                      .cache = o.cache,
                                      .cache_folder = o.cache_folder,
                                      .threads = o.threads});
  std::vector<FileProblem> problems;
  auto notes = notes_of(l, decoded, problems);
  auto set = set_of(l, rows, decoded, 0, decoded.kept.size(), "all");
  set.notes = std::move(notes);
  return set;
}

ImageSet read_files(const std::vector<fs::path>& files, const FolderOptions& o) {
  check_size(o.image_size);
  Listing l{.name = "files"};
  std::vector<int64_t> rows;
  for (const auto& f : files) {
    rows.push_back(static_cast<int64_t>(rows.size()));
    l.files.push_back(f.string());
    l.found.files.push_back({f.string()});
    l.labels.label.push_back(kNoLabel);
  }
  const auto decoded = decode_images({.folder = "",
                                      .files = l.found.files,
                                      .image_size = o.image_size,
                                      .grayscale = o.grayscale,
                                      .cache = CacheKind::kNone,
                                      .threads = o.threads});
  if (!decoded.problems.empty())
    core::usage_error(kFolderComponent,
                      fmt::format("{}: {}", decoded.problems[0].path, decoded.problems[0].reason));
  return set_of(l, rows, decoded, 0, decoded.kept.size(), "all");
}

void decode_image(std::span<const std::byte> bytes, const std::string& name, int64_t size, bool grayscale,
                  uint8_t* out) {
  const auto picture = decode_for(bytes, name, size);
  image::square_planes(picture, static_cast<int>(size), grayscale, out);
}

Survey survey(const fs::path& folder) {
  const auto found = find_pictures(folder);
  Survey out{.files = static_cast<int64_t>(found.files.size())};
  constexpr size_t kSample = 32;
  std::vector<int64_t> sides;
  for (size_t i = 0; i < std::min(kSample, found.files.size()); ++i) {
    const auto& file = found.files[i * found.files.size() / std::min(kSample, found.files.size())];
    try {
      const auto bytes = image::read_regular(folder / file.path);
      const auto header = image::inspect(bytes, file.path);
      if (header.width > 0) sides.push_back(static_cast<int64_t>(std::min(header.width, header.height)));
    } catch (const core::Error&) {  // it will be named when it is decoded
    }
  }
  std::sort(sides.begin(), sides.end());
  if (!sides.empty()) out.median_side = sides[sides.size() / 2];
  return out;
}

TrainTest load_probe(const fs::path& source, const FolderOptions& o, uint64_t seed) {
  std::error_code ec;
  ImageSet all;
  if (fs::is_directory(source, ec)) {
    all = read_folder(source, o);
  } else {
    const auto rows = parse_csv(core::read_text(source, kFolderComponent), source.string());
    std::vector<fs::path> files;
    for (const auto& row : rows) {
      if (row.fields.size() != 2)
        core::usage_error(kFolderComponent, fmt::format("{}: line {}: {} field(s); expected path,label",
                                                        source.string(), row.line, row.fields.size()));
      if (&row == &rows.front() && row.fields[0] == "path") continue;
      const fs::path path = row.fields[0];
      files.push_back(path.is_absolute() ? path : source.parent_path() / path);
    }
    all = read_files(files, o);
    std::vector<FoundFile> named;
    for (const auto& row : rows)
      if (&row != &rows.front() || row.fields[0] != "path")
        named.push_back({fs::path(row.fields[0]).lexically_normal().generic_string()});
    const auto labels = labels_from_csv(source, source.parent_path(), named);
    all.class_names = labels.class_names;
    all.labels = torch::tensor(labels.label, torch::kInt64);
  }
  all.name = source.filename().string();
  const auto rows = all.labels.ge(0).nonzero().flatten();
  if (rows.numel() < 3 || all.classes() < 2)
    core::usage_error(kFolderComponent,
                      fmt::format("{}: {} labelled image(s) of {} class(es); a probe needs class "
                                  "sub-folders, or a CSV of path,label, with two classes or more",
                                  source.string(), rows.numel(), all.classes()));
  if (rows.numel() < all.size()) all = select(all, rows);
  const auto [known, asked] = hold_out(all, 1.0 / 3, seed);
  if (asked.numel() == 0 || known.numel() == 0)
    core::usage_error(kFolderComponent,
                      fmt::format("{}: too few pictures that differ among {} labelled images; a probe asks "
                                  "about a third of them",
                                  source.string(), all.size()));
  TrainTest out;
  out.train = select(all, known);
  out.test = select(all, asked);
  return out;
}

}  // namespace ebclr::data
