#include "run/legacy_config.h"

#include <fmt/format.h>
#include <set>

#include "core/error.h"
#include "core/text.h"
#include "run/yaml.h"

namespace ebclr::run {
namespace {

// Reads keys one by one and knows at the end which were never asked for.
class Reader {
 public:
  Reader(const std::string& yaml, std::string origin) : origin_(std::move(origin)) {
    flatten(load_yaml(yaml, origin_, "config"), "");
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
      return YAML::Node(*text).as<double>();
    } catch (const YAML::Exception&) {
      core::usage_error("config", fmt::format("{}: {} is '{}'; expected a number", origin_, key, *text));
    }
  }
  bool flag(const std::string& key, bool fallback) {
    const auto text = take(key);
    if (!text) return fallback;
    try {
      return YAML::Node(*text).as<bool>();
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

/// Turns the keys of one file into ours, a group at a time.
class Translator {
 public:
  Translator(const std::string& yaml, const std::string& origin, std::vector<std::string>& warnings)
      : r_(yaml, origin), origin_(origin), warnings_(warnings), layer_{origin, {}} {}

  Layer run() {
    method_ = guess_method(r_, warnings_, origin_);
    set("method.name", method_);
    training();
    objective();
    chains();
    optimizer();
    network();
    images();
    views();
    r_.check_all_known(kKeys);
    return std::move(layer_);
  }

 private:
  void set(const std::string& key, const std::string& value) { layer_.values.emplace_back(key, value); }
  void copy(const std::string& from, const std::string& to) {
    if (const auto v = r_.take(from)) set(to, *v);
  }
  void copy_all(std::initializer_list<std::pair<const char*, const char*>> pairs) {
    for (const auto& [from, to] : pairs) copy(from, to);
  }
  void warn(const std::string& text) { warnings_.push_back(origin_ + ": " + text); }
  [[noreturn]] void refuse(const std::string& text) const {
    core::usage_error("config", fmt::format("{}: {}", origin_, text));
  }

  void training() {
    copy_all({{"bs", "train.batch_size"},
              {"epochs", "train.epochs"},
              {"p_iter", "log.every"},
              {"s_epoch", "checkpoint.keep_every"}});
    if (r_.take("p_epoch")) warn("p_epoch is ignored; log.every counts steps");
    if (!r_.flag("save_buffer", true))
      warn("save_buffer: false is ignored; exact resume needs the newest buffer");
  }

  void objective() {
    if (!r_.flag("normalize", true))
      refuse("normalize: false is not supported; projections are always normalised");
    if (const auto t = r_.take("temperature")) {
      // For EBCLR the temperature divides squared distances, as ours does; the rivals' divides the cosine.
      if (method_ == "ebclr") set("method.tau", *t);
      if (method_ == "simclr") set("simclr.temperature", *t);
      if (method_ == "moco") set("moco.temperature", *t);
    }
    copy("queue_size", "moco.queue");
    if (const auto m = r_.take("momentum")) set(method_ == "moco" ? "moco.momentum" : "byol.momentum", *m);
    copy("lmda1", "method.output_l2");
    copy("lmda2", "method.lambda");
  }

  void chains() {
    copy_all({{"sgld.iter", "sampler.steps"},
              {"sgld.lr", "sampler.step_size"},
              {"sgld.min_std", "sampler.sigma_min"},
              {"sgld.max_std", "sampler.sigma_max"},
              {"sgld.threshold", "sampler.decay"},
              {"sgld.tau", "sampler.clamp"},
              {"buffer.size", "buffer.size"},
              {"buffer.rho", "buffer.rho"}});
    if (r_.take("buffer.bs")) warn("buffer.bs is ignored; every image has its own random view");
    if (method_ != "ebclr") return;
    const double cd = r_.number("buffer.CD_ratio", 0);
    if (cd != 0 && cd != 1)
      refuse(fmt::format("buffer.CD_ratio {}: mixtures of data and noise are not supported; use 0 or 1", cd));
    set("buffer.proposal", cd == 1 ? "data" : "uniform");
  }

  void optimizer() {
    copy_all({{"optim.optimizer", "optimizer.kind"},
              {"optim.init_lr", "optimizer.lr"},
              {"optim.weight_decay", "optimizer.weight_decay"}});
    const auto schedule = r_.take("optim.lr_schedule");
    if (!schedule) return;
    const bool cosine = *schedule == "cosine" || *schedule == "cos";
    if (!cosine && *schedule != "const")
      refuse(fmt::format("optim.lr_schedule '{}'; expected const or cosine", *schedule));
    set("optimizer.schedule", cosine ? "cosine" : "constant");
  }

  void network() {
    copy("net.encoder", "encoder.arch");
    set("encoder.norm", r_.flag("net.use_bn", false) ? "batch" : "none");
    if (r_.flag("net.use_sn", false)) refuse("net.use_sn: spectral norm is not implemented; set it to false");
    if (r_.flag("net.use_wn", false)) refuse("net.use_wn: weight norm is not implemented; set it to false");
    if (const auto a = r_.take("net.act")) {
      if (*a != "lrelu" && *a != "relu") refuse(fmt::format("net.act '{}'; expected lrelu or relu", *a));
      set("encoder.activation", *a == "lrelu" ? "leaky_relu" : "relu");
      set("head.activation", *a == "lrelu" ? "leaky_relu" : "relu");
    }
    copy("net.proj_dim", "head.out");
    copy("net.proj_layers", "head.layers");
    r_.take("net.nc");  // the images say how many channels they have
  }

  void images() {
    copy("data.dataset", "data.source");
    if (r_.take("data.data_dir")) warn("data.data_dir is ignored; $EBCLR_DATA says where data sets are");
    if (r_.number("data.data_ratio", 1) != 1)
      warn("data.data_ratio is ignored; use data.limit with a number of images");
  }

  void views() {
    copy_all({{"t.crop_scale.min", "augment.crop_min"},
              {"t.crop_scale.max", "augment.crop_max"},
              {"t.flip_p", "augment.flip"},
              {"t.jitter.b", "augment.brightness"},
              {"t.jitter.c", "augment.contrast"},
              {"t.jitter.s", "augment.saturation"},
              {"t.jitter.h", "augment.hue"},
              {"t.jitter_p", "augment.jitter"},
              {"t.gray_p", "augment.grayscale"},
              {"t.noise_std", "augment.noise"}});
    const double blur = r_.number("t.blur_scale", 0);
    if (blur <= 0) return;
    // The released code blurs every view with a kernel of int(scale * size), made odd: 3 for 28 and 32
    // pixels.
    set("augment.blur", "1");
    set("augment.blur_kernel", "3");
    if (blur != 0.1) warn("t.blur_scale other than 0.1: augment.blur_kernel is set to 3");
  }

  Reader r_;
  std::string origin_, method_;
  std::vector<std::string>& warnings_;
  Layer layer_;
};

}  // namespace

Layer translate_legacy(const std::string& yaml, const std::string& origin,
                       std::vector<std::string>& warnings) {
  return Translator(yaml, origin, warnings).run();
}

}  // namespace ebclr::run
