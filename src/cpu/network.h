#pragma once
// The whole encoder on the kernels: a residual network of basic blocks with a 3x3 stem (docs/engine.md).
//
// Three ways through it, which share their steps:
//   infer     nothing is kept;
//   sample    signs of the activations are kept, one bit each: all that the input gradient needs;
//   train     activations are kept too, for the weight gradients.
// Without BatchNorm (or with its running statistics folded into the weights) each thread takes a few images
// at a time through a whole stage, so that activations stay in its cache, and then takes the next that nobody
// has. BatchNorm in training needs the statistics of the whole batch after each convolution and goes layer by
// layer.

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "cpu/buffer.h"
#include "cpu/kernels.h"

namespace ebclr::cpu {

/// What the network is made of.
struct NetworkShape {
  int channels = 3;  // of the images, 1..4
  int width = 64;    // channels of stage 1; doubled by each further stage
  std::array<int, 4> blocks = {2, 2, 2, 2};
  bool batch_norm = false;
  float slope = 0.2f;     // of the activation for negative values
  float epsilon = 1e-5f;  // BatchNorm
};

/// Cache that a core has for itself, as the operating system says; 512 KB where it does not.
std::size_t l2_bytes();

/// Why the kernels cannot run this shape on images of this size; empty if they can.
std::string unsupported(const NetworkShape& shape, int height, int width);

/// One convolution's parameters; pointers are read during a call only. Order of a network's list: the stem,
/// then of each block conv1, conv2 and, where there is one, the shortcut.
struct ConvParameters {
  const float* weight = nullptr;  // [out][in][k][k]
  const float* bias = nullptr;    // [out], without BatchNorm
  const float* gamma = nullptr;   // [out] each, with BatchNorm
  const float* beta = nullptr;
  const float* running_mean = nullptr;
  const float* running_var = nullptr;
};

/// Where one convolution's gradients go; every pointer that the network's kind has must be set.
struct ConvGradients {
  float* weight = nullptr;
  float* bias = nullptr;
  float* gamma = nullptr;
  float* beta = nullptr;
};

/// One convolution of the network, with padded and real channel counts.
struct ConvLayer {
  int in, out;  // padded; the stem's `in` is that of the image
  int in_real, out_real;
  int kernel, stride;
};

/// One basic block; numbers index the list of convolutions.
struct BlockLayer {
  int stage;
  int conv1, conv2;
  int shortcut;  // -1 for the identity
};

/// Weights as the kernels want them, made once per change of the parameters.
class WeightSet {
 public:
  /// Biases in padded channels; with folded BatchNorm its shift.
  std::vector<Buffer> bias;
  std::vector<Buffer> forward, backward;  // per convolution; `backward` only once it has been asked for
  bool has_backward = false;
};

/// What a forward pass keeps for its backward pass. Buffers return to the network's pool with it.
class Tape {
 public:
  ~Tape();
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  int images = 0, height = 0, width = 0;
  bool training = false;
  std::vector<long> values_per_channel;  // per convolution: images times pixels, BatchNorm only
  std::vector<Buffer> signs;             // per tensor (stem, then mid and out of each block), bits in floats
  std::vector<Buffer> activations;       // same numbering; training only
  std::vector<Buffer> raw;               // per convolution: results before BatchNorm; training with it only
  std::vector<Buffer> mean, var;         // per convolution: the batch's statistics (biased), BatchNorm only

 private:
  friend class Network;
  explicit Tape(std::shared_ptr<BufferPool> pool) : pool_(std::move(pool)) {}
  std::shared_ptr<BufferPool> pool_;
};

/// An encoder's plan, weights and work space. Calls must not overlap.
class Network {
 public:
  /// `cache_bytes`: cache of one core that work is cut for; 0 for this machine's.
  Network(const NetworkShape& shape, const Kernels& kernels, int threads, std::size_t cache_bytes = 0);

  const NetworkShape& shape() const { return shape_; }
  /// All convolutions in the order of their parameters.
  const std::vector<ConvLayer>& convs() const { return convs_; }
  /// Channels of the features.
  int features() const { return 8 * shape_.width; }
  /// Most memory that tapes, weights and work space have taken so far, in bytes.
  std::size_t peak_bytes() const;

  /// Transforms parameters. `fold` multiplies BatchNorm's running statistics into them (inference, sampling).
  void load(WeightSet& set, const std::vector<ConvParameters>& parameters, bool fold, bool backward) const;

  /// x [images][channels][height][width] -> features [images][8 * width].
  void infer(const WeightSet& weights, const float* x, int images, int height, int width, float* out);
  /// As infer, keeping the signs for input_gradient.
  std::unique_ptr<Tape> sample(const WeightSet& weights, const float* x, int images, int height, int width,
                               float* out);
  /// As infer, keeping all that `backward` needs. With BatchNorm the batch's own statistics are used, found
  /// in the tape afterwards; weights must not be folded.
  std::unique_ptr<Tape> train(const WeightSet& weights, const std::vector<ConvParameters>& parameters,
                              const float* x, int images, int height, int width, float* out);

  /// Gradient to the images from that to the features, for tapes of `sample`.
  void input_gradient(const WeightSet& weights, const Tape& tape, const float* dfeatures, float* dx);
  /// All gradients, for tapes of `train`; dx may be null, and so may `gradients` be empty.
  void backward(const WeightSet& weights, const std::vector<ConvParameters>& parameters, const Tape& tape,
                const float* x, const float* dfeatures, const std::vector<ConvGradients>& gradients,
                float* dx);

 private:
  struct Size {
    int height, width;
    int pixels() const { return height * width; }
  };
  /// One thread's work space.
  struct Worker {
    Buffer current, mid;  // activations of a chunk of images, or their gradients
    Buffer v, m;          // transformed tiles and products
    Buffer stem;
  };
  /// What all functions of a pass need to know.
  struct Pass {
    const WeightSet& weights;
    int images, height, width;
  };

  class Chunks;

  int stage_channels(int stage) const;  // padded
  Size stage_size(int stage, const Pass& pass) const;
  std::size_t image_floats(int stage, const Pass& pass) const;
  int chunk(int stage, const Pass& pass) const;
  int stage_of_tensor(int tensor) const;
  int stage_of_conv(int conv) const;
  bool together(int stage) const;
  Layer layer_of(const ConvLayer& conv, int stage, const Pass& pass, bool gradient) const;
  Schedule schedule(const Layer& layer, int stage) const;
  Schedule schedule(const Layer& layer, int stage, Worker& worker);

  void prepare(const Pass& pass, bool stage_buffers);
  std::unique_ptr<Tape> new_tape(const Pass& pass, bool training) const;
  char* signs(Tape& tape, int tensor, const Pass& pass, long image) const;
  const char* signs(const Tape& tape, int tensor, const Pass& pass, long image) const;

  void forward_stage(const Pass& pass, int stage, const float* x, Tape* tape, float* out, const Team& team);
  void backward_stage(const Pass& pass, int stage, const Tape& tape, const float* dfeatures, float* dx,
                      const Team& team);
  void run_forward(const Pass& pass, const float* x, Tape* tape, float* out);
  void forward_norm(const Pass& pass, const std::vector<ConvParameters>& parameters, const float* x,
                    Tape& tape, float* out);
  void backward_layers(const Pass& pass, const std::vector<ConvParameters>& parameters, const Tape& tape,
                       const float* x, const float* dfeatures, const std::vector<ConvGradients>& gradients,
                       float* dx);

  NetworkShape shape_;
  const Kernels& kernels_;
  int threads_;
  std::size_t l2_bytes_;
  std::vector<ConvLayer> convs_;
  std::vector<BlockLayer> blocks_;
  std::shared_ptr<BufferPool> pool_;
  std::vector<Worker> workers_;
  Worker common_;                           // of the stages that the team takes together
  std::array<std::atomic<long>, 4> taken_;  // images of each stage that somebody has taken in this pass
  std::array<Buffer, 4>
      stage_;  // what a stage hands on: its last activation, or on the way back its gradient
};

}  // namespace ebclr::cpu
