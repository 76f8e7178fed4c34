#include "eval/export_features.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include "core/csv.h"
#include "core/error.h"
#include "core/files.h"
#include "core/npy.h"
#include "core/text.h"

namespace ebclr::eval {
namespace fs = std::filesystem;

namespace {

constexpr size_t kWriteAt = 1 << 20;  // bytes of text that are collected before a write

void write_names(const fs::path& file, const data::ImageSet& set) {
  core::AtomicFile out(file, "embed");
  std::string text;
  for (int64_t i = 0; i < set.size(); ++i) text += core::one_line(image_name(set, i)) + "\n";
  out.write(text);
  out.commit();
}

void write_csv(const fs::path& file, const data::ImageSet& set, const torch::Tensor& features) {
  core::AtomicFile out(file, "embed");
  const int64_t width = features.size(1);
  std::string text = "file,split,label";
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
  if (split == "train") return std::move(sets.train);
  if (split == "test") return std::move(sets.test);
  return data::joined({&sets.train, &sets.test, &sets.rest});
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
  FeatureOptions f;
  if (o.projection) f.head = model.head.get();
  f.progress = o.progress;
  f.ranks = o.ranks;
  const auto features = eval::features(*model.encoder, set, f);
  if (o.ranks->rank() != 0) return {set.size(), features.size(1), {}};
  const auto beside = [&](const char* extension) { return fs::path(o.out).replace_extension(extension); };
  core::write_npy(o.out, features);
  write_names(beside(".files.txt"), set);
  Exported out{features.size(0), features.size(1), {o.out, beside(".files.txt")}};
  if (set.labels.defined() && set.labels.ge(0).any().item<bool>()) {
    core::write_npy(beside(".labels.npy"), set.labels);
    out.files.push_back(beside(".labels.npy"));
  }
  if (o.csv) {
    write_csv(beside(".csv"), set, features);
    out.files.push_back(beside(".csv"));
  }
  return out;
}

}  // namespace ebclr::eval
