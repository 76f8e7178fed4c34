#pragma once
// The deterministic pixel operations behind a view, as torchvision defines them on float tensors. Images are
// planar float CHW in [0, 1]. No random draw happens here, which is what makes them testable one by one.

#include <cstdint>

namespace ebclr::data {

/// A rectangle inside an image.
struct Crop {
  int64_t top = 0, left = 0, height = 0, width = 0;
};

/// Size of a plane.
struct Plane {
  int64_t height = 0, width = 0;
};

/// Cuts `crop` out of src [C, from.height, from.width] and resizes it to out [C, to.height, to.width];
/// bilinear without antialiasing, corners not aligned. `flip` mirrors the result left to right.
void crop_resize(const float* src, int64_t channels, Plane from, const Crop& crop, bool flip, Plane to,
                 float* out);
/// The same from bytes, which count as value / 255.
void crop_resize(const uint8_t* src, int64_t channels, Plane from, const Crop& crop, bool flip, Plane to,
                 float* out);

/// x * factor, clamped to [0, 1]; n values.
void adjust_brightness(float* image, int64_t n, float factor);
/// Blends with the mean luminance of the image; image is [3, area].
void adjust_contrast(float* image, int64_t area, float factor);
/// Blends with the grey version of each pixel; image is [3, area].
void adjust_saturation(float* image, int64_t area, float factor);
/// Turns the hue by `shift` of a full circle, |shift| <= 0.5; image is [3, area].
void adjust_hue(float* image, int64_t area, float shift);
/// Replaces all three channels by the luminance; image is [3, area].
void to_grayscale(float* image, int64_t area);

/// Gaussian blur with an odd kernel, reflected at the borders. `scratch` holds one plane (height * width).
/// Both sides must exceed kernel / 2.
void gaussian_blur(float* image, int64_t channels, int64_t height, int64_t width, int kernel, double sigma,
                   float* scratch);

/// out = 2 * (image + sigma * noise) - 1; n values. With sigma 0 `noise` may be null.
void finish(const float* image, const float* noise, int64_t n, float sigma, float* out);

}  // namespace ebclr::data
