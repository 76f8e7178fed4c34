#include "data/other_set.h"

namespace ebclr::data {

SourceOptions other_set(const SourceOptions& own, const std::string& name) {
  if (name.empty() || name == own.source) return own;
  SourceOptions o{.source = name, .data_root = own.data_root, .seed = own.seed};
  o.cache = own.cache;
  if (takes_any_size(name)) o.image_size = own.image_size;
  return o;
}

}  // namespace ebclr::data
