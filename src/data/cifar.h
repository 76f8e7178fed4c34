#pragma once
// The binary layout of CIFAR-10 (label, 3072 bytes) and CIFAR-100 (coarse label, fine label, 3072 bytes).
// Files may hold any whole number of records, so excerpts load too.

#include <filesystem>
#include <string>

#include "data/image_set.h"

namespace ebclr::data {

/// CIFAR-10 from a folder with data_batch_1.bin .. data_batch_5.bin and test_batch.bin; split "train" or
/// "test".
ImageSet read_cifar10(const std::filesystem::path& folder, const std::string& split);
/// CIFAR-100 from a folder with train.bin and test.bin. `coarse`: the 20 coarse classes become the labels.
ImageSet read_cifar100(const std::filesystem::path& folder, const std::string& split, bool coarse = false);

/// True when every file is there.
bool has_cifar10(const std::filesystem::path& folder);
bool has_cifar100(const std::filesystem::path& folder);

}  // namespace ebclr::data
