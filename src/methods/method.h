#pragma once
// What every way of learning has in common. A method builds a loss from two views and keeps whatever lives
// across steps; it knows no optimizer, no clock and no file.

#include <torch/nn/module.h>
#include <torch/types.h>

#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "dist/group.h"
#include "ebm/balance.h"
#include "ebm/objective.h"
#include "ebm/replay_buffer.h"
#include "ebm/sampler.h"
#include "nn/encoder.h"

namespace ebclr::methods {

/// Where the new chains come from.
enum class Proposal { kData, kUniform };

/// Raises the number of SGLD steps when chains cannot reach the energy of data (the 200-epoch runs). Short
/// for a balance of the steps with an increment.
struct AdaptiveStepsOptions {
  bool on = false;
  int64_t window = 200;    ///< steps over which the mean gap is taken
  double threshold = 1.0;  ///< mean E(samples) - mean E(data) above which T grows
  int64_t increment = 5;
  int64_t limit = 40;  ///< T never grows above
};

struct EbclrOptions {
  ebm::ObjectiveOptions objective;
  ebm::SamplerOptions sampler;
  ebm::BufferOptions buffer;
  AdaptiveStepsOptions adaptive;
  ebm::BalanceOptions balance;
  double chains = 0;  ///< a step; 0: one per image (the paper), below 1: a share of the batch
  Proposal proposal = Proposal::kData;
  int cut = 0;  ///< YOPO: 0 cuts after the stem, 1 after the first stage
};

struct SimclrOptions {
  double temperature = 0.5;  ///< of the cosine
};

struct MocoOptions {
  double temperature = 0.2;
  double momentum = 0.999;
  int64_t queue = 4096;
  bool symmetric = false;
};

struct SimsiamOptions {
  int64_t predictor_hidden = 512;
  bool fixed_predictor_lr = true;
  bool stop_gradient = true;  ///< off only to show the collapse
};

struct ByolOptions {
  double momentum = 0.99;     ///< at the start
  double momentum_end = 1.0;  ///< reached by a cosine over the run
  int64_t predictor_hidden = 4096;
};

/// Everything that decides what is built.
struct MethodOptions {
  std::string name = "ebclr";  ///< ebclr, simclr, moco, simsiam, byol or supervised
  nn::EncoderOptions encoder;
  nn::HeadOptions head;  ///< head.in is set from the encoder
  EbclrOptions ebclr;    ///< supervised: the generative term of its joint objective, its sampler and chains
  SimclrOptions simclr;
  MocoOptions moco;
  SimsiamOptions simsiam;
  ByolOptions byol;
  uint64_t seed = 0;
};

/// One step's input.
struct StepInput {
  torch::Tensor view1, view2;  ///< [N, C, H, W] in [-1, 1] on the method's device: this rank's share
  int64_t step = 0;            ///< global number of the step, from 0
  double progress = 0;         ///< part of the run that is done, in [0, 1)
  int64_t total = 0;           ///< images of the step over all ranks; 0: those of view1
  torch::Tensor labels = {};   ///< int64 [N], of view1's images; undefined where the set has none

  int64_t images() const { return total > 0 ? total : view1.size(0); }
};

/// One step's outcome: a scalar loss with its graph, and what to log. All of it is of the whole batch, the
/// same on every rank; the graph leads to this rank's share.
struct StepOutput {
  torch::Tensor loss;
  std::vector<std::pair<std::string, double>> metrics;
  torch::Tensor projections;  ///< detached outputs f(v1) [N, D], for the collapse watch; undefined: none
};

/// Parameters that share a learning rate.
struct ParameterGroup {
  std::vector<torch::Tensor> parameters = {};
  bool fixed_lr = false;  ///< the schedule does not touch it
};

/// A network of a method and what training does to it.
struct MethodModule {
  std::string name;  ///< "encoder": prefix of its tensors in a checkpoint
  std::shared_ptr<torch::nn::Module> module;
  enum { kLearns, kLearnsAtFixedRate, kFollows } role = kLearns;  ///< kFollows: the optimizer leaves it alone
};

/// Largest absolute value of a metric; beyond it a step counts as diverged.
struct MetricLimit {
  std::string metric;
  double value = 0;
};

class Method {
 public:
  virtual ~Method() = default;

  /// The loss of one step; the caller runs backward and the optimizer.
  virtual StepOutput step(const StepInput& input) = 0;
  /// After the optimizer moved the weights: targets, queues, chains.
  virtual void after_update(const StepInput& input) {}

  /// All its networks, in a fixed order.
  virtual std::vector<MethodModule> modules();
  /// What the optimizer moves.
  std::vector<ParameterGroup> parameter_groups();
  /// Every tensor that a checkpoint must hold, by name; the replay buffer is separate.
  virtual std::vector<std::pair<std::string, torch::Tensor>> state();
  /// What does not fit a tensor: counters, adapted values.
  virtual nlohmann::json small_state() const;
  virtual void load_small_state(const nlohmann::json& state);
  /// The chains, if the method has any.
  virtual ebm::ReplayBuffer* buffer() { return nullptr; }
  /// Starts the random part anew with other randomness (after divergence).
  virtual void reseed(uint64_t seed) {}
  /// Cost of one step of `batch` images, per image, in encoder forwards of one view.
  virtual double forward_units(int64_t batch) const = 0;
  /// Metrics that cannot be right beyond a bound.
  virtual std::vector<MetricLimit> limits() const { return {}; }
  /// What a user should know before training starts, one line each.
  virtual std::vector<std::string> warnings() const { return {}; }

  /// Training or inference mode of all its networks.
  void train(bool on = true);

  nn::Encoder& encoder() { return *encoder_; }
  /// All encoders, the momentum ones included; each may get a faster backend.
  std::vector<std::shared_ptr<nn::Encoder>> encoders();
  nn::Head& head() { return *head_; }
  std::shared_ptr<nn::Head> shared_head() { return head_; }
  virtual void to(torch::Device device);

 protected:
  explicit Method(const MethodOptions& options, std::shared_ptr<dist::Group> ranks = dist::solo());

  /// Outputs [n, D_i] of this rank's share of `total` rows -> [total, D_i] of all ranks; the gradient is that
  /// of this rank's rows.
  std::vector<torch::Tensor> gather(const std::vector<torch::Tensor>& outputs, int64_t total) {
    return dist::gather_for_loss(*ranks_, outputs, total);
  }

  std::shared_ptr<dist::Group> ranks_;
  std::shared_ptr<nn::Encoder> encoder_;
  std::shared_ptr<nn::Head> head_;
};

/// Makes the sampler that the options describe.
using SamplerMaker = std::function<std::unique_ptr<ebm::Sampler>(const ebm::SamplerOptions&)>;

/// Images of the run as the method needs them for proposals.
struct MethodContext {
  ebm::ProposalSource data_proposals;  ///< augmented training images
  std::vector<int64_t> image_shape;    ///< {C, H, W}
  int64_t train_images = 0;
  int64_t batch = 0;                              ///< images per step; needed where `sampler.chains` is set
  SamplerMaker make_sampler = ebm::make_sampler;  ///< a sampler from outside takes its place
  std::shared_ptr<dist::Group> ranks = dist::solo();  ///< that train together
};

/// Name in configurations of a method that a program brings along (include/ebclr/method.h).
inline constexpr const char* kCustomMethod = "custom";
/// Name of the method that learns from labels.
inline constexpr const char* kSupervised = "supervised";

/// The method of that name; throws Error naming the choices.
std::unique_ptr<Method> make_method(const MethodOptions& options, const MethodContext& context);
/// Names of all methods.
const std::vector<std::string>& method_names();
/// Cost of one step of `batch` images, per image, in encoder forwards of one view: what the options say,
/// before any balance has changed them.
double forward_units(const MethodOptions& options, int64_t batch);
/// Fits the options to a set with so many classes: the head of `supervised` has an output for each. Throws
/// Error when that needs more classes.
void fit_to_classes(MethodOptions& options, int64_t classes);
/// Images that a step of the method needs at least.
int64_t least_batch(const std::string& method);

/// Puts the value of a balance (adaptive T included) into the setting that it moves.
void apply_balance(EbclrOptions& options, double value);
/// EBCLR's chains in a step of `batch` images; throws Error where `chains` is neither a share nor a whole
/// number.
int64_t chains_of(double chains, int64_t batch);
/// |B| with that many chains a step: `size` is meant for one chain per image, and visits to a chain stay as
/// frequent.
int64_t buffer_size_of(int64_t size, double chains, int64_t batch);

/// Unit-row projections' standard deviation per dimension, averaged; healthy near 1/sqrt(D).
double projection_spread(const torch::Tensor& outputs);

}  // namespace ebclr::methods
