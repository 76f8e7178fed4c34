#pragma once
// The idx format of MNIST and Fashion-MNIST, plain or gzip (told by content, not by name).

#include <torch/types.h>

#include <filesystem>

#include "data/image_set.h"

namespace ebclr::data {

/// Images: uint8 [N, 1, H, W]. Nothing is allocated before the header agrees with the file's size.
torch::Tensor read_idx_images(const std::filesystem::path& path);
/// Labels: int64 [N], each below `classes`.
torch::Tensor read_idx_labels(const std::filesystem::path& path, int64_t classes);

/// One split from `folder`: "train" reads train-images-idx3-ubyte[.gz] and its labels, "test" reads t10k-*.
ImageSet read_idx_set(const std::filesystem::path& folder, const std::string& name, const std::string& split,
                      std::vector<std::string> class_names);
/// True when all four files are there.
bool has_idx_set(const std::filesystem::path& folder);

}  // namespace ebclr::data
