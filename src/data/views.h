#pragma once
// Augmented views of one image. A view depends only on (seed, epoch, image index, view number).

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "core/rng.h"
#include "data/image_set.h"
#include "data/view_ops.h"

namespace ebclr::data {

/// Whether each image has its own random draw or a whole batch shares one (as the paper's released code
/// does).
enum class Scope { kImage, kBatch };

/// The SimCLR set; defaults are SimCLR's for CIFAR, jitter strength 0.5. Grey images: crop and noise only.
struct ViewOptions {
  double crop_min = 0.08, crop_max = 1.0;           ///< area of the crop as a part of the image
  double ratio_min = 3.0 / 4, ratio_max = 4.0 / 3;  ///< width over height of the crop
  double flip = 0.5;
  double jitter = 0.8;  ///< probability
  double brightness = 0.4, contrast = 0.4, saturation = 0.4, hue = 0.1;
  double grayscale = 0.2;
  double blur = 0.0;  ///< probability
  int blur_kernel = 3;
  double blur_sigma_min = 0.1, blur_sigma_max = 2.0;
  double noise = 0.03;     ///< standard deviation in [0,1] scale; 0 for the baselines
  bool gray_full = false;  ///< grey images: also flip and blur
  Scope scope = Scope::kImage;
};

/// Everything that is random about one view but its noise.
struct ViewDraw {
  Crop crop;
  bool flip = false, jitter = false, grayscale = false, blur = false;
  std::array<uint8_t, 4> order = {0, 1, 2, 3};  ///< of brightness, contrast, saturation, hue
  float brightness = 1, contrast = 1, saturation = 1, hue = 0;
  double blur_sigma = 1;
};

/// Makes views of images of one size. Thread-safe: all state is per call.
class ViewMaker {
 public:
  ViewMaker(const ViewOptions& options, int64_t channels, int64_t height, int64_t width);
  /// Views of height x width, cropped out of larger images of source.height x source.width.
  ViewMaker(const ViewOptions& options, int64_t channels, int64_t height, int64_t width, Plane source);
  /// For the images of a set: from its larger copies where it has some.
  ViewMaker(const ViewOptions& options, const ImageSet& set);

  /// Writes one view as float [C, height, width] in [-1, 1] (noise may step over) from uint8 pixels [C,
  /// source]. `rng` decides every draw; with Scope::kBatch pass the same transform stream for each image (see
  /// ViewKey) so that only the noise differs.
  void make(const uint8_t* pixels, core::Rng transform, core::Rng noise, float* out) const;

  /// Draws one transform, as torchvision's RandomResizedCrop, ColorJitter and GaussianBlur draw theirs.
  ViewDraw draw(core::Rng& rng) const;
  /// Applies a transform; `out` is float CHW in [-1, 1] before noise.
  void render(const uint8_t* pixels, const ViewDraw& draw, const core::Rng& noise, float* out) const;

  const ViewOptions& options() const { return options_; }
  int64_t channels() const { return channels_; }
  int64_t height() const { return height_; }
  int64_t width() const { return width_; }
  /// Size of the images that views are cut out of.
  Plane source() const { return source_; }

 private:
  ViewOptions options_;
  int64_t channels_, height_, width_;
  Plane source_;
};

/// The pixels that views are cut out of: uint8 [N, C, L, L] or [N, C, H, W].
const torch::Tensor& view_source(const ImageSet& set);

/// The draw streams of a view, as documented in docs/data.md.
struct ViewKey {
  uint64_t seed = 0, epoch = 0, image = 0, view = 0;
  uint64_t batch = 0;  ///< only used by Scope::kBatch

  /// Stream of the transform: of the image, or of the batch.
  core::Rng transform(Scope scope) const;
  /// Stream of the noise: always the image's own.
  core::Rng noise() const;
};

/// A whole batch: out [N, C, H, W] float, row i from image indices[i] (int64 [N]).
torch::Tensor make_views(const ViewMaker& maker, const ImageSet& set, const torch::Tensor& indices,
                         uint64_t seed, uint64_t epoch, uint64_t view, uint64_t batch_number);

}  // namespace ebclr::data
