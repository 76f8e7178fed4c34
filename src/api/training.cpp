#include "ebclr/training.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>

#include "api/configuration_impl.h"
#include "api/translate.h"
#include "data/image_set.h"
#include "eval/features.h"
#include "methods/method.h"
#include "run/images.h"
#include "train/trainer.h"

namespace ebclr {

Networks::~Networks() = default;
Method::~Method() = default;
Observer::~Observer() = default;

namespace api {
namespace {

/// The configuration's networks for a method from outside; remembers the last projections.
class OwnNetworks : public Networks {
 public:
  OwnNetworks(nn::Encoder& encoder, nn::Head& head) : encoder_(encoder), head_(head) {}
  torch::Tensor encode(const torch::Tensor& images) override { return encoder_.forward(images); }
  torch::Tensor project(const torch::Tensor& features) override {
    auto out = head_.forward(features);
    last = out.detach();
    return out;
  }

  torch::Tensor last;  // undefined: nothing was projected

 private:
  nn::Encoder& encoder_;
  nn::Head& head_;
};

/// Parameters of a method from outside, for the optimizer and for checkpoints.
class OwnParameters : public torch::nn::Module {
 public:
  explicit OwnParameters(const std::vector<torch::Tensor>& parameters) {
    for (size_t i = 0; i < parameters.size(); ++i) register_parameter(fmt::format("{}", i), parameters[i]);
  }
};

/// Names that no metric of a method may have: keys of the log itself, which resuming and watching a run read,
/// and what the guard takes for the norm of EBCLR's outputs.
constexpr std::string_view kOwnKeys[] = {"step",
                                         "rollbacks",
                                         "epoch",
                                         "loss",
                                         "grad_norm",
                                         "spread",
                                         "lr",
                                         "images_per_second",
                                         "seconds",
                                         "forward_units",
                                         "exchange_seconds",
                                         "exchange_bytes",
                                         "exchanges",
                                         "event",
                                         "knn",
                                         "output_norm"};

/// A method from outside in the trainer.
class OwnMethod : public methods::Method {
 public:
  OwnMethod(const methods::MethodOptions& options, std::shared_ptr<ebclr::Method> method)
      : Method(options),
        method_(std::move(method)),
        parameters_(std::make_shared<OwnParameters>(method_->parameters())),
        networks_(*encoder_, *head_) {}

  methods::StepOutput step(const methods::StepInput& input) override {
    networks_.last.reset();
    auto result = method_->step(networks_, to_step(input));
    if (!result.loss.defined() || result.loss.numel() != 1 || !result.loss.requires_grad())
      input_error("[method] Method::step must return a scalar loss that depends on the networks");
    for (const auto& [name, value] : result.metrics)
      if (std::find(std::begin(kOwnKeys), std::end(kOwnKeys), name) != std::end(kOwnKeys))
        input_error(fmt::format(
            "[method] Method::step returned a metric '{}', a name that ebclr uses itself; choose another",
            name));
    methods::StepOutput out;
    out.loss = result.loss.reshape({});
    out.metrics = std::move(result.metrics);
    // They are for the log: what could not be measured is absent there, and is no fault of the training.
    std::erase_if(out.metrics, [](const auto& m) { return !std::isfinite(m.second); });
    out.projections = result.projections.defined() ? result.projections.detach() : networks_.last;
    return out;
  }
  void after_update(const methods::StepInput& input) override {
    torch::NoGradGuard no_grad;
    method_->after_update(networks_, to_step(input));
  }
  std::vector<methods::MethodModule> modules() override {
    auto modules = Method::modules();
    modules.push_back({"own_parameters", parameters_});
    return modules;
  }
  std::vector<std::pair<std::string, torch::Tensor>> state() override {
    auto state = Method::state();
    for (auto& [name, tensor] : method_->state()) state.emplace_back("own." + name, tensor);
    return state;
  }
  void reseed(uint64_t seed) override { method_->reseed(seed); }
  double forward_units(int64_t) const override { return method_->forward_units(); }

 private:
  static Step to_step(const methods::StepInput& input) {
    return {input.view1, input.view2, input.step, input.progress};
  }

  std::shared_ptr<ebclr::Method> method_;
  std::shared_ptr<OwnParameters> parameters_;
  OwnNetworks networks_;
};

/// The rooms' observer, which tells the caller's.
class Watch : public train::Observer {
 public:
  explicit Watch(std::shared_ptr<ebclr::Observer> observer) : observer_(std::move(observer)) {}
  void on_step(const train::StepReport& r) override {
    if (!observer_) return;
    observer_->on_step({r.position.step, r.total_steps, r.position.epoch, r.loss, r.lr, r.grad_norm,
                        r.images_per_second, r.seconds_left, r.metrics});
  }
  void on_epoch(int64_t epoch, double knn) override {
    if (observer_) observer_->on_epoch(epoch, knn);
  }
  void on_note(const std::string& text) override {
    if (observer_) observer_->on_note(text);
  }
  void on_warning(const std::string& text) override {
    if (observer_) observer_->on_warning(text);
  }

 private:
  std::shared_ptr<ebclr::Observer> observer_;
};

/// The run's own configuration, lengthened if the caller asks for more epochs.
run::Config resumed(const Configuration& configuration, const std::filesystem::path& folder) {
  if (!std::filesystem::exists(run::RunFolder{folder}.config()))
    input_error(fmt::format("[training] {}: nothing to resume (it is not a run folder)", folder.string()));
  auto config = run::Run::open(folder).config();
  for (const auto& layer : configuration.impl().layers)
    for (const auto& [key, value] : layer.values)
      if (key == "train.epochs")
        config.train.epochs = std::max<int64_t>(config.train.epochs, std::stoll(value));
  return config;
}

}  // namespace
}  // namespace api

struct Training::Impl {
  api::Watch watch;
  std::atomic<bool> stop{false};
  eval::KnnMonitor monitor;
  std::unique_ptr<train::Trainer> trainer;

  explicit Impl(std::shared_ptr<Observer> observer) : watch(std::move(observer)) {}

  void build(const Configuration& configuration, const TrainingOptions& o) {
    if (o.folder.empty()) api::input_error("[training] TrainingOptions::folder is empty");
    auto config = o.resume ? api::resumed(configuration, o.folder) : configuration.impl().resolved();
    if (!o.resume && !run::list_checkpoints(run::RunFolder{o.folder}.checkpoints()).empty())
      api::input_error(fmt::format("[training] {}: already holds a run; resume it or choose another folder",
                                   o.folder.string()));
    if (o.method && config.method.name != methods::kCustomMethod) {
      config.optimizer.lr = config.effective_lr();  // what the named method would have taken
      config.method.name = methods::kCustomMethod;
    }
    if (o.sampler && (o.method || config.method.name != "ebclr"))
      api::input_error("[training] TrainingOptions::sampler is for EBCLR; this is another method");
    std::shared_ptr<data::ImageSet> images;
    data::ImageSet test;
    train::TrainerOptions options;
    if (o.images.pixels.defined()) {
      images = std::make_shared<data::ImageSet>(api::to_internal(o.images));
      config.data.source.clear();
    } else {
      if (config.data.source.empty())
        api::input_error("[training] no images: set data.source or give TrainingOptions::images");
      config.data = run::absolute(config.data);
      auto sets =
          o.resume ? run::load_to_resume({o.folder}, config) : run::load_images({o.folder}, config.data);
      if (o.resume) run::check_same_images({o.folder}, sets.list, config.data.source);
      for (const auto& note : sets.train.notes) watch.on_warning(note);
      options.list = std::move(sets.list);
      images = std::make_shared<data::ImageSet>(std::move(sets.train));
      test = std::move(sets.test);
    }
    for (const auto& w : configuration.warnings()) watch.on_warning(w);
    monitor = o.resume ? eval::monitor_to_resume(config, *images, test,
                                                 [&](const std::string& text) { watch.on_warning(text); })
                       : eval::monitor_of(config, *images, test);  // before there is a folder

    options.folder.root = o.folder;
    options.config = config;
    options.resume = o.resume;
    const auto placement = api::placement(o.device, o.engine);
    options.device = placement.device;
    options.engine = placement.engine;
    if (o.method)
      options.make_method = [method = o.method](const auto& method_options, const auto&) {
        return std::make_unique<api::OwnMethod>(method_options, method);
      };
    if (o.sampler) {
      options.make_sampler = [sampler = o.sampler](const auto&) { return api::to_internal(sampler); };
      options.own_sampler = true;
    }
    options.loader_threads = at::get_num_threads();
    trainer = std::make_unique<train::Trainer>(std::move(options), images, watch);
    if (monitor) trainer->set_monitor([this] { return monitor(trainer->method().encoder()); });
  }
};

Training::Training(const Configuration& configuration, const TrainingOptions& options)
    : impl_(std::make_unique<Impl>(options.observer)) {
  api::translated([&] { impl_->build(configuration, options); });
}
Training::~Training() = default;
Training::Training(Training&&) noexcept = default;
Training& Training::operator=(Training&&) noexcept = default;

Outcome Training::run() {
  return api::translated([&] {
    const auto out = impl_->trainer->run(impl_->stop);
    return Outcome{out.finished, out.position.step, out.position.epoch, out.loss, out.saved};
  });
}

void Training::stop() {
  impl_->stop = true;
}

}  // namespace ebclr
