#pragma once
// The network as a sequence of operations, told to whoever writes it down. Formats that hold a computation
// (ONNX, TorchScript) are written from this one description, so that they cannot disagree.

#include <torch/types.h>

#include <string>
#include <vector>

#include "nn/encoder.h"

namespace ebclr::exporting {

/// What leaves the network: features before the head, projections behind it, or energies.
enum class Part { kFeatures, kProjection, kEnergy };

/// What is exported.
struct Network {
  nn::Encoder& encoder;
  nn::Head& head;
  Part part = Part::kFeatures;
  bool preprocess = false;        ///< the graph takes uint8 [N, H, W, C] instead of float [N, C, H, W]
  torch::Tensor references = {};  ///< energy: outputs [M, D] of the views that define the marginal
  double tau = 0.1;               ///< energy
};

/// Writes operations down; a value is what the format calls the result of one.
class GraphWriter {
 public:
  using Value = std::string;
  virtual ~GraphWriter() = default;
  /// uint8 [N, H, W, C] to float [N, C, H, W] in [-1, 1].
  virtual Value preprocess(const Value& x) = 0;
  virtual Value conv(const Value& x, const std::string& name, torch::nn::Conv2dImpl& conv) = 0;
  /// In inference mode; weight and bias are undefined where the layer has none.
  virtual Value batch_norm(const Value& x, const std::string& name, const torch::nn::Module& norm,
                           double epsilon) = 0;
  /// Leaky ReLU, ReLU for slope 0.
  virtual Value activation(const Value& x, double slope) = 0;
  virtual Value max_pool(const Value& x, int64_t kernel, int64_t stride, int64_t padding) = 0;
  virtual Value add(const Value& a, const Value& b) = 0;
  /// [N, C, H, W] -> [N, C].
  virtual Value spatial_mean(const Value& x) = 0;
  virtual Value linear(const Value& x, const std::string& name, torch::nn::LinearImpl& linear) = 0;
  /// f [N, D] -> [N]: minus the log-sum-exp over unit-length references [M, D] of (2 z.r - 2) / tau.
  virtual Value energy(const Value& f, const torch::Tensor& references, double tau) = 0;
};

/// Tells the whole network to a writer; returns the value that it ends in.
GraphWriter::Value describe(const Network& network, const GraphWriter::Value& input, GraphWriter& writer);

/// Parameters and buffers of the exported part by the names that files give them: torchvision's for the
/// encoder (layer1.0.downsample.0.weight), head.fc1.weight and so on behind it.
std::vector<std::pair<std::string, torch::Tensor>> named_state(const Network& network);

/// What the exported file must compute of a batch, by our own network.
torch::Tensor expected(const Network& network, const torch::Tensor& input);

/// "features", "projection" or "energy".
std::string name(Part part);
Part parse_part(const std::string& name);

}  // namespace ebclr::exporting
