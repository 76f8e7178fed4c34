#include "export/network.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <map>

#include "core/error.h"
#include "ebm/objective.h"

namespace ebclr::exporting {
namespace {

// The paper's code says shortcut where torchvision says downsample.
std::string public_name(std::string name) {
  constexpr std::string_view ours = ".shortcut.";
  if (const auto at = name.find(ours); at != std::string::npos) name.replace(at, ours.size(), ".downsample.");
  return name;
}

std::map<const torch::nn::Module*, std::string> names_of(const torch::nn::Module& module,
                                                         const std::string& prefix) {
  std::map<const torch::nn::Module*, std::string> names;
  for (const auto& item : module.named_modules("", /*include_self=*/false))
    names[item.value().get()] = prefix + public_name(item.key());
  return names;
}

class Describer {
 public:
  Describer(const Network& network, GraphWriter& writer)
      : network_(network), writer_(writer), names_(names_of(network.encoder, "")) {}

  GraphWriter::Value encoder(GraphWriter::Value x) {
    auto& e = network_.encoder;
    const double slope = nn::slope_of(e.options().activation);
    x = writer_.activation(norm_conv(x, *e.conv1, e.bn1), slope);
    if (e.options().stem == nn::Stem::kImagenet) x = writer_.max_pool(x, 3, 2, 1);
    for (const auto& stage : e.stages())
      for (const auto& b : stage) {
        auto h = writer_.activation(norm_conv(x, *b->conv1, b->bn1), slope);
        h = norm_conv(h, *b->conv2, b->bn2);
        if (!b->conv3.is_empty()) h = norm_conv(writer_.activation(h, slope), *b->conv3, b->bn3);
        if (!b->shortcut.is_empty()) x = sequence(x, *b->shortcut);
        x = writer_.activation(writer_.add(h, x), slope);
      }
    return writer_.spatial_mean(x);
  }

  GraphWriter::Value head(GraphWriter::Value x) {
    auto& h = network_.head;
    const auto children = h.named_children();
    for (int i = 1; i <= h.options().layers; ++i) {
      const auto fc = fmt::format("fc{}", i), bn = fmt::format("bn{}", i);
      x = writer_.linear(x, "head." + fc, *children[fc]->as<torch::nn::Linear>());
      if (const auto* norm = children.find(bn))
        x = writer_.batch_norm(x, "head." + bn, **norm, (*norm)->as<torch::nn::BatchNorm1d>()->options.eps());
      if (i < h.options().layers) x = writer_.activation(x, nn::slope_of(h.options().activation));
    }
    return x;
  }

 private:
  GraphWriter::Value norm_conv(const GraphWriter::Value& x, torch::nn::Conv2dImpl& conv,
                               torch::nn::BatchNorm2d& norm) {
    const auto y = writer_.conv(x, names_.at(&conv), conv);
    return norm.is_empty() ? y : writer_.batch_norm(y, names_.at(norm.get()), *norm, norm->options.eps());
  }
  // A convolution and perhaps its normalisation.
  GraphWriter::Value sequence(GraphWriter::Value x, const torch::nn::SequentialImpl& layers) {
    for (const auto& layer : layers.children()) {
      if (auto* conv = layer->as<torch::nn::Conv2d>()) {
        x = writer_.conv(x, names_.at(conv), *conv);
      } else {
        auto* norm = layer->as<torch::nn::BatchNorm2d>();
        TORCH_INTERNAL_ASSERT(norm != nullptr);
        x = writer_.batch_norm(x, names_.at(norm), *norm, norm->options.eps());
      }
    }
    return x;
  }

  const Network& network_;
  GraphWriter& writer_;
  std::map<const torch::nn::Module*, std::string> names_;
};

}  // namespace

GraphWriter::Value describe(const Network& network, const GraphWriter::Value& input, GraphWriter& writer) {
  Describer d(network, writer);
  auto x = d.encoder(network.preprocess ? writer.preprocess(input) : input);
  if (network.part == Part::kFeatures) return x;
  x = d.head(x);
  if (network.part == Part::kProjection) return x;
  torch::NoGradGuard no_grad;
  return writer.energy(x, ebm::unit_rows(network.references.to(torch::kCPU)), network.tau);
}

std::vector<std::pair<std::string, torch::Tensor>> named_state(const Network& network) {
  std::vector<std::pair<std::string, torch::Tensor>> out;
  for (const auto& [name, tensor] : nn::state_of(network.encoder, ""))
    out.emplace_back(public_name(name), tensor.detach().to(torch::kCPU).contiguous());
  if (network.part != Part::kFeatures)
    for (const auto& [name, tensor] : nn::state_of(network.head, "head."))
      out.emplace_back(name, tensor.detach().to(torch::kCPU).contiguous());
  return out;
}

torch::Tensor expected(const Network& n, const torch::Tensor& input) {
  torch::NoGradGuard no_grad;
  const auto device = n.encoder.conv1->weight.device();
  auto x = input;
  if (n.preprocess) x = x.permute({0, 3, 1, 2}).to(torch::kFloat32).mul(2.0 / 255.0).sub(1.0);
  x = n.encoder.forward(x.contiguous().to(device));
  if (n.part != Part::kFeatures) x = n.head.forward(x);
  if (n.part == Part::kEnergy) x = ebm::energy(x, n.references.to(device), n.tau);
  return x.to(torch::kCPU);
}

std::string name(Part part) {
  return part == Part::kFeatures ? "features" : part == Part::kProjection ? "projection" : "energy";
}

Part parse_part(const std::string& text) {
  for (const auto part : {Part::kFeatures, Part::kProjection, Part::kEnergy})
    if (name(part) == text) return part;
  core::usage_error("export", fmt::format("part '{}'; choose features, projection or energy", text));
}

}  // namespace ebclr::exporting
