#include "run/run.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <charconv>

#include "core/error.h"
#include "core/files.h"
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

}  // namespace

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

Model Run::load(const std::string& which) const {
  const auto all = checkpoints();
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
  Model model = build_model(config_, snapshot.tensors.at("method/encoder.conv1.weight", where).size(1));
  model.position = snapshot.position;
  if (snapshot.small.contains("image"))
    model.image_shape = snapshot.small["image"].get<std::vector<int64_t>>();
  if (const auto small = snapshot.small.find("method"); small != snapshot.small.end() && small->is_object())
    model.balance = small->value("balance", 0.0);
  load_module(*model.encoder, snapshot.tensors, "method/encoder.", where);
  load_module(*model.head, snapshot.tensors, "method/head.", where);
  return model;
}

Model Run::untrained(const std::vector<int64_t>& image_shape) const {
  Model model = build_model(config_, image_shape.at(0));
  model.image_shape = image_shape;
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
    const auto& source = tensors.at(name, where);
    if (source.sizes() != target.sizes())
      core::usage_error("run", fmt::format("{}: '{}' has shape {}, the configuration says {}", where, name,
                                           fmt::format("{}", fmt::join(source.sizes().vec(), "x")),
                                           fmt::format("{}", fmt::join(target.sizes().vec(), "x"))));
    auto t = target;
    t.copy_(source);
  }
}

}  // namespace ebclr::run
