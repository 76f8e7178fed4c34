#include "run/run.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <charconv>
#include <limits>

#include "core/error.h"
#include "core/files.h"
#include "core/json.h"
#include "core/text.h"

namespace ebclr::run {
namespace fs = std::filesystem;
namespace {

// Encoder and head of a configuration with their first weights, in inference mode.
Model build_model(const Config& config, int64_t channels) {
  auto options = config.method.encoder;
  options.channels = channels;
  auto networks = nn::make_networks(options, config.method.head, config.train.seed);
  Model model;
  model.encoder = std::move(networks.encoder);
  model.head = std::move(networks.head);
  model.encoder->eval();
  model.head->eval();
  return model;
}

const torch::Tensor& weight_of(const core::SafeTensors& tensors, const std::string& name,
                               torch::IntArrayRef shape, const std::string& where) {
  const auto& source = tensors.at(name, where);
  if (source.sizes() != shape)
    core::usage_error("run", fmt::format("{}: '{}' has shape {}, the configuration says {}", where, name,
                                         fmt::join(source.sizes().vec(), "x"), fmt::join(shape.vec(), "x")));
  return source;
}

// What a checkpoint's small state says of the model; imported runs and old ones say less.
void take_small_state(const nlohmann::json& small, const std::string& where, Model& model) {
  constexpr int64_t kMaxSide = 1 << 14;
  auto& shape = model.image_shape;
  try {
    if (const auto image = small.find("image"); image != small.end())
      for (const auto& n : *image) shape.push_back(core::whole_number(n));
    if (const auto method = small.find("method"); method != small.end() && method->is_object())
      model.balance = method->value("balance", 0.0);
  } catch (const nlohmann::json::exception&) {
    core::usage_error("run", fmt::format("{}: its state is not that of a run", where));
  }
  const auto possible = [](int64_t n) { return n > 0 && n <= kMaxSide; };
  if (!shape.empty() && (shape.size() != 3 || shape[0] != model.encoder->options().channels ||
                         !std::all_of(shape.begin(), shape.end(), possible)))
    core::usage_error("run",
                      fmt::format("{}: it was not trained on images of {}", where, fmt::join(shape, "x")));
}

int64_t side_of(const Config& config, const std::vector<int64_t>& image_shape) {
  if (image_shape.size() == 3) return image_shape[1];
  return config.data.image_size > 0 ? config.data.image_size : Model{}.side;
}

}  // namespace

std::vector<WeightShape> large_weights(const nn::EncoderOptions& encoder, nn::HeadOptions head) {
  // The second convolution of the last block is the largest in all of them.
  const int64_t planes = 8 * encoder.width;
  const bool deep = encoder.arch != "resnet18";
  std::vector<WeightShape> out = {
      {fmt::format("encoder.layer4.{}.conv2.weight", deep ? 2 : 1), {planes, planes, 3, 3}}};
  head = nn::fitted(head, encoder.arch == "resnet50" ? 4 * planes : planes);
  for (int i = 1; i <= head.layers; ++i)
    out.push_back({fmt::format("head.fc{}.weight", i),
                   {i == head.layers ? head.out : head.hidden, i == 1 ? head.in : head.hidden}});
  return out;
}

Run Run::open(const fs::path& folder) {
  Run run;
  run.folder_.root = folder;
  if (!fs::is_directory(folder))
    core::usage_error("run", fmt::format("{}: no such run folder", folder.string()));
  if (!fs::exists(run.folder_.config()))
    core::usage_error("run", fmt::format("{}: not a run folder (it has no config.yaml)", folder.string()));
  run.config_ = resolve({read_run_layer(run.folder_.config())});
  return run;
}

std::vector<CheckpointInfo> Run::checkpoints() const {
  std::vector<CheckpointInfo> out;
  for (const auto& file : list_checkpoints(folder_.checkpoints())) {
    try {
      out.push_back({file, read_position(file)});
    } catch (const core::Error&) {  // damaged: not offered
    }
  }
  return out;
}

std::vector<CheckpointInfo> Run::lineage() const {
  auto all = checkpoints();
  // A roll-back writes where it goes on from under its own number, and what it passes again is written again:
  // a state has been given up once a later branch has one at the same step or before it.
  int64_t begun = std::numeric_limits<int64_t>::max(), later = begun;  // first step of later branches
  int64_t branch = all.empty() ? 0 : all.back().file.rollbacks;
  std::vector<CheckpointInfo> out;
  for (auto it = all.rbegin(); it != all.rend(); ++it) {
    if (it->file.rollbacks != branch) branch = it->file.rollbacks, later = begun;
    if (it->file.step < later) out.push_back(*it);
    begun = std::min(begun, it->file.step);
  }
  std::reverse(out.begin(), out.end());
  return out;
}

Model Run::load(const std::string& which) const {
  const auto all = which == "last" ? checkpoints() : lineage();
  if (all.empty())
    core::usage_error("run",
                      fmt::format("{}: has no checkpoint; resume its training first", folder_.root.string()));
  if (which == "last") {
    // A damaged newest one gives way to the one before, as in resume.
    std::string why;
    for (auto it = all.rbegin(); it != all.rend(); ++it) {
      try {
        return load(it->file);
      } catch (const core::Error& e) {
        if (why.empty()) why = e.what();
      }
    }
    core::usage_error("run", fmt::format("{}: no readable checkpoint: {}", folder_.root.string(), why));
  }
  int64_t epoch = -1;
  const auto [end, ec] = std::from_chars(which.data(), which.data() + which.size(), epoch);
  if (ec != std::errc() || end != which.data() + which.size())
    core::usage_error("run", fmt::format("checkpoint '{}': expected an epoch number or 'last'", which));
  std::vector<std::string> epochs;
  for (auto it = all.rbegin(); it != all.rend(); ++it) {
    if (it->position.batch == 0 && it->position.epoch == epoch) return load(it->file);
    if (it->position.batch == 0) epochs.insert(epochs.begin(), std::to_string(it->position.epoch));
  }
  core::usage_error("run", fmt::format("{}: no checkpoint of epoch {}; there are epochs {}",
                                       folder_.root.string(), which, core::join(epochs, ", ")));
}

Model Run::load(const CheckpointFile& file) const {
  const auto snapshot = read_checkpoint(file, /*with_buffer=*/false);
  const std::string where = file.path.string();
  const auto& stem = snapshot.tensors.at("method/encoder.conv1.weight", where);
  if (stem.dim() != 4)
    core::usage_error("run", fmt::format("{}: its first weight is not that of a convolution", where));
  for (const auto& [name, shape] : large_weights(config_.method.encoder, config_.method.head))
    weight_of(snapshot.tensors, kMethodPrefix + name, shape, where);
  Model model = build_model(config_, stem.size(1));
  model.position = snapshot.position;
  take_small_state(snapshot.small, where, model);
  model.side = side_of(config_, model.image_shape);
  load_module(*model.encoder, snapshot.tensors, "method/encoder.", where);
  load_module(*model.head, snapshot.tensors, "method/head.", where);
  return model;
}

Model Run::untrained(const std::vector<int64_t>& image_shape) const {
  Model model = build_model(config_, image_shape.at(0));
  model.image_shape = image_shape;
  model.side = side_of(config_, image_shape);
  return model;
}

core::SafeTensors Run::newest_buffer() const {
  auto files = list_checkpoints(folder_.checkpoints());
  for (auto it = files.rbegin(); it != files.rend(); ++it) {
    if (it->buffer.empty()) continue;
    try {
      return read_buffer(*it);
    } catch (const core::Error&) {  // damaged: the one before may do
    }
  }
  return {};
}

void load_module(torch::nn::Module& module, const core::SafeTensors& tensors, const std::string& prefix,
                 const std::string& where) {
  torch::NoGradGuard no_grad;
  for (auto& [name, target] : nn::state_of(module, prefix)) {
    auto t = target;
    t.copy_(weight_of(tensors, name, target.sizes(), where));
  }
}

}  // namespace ebclr::run
