#include "run/images.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "core/files.h"
#include "core/rng.h"

namespace ebclr::run {
namespace fs = std::filesystem;

std::optional<data::ImageList> image_list(const RunFolder& folder) {
  std::error_code ec;
  if (!fs::is_regular_file(folder.images(), ec)) return std::nullopt;
  return data::read_image_list(folder.images());
}

void write_image_list(const RunFolder& folder, const data::ImageList& list) {
  if (list.empty()) return;
  core::write_atomically(folder.images(), data::to_csv(list), "run");
}

data::TrainTest load_images(const RunFolder& folder, const data::SourceOptions& source,
                            data::LoadContext context) {
  const auto list = image_list(folder);
  std::error_code ec;
  if (list && source.source.find('/') != std::string::npos && !fs::exists(source.source, ec))
    core::usage_error(
        "run",
        fmt::format("{}: the images are not there; where they have moved, name the folder (--data FOLDER; "
                    "data= in Python)",
                    source.source));
  if (list) context.list = &*list;
  auto sets = data::load(source, context);
  if (list && !sets.list.empty()) {
    auto changes = data::compare(*list, sets.list);
    changes.left_out.clear();  // as was asked for
    if (!changes.missing.empty() || !changes.changed.empty())
      sets.train.notes.push_back("since training " + changes.text());
  }
  return sets;
}

data::TrainTest load_pixels(const RunFolder& folder, const data::SourceOptions& source,
                            data::LoadContext context) {
  std::error_code ec;
  const bool gone = !source.labels_csv.empty() && !fs::exists(source.labels_csv, ec);
  // Without a list, and within it for validation, the split is drawn by labels.
  if (!gone || !image_list(folder) || source.validation > 0)
    return load_images(folder, source, std::move(context));
  auto unlabelled = source;
  unlabelled.labels_csv.clear();
  unlabelled.labelled = context.labels = false;
  auto sets = load_images(folder, unlabelled, std::move(context));
  sets.train.notes.insert(
      sets.train.notes.begin(),
      fmt::format("{}: the labels are not there, and the images are used without; where the file has moved, "
                  "--labels-csv names it",
                  source.labels_csv));
  return sets;
}

data::TrainTest load_to_resume(const RunFolder& folder, const Config& config,
                               const data::LoadContext& context) {
  const auto& method = config.method.name;
  return method == methods::kSupervised || method == methods::kCustomMethod
             ? load_images(folder, config.data, context)
             : load_pixels(folder, config.data, context);
}

std::string describe_images(const data::ImageSet& set) {
  constexpr int64_t kSample = 256;
  uint64_t h = 1;
  const auto add = [&h](const void* bytes, size_t count) {
    const auto* p = static_cast<const unsigned char*>(bytes);
    for (; count >= 8; count -= 8, p += 8) {
      uint64_t word = 0;
      std::memcpy(&word, p, 8);
      h = core::mix64(h ^ word);
    }
    for (; count > 0; --count, ++p) h = core::mix64(h ^ *p);
  };
  for (const auto& file : set.files) add(file.data(), file.size());
  if (set.labels.defined()) {
    const auto labels = set.labels.contiguous();
    add(labels.data_ptr(), labels.nbytes());
  }
  const auto sample =
      set.pixels.slice(0, 0, set.size(), std::max<int64_t>(1, set.size() / kSample)).contiguous();
  add(sample.data_ptr(), sample.nbytes());
  return fmt::format("{} {}: {} images of {}x{}x{}, digest {:016x}", set.name, set.split, set.size(),
                     set.channels(), set.height(), set.width(), h);
}

bool is_moved(const Run& run, const std::string& folder) {
  const auto list = image_list(run.folder());
  std::error_code ec;
  if (!list || list->empty() || !fs::is_directory(folder, ec)) return false;
  size_t same = 0;
  for (const auto& i : list->images) same += fs::file_size(fs::path(folder) / i.path, ec) == i.bytes && !ec;
  return same * 2 >= list->images.size();
}

void check_holds_images(const Run& run, const std::string& source) {
  const auto& own = run.config().data.source;
  std::error_code ec;
  if (source.find('/') != std::string::npos && !fs::exists(source, ec)) return;  // load_images says so
  const auto list = image_list(run.folder());
  const bool holds =
      list && !list->empty() ? is_moved(run, source) : source == own || data::train_images(own) == 0;
  if (!holds)
    core::usage_error("run", fmt::format("{}: does not hold the images of {}, by names and sizes; name the "
                                         "folder that they lie in now",
                                         source, run.folder().root.string()));
}

void check_same_images(const RunFolder& folder, const data::ImageList& now, const std::string& source) {
  const auto list = image_list(folder);
  if (!list || now.empty()) return;
  const auto changes = data::compare(*list, now);
  if (changes.none()) return;
  core::usage_error("train",
                    fmt::format("{}: not the images that this run was trained on: {}; put them back, say "
                                "where they are now, or start a new run",
                                source, changes.text()));
}

data::SourceOptions absolute(data::SourceOptions source) {
  std::error_code ec;
  if (data::is_folder(source.source)) source.source = fs::weakly_canonical(source.source, ec).string();
  if (!source.labels_csv.empty()) source.labels_csv = fs::weakly_canonical(source.labels_csv, ec).string();
  return source;
}

}  // namespace ebclr::run
