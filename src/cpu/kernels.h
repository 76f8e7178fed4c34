#pragma once
// The kernels as one table of functions per instruction set, chosen at run time.
//
// Images are float32 in panels of `lanes` channels: [n][channels / lanes][height][width][lanes]; channel
// counts are padded to a multiple of `lanes` with zeros. Sign masks hold one bit per element in the same
// order. All functions that take a Team are called by each of its threads with the same job; a thread returns
// when its share is done, so a caller that reads what other threads wrote must sync first.

#include <cstddef>
#include <string>
#include <vector>

#include "cpu/team.h"

namespace ebclr::cpu {

/// What happens to a convolution's result before it is stored: y = sum + bias + residual, then either the
/// activation (forward) or a multiplication by its derivative (backward).
struct Epilogue {
  const float* bias = nullptr;      // [channels]
  const float* residual = nullptr;  // same shape as the result
  bool activate = false;            // y = max(y, slope * y)
  void* signs_out = nullptr;        // one bit per element: y > 0 (with activate)
  const void* signs_in = nullptr;   // multiply by 1 where the bit is set, else by slope
  float slope = 0;
};

/// How a convolution is cut up: `block` tiles (positions, in planes.h) at a time are transformed, multiplied
/// for `group` panels of output channels at a time, and transformed back. Each thread takes tiles of its own,
/// or, if shared, its part of the transform of all tiles and then its part of the output channels: so each
/// thread reads only its part of the weights, which is what counts where they are larger than any cache near
/// a core.
struct Schedule {
  int block = 32;
  int group = 2;
  bool shared = false;
  float* v = nullptr;  // transformed inputs, Space::v; one for the team if shared
  float* m = nullptr;  // products, Space::m; each thread's own
};

/// A 3x3 convolution, or its data gradient, as its plan sees it: padded channels of what is read and what is
/// written, stride, and the size of the larger images.
struct Layer {
  int in = 0, out = 0, stride = 1;
  int height = 0, width = 0;
  bool gradient = false;
};
/// Floats of a schedule's v and m.
struct Space {
  std::size_t v = 0, m = 0;
};
/// How the weight gradients of a layer are cut up (WeightGradJob), and the floats that takes: v and d for
/// each block that is worked on at a time, du for each sum.
struct GradCut {
  bool shared = true;
  int block = 128;
};
struct GradSpace {
  std::size_t v = 0, d = 0, du = 0;
};

/// 3x3 convolution of stride 1, padding 1, or its data gradient, which is one with transposed weights.
struct ConvJob {
  int images = 0, height = 0, width = 0;
  int in = 0, out = 0;       // padded channels of x and y
  const float* x = nullptr;  // [images][in/lanes][height][width][lanes]
  const float* u = nullptr;  // transformed weights
  bool taps = false;         // u holds the plain weights, WeightJob::taps
  float* y = nullptr;        // [images][out/lanes][height][width][lanes]
  Epilogue epilogue;
  Schedule schedule;
};

/// 3x3 convolution of stride 2, padding 1, together with the 1x1 convolution of stride 2 of the shortcut.
/// Output height is (height + 1) / 2.
struct DownJob {
  int images = 0, height = 0, width = 0;  // of x
  int in = 0, out = 0;
  const float* x = nullptr;
  const float* u = nullptr;           // transformed 3x3 weights
  const float* u_shortcut = nullptr;  // shortcut weights, from `pack`
  float* y = nullptr;
  float* shortcut = nullptr;  // result of the 1x1 convolution
  Epilogue epilogue;          // of y
  const float* shortcut_bias = nullptr;
  Schedule schedule;
};

/// Data gradient of DownJob: from the gradients of both results to that of x.
struct DownGradJob {
  int images = 0, height = 0, width = 0;  // of dx
  int in = 0, out = 0;                    // channels of dx and of the gradients
  const float* g = nullptr;               // of y: [images][out/lanes][(height+1)/2][(width+1)/2][lanes]
  const float* g_shortcut = nullptr;      // of shortcut
  const float* u = nullptr;               // transposed transformed weights
  const float* u_shortcut = nullptr;      // from `pack`, transposed
  float* dx = nullptr;
  Epilogue epilogue;
  Schedule schedule;
};

/// Weight and bias gradients of a 3x3 convolution (and, with stride 2, of its shortcut) over a whole batch.
struct WeightGradJob {
  int images = 0, height = 0, width = 0;  // of x
  int in = 0, out = 0;                    // padded channels
  int in_real = 0, out_real = 0;          // channels of dw
  int stride = 1;
  const float* x = nullptr;
  const float* g = nullptr;
  const float* g_shortcut = nullptr;  // stride 2 only
  bool shared = true;                 // the team takes each block together; else each a part of the tiles
  int block = 128;                    // tiles (positions) per step
  float* v = nullptr;                 // GradSpace::v, of x; each thread's own unless shared
  float* d = nullptr;                 // GradSpace::d, of g, likewise
  float* du = nullptr;                // the team's: GradSpace::du, one if shared, else grad_parts()
  float* dw = nullptr;                // [out_real][in_real][3][3]
  float* db = nullptr;                // [out_real], may be null
  float* dw_shortcut = nullptr;       // [out_real][in_real]
  float* db_shortcut = nullptr;       // [out_real], may be null
};

/// Weights of a 3x3 convolution, plain, to transformed ones.
struct WeightJob {
  int in = 0, out = 0;  // of w
  int in_padded = 0, out_padded = 0;
  int stride = 1;
  bool transpose = false;        // for the data gradient
  const float* w = nullptr;      // [out][in][3][3]
  const float* scale = nullptr;  // [out] factor per output channel (folded normalisation), may be null
  float* u = nullptr;            // 36 matrices; may be null
  /// As they are, [n/lanes][k][9][lanes] with k what is read and n what is written: a quarter of the size,
  /// for passes of so few tiles that reading 36 matrices takes longer than making them; stride 1 only, may be
  /// null.
  float* taps = nullptr;
};

/// The window of the first convolution: 3x3 with stride 1, 7x7 with stride 2 or 4x4 with stride 4, and
/// whether max pooling (3x3, stride 2, padding 1) follows.
struct StemShape {
  int kernel = 3, stride = 1, pad = 1;
  bool pool = false;
  /// Pixels of the convolution's result along a side of so many.
  constexpr int out(int size) const { return (size + 2 * pad - kernel) / stride + 1; }
  /// The same after pooling.
  constexpr int pooled(int size) const { return pool ? (out(size) + 1) / 2 : out(size); }
};

/// The first convolution, on planar images with 1 to 4 channels.
struct StemJob {
  StemShape shape;
  int images = 0, height = 0, width = 0;
  int in = 0;                 // 1..4
  int out = 0, out_real = 0;  // padded and real channels
  const float* x = nullptr;   // [images][in][height][width]
  const float* w = nullptr;   // packed by stem_weights
  float* y = nullptr;         // [images][out/lanes][out(height)][out(width)][lanes]
  Epilogue epilogue;
  float* scratch = nullptr;  // private: stem_floats()
};

/// Max pooling after the first convolution; sizes are those of its result.
struct MaxPoolJob {
  int images = 0, height = 0, width = 0, channels = 0;
  const float* x = nullptr;  // [images][channels/lanes][height][width][lanes]
  float* y = nullptr;        // (height + 1) / 2 by (width + 1) / 2
  const float* g = nullptr;  // the gradient of y, on the way back
  float* dx = nullptr;       // and what it gives
  float* origin = nullptr;   // as y: which of nine pixels a value came from; written there, may be null
  Epilogue epilogue;         // of y
};

/// Gradients of the stem: to the image and to the weights.
struct StemGradJob {
  StemShape shape;
  int images = 0, height = 0, width = 0;
  int in = 0, out = 0, out_real = 0;
  const float* g = nullptr;  // [images][out/lanes][out(height)][out(width)][lanes]
  float* origin = nullptr;   // of pooling; g is then that of the pooled values
  float* raw = nullptr;      // private, where origin is set: one image's gradient before pooling
  const float* w = nullptr;  // packed by stem_weights (transposed part)
  float* dx = nullptr;       // [images][in][height][width]
  const float* x = nullptr;  // for the weight gradient
  float* partial = nullptr;  // shared: grad_parts() times stem_partial_floats()
  float* dw = nullptr;       // [out_real][in][kernel][kernel]
  float* db = nullptr;       // [out_real], may be null
  float* scratch = nullptr;  // private: stem_floats()
};

/// BatchNorm's result from its statistics; arrays per channel are padded.
struct NormJob {
  int images = 0, channels = 0, pixels = 0;
  const float* z = nullptr;      // [images][channels/lanes][pixels][lanes]
  const float* scale = nullptr;  // [channels]
  const float* shift = nullptr;
  const float* residual = nullptr;        // as z, may be null
  const float* residual_scale = nullptr;  // [channels], null for 1
  const float* residual_shift = nullptr;
  float slope = 0;  // of the activation
  float* y = nullptr;
  void* signs_out = nullptr;  // may be null
};

/// BatchNorm's gradient once its sums are known: dz = a * g + b * (z - mean) + c per channel.
struct NormGradJob {
  int images = 0, channels = 0, pixels = 0;
  const float* g = nullptr;
  const float* z = nullptr;
  const float* mean = nullptr;
  const float* a = nullptr;
  const float* b = nullptr;
  const float* c = nullptr;
  float* dz = nullptr;  // may be g
};

/// One instruction set's kernels.
struct Kernels {
  const char* name;
  int lanes;
  /// Not as exact as float: taken only by name.
  bool by_name_only;
  /// Weight gradients are summed by each thread for itself, so that their last bits follow the team's size.
  bool sums_follow_threads;
  /// Forward passes, and data gradients, can read their weights as taps.
  bool forward_taps, gradient_taps;

  /// Floats of a convolution's weights, kernel 3 or 1, for itself or for its data gradient.
  std::size_t (*weight_floats)(int in, int out, int kernel, bool gradient);
  /// How to cut a convolution for cores with so much cache, its work space then left to the caller.
  Schedule (*cut)(const Layer&, std::size_t l2_bytes);
  Space (*space)(const Layer&, const Schedule&);
  GradCut (*grad_cut)(const Layer&, std::size_t l2_bytes);
  GradSpace (*grad_space)(const Layer&, const GradCut&);

  void (*transform_weights)(const WeightJob&, const Team&);
  void (*conv)(const ConvJob&, const Team&);
  void (*conv_grad)(const ConvJob&, const Team&);  // data gradient
  void (*down)(const DownJob&, const Team&);
  void (*down_grad)(const DownGradJob&, const Team&);
  void (*weight_grad)(const WeightGradJob&, const Team&);  // needs a sync before it

  /// Packs the shortcut's [out][in] (or the transpose) as the products read it, padded with zeros.
  void (*pack)(const float* w, int out, int in, int out_padded, int in_padded, bool transpose,
               const float* scale, float* packed);
  /// The same as `multiply` reads it, whatever the products of this table read.
  void (*pack_rows)(const float* w, int out, int in, int out_padded, int in_padded, bool transpose,
                    const float* scale, float* packed);
  /// Packs the stem's weights [out][in][kernel][kernel]: forward panels, then those of the data gradient.
  void (*stem_weights)(const StemShape&, const float* w, int out, int in, int out_padded, const float* scale,
                       float* packed);
  void (*stem)(const StemJob&, const Team&);
  void (*max_pool)(const MaxPoolJob&, const Team&);
  void (*max_pool_grad)(const MaxPoolJob&, const Team&);
  void (*stem_data_grad)(const StemGradJob&, const Team&);
  /// Needs a sync before it.
  void (*stem_weight_grad)(const StemGradJob&, const Team&);

  /// C = A * B on one thread: A has `rows` rows in k_panels panels, B, from `pack`, n_panels panels of
  /// k_panels
  /// * lanes rows, C n_panels panels; matrices [columns/lanes][rows][lanes].
  void (*multiply)(const float* a, int rows, const float* b, int k_panels, int n_panels, float* c);

  /// Mean over the pixels: x [images][channels/lanes][pixels][lanes] -> features [images][real].
  void (*pool)(const float* x, int images, int channels, int real, int pixels, float* features, const Team&);
  /// Its gradient times the derivative of the activation whose signs are given.
  void (*pool_grad)(const float* dfeatures, int images, int channels, int real, int pixels, const void* signs,
                    float slope, float* dx, const Team&);

  /// y = g times the derivative of the activation whose signs are given; `vectors` of `lanes` values.
  void (*derive)(const float* g, const void* signs, float slope, long vectors, float* y, const Team&);

  /// Mean and biased variance per channel over images and pixels.
  void (*batch_stats)(const float* z, int images, int channels, int pixels, float* mean, float* var,
                      const Team&);
  void (*batch_apply)(const NormJob&, const Team&);
  /// Per channel the sums of g and of g * (z - mean).
  void (*batch_grad_sums)(const float* g, const float* z, const float* mean, int images, int channels,
                          int pixels, float* sum_g, float* sum_gz, const Team&);
  void (*batch_grad_apply)(const NormGradJob&, const Team&);

  /// Runs chains of fused multiply-adds for so many steps and returns the operations of one step.
  double (*fma_chain)(long steps);
};

/// Floats of a 3x3 convolution's weights as taps, padded channels.
constexpr std::size_t tap_floats(int in, int out) {
  return std::size_t(9) * in * out;
}

/// Parts in which a batch's weight gradients are summed, by whoever is free; they are added in their order,
/// so that results do not depend on who that was.
constexpr int grad_parts(int threads) {
  return threads > 4 ? 2 * threads : 8;
}

/// Columns of the stem's data gradient as a product: 4 channels of each tap, rows of taps padded to 4.
constexpr int stem_columns(const StemShape& s) {
  return s.kernel * ((s.kernel + 3) / 4 * 4) * 4;
}
/// Floats from one row to the next of the image that it adds up, 4 channels per pixel.
constexpr long stem_image_stride(const StemShape& s, int width) {
  return 4L * (width + 2 * s.pad + 8);
}
/// Floats of the stem's packed weights, work space and partial gradients.
constexpr std::size_t stem_weight_floats(const StemShape& s, int in, int out) {
  return std::size_t(s.kernel * s.kernel * in + stem_columns(s)) * out;
}
constexpr std::size_t stem_floats(const StemShape& s, int in, int height, int width, int lanes) {
  const std::size_t rows = height + 2 * s.pad;
  const std::size_t frame = in * rows * (width + 2 * s.pad + lanes);
  const std::size_t back = std::size_t(stem_columns(s)) * s.out(width) +
                           rows * static_cast<std::size_t>(stem_image_stride(s, width));
  return (frame > back ? frame : back) + 64;
}
constexpr std::size_t stem_partial_floats(const StemShape& s, int in, int out) {
  return std::size_t(s.kernel * s.kernel * in + 1) * out;
}

/// The instruction sets that this machine can run, best first ("amx", "avx512", "avx2"); empty where there is
/// none. EBCLR_INSTRUCTIONS=avx512, avx2 or none in the environment masks those beyond.
std::vector<const Kernels*> available_kernels();
/// The one of that name, or, if it is empty, the best that is as exact as float; null if this machine cannot
/// run it.
const Kernels* find_kernels(const std::string& name);
/// Kernels for chains whose products are of one bfloat16 each (bf16.h), in images of the layout of "avx512";
/// null if this machine cannot run them. Not among the above: their error is a hundredth, they have no weight
/// gradients.
const Kernels* bf16_kernels();

}  // namespace ebclr::cpu
