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
  const auto* found = value.find(std::string(key));
  if (!found || !found->dict())
    core::usage_error(
        kImportComponent,
        fmt::format("{}: has no '{}'; expected a checkpoint of the released code", path.string(), key));
  return *found;
}

// Copies a state dict into the snapshot under `prefix`, checked against the module that it must fit.
void take_state(const TorchValue& state, const torch::nn::Module& module, const std::string& prefix,
                const fs::path& path, Snapshot& snapshot) {
  std::vector<std::string> known;
  for (const auto& [name, target] : nn::state_of(module, "")) {
    known.push_back(name);
    const auto* found = state.find(name);
    if (!found || !found->tensor())
      core::usage_error(kImportComponent,
                        fmt::format("{}: '{}' is missing; does the configuration belong to this checkpoint?",
                                    path.string(), name));
    const auto tensor = found->tensor()->to(target.scalar_type());
    if (tensor.sizes() != target.sizes())
      core::usage_error(
          kImportComponent,
          fmt::format("{}: '{}' has another shape than the configuration says", path.string(), name));
    snapshot.tensors.tensors["method/" + prefix + name] = tensor.contiguous();
  }
  for (const auto& [key, value] : *state.dict())
    if (key.text() && std::find(known.begin(), known.end(), *key.text()) == known.end())
      core::usage_error(
          kImportComponent,
          fmt::format("{}: unexpected tensor '{}'; does the configuration belong to this checkpoint?",
                      path.string(), *key.text()));
}

}  // namespace

std::vector<std::string> import_released(const fs::path& checkpoint, const std::string& config_name,
                                         const fs::path& out) {
  std::vector<std::string> notes;
  const auto config = resolve({read_layer(config_name, notes)});
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

  Snapshot snapshot;
  auto options = config.method.encoder;
  options.channels = stem->tensor()->size(1);
  options.width = stem->tensor()->size(0);
  nn::Encoder encoder(options, 0);
  auto head_options = config.method.head;
  head_options.in = encoder.feature_dim();
  if (head_options.hidden <= 0) head_options.hidden = head_options.in;
  nn::Head head(head_options, 0);
  take_state(enc, encoder, "encoder.", checkpoint, snapshot);
  take_state(proj, head, "head.", checkpoint, snapshot);
  if (const auto* v = value.find("iteration"); v && std::get_if<int64_t>(&v->data))
    snapshot.position.step = std::get<int64_t>(v->data);
  if (const auto* v = value.find("runtime"); v && std::get_if<double>(&v->data))
    snapshot.position.seconds = std::get<double>(v->data);

  if (fs::exists(out) && !fs::is_empty(out))
    core::usage_error(kImportComponent, fmt::format("{}: exists and is not empty", out.string()));
  fs::create_directories(out);
  auto written = config;
  written.method.encoder.width = options.width;
  core::write_atomically(RunFolder{out}.config(), to_yaml(written), kImportComponent);
  snapshot.small["imported"] = true;
  write_checkpoint(RunFolder{out}.checkpoints(), snapshot);
  notes.push_back(
      "optimizer state and chains of the released code are not taken over: this run evaluates and samples, "
      "it does not resume");
  return notes;
}

}  // namespace ebclr::run
