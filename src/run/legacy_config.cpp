#include "run/legacy_config.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <set>

#include "core/error.h"
#include "core/text.h"

namespace ebclr::run {
namespace {

// Reads keys one by one and knows at the end which were never asked for.
class Reader {
 public:
  Reader(const std::string& yaml, std::string origin) : origin_(std::move(origin)) {
    flatten(YAML::Load(yaml), "");
  }

  bool has(const std::string& key) const { return values_.count(key) != 0; }
  std::optional<std::string> take(const std::string& key) {
    const auto it = values_.find(key);
    if (it == values_.end()) return std::nullopt;
    known_.insert(key);
    return it->second;
  }
  double number(const std::string& key, double fallback) {
    const auto text = take(key);
    if (!text) return fallback;
    try {
      return YAML::Load(*text).as<double>();
    } catch (const YAML::Exception&) {
      core::usage_error("config", fmt::format("{}: {} is '{}'; expected a number", origin_, key, *text));
    }
  }
  bool flag(const std::string& key, bool fallback) {
    const auto text = take(key);
    if (!text) return fallback;
    try {
      return YAML::Load(*text).as<bool>();
    } catch (const YAML::Exception&) {
      core::usage_error("config", fmt::format("{}: {} is '{}'; expected true or false", origin_, key, *text));
    }
  }
  void check_all_known(const std::vector<std::string>& keys) const {
    for (const auto& [key, value] : values_)
      if (!known_.count(key)) {
        const auto near = core::nearest(key, keys);
        core::usage_error("config",
                          fmt::format("{}: unknown key '{}' in the released code's format{}", origin_, key,
                                      near ? fmt::format("; did you mean '{}'?", *near) : ""));
      }
  }

 private:
  void flatten(const YAML::Node& node, const std::string& prefix) {
    for (const auto& item : node) {
      const std::string key = prefix + item.first.as<std::string>();
      if (item.second.IsMap())
        flatten(item.second, key + ".");
      else
        values_[key] = item.second.as<std::string>("");
    }
  }
  std::string origin_;
  std::map<std::string, std::string> values_;
  std::set<std::string> known_;
};

const std::vector<std::string> kKeys = {"temperature",
                                        "normalize",
                                        "bs",
                                        "lmda1",
                                        "lmda2",
                                        "epochs",
                                        "p_iter",
                                        "p_epoch",
                                        "s_epoch",
                                        "save_buffer",
                                        "queue_size",
                                        "momentum",
                                        "data.data_dir",
                                        "data.dataset",
                                        "data.data_ratio",
                                        "sgld.iter",
                                        "sgld.lr",
                                        "sgld.min_std",
                                        "sgld.max_std",
                                        "sgld.threshold",
                                        "sgld.tau",
                                        "buffer.CD_ratio",
                                        "buffer.size",
                                        "buffer.rho",
                                        "buffer.bs",
                                        "optim.optimizer",
                                        "optim.init_lr",
                                        "optim.lr_schedule",
                                        "optim.weight_decay",
                                        "net.encoder",
                                        "net.use_bn",
                                        "net.use_sn",
                                        "net.use_wn",
                                        "net.act",
                                        "net.proj_dim",
                                        "net.proj_layers",
                                        "net.nc",
                                        "t.crop_scale.min",
                                        "t.crop_scale.max",
                                        "t.flip_p",
                                        "t.jitter.b",
                                        "t.jitter.c",
                                        "t.jitter.s",
                                        "t.jitter.h",
                                        "t.jitter_p",
                                        "t.gray_p",
                                        "t.blur_scale",
                                        "t.noise_std"};

// The files do not name their method; their keys do.
std::string guess_method(const Reader& r, std::vector<std::string>& warnings, const std::string& origin) {
  if (r.has("sgld.iter")) return "ebclr";
  if (r.has("queue_size")) return "moco";
  if (r.has("momentum")) return "byol";
  if (r.has("temperature")) return "simclr";
  warnings.push_back(fmt::format(
      "{}: taken as simsiam's (it has neither sgld, queue_size, momentum nor temperature)", origin));
  return "simsiam";
}

}  // namespace

Layer translate_legacy(const std::string& yaml, const std::string& origin,
                       std::vector<std::string>& warnings) {
  Reader r(yaml, origin);
  Layer layer{origin, {}};
  const auto set = [&](const std::string& key, const std::string& value) {
    layer.values.emplace_back(key, value);
  };
  const auto copy = [&](const std::string& from, const std::string& to) {
    if (const auto v = r.take(from)) set(to, *v);
  };
  const auto warn = [&](const std::string& text) { warnings.push_back(origin + ": " + text); };

  const std::string method = guess_method(r, warnings, origin);
  set("method.name", method);
  copy("bs", "train.batch_size");
  copy("epochs", "train.epochs");
  copy("p_iter", "log.every");
  if (r.take("p_epoch")) warn("p_epoch is ignored; log.every counts steps");
  copy("s_epoch", "checkpoint.keep_every");
  if (!r.flag("save_buffer", true))
    warn("save_buffer: false is ignored; exact resume needs the newest buffer");
  if (!r.flag("normalize", true))
    core::usage_error("config",
                      origin + ": normalize: false is not supported; projections are always normalised");

  if (const auto t = r.take("temperature")) {
    // For EBCLR the temperature divides squared distances, as ours does; the rivals' divides the cosine.
    if (method == "ebclr") set("method.tau", *t);
    if (method == "simclr") set("simclr.temperature", *t);
    if (method == "moco") set("moco.temperature", *t);
  }
  copy("queue_size", "moco.queue");
  if (const auto m = r.take("momentum")) set(method == "moco" ? "moco.momentum" : "byol.momentum", *m);
  copy("lmda1", "method.output_l2");
  copy("lmda2", "method.lambda");

  copy("sgld.iter", "sampler.steps");
  copy("sgld.lr", "sampler.step_size");
  copy("sgld.min_std", "sampler.sigma_min");
  copy("sgld.max_std", "sampler.sigma_max");
  copy("sgld.threshold", "sampler.decay");
  copy("sgld.tau", "sampler.clamp");
  copy("buffer.size", "buffer.size");
  copy("buffer.rho", "buffer.rho");
  if (r.take("buffer.bs")) warn("buffer.bs is ignored; every image has its own random view");
  if (method == "ebclr") {
    const double cd = r.number("buffer.CD_ratio", 0);
    if (cd != 0 && cd != 1)
      core::usage_error(
          "config",
          fmt::format("{}: buffer.CD_ratio {}: mixtures of data and noise are not supported; use 0 or 1",
                      origin, cd));
    set("buffer.proposal", cd == 1 ? "data" : "uniform");
  }

  copy("optim.optimizer", "optimizer.kind");
  copy("optim.init_lr", "optimizer.lr");
  copy("optim.weight_decay", "optimizer.weight_decay");
  if (const auto s = r.take("optim.lr_schedule")) {
    if (*s == "const")
      set("optimizer.schedule", "constant");
    else if (*s == "cosine" || *s == "cos")
      set("optimizer.schedule", "cosine");
    else
      core::usage_error("config",
                        fmt::format("{}: optim.lr_schedule '{}'; expected const or cosine", origin, *s));
  }

  copy("net.encoder", "encoder.arch");
  set("encoder.norm", r.flag("net.use_bn", false) ? "batch" : "none");
  if (r.flag("net.use_sn", false))
    core::usage_error("config", origin + ": net.use_sn: spectral norm is not implemented; set it to false");
  if (r.flag("net.use_wn", false))
    core::usage_error("config", origin + ": net.use_wn: weight norm is not implemented; set it to false");
  if (const auto a = r.take("net.act")) {
    if (*a != "lrelu" && *a != "relu")
      core::usage_error("config", fmt::format("{}: net.act '{}'; expected lrelu or relu", origin, *a));
    set("encoder.activation", *a == "lrelu" ? "leaky_relu" : "relu");
    set("head.activation", *a == "lrelu" ? "leaky_relu" : "relu");
  }
  copy("net.proj_dim", "head.out");
  copy("net.proj_layers", "head.layers");
  r.take("net.nc");  // the images say how many channels they have

  copy("data.dataset", "data.source");
  if (r.take("data.data_dir")) warn("data.data_dir is ignored; use --data-root or $EBCLR_DATA");
  if (r.number("data.data_ratio", 1) != 1)
    warn("data.data_ratio is ignored; use data.limit with a number of images");

  copy("t.crop_scale.min", "augment.crop_min");
  copy("t.crop_scale.max", "augment.crop_max");
  copy("t.flip_p", "augment.flip");
  copy("t.jitter.b", "augment.brightness");
  copy("t.jitter.c", "augment.contrast");
  copy("t.jitter.s", "augment.saturation");
  copy("t.jitter.h", "augment.hue");
  copy("t.jitter_p", "augment.jitter");
  copy("t.gray_p", "augment.grayscale");
  copy("t.noise_std", "augment.noise");
  if (const double blur = r.number("t.blur_scale", 0); blur > 0) {
    // The released code blurs every view with a kernel of int(scale * size), made odd: 3 for 28 and 32
    // pixels.
    set("augment.blur", "1");
    set("augment.blur_kernel", "3");
    if (blur != 0.1) warn("t.blur_scale other than 0.1: augment.blur_kernel is set to 3");
  }
  r.check_all_known(kKeys);
  return layer;
}

}  // namespace ebclr::run
