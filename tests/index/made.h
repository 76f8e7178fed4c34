#pragma once
// Indexes made of numbers, without an encoder.

#include <torch/torch.h>

#include "core/rng.h"
#include "index/index_file.h"
#include "index/search.h"

namespace ebclr::index {

/// n unit rows around a few centres, with paths img0000.png ...
inline Contents made(int64_t n, int64_t d, uint64_t seed = 1, bool graph = false) {
  Contents c;
  c.info = {
      .fingerprint = "abc", .run = "/runs/x", .method = "ebclr", .version = "test", .folder = "/photos"};
  c.info.count = n;
  c.info.dim = d;
  c.info.has_energies = true;
  auto x = torch::empty({n, d});
  core::fill_normal(seed, 0, {x.data_ptr<float>(), static_cast<size_t>(n * d)});
  auto centres = torch::empty({10, d});
  core::fill_normal(seed + 1, 0, {centres.data_ptr<float>(), static_cast<size_t>(10 * d)});
  x += centres.index_select(0, torch::arange(n) % 10);
  c.features = (x / x.norm(2, 1, true)).contiguous();
  c.small = torch::zeros({n, kSmallSide, kSmallSide}, torch::kUInt8);
  c.references = torch::ones({4, 6});
  core::Rng rng(seed);
  for (int64_t i = 0; i < n; ++i) {
    Record r{.energy = static_cast<float>(i), .norm = 1, .bytes = 1000 + i, .modified = 5};
    for (auto& b : r.sha256) b = static_cast<uint8_t>(rng.below(256));
    c.records.push_back(r);
    char name[32];
    std::snprintf(name, sizeof name, "img%06d.png", static_cast<int>(i));
    c.paths.emplace_back(name);
    c.thumbnails.emplace_back(10 + static_cast<size_t>(i) % 7, static_cast<uint8_t>(i));
  }
  if (graph) c.graph = build_graph(c.features, {.threads = 2});
  return c;
}

}  // namespace ebclr::index
