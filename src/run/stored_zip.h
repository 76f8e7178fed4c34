#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>

namespace ebclr::run {

/// A zip archive whose entries are stored, not packed, as torch.save writes them: views into `bytes`, each
/// inside them. Packed entries are refused, so that a file can never become larger than it is.
class StoredZip {
 public:
  /// Reads the directory; throws std::invalid_argument saying what is wrong.
  explicit StoredZip(std::span<const std::byte> bytes);

  /// The entry of that name with its checksum verified; throws std::invalid_argument.
  std::string_view at(const std::string& name) const;
  const std::map<std::string, std::string_view>& entries() const { return entries_; }

 private:
  std::map<std::string, std::string_view> entries_;
  std::map<std::string, uint32_t> sums_;
};

}  // namespace ebclr::run
