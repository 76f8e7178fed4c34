#include "run/config.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <filesystem>

#include "core/error.h"
#include "core/files.h"
#include "core/text.h"
#include "run/legacy_config.h"
#include "run/shipped.h"
#include "run/yaml.h"

namespace ebclr::run {
namespace {

constexpr std::string_view kConfigComponent = "config";
constexpr uint64_t kMaxConfig = 1 << 20;
// What the configuration of a run ends in, so that one that was cut is noticed. Version 0.1.0 wrote none: its
// files have its last key, and none that came with the end, one of which stands far before that key.
constexpr std::string_view kEndOfDocument = "...",
                           kLastKeyOfVersion1 = "\n  test: ", kKeyAfterVersion1 = "\n  healthy: ";

// The paper has no rule for it: Adam at a rate at which a learnt encoder does not fall apart.
constexpr double kSupervisedLr = 0.0005;

const Field* find_field(const std::string& key) {
  for (const auto& f : fields())
    if (f.key == key) return &f;
  return nullptr;
}

void apply(Config& config, const std::string& key, const std::string& value, const std::string& origin) {
  const Field* field = find_field(key);
  if (!field) {
    std::vector<std::string> keys;
    for (const auto& f : fields()) keys.push_back(f.key);
    const auto near = core::nearest(key, keys);
    core::usage_error(kConfigComponent, fmt::format("{}: unknown key '{}'{}", origin, key,
                                                    near ? fmt::format("; did you mean '{}'?", *near)
                                                         : "; `ebclr config keys` lists all keys"));
  }
  try {
    field->set(config, value);
  } catch (const std::invalid_argument& e) {
    core::usage_error(kConfigComponent,
                      fmt::format("{}: {} is '{}'; expected {}", origin, key, value, e.what()));
  }
  config.origins[key] = origin;
}

void flatten(const YAML::Node& node, const std::string& prefix, const std::string& origin, Layer& layer) {
  for (const auto& item : node) {
    const std::string key = prefix + item.first.as<std::string>();
    if (item.second.IsMap()) {
      flatten(item.second, key + ".", origin, layer);
    } else if (item.second.IsScalar()) {
      layer.values.emplace_back(key, item.second.as<std::string>());
    } else {
      core::usage_error(kConfigComponent, fmt::format("{}: line {}: '{}' must be a single value", origin,
                                                      item.second.Mark().line + 1, key));
    }
  }
}

bool is_released_format(const YAML::Node& node) {
  return node.IsMap() && (node["bs"] || node["t"] || node["net"]);
}

}  // namespace

double Config::effective_lr() const {
  if (optimizer.lr > 0) return optimizer.lr;
  if (method.name == "ebclr" || method.name == methods::kCustomMethod)
    return train.batch_size >= 128 ? 2e-4 : 1e-4;
  if (method.name == methods::kSupervised) return kSupervisedLr;
  return 0.03 * static_cast<double>(train.batch_size) / 256;
}

Layer parse_layer(const std::string& yaml, const std::string& origin, std::vector<std::string>& warnings) {
  const auto node = load_yaml(yaml, origin, kConfigComponent);
  Layer layer{origin, {}};
  if (node.IsNull()) return layer;
  if (!node.IsMap()) core::usage_error(kConfigComponent, fmt::format("{}: expected keys and values", origin));
  if (is_released_format(node)) return translate_legacy(yaml, origin, warnings);
  flatten(node, "", origin, layer);
  return layer;
}

Layer read_layer(const std::string& file_or_name, std::vector<std::string>& warnings) {
  if (std::filesystem::is_regular_file(file_or_name))
    return parse_layer(core::read_text(file_or_name, kConfigComponent, kMaxConfig), file_or_name, warnings);
  if (const auto text = find_shipped(file_or_name)) return parse_layer(*text, file_or_name, warnings);
  std::vector<std::string> names;
  for (const auto& c : shipped_configs()) names.push_back(c.name);
  const auto near = core::nearest(file_or_name, names);
  core::usage_error(kConfigComponent, fmt::format("{}: no such file or shipped configuration{}", file_or_name,
                                                  near ? fmt::format("; did you mean '{}'?", *near)
                                                       : "; `ebclr config list` names the shipped ones"));
}

std::pair<std::string, std::string> parse_assignment(const std::string& text) {
  const auto at = text.find('=');
  if (at == std::string::npos || at == 0)
    core::usage_error(kConfigComponent, fmt::format("setting '{}': expected key=value", text));
  return {text.substr(0, at), text.substr(at + 1)};
}

std::vector<std::pair<std::string, std::string>> method_preset(const std::string& method) {
  std::vector<std::pair<std::string, std::string>> preset;
  if (method == "ebclr" || method == methods::kCustomMethod) return preset;
  if (method == methods::kSupervised)
    return {{"head.layers", "1"},
            {"method.lambda", "0"},
            {"optimizer.lr", fmt::format("{}", kSupervisedLr)},
            {"optimizer.schedule", "cosine"}};
  // Common to the rivals: the paper's optimizer and batch, BatchNorm + ReLU, no added noise.
  preset = {{"encoder.norm", "batch"}, {"encoder.activation", "relu"},       {"head.activation", "relu"},
            {"optimizer.kind", "sgd"}, {"optimizer.weight_decay", "0.0001"}, {"train.batch_size", "256"},
            {"augment.noise", "0"}};
  const auto add = [&](std::initializer_list<std::pair<std::string, std::string>> more) {
    preset.insert(preset.end(), more.begin(), more.end());
  };
  if (method == "simclr") add({{"head.hidden_norm", "true"}});
  if (method == "simsiam")
    add({{"head.out", "2048"},
         {"head.hidden", "2048"},
         {"head.hidden_norm", "true"},
         {"head.output_norm", "true"},
         {"head.output_affine", "false"}});
  if (method == "byol") add({{"head.out", "256"}, {"head.hidden", "4096"}, {"head.hidden_norm", "true"}});
  return preset;
}

void check(const Layer& layer) {
  Config scratch;
  for (const auto& [key, value] : layer.values) apply(scratch, key, value, layer.origin);
}

Config resolve(const std::vector<Layer>& layers) {
  Config config;
  config.method.head.hidden = 0;
  for (const auto& f : fields()) config.origins[f.key] = "default";
  std::string method = config.method.name;
  for (const auto& layer : layers)
    for (const auto& [key, value] : layer.values)
      if (key == "method.name") {
        apply(config, key, value, layer.origin);
        method = value;
      }
  for (const auto& [key, value] : method_preset(method)) apply(config, key, value, "method " + method);
  for (const auto& layer : layers)
    for (const auto& [key, value] : layer.values) apply(config, key, value, layer.origin);

  const auto require = [](bool ok, const std::string& text) {
    if (!ok) core::usage_error(kConfigComponent, text);
  };
  require(config.views.crop_min > 0 && config.views.crop_min <= config.views.crop_max,
          fmt::format("augment.crop_min {} and crop_max {} must satisfy 0 < min <= max",
                      config.views.crop_min, config.views.crop_max));
  require(config.views.ratio_min <= config.views.ratio_max, "augment.ratio_min must not exceed ratio_max");
  require(config.views.blur_kernel % 2 == 1,
          fmt::format("augment.blur_kernel {} must be odd", config.views.blur_kernel));
  require(config.views.blur_sigma_min <= config.views.blur_sigma_max,
          "augment.blur_sigma_min must not exceed blur_sigma_max");
  require(config.method.ebclr.sampler.sigma_min <= config.method.ebclr.sampler.sigma_max,
          fmt::format("sampler.sigma_min {} must not exceed sigma_max {}",
                      config.method.ebclr.sampler.sigma_min, config.method.ebclr.sampler.sigma_max));
  if ((config.method.name == "ebclr" || config.method.name == methods::kSupervised) &&
      config.method.ebclr.objective.lambda > 0)
    require(methods::chains_of(config.method.ebclr.chains, config.train.batch_size) <=
                methods::buffer_size_of(config.method.ebclr.buffer.size, config.method.ebclr.chains,
                                        config.train.batch_size),
            fmt::format("buffer.size {} is smaller than train.batch_size {}", config.method.ebclr.buffer.size,
                        config.train.batch_size));
  config.method.seed = config.train.seed;
  config.data.seed = config.train.seed;
  return config;
}

std::string to_yaml(const Config& config) {
  std::string out, section;
  for (const auto& f : fields()) {
    const auto dot = f.key.find('.');
    const std::string head = f.key.substr(0, dot);
    if (head != section) out += fmt::format("{}{}:\n", section.empty() ? "" : "\n", head);
    section = head;
    out += fmt::format("  {}: {}\n", f.key.substr(dot + 1), yaml_scalar(f.get(config)));
  }
  return out.append(kEndOfDocument).append("\n");
}

Layer read_run_layer(const std::filesystem::path& file) {
  std::vector<std::string> warnings;
  const std::string text = core::read_text(file, kConfigComponent, kMaxConfig);
  const bool ended = text.ends_with(fmt::format("\n{}\n", kEndOfDocument));
  const auto has = [&](std::string_view key) { return text.find(key) != std::string::npos; };
  if (!ended && (!has(kLastKeyOfVersion1) || has(kKeyAfterVersion1)))
    core::usage_error(
        kConfigComponent,
        fmt::format("{}: is not whole (its last line must be \"{}\"); take it from where the run "
                    "was copied from",
                    file.string(), kEndOfDocument));
  return parse_layer(text, file.string(), warnings);
}

}  // namespace ebclr::run
