#pragma once

#include <torch/types.h>

#include <filesystem>
#include <memory>
#include <string>

#include "fid/feature_extractor.h"

namespace ebclr::fid {

struct InceptionOptions {
  std::filesystem::path file = {};  ///< TorchScript
  std::string range = "auto";       ///< of pixels it reads: "auto", "0,1", "-1,1" or "0,255"
  int64_t dimensions = 2048;        ///< features it must give
  torch::Device device = torch::kCPU;
};

/// The network of a TorchScript file, tried on two images before it is accepted; throws Error with what is
/// wrong. Two conventions (docs/fid.md): forward(images) reads float RGB resized to 299 x 299 (bilinear),
/// pixels in [0, 1]; forward(images, return_features) reads [0, 255] and resizes by itself. Grey images are
/// copied to RGB.
std::unique_ptr<FeatureExtractor> make_inception(const InceptionOptions& options);

}  // namespace ebclr::fid
