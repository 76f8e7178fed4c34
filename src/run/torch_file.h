#pragma once
// Reader of torch.save's zip files: the data part of pickle only. Nothing in a file is ever executed: a file
// that asks for anything but dictionaries, lists, numbers, text and tensors gets an inert placeholder.

#include <torch/types.h>

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace ebclr::run {

/// A value of a file; small, and valid as long as its TorchFile. Sequences are lists and tuples alike.
struct TorchValue {
  using List = std::vector<TorchValue>;
  using Items = std::vector<std::pair<TorchValue, TorchValue>>;
  struct Opaque {
    std::string_view name;  ///< what it stands for, e.g. "numpy.dtype"
  };
  struct Storage {
    torch::Dtype dtype;
    std::string_view key;
  };
  std::variant<std::monostate, bool, int64_t, double, std::string_view, torch::Tensor, Storage, Opaque, List*,
               Items*>
      data;

  const Items* dict() const;
  const List* sequence() const;
  const std::string_view* text() const { return std::get_if<std::string_view>(&data); }
  const torch::Tensor* tensor() const { return std::get_if<torch::Tensor>(&data); }
  /// The entry of a dictionary under a text key; nullptr when there is none.
  const TorchValue* find(std::string_view key) const;
};

/// A file that was read. It owns the containers and text of all its values side by side, so that neither deep
/// nesting nor a list that holds itself matters to whoever destroys it.
class TorchFile {
 public:
  struct Arena;
  TorchFile(std::unique_ptr<Arena> arena, TorchValue root);
  ~TorchFile();
  TorchFile(TorchFile&&) noexcept;
  TorchFile& operator=(TorchFile&&) = delete;

  const TorchValue& root() const { return root_; }

 private:
  std::unique_ptr<Arena> arena_;
  TorchValue root_;
};

/// Reads a file; throws Error naming it and what was expected.
TorchFile read_torch_file(const std::filesystem::path& path);
/// The same from memory; `name` stands for the file in errors.
TorchFile parse_torch_file(std::vector<std::byte> bytes, const std::string& name);

}  // namespace ebclr::run
