#pragma once
// Reader of torch.save's zip files: the data part of pickle only. Nothing in a file is ever executed: a file
// that asks for anything but dictionaries, lists, numbers, text and tensors gets an inert placeholder.

#include <torch/types.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace ebclr::run {

/// A value of a file. Sequences are lists and tuples alike.
struct TorchValue {
  using Items = std::vector<std::pair<TorchValue, TorchValue>>;
  struct Opaque {
    std::string name;  ///< what it stands for, e.g. "numpy.dtype"
  };
  struct Storage {
    torch::Dtype dtype;
    std::string key;
    int64_t size = 0;
  };
  std::variant<std::monostate, bool, int64_t, double, std::string, torch::Tensor, Storage, Opaque,
               std::shared_ptr<std::vector<TorchValue>>, std::shared_ptr<Items>>
      data;

  const Items* dict() const;
  const std::vector<TorchValue>* sequence() const;
  const std::string* text() const { return std::get_if<std::string>(&data); }
  const torch::Tensor* tensor() const { return std::get_if<torch::Tensor>(&data); }
  /// The entry of a dictionary under a text key; nullptr when there is none.
  const TorchValue* find(const std::string& key) const;
};

/// Reads a file; throws Error naming it and what was expected.
TorchValue read_torch_file(const std::filesystem::path& path);

}  // namespace ebclr::run
