#pragma once
// The whole encoder on the kernels: a residual network of basic blocks (docs/engine.md).
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
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cpu/buffer.h"
#include "cpu/chain.h"
#include "cpu/kernels.h"

namespace ebclr::cpu {

/// What the network is made of.
struct NetworkShape {
  int channels = 3;  // of the images, 1..4
  StemShape stem = {};
  int width = 64;  // channels of stage 1; doubled by each further stage
  std::array<int, 4> blocks = {2, 2, 2, 2};
  bool batch_norm = false;
  float slope = 0.2f;     // of the activation for negative values
  float epsilon = 1e-5f;  // BatchNorm
};

/// Cache that a core has for itself, as the operating system says; 512 KB where it does not.
std::size_t l2_bytes();
/// Cache that the cores share; 16 times l2_bytes where the operating system does not say.
std::size_t l3_bytes();

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

/// In place: the sum over all processes that share a batch; empty for a process alone. All of them must make
/// the same passes in the same order.
using BatchSum = std::function<void(std::span<double>)>;

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
  /// The same as taps, for passes of few images; empty for layers whose weights are small anyway.
  std::vector<Buffer> forward_taps, backward_taps;
  bool has_backward = false, has_taps = false;
};

/// What to make of the parameters.
struct LoadOptions {
  bool fold = false;      ///< multiply BatchNorm's running statistics into them (inference, sampling)
  bool backward = false;  ///< for data gradients too
  bool taps = false;      ///< for passes of few images too
};

/// What a forward pass keeps for its backward pass. Buffers return to the network's pool with it.
class Tape {
 public:
  ~Tape();
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  int images = 0, height = 0, width = 0;
  bool training = false;
  std::vector<long>
      values_per_channel;           // per convolution: images times pixels of the whole batch, BatchNorm only
  std::vector<Buffer> signs;        // per tensor (stem, then mid and out of each block), bits in floats
  std::vector<Buffer> activations;  // same numbering; training only
  std::vector<Buffer> raw;          // per convolution: results before BatchNorm; training with it only
  std::vector<Buffer> mean, var;    // per convolution: the batch's statistics (biased), BatchNorm only
  Buffer origin;                    // of the stem's max pooling

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

  /// Transforms parameters.
  void load(WeightSet& set, const std::vector<ConvParameters>& parameters, const LoadOptions& options) const;
  /// True if passes of so many images are quicker with taps (LoadOptions).
  bool wants_taps(int images, int height, int width) const;

  /// x [images][channels][height][width] -> features [images][8 * width].
  void infer(const WeightSet& weights, const float* x, int images, int height, int width, float* out);
  /// As infer, keeping the signs for input_gradient.
  std::unique_ptr<Tape> sample(const WeightSet& weights, const float* x, int images, int height, int width,
                               float* out);
  /// As infer, keeping all that `backward` needs. With BatchNorm the batch's own statistics are used, found
  /// in the tape afterwards; weights must not be folded. `sum`: the batch goes on in other processes.
  std::unique_ptr<Tape> train(const WeightSet& weights, const std::vector<ConvParameters>& parameters,
                              const float* x, int images, int height, int width, float* out,
                              const BatchSum& sum = {});

  /// Gradient to the images from that to the features, for tapes of `sample`.
  void input_gradient(const WeightSet& weights, const Tape& tape, const float* dfeatures, float* dx);
  /// Langevin chains (chain.h): v [images][channels][height][width] is moved in place, energies
  /// [steps][images] are those at the start of each step. One team for all steps; nothing is allocated
  /// between them.
  void chains(const WeightSet& weights, const EnergyHead& head, const ChainPlan& plan, float* v, int images,
              int height, int width, float* energies);
  /// All gradients, for tapes of `train`; dx may be null, and so may `gradients` be empty. With the `sum` of
  /// `train`, dx is that of the whole batch, the other gradients are this process's part.
  void backward(const WeightSet& weights, const std::vector<ConvParameters>& parameters, const Tape& tape,
                const float* x, const float* dfeatures, const std::vector<ConvGradients>& gradients,
                float* dx, const BatchSum& sum = {});

 private:
  struct Size {
    int height, width;
    int pixels() const { return height * width; }
  };
  /// One thread's work space.
  struct Worker {
    Buffer current, mid;  // activations of a chunk of images, or their gradients
    Buffer v, m;          // transformed tiles, products
    Buffer stem, raw;     // the stem's, and one image of it before max pooling
  };
  /// What all functions of a pass need to know.
  struct Pass {
    const WeightSet& weights;
    int images, height, width;
    int cut = kNoCut;  // of the gradient, see ChainPlan; it then ends before the activation's derivative
  };
  static constexpr int kNoCut = -1;

  class Chunks;
  class NormForward;
  class Backward;
  /// How the threads divide a stage: images; or, all of them going through each layer together, its tiles or
  /// its output channels.
  enum class Share { kImages, kTiles, kChannels };
  /// What a thread has while it takes images through a stage.
  struct StageWork;

  int stage_channels(int stage) const;  // padded
  Size stage_size(int stage, const Pass& pass) const;
  Size stem_size(const Pass& pass) const;  // before pooling
  std::size_t image_floats(int stage, const Pass& pass) const;
  int chunk(int stage, const Pass& pass) const;
  int stage_of_tensor(int tensor) const;
  int stage_of_conv(int conv) const;
  long stage_tiles(int stage, const Pass& pass) const;
  std::size_t weight_bytes(int stage) const;
  Share share(int stage, const Pass& pass) const;
  bool has_taps(const ConvLayer& conv, bool gradient) const;
  bool few_tiles(int stage, const Pass& pass) const;
  bool reads_taps(int conv, int stage, const Pass& pass, bool gradient) const;
  const float* weights_of(int conv, const Pass& pass, bool gradient) const;
  Layer layer_of(const ConvLayer& conv, int stage, const Pass& pass, bool gradient) const;
  Schedule schedule(int conv, int stage, const Pass& pass, bool gradient) const;
  Schedule schedule(int conv, int stage, const Pass& pass, bool gradient, Worker& worker);
  ConvJob conv_job(int conv, int stage, const Pass& pass, int images, bool gradient, Worker& worker);
  template <class Job>
  Job stride_job(const BlockLayer& block, const Pass& pass, int images, bool gradient, Worker& worker);
  DownJob down_job(const BlockLayer& block, const Pass& pass, int images, Worker& worker);
  DownGradJob down_grad_job(const BlockLayer& block, const Pass& pass, int images, Worker& worker);

  void load_conv(WeightSet& set, std::size_t conv, const ConvParameters& parameters, const float* scale,
                 bool transpose, const Team& team) const;
  void prepare(const Pass& pass, bool stage_buffers);
  std::unique_ptr<Tape> new_tape(const Pass& pass, bool training) const;
  char* signs(Tape& tape, int tensor, const Pass& pass, long image) const;
  const char* signs(const Tape& tape, int tensor, const Pass& pass, long image) const;

  void forward_stage(const Pass& pass, int stage, const float* x, Tape* tape, float* out, const Team& team);
  void forward_stem(const StageWork& work, const float* x, Tape* tape, float* y);
  void forward_block(const StageWork& work, int block, Tape* tape, float*& current);
  void backward_stage(const Pass& pass, int stage, const Tape& tape, const float* dfeatures, float* dx,
                      const Team& team);
  void backward_block(const StageWork& work, int block, const Tape& tape, float* gradient);
  void backward_stem(const StageWork& work, const Tape& tape, const float* gradient, float* dx);
  void forward_stages(const Pass& pass, const float* x, Tape* tape, float* out, const Team& team);
  void backward_stages(const Pass& pass, const Tape& tape, const float* dfeatures, float* dx,
                       const Team& team);
  int cut_block(const Pass& pass) const;
  void clear_taken(const Team& team);
  void langevin_step(const ChainPlan& plan, long number, long values, long total, const float* dv, float* v,
                     const Team& team) const;
  void forward_to_cut(const Pass& pass, const float* x, Tape& tape, const Team& team);
  void backward_from_cut(const Pass& pass, const Tape& tape, const float* costate, float* dx,
                         const Team& team);
  void run_forward(const Pass& pass, const float* x, Tape* tape, float* out);
  void forward_norm(const Pass& pass, const std::vector<ConvParameters>& parameters, const float* x,
                    Tape& tape, float* out, const BatchSum& sum);
  void train_backward(const Pass& pass, const std::vector<ConvParameters>& parameters, const Tape& tape,
                      const float* x, const float* dfeatures, const std::vector<ConvGradients>& gradients,
                      float* dx, const BatchSum& sum);
  StemJob stem_job(const Pass& pass, int images, Worker& worker) const;
  StemGradJob stem_grad_job(const Pass& pass, int images, const Tape& tape, Worker& worker) const;

  NetworkShape shape_;
  const Kernels& kernels_;
  int threads_;
  std::size_t l2_bytes_, l3_bytes_;
  std::vector<ConvLayer> convs_;
  std::vector<BlockLayer> blocks_;
  std::shared_ptr<BufferPool> pool_;
  std::vector<Worker> workers_;
  Worker common_;  // of the stages that the team takes together
  // Images of each stage that somebody has taken in this pass, there and back.
  std::array<std::atomic<long>, 4> taken_there_, taken_back_;
  // What a stage hands on: its last activation, or on the way back its gradient.
  std::array<Buffer, 4> stage_;
};

}  // namespace ebclr::cpu
