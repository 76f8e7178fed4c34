#include "data/other_set.h"

#include <filesystem>

namespace ebclr::data {

SourceOptions other_set(const SourceOptions& own, const std::string& name) {
  if (name.empty() || name == own.source) return own;
  SourceOptions o{.source = name, .data_root = own.data_root, .seed = own.seed};
  o.cache = own.cache;
  std::error_code ec;
  if (name == "shapes" || name == "shapes-gray" || std::filesystem::is_directory(name, ec))
    o.image_size = own.image_size;
  return o;
}

}  // namespace ebclr::data
