#pragma once
// The paper's encoder (ResNet with the CIFAR stem, or one for larger images) and projection heads. The torch
// code here is the reference, the fallback and the GPU path; a faster backend may be plugged in behind
// `forward`.

#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "nn/batch_sum.h"

namespace ebclr::nn {

/// kSws: no normalisation of activations, but standardised weights (nn/standardised.h) and SkipInit.
enum class Norm { kNone, kBatch, kSws };
enum class Activation { kLeakyRelu, kRelu };
/// kTorch: libtorch's defaults (the paper's). kResidual: Kaiming for the activation, each block's last
/// convolution scaled by 0.35, zero biases; it matters without BatchNorm (docs/fidelity.md).
enum class Init { kTorch, kResidual };
/// What stands before the first stage. kCifar: 3x3 at full resolution (the paper's). kImagenet: 7x7 with
/// stride 2 and 3x3 max pooling with stride 2, torchvision's shapes and names. kPatch: 4x4 with stride 4,
/// each pixel in exactly one window, so that its gradient is spread evenly. The last two hand the stages a
/// quarter of the side.
enum class Stem { kCifar, kImagenet, kPatch };

/// Negative slope of the leaky ReLU, that of the released code; the paper gives none.
inline constexpr double kLeakySlope = 0.2;
/// Least height and width of an image that survives the strides.
inline constexpr int64_t kSmallestSide = 16;

struct EncoderOptions {
  std::string arch = "resnet18";  ///< resnet18, resnet34 or resnet50
  int64_t width = 64;             ///< channels of the stem; the last stage has 8 times as many
  int64_t channels = 3;           ///< 1 or 3
  Norm norm = Norm::kNone;
  Activation activation = Activation::kLeakyRelu;
  Init init = Init::kTorch;  ///< with kSws the scale of the first weights does not matter
  double skip = 0;           ///< kSws: first factor of each residual branch
  Stem stem = Stem::kCifar;
};

/// Negative slope of an activation (0 for ReLU).
double slope_of(Activation activation);
/// The activation as a function.
torch::Tensor activate(const torch::Tensor& x, Activation activation);

class Head;

/// Langevin chains on images along the marginal energy of encoder and head, all steps at once; ebm/sampler.h
/// says what the numbers mean.
struct ChainJob {
  Head& head;
  torch::Tensor references;  ///< [M, D] outputs of the head
  double tau = 0.1;
  int64_t steps = 10;
  int64_t inner = 0;                   ///< YOPO's steps for each of these; 0 without
  int cut = 0;                         ///< YOPO's layer, as of forward_to_cut
  double step_size = 0.05, clamp = 1;  ///< clamp 0 switches it off
  torch::Tensor sigma;                 ///< [N] float
  bool bfloat16 = false;               ///< products in bfloat16, where the backend has them
  /// Fills `out` with the numbers from `first` on of the run's noise [all steps, N, C, H, W].
  std::function<void(int64_t first, std::span<float> out)> noise;
};
/// What became of them.
struct ChainEnd {
  torch::Tensor chains;    ///< [N, C, H, W]
  torch::Tensor energies;  ///< [steps, N], at the start of each step
};

/// Faster way to compute what Encoder::forward computes, with the same gradients.
class EncoderBackend {
 public:
  virtual ~EncoderBackend() = default;
  /// x [N, C, H, W] float -> features [N, D]; joins autograd like any torch function.
  virtual torch::Tensor forward(const torch::Tensor& x) = 0;
  /// Whether `run_chains` takes chains v [N, C, H, W] along the energy of this head.
  virtual bool takes_chains(const torch::Tensor& /*v*/, Head& /*head*/) { return false; }
  /// Whether it knows ChainJob::bfloat16 on this machine.
  virtual bool has_bfloat16_chains() const { return false; }
  /// Moves chains from v on; no gradient flows.
  virtual ChainEnd run_chains(const torch::Tensor& /*v*/, const ChainJob& /*job*/) { return {}; }
};

class StandardisedConv;
struct PlainConv;

/// A residual block, basic (resnet18/34) or bottleneck (resnet50).
class Block : public torch::nn::Module {
 public:
  Block(bool bottleneck, int64_t in, int64_t planes, int64_t stride, const EncoderOptions& options);
  torch::Tensor forward(const torch::Tensor& x);
  /// The convolution whose output joins the shortcut.
  torch::nn::Conv2d last_conv() { return bottleneck_ ? conv3 : conv2; }

  torch::nn::Conv2d conv1{nullptr}, conv2{nullptr}, conv3{nullptr};
  torch::nn::BatchNorm2d bn1{nullptr}, bn2{nullptr}, bn3{nullptr};
  torch::nn::Sequential shortcut{nullptr};

 private:
  friend class Encoder;
  /// Convolution `i` (the shortcut's is the last) of t, with what normalises it.
  torch::Tensor apply(size_t i, const torch::Tensor& t);

  struct Layer {
    torch::nn::Conv2d conv{nullptr};
    torch::nn::BatchNorm2d norm{nullptr};
    std::shared_ptr<StandardisedConv> standardised = nullptr;  // null without kSws
  };
  std::vector<Layer> layers_;  // conv1, conv2(, conv3)(, shortcut)
  BatchSum batch_sum_;
  bool bottleneck_;
  Activation activation_;
};

/// Images to features. Parameter names are those of the paper's released code; with Stem::kImagenet those of
/// torchvision's ResNets, which differ in one word (downsample instead of shortcut).
class Encoder : public torch::nn::Module {
 public:
  /// Weights are drawn from `seed` alone.
  Encoder(const EncoderOptions& options, uint64_t seed);

  /// x [N, C, H, W] in [-1, 1], H and W from kSmallestSide, multiples of 4 with Stem::kPatch -> features [N,
  /// feature_dim()].
  torch::Tensor forward(const torch::Tensor& x);
  /// The plain torch path, whatever backend is set.
  torch::Tensor forward_reference(const torch::Tensor& x);
  /// First part of the network up to a cut after a non-linearity: 0 after the stem, 1 after the first stage.
  torch::Tensor forward_to_cut(const torch::Tensor& x, int cut);
  /// The rest of it: forward_from_cut(forward_to_cut(x, cut), cut) == forward_reference(x).
  torch::Tensor forward_from_cut(const torch::Tensor& h, int cut);

  /// Every convolution as weight and bias, without BatchNorm: the stem; conv1, conv2(, conv3)(, shortcut) of
  /// each block. Standardised ones join autograd where their raw weights ask for a gradient.
  std::vector<PlainConv> plain_convolutions();
  /// The same function of images in inference mode as a network of convolutions with biases alone:
  /// standardised weights are written out, BatchNorm's running statistics folded in. For export.
  std::shared_ptr<Encoder> folded();

  /// Sets or clears (nullptr) the faster backend.
  void set_backend(std::shared_ptr<EncoderBackend> backend) { backend_ = std::move(backend); }
  bool has_backend() const { return backend_ != nullptr; }
  /// The backend in use, or null.
  const EncoderBackend* backend() const { return backend_.get(); }
  EncoderBackend* backend() { return backend_.get(); }

  /// Where BatchNorm in training takes its sums; empty (the default) for this process alone.
  void set_batch_sum(const BatchSum& sum);
  const BatchSum& batch_sum() const { return batch_sum_; }

  const EncoderOptions& options() const { return options_; }
  int64_t feature_dim() const { return feature_dim_; }
  /// Blocks of each of the four stages.
  const std::vector<std::vector<std::shared_ptr<Block>>>& stages() const { return stages_; }

  torch::nn::Conv2d conv1{nullptr};
  torch::nn::BatchNorm2d bn1{nullptr};

 private:
  torch::Tensor stem(const torch::Tensor& x);
  std::vector<Block::Layer> layers();
  torch::Tensor run_stages(torch::Tensor h, size_t first, size_t last);

  EncoderOptions options_;
  int64_t feature_dim_;
  std::shared_ptr<StandardisedConv> standardised_;  // of the stem, null without kSws
  std::vector<std::vector<std::shared_ptr<Block>>> stages_;
  std::shared_ptr<EncoderBackend> backend_;
  BatchSum batch_sum_;
};

/// An MLP with named layers fc1, fc2, ... as in the released code.
struct HeadOptions {
  int64_t in = 512, hidden = 512, out = 128;
  int layers = 2;             ///< 2 or 3
  bool hidden_norm = false;   ///< BatchNorm after hidden layers
  bool output_norm = false;   ///< BatchNorm after the last layer
  bool output_affine = true;  ///< that BatchNorm has weight and bias
  Activation activation = Activation::kLeakyRelu;
};

/// Projection or prediction head.
class Head : public torch::nn::Module {
 public:
  Head(const HeadOptions& options, uint64_t seed);
  /// x [N, in] -> [N, out]
  torch::Tensor forward(torch::Tensor x);
  /// As of Encoder.
  void set_batch_sum(const BatchSum& sum) { batch_sum_ = sum; }
  const HeadOptions& options() const { return options_; }
  /// Its linear layers, first to last.
  const std::vector<torch::nn::Linear>& linears() const { return linears_; }

 private:
  HeadOptions options_;
  std::vector<torch::nn::Linear> linears_;
  std::vector<torch::nn::BatchNorm1d> norms_;  // nullptr holders where a layer has none
  BatchSum batch_sum_;
};

/// An encoder and the head behind it.
struct Networks {
  std::shared_ptr<Encoder> encoder;
  std::shared_ptr<Head> head;
};

/// A head that reads so many features; a hidden width of 0 is that width.
HeadOptions fitted(HeadOptions head, int64_t features);
/// Both with their first weights, the head fitted to what the encoder gives.
Networks make_networks(const EncoderOptions& encoder, const HeadOptions& head, uint64_t seed);

/// While alive, no parameter of the modules asks for a gradient: sampling computes input gradients only.
class FreezeParameters {
 public:
  explicit FreezeParameters(std::initializer_list<torch::nn::Module*> modules);
  ~FreezeParameters();
  FreezeParameters(const FreezeParameters&) = delete;
  FreezeParameters& operator=(const FreezeParameters&) = delete;

 private:
  std::vector<torch::Tensor> frozen_;
};

/// Parameters and buffers by name, prefix + name; for checkpoints.
std::vector<std::pair<std::string, torch::Tensor>> state_of(const torch::nn::Module& module,
                                                            const std::string& prefix);

/// Copies parameters and buffers of `from` into `to` (same structure).
void copy_state(const torch::nn::Module& from, torch::nn::Module& to);

/// A stem by its configuration name; throws Error naming the choices.
Stem parse_stem(const std::string& name);

}  // namespace ebclr::nn
