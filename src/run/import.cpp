// Checkpoints of the paper's released code.

#include <fmt/format.h>
#include <torch/torch.h>

#include "core/error.h"
#include "core/files.h"
#include "core/text.h"
#include "run/run.h"
#include "run/torch_file.h"

namespace ebclr::run {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kImportComponent = "import";

const TorchValue& dict_at(const TorchValue& value, std::string_view key, const fs::path& path) {
  const auto* found = value.find(key);
  if (!found || !found->dict())
    core::usage_error(
        kImportComponent,
        fmt::format("{}: has no '{}'; expected a checkpoint of the released code", path.string(), key));
  return *found;
}

const torch::Tensor& tensor_at(const TorchValue& state, const std::string& name, torch::IntArrayRef shape,
                               const fs::path& path) {
  const auto* found = state.find(name);
  if (!found || !found->tensor())
    core::usage_error(kImportComponent,
                      fmt::format("{}: '{}' is missing; does the configuration belong to this checkpoint?",
                                  path.string(), name));
  if (found->tensor()->sizes() != shape)
    core::usage_error(kImportComponent, fmt::format("{}: '{}' has another shape than the configuration says",
                                                    path.string(), name));
  return *found->tensor();
}

// Asked before anything is built for a file: it must hold what makes the networks large. `head` may be null.
void require_large_weights(const Config& config, const TorchValue& encoder, const TorchValue* head,
                           const fs::path& path) {
  for (const auto& [name, shape] : large_weights(config.method.encoder, config.method.head)) {
    const auto dot = name.find('.');
    const auto* state = name.starts_with("encoder.") ? &encoder : head;
    if (state) tensor_at(*state, name.substr(dot + 1), shape, path);
  }
}

// Copies a state dict into the snapshot under `prefix`, checked against the module that it must fit.
void take_state(const TorchValue& state, const torch::nn::Module& module, const std::string& prefix,
                const fs::path& path, Snapshot& snapshot, const std::string& ignored = "") {
  std::vector<std::string> known;
  for (const auto& [name, target] : nn::state_of(module, "")) {
    known.push_back(name);
    const auto tensor = tensor_at(state, name, target.sizes(), path).to(target.scalar_type());
    snapshot.tensors.tensors["method/" + prefix + name] = tensor.contiguous();
  }
  for (const auto& [key, value] : *state.dict())
    if (key.text() && (ignored.empty() || !key.text()->starts_with(ignored)) &&
        std::find(known.begin(), known.end(), *key.text()) == known.end())
      core::usage_error(
          kImportComponent,
          fmt::format("{}: unexpected tensor '{}'; does the configuration belong to this checkpoint?",
                      path.string(), *key.text()));
}

void write_imported(const Config& config, Snapshot& snapshot, const fs::path& out) {
  if (fs::exists(out) && !fs::is_empty(out))
    core::usage_error(kImportComponent, fmt::format("{}: exists and is not empty", out.string()));
  core::write_atomically(RunFolder{out}.config(), to_yaml(config), kImportComponent);
  snapshot.small["imported"] = true;
  write_checkpoint(RunFolder{out}.checkpoints(), snapshot);
}

// torchvision's networks read (pixel in [0, 1] - mean) / deviation, ours [-1, 1]: what lies between goes into
// the first convolution and the running mean behind it. Only the zeros beyond the border then mean another
// colour.
void fold_normalisation(Snapshot& snapshot) {
  const auto mean = torch::tensor({0.485, 0.456, 0.406}, torch::kFloat64).view({1, 3, 1, 1}),
             deviation = torch::tensor({0.229, 0.224, 0.225}, torch::kFloat64).view({1, 3, 1, 1});
  auto& weight = snapshot.tensors.tensors.at("method/encoder.conv1.weight");
  auto& running = snapshot.tensors.tensors.at("method/encoder.bn1.running_mean");
  const auto w = weight.to(torch::kFloat64);
  running =
      (running.to(torch::kFloat64) - (w * ((0.5 - mean) / deviation)).sum({1, 2, 3})).to(torch::kFloat32);
  weight = (w / (2 * deviation)).to(torch::kFloat32).contiguous();
}

std::string torchvision_arch(const TorchValue& state, const fs::path& path) {
  if (state.find("layer3.6.conv1.weight"))
    core::usage_error(
        kImportComponent,
        fmt::format("{}: deeper than resnet50; expected resnet18, resnet34 or resnet50", path.string()));
  return state.find("layer1.0.conv3.weight")   ? "resnet50"
         : state.find("layer1.2.conv1.weight") ? "resnet34"
                                               : "resnet18";
}

}  // namespace

std::vector<std::string> import_torchvision(const fs::path& checkpoint, const fs::path& out) {
  const auto file = read_torch_file(checkpoint);
  const auto& state = file.root();
  const auto* stem = state.dict() ? state.find("conv1.weight") : nullptr;
  if (!stem || !stem->tensor() || stem->tensor()->dim() != 4 || stem->tensor()->size(2) != 7 ||
      stem->tensor()->size(1) != 3)
    core::usage_error(
        kImportComponent,
        fmt::format(
            "{}: expected the state dict of a torchvision ResNet (conv1.weight of 7 x 7); a checkpoint "
            "of the released code needs --config",
            checkpoint.string()));
  auto config = resolve({{"import",
                          {{"method.name", "simclr"},
                           {"encoder.arch", torchvision_arch(state, checkpoint)},
                           {"encoder.width", std::to_string(stem->tensor()->size(0))},
                           {"encoder.norm", "batch"},
                           {"encoder.activation", "relu"},
                           {"encoder.stem", "imagenet"}}}});
  require_large_weights(config, state, nullptr, checkpoint);
  const auto networks = nn::make_networks(config.method.encoder, config.method.head, 0);
  Snapshot snapshot;
  take_state(state, *networks.encoder, "encoder.", checkpoint, snapshot, "fc.");
  for (const auto& [name, tensor] : nn::state_of(*networks.head, ""))
    snapshot.tensors.tensors["method/head." + name] = tensor.detach().contiguous();
  fold_normalisation(snapshot);
  write_imported(config, snapshot, out);
  return {
      "the classifier (fc) is left out; the projection head has first weights: use features, not projections",
      "this run evaluates and embeds, it does not resume"};
}

std::vector<std::string> import_released(const fs::path& checkpoint, const std::string& config_name,
                                         const fs::path& out) {
  std::vector<std::string> notes;
  const auto layer = read_layer(config_name, notes);
  const auto file = read_torch_file(checkpoint);
  const auto& value = file.root();
  if (!value.dict())
    core::usage_error(kImportComponent,
                      fmt::format("{}: expected a dictionary with enc_state_dict and proj_state_dict",
                                  checkpoint.string()));
  const auto &enc = dict_at(value, "enc_state_dict", checkpoint),
             &proj = dict_at(value, "proj_state_dict", checkpoint);
  const auto* stem = enc.find("conv1.weight");
  if (!stem || !stem->tensor() || stem->tensor()->dim() != 4)
    core::usage_error(kImportComponent,
                      fmt::format("{}: enc_state_dict has no conv1.weight", checkpoint.string()));

  // The released configurations do not say how wide the network is.
  const auto config =
      resolve({layer, {checkpoint.string(), {{"encoder.width", std::to_string(stem->tensor()->size(0))}}}});
  require_large_weights(config, enc, &proj, checkpoint);
  Snapshot snapshot;
  auto options = config.method.encoder;
  options.channels = stem->tensor()->size(1);
  const auto networks = nn::make_networks(options, config.method.head, 0);
  take_state(enc, *networks.encoder, "encoder.", checkpoint, snapshot);
  take_state(proj, *networks.head, "head.", checkpoint, snapshot);
  if (const auto* v = value.find("iteration"); v && std::get_if<int64_t>(&v->data))
    snapshot.position.step = std::get<int64_t>(v->data);
  if (const auto* v = value.find("runtime"); v && std::get_if<double>(&v->data))
    snapshot.position.seconds = std::get<double>(v->data);

  write_imported(config, snapshot, out);
  notes.push_back(
      "optimizer state and chains of the released code are not taken over: this run evaluates and samples, "
      "it does not resume");
  return notes;
}

}  // namespace ebclr::run
