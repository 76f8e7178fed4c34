#include "ebclr/images.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include "api/translate.h"
#include "data/catalog.h"
#include "data/folder.h"

namespace ebclr {
namespace api {

void input_error(const std::string& message) {
  throw Error(Error::Kind::kInput, message);
}

Images to_public(data::ImageSet set) {
  Images out;
  out.pixels = std::move(set.pixels);
  out.labels = std::move(set.labels);
  out.class_names = std::move(set.class_names);
  out.files = std::move(set.files);
  out.notes = std::move(set.notes);
  out.name = std::move(set.name);
  return out;
}

data::ImageSet to_internal(const Images& images) {
  const auto& p = images.pixels;
  if (!p.defined() || p.dim() != 4 || p.scalar_type() != torch::kUInt8 || (p.size(1) != 1 && p.size(1) != 3))
    input_error("[images] Images::pixels must be uint8 [N, C, H, W] with 1 or 3 channels");
  data::ImageSet set;
  set.name = images.name;
  set.split = "train";
  set.pixels = p.to(torch::kCPU).contiguous();
  set.labels = images.labels.defined() ? images.labels.to(torch::kCPU, torch::kInt64).contiguous()
                                       : torch::full({p.size(0)}, data::kNoLabel, torch::kInt64);
  if (set.labels.dim() != 1 || set.labels.size(0) != p.size(0))
    input_error(fmt::format("[images] Images::labels must be int64 [{}], one per image", p.size(0)));
  set.class_names = images.class_names;
  set.files = images.files;
  return set;
}

}  // namespace api

Images read_folder(const std::filesystem::path& folder, const FolderOptions& options) {
  return api::translated([&] {
    return api::to_public(
        data::read_folder(folder, {.image_size = options.image_size, .grayscale = options.grayscale}));
  });
}

Images load_set(const std::string& name, const SetOptions& o) {
  return api::translated([&] {
    data::SourceOptions source;
    source.source = name;
    source.data_root = o.data_root;
    source.seed = o.seed;
    (o.test ? source.limit_test : source.limit) = o.limit;
    auto sets = data::load(source);
    return api::to_public(std::move(o.test ? sets.test : sets.train));
  });
}

torch::Tensor to_unit_range(const torch::Tensor& pixels) {
  return data::to_unit_range(pixels);
}

}  // namespace ebclr
