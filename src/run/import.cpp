// Checkpoints of the paper's released code.

#include <fmt/format.h>
#include <torch/script.h>
#include <torch/torch.h>

#include "core/error.h"
#include "core/files.h"
#include "core/text.h"
#include "run/run.h"

namespace ebclr::run {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kComponent = "import";

c10::Dict<c10::IValue, c10::IValue> dict_at(const c10::Dict<c10::IValue, c10::IValue>& dict,
                                            const std::string& key, const fs::path& path) {
  const auto it = dict.find(key);
  if (it == dict.end() || !it->value().isGenericDict())
    core::usage_error(kComponent, fmt::format("{}: has no '{}'; expected a checkpoint of the released code",
                                              path.string(), key));
  return it->value().toGenericDict();
}

// Copies a state dict into the snapshot under `prefix`, checked against the module that it must fit.
void take_state(const c10::Dict<c10::IValue, c10::IValue>& state, const torch::nn::Module& module,
                const std::string& prefix, const fs::path& path, Snapshot& snapshot) {
  std::vector<std::string> known;
  for (const auto& [name, target] : nn::state_of(module, "")) {
    known.push_back(name);
    const auto it = state.find(name);
    if (it == state.end() || !it->value().isTensor())
      core::usage_error(kComponent,
                        fmt::format("{}: '{}' is missing; does the configuration belong to this checkpoint?",
                                    path.string(), name));
    const auto tensor = it->value().toTensor().detach().to(torch::kCPU, target.scalar_type());
    if (tensor.sizes() != target.sizes())
      core::usage_error(kComponent, fmt::format("{}: '{}' has another shape than the configuration says",
                                                path.string(), name));
    snapshot.tensors.tensors["method/" + prefix + name] = tensor.contiguous();
  }
  for (const auto& item : state)
    if (const auto name = item.key().toStringRef();
        std::find(known.begin(), known.end(), name) == known.end())
      core::usage_error(
          kComponent,
          fmt::format("{}: unexpected tensor '{}'; does the configuration belong to this checkpoint?",
                      path.string(), name));
}

}  // namespace

std::vector<std::string> import_released(const fs::path& checkpoint, const std::string& config_name,
                                         const fs::path& out) {
  std::vector<std::string> notes;
  const auto config = resolve({read_layer(config_name, notes)});
  const auto bytes = core::read_bytes(checkpoint, kComponent);
  c10::IValue value;
  try {
    const auto* p = reinterpret_cast<const char*>(bytes.data());
    value = torch::pickle_load(std::vector<char>(p, p + bytes.size()));
  } catch (const std::exception&) {
    core::usage_error(kComponent, fmt::format("{}: not a zip file of torch.save", checkpoint.string()));
  }
  if (!value.isGenericDict())
    core::usage_error(kComponent,
                      fmt::format("{}: expected a dictionary with enc_state_dict and proj_state_dict",
                                  checkpoint.string()));
  const auto dict = value.toGenericDict();
  const auto enc = dict_at(dict, "enc_state_dict", checkpoint),
             proj = dict_at(dict, "proj_state_dict", checkpoint);
  const auto stem = enc.find("conv1.weight");
  if (stem == enc.end() || !stem->value().isTensor() || stem->value().toTensor().dim() != 4)
    core::usage_error(kComponent, fmt::format("{}: enc_state_dict has no conv1.weight", checkpoint.string()));

  Snapshot snapshot;
  auto options = config.method.encoder;
  options.channels = stem->value().toTensor().size(1);
  options.width = stem->value().toTensor().size(0);
  nn::Encoder encoder(options, 0);
  auto head_options = config.method.head;
  head_options.in = encoder.feature_dim();
  if (head_options.hidden <= 0) head_options.hidden = head_options.in;
  nn::Head head(head_options, 0);
  take_state(enc, encoder, "encoder.", checkpoint, snapshot);
  take_state(proj, head, "head.", checkpoint, snapshot);
  if (const auto it = dict.find("iteration"); it != dict.end() && it->value().isInt())
    snapshot.position.step = it->value().toInt();
  if (const auto it = dict.find("runtime"); it != dict.end() && it->value().isDouble())
    snapshot.position.seconds = it->value().toDouble();

  if (fs::exists(out) && !fs::is_empty(out))
    core::usage_error(kComponent, fmt::format("{}: exists and is not empty", out.string()));
  fs::create_directories(out);
  auto written = config;
  written.method.encoder.width = options.width;
  core::write_atomically(RunFolder{out}.config(), to_yaml(written), kComponent);
  snapshot.small["imported"] = true;
  write_checkpoint(RunFolder{out}.checkpoints(), snapshot);
  notes.push_back(
      "optimizer state and chains of the released code are not taken over: this run evaluates and samples, "
      "it does not resume");
  return notes;
}

}  // namespace ebclr::run
