#include "eval/export_features.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <fstream>

#include "core/csv.h"
#include "core/error.h"
#include "core/files.h"
#include "core/npy.h"
#include "core/text.h"

namespace ebclr::eval {
namespace fs = std::filesystem;

namespace {

constexpr size_t kWriteAt = 1 << 20;  // bytes of text that are collected before a write
constexpr const char* kCsvHead = "file,split,label";

/// The files of an array, by its name.
struct Companions {
  explicit Companions(const fs::path& out)
      : names(beside(out, ".files.txt")),
        labels(beside(out, ".labels.npy")),
        classes(beside(out, ".classes.txt")),
        csv(beside(out, ".csv")) {}
  fs::path names, labels, classes, csv;

 private:
  static fs::path beside(fs::path out, const char* extension) { return out.replace_extension(extension); }
};

bool is_file(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

bool is_our_csv(const fs::path& path) {
  if (!is_file(path)) return false;
  std::ifstream in(path, std::ios::binary);
  const std::string head = std::string(kCsvHead) + ",f0";
  std::string begin(head.size(), '\0');
  return in.read(begin.data(), static_cast<std::streamsize>(begin.size())) && begin == head;
}

/// What an earlier call left beside the array and this one does not write: of other images. Only what is
/// certainly an export may go, anybody may have a table or labels of that name.
std::vector<fs::path> left_behind(const Companions& files, bool labels, bool csv) {
  std::vector<fs::path> out;
  std::error_code error;
  if (!csv && is_our_csv(files.csv)) out.push_back(files.csv);
  if (!labels && fs::exists(files.labels, error)) {
    // Labels are written with the names of their classes.
    if (!is_file(files.labels) || !is_file(files.classes))
      core::usage_error("embed", fmt::format("{}: would lie beside features of images without labels; remove "
                                             "it or choose another --out",
                                             files.labels.string()));
    out.push_back(files.labels);
    out.push_back(files.classes);
  }
  return out;
}

void remove_files(const std::vector<fs::path>& files) {
  for (const auto& file : files) {
    std::error_code error;
    if (fs::remove(file, error); error)
      core::run_error("embed", fmt::format("{}: is of other images and cannot be removed: {}", file.string(),
                                           error.message()));
  }
}

void write_names(const fs::path& file, const data::ImageSet& set) {
  core::AtomicFile out(file, "embed");
  std::string text;
  for (int64_t i = 0; i < set.size(); ++i) text += core::one_line(image_name(set, i)) + "\n";
  out.write(text);
  out.commit();
}

// Line k is what label k means.
void write_classes(const fs::path& file, const data::ImageSet& set) {
  const auto labels = std::max(set.classes(), set.labels.max().item<int64_t>() + 1);
  std::string text;
  for (int64_t k = 0; k < labels; ++k)
    text +=
        (k < set.classes() ? core::one_line(set.class_names[static_cast<size_t>(k)]) : std::to_string(k)) +
        "\n";
  core::write_atomically(file, text, "embed");
}

void write_csv(const fs::path& file, const data::ImageSet& set, const torch::Tensor& features) {
  core::AtomicFile out(file, "embed");
  const int64_t width = features.size(1);
  std::string text = kCsvHead;
  for (int64_t d = 0; d < width; ++d) text += fmt::format(",f{}", d);
  text += "\n";
  const float* value = features.data_ptr<float>();
  for (int64_t i = 0; i < set.size(); ++i) {
    const int64_t label = set.labels.defined() ? set.labels[i].item<int64_t>() : data::kNoLabel;
    text += core::csv_field(image_name(set, i)) + "," +
            (set.splits.empty() ? set.split : set.splits[static_cast<size_t>(i)]) + "," +
            (label >= 0 ? std::to_string(label) : "");
    for (int64_t d = 0; d < width; ++d) text += fmt::format(",{:.7g}", value[i * width + d]);
    text += "\n";
    if (text.size() > kWriteAt) out.write(text), text.clear();
  }
  out.write(text);
  out.commit();
}

}  // namespace

data::ImageSet pick_split(data::TrainTest sets, const std::string& split) {
  const auto name = sets.train.name;
  auto out = split == "train"  ? std::move(sets.train)
             : split == "test" ? std::move(sets.test)
                               : data::joined({&sets.train, &sets.test, &sets.rest});
  if (out.size() == 0)
    core::usage_error("eval", fmt::format("'{}' has no {} images; try another --split", name, split));
  return out;
}

std::string image_name(const data::ImageSet& set, int64_t i) {
  if (i < static_cast<int64_t>(set.files.size())) return set.files[static_cast<size_t>(i)];
  return fmt::format("{}/{}/{}", set.name, set.split, i);
}

void check_export_name(const fs::path& out) {
  if (out.extension() != ".npy")
    core::usage_error(
        "eval", fmt::format("{} does not end in .npy; features are written as a NumPy array", out.string()));
}

Exported export_features(const run::Model& model, const data::ImageSet& set, const ExportOptions& o) {
  check_export_name(o.out);
  const Companions files(o.out);
  const bool labels = set.labels.defined() && set.labels.ge(0).any().item<bool>(),
             writes = o.ranks->rank() == 0;
  const auto old = writes ? left_behind(files, labels, o.csv) : std::vector<fs::path>{};
  FeatureOptions f;
  if (o.projection) f.head = model.head.get();
  f.progress = o.progress;
  f.ranks = o.ranks;
  const auto features = eval::features(*model.encoder, set, f);
  if (!writes) return {set.size(), features.size(1), {}};
  remove_files(old);
  core::write_npy(o.out, features);
  write_names(files.names, set);
  Exported out{features.size(0), features.size(1), {o.out, files.names}};
  if (labels) {
    write_classes(files.classes, set);
    core::write_npy(files.labels, set.labels);
    out.files.push_back(files.labels);
    out.files.push_back(files.classes);
  }
  if (o.csv) {
    write_csv(files.csv, set, features);
    out.files.push_back(files.csv);
  }
  return out;
}

}  // namespace ebclr::eval
