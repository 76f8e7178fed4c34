#include "train/trainer.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <torch/torch.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <fstream>
#include <optional>

#include "core/error.h"
#include "core/file_lock.h"
#include "core/files.h"
#include "core/text.h"
#include "data/loader.h"
#include "density/proposals.h"
#include "plot/plot.h"
#include "run/provenance.h"
#include "train/checkpoint_writer.h"
#include "train/metrics_log.h"
#include "train/optimizer.h"

namespace ebclr::train {
namespace fs = std::filesystem;
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double peak_memory_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024;
}

std::string utc_now() {
  const auto now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm tm{};
  ::gmtime_r(&now, &tm);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &tm);
  return text;
}

}  // namespace

struct Trainer::Impl {
  TrainerOptions options;
  const run::Config& config = options.config;
  std::shared_ptr<const data::ImageSet> images;
  Observer& observer;
  std::optional<core::FileLock> lock;  // one training at a time in a folder
  std::unique_ptr<methods::Method> method;
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<data::Loader> loader;
  std::unique_ptr<CheckpointWriter> writer;
  std::unique_ptr<MetricsLog> metrics;
  std::ofstream log_file;
  std::function<double()> monitor;
  std::function<void(int64_t)> before_step;

  run::Position position;
  double lr_scale = 1;
  double base_lr = 0;
  int64_t steps_per_epoch = 0, total_steps = 0;
  bool collapse_warned = false;
  double widest_spread = 0;
  double last_knn = std::numeric_limits<double>::quiet_NaN();

  Impl(TrainerOptions o, std::shared_ptr<const data::ImageSet> set, Observer& obs)
      : options(std::move(o)), images(std::move(set)), observer(obs) {}

  void note(const std::string& text) {
    log_file << utc_now() << "  " << text << std::endl;
    observer.on_note(text);
  }
  void warn(const std::string& text) {
    log_file << utc_now() << "  warning: " << text << std::endl;
    observer.on_warning(text);
  }

  void check_folder() {
    std::error_code ec;
    const auto& folder = options.folder;
    const bool exists = !run::list_checkpoints(folder.checkpoints()).empty();
    if (options.resume && !fs::exists(folder.config()))
      core::usage_error("train",
                        fmt::format("{}: nothing to resume (it is not a run folder)", folder.root.string()));
    if (!options.resume && exists)
      core::usage_error(
          "train",
          fmt::format("{}: already holds a run; continue it with --resume {} or choose another --out",
                      folder.root.string(), folder.root.string()));
    fs::create_directories(folder.root, ec);
    if (ec)
      core::run_error("train", fmt::format("{}: cannot be created: {}", folder.root.string(), ec.message()));
  }

  void check_data() {
    if (images->size() < config.train.batch_size)
      core::usage_error("train", fmt::format("{} has {} train images, fewer than train.batch_size {}; lower "
                                             "it with --set train.batch_size={}",
                                             images->name, images->size(), config.train.batch_size,
                                             std::max<int64_t>(2, images->size() / 4)));
    if (const auto least = methods::least_batch(config.method.name); config.train.batch_size < least)
      core::usage_error("train", fmt::format("train.batch_size must be at least {}", least));
  }

  void build() {
    check_folder();
    lock = core::FileLock::try_take(options.folder.lock(), "train");
    if (!lock)
      core::usage_error("train", fmt::format("{}: another training is running in this folder",
                                             options.folder.root.string()));
    check_data();
    log_file.open(options.folder.log(), std::ios::app);
    if (!log_file)
      core::run_error("train", fmt::format("{}: cannot be written", options.folder.log().string()));

    auto method_options = config.method;
    method_options.encoder.channels = images->channels();
    method_options.seed = config.train.seed;
    methods::MethodContext context{.data_proposals = density::data_proposals(images, config.views),
                                   .image_shape = {images->channels(), images->height(), images->width()},
                                   .train_images = images->size(),
                                   .batch = config.train.batch_size};
    method = methods::make_method(method_options, context);
    method->to(options.device);
    method->train();
    engine::EngineChoice engine_choice;
    for (auto& encoder : method->encoders())
      engine_choice = engine::place(*encoder, nullptr, {options.device, options.engine});
    base_lr = config.effective_lr();
    optimizer = std::make_unique<Optimizer>(config.optimizer, method->parameter_groups(), base_lr);
    writer = std::make_unique<CheckpointWriter>(options.folder.checkpoints(), config.checkpoint.keep_last,
                                                config.checkpoint.keep_every);
    make_loader();
    steps_per_epoch = loader->batches_per_epoch();
    total_steps = steps_per_epoch * config.train.epochs;

    if (options.resume) {
      restore_newest();
      note(fmt::format("resumed at epoch {} batch {} (step {} of {})", position.epoch, position.batch,
                       position.step, total_steps));
    }
    // Also when resuming: a run that was made longer stays so after the next interruption.
    core::write_atomically(options.folder.config(), run::to_yaml(config), "train");
    metrics = std::make_unique<MetricsLog>(options.folder.metrics(), position.rollbacks, position.step,
                                           config.log.tensorboard);
    run::record_session(options.folder,
                        {.engine = engine_choice.native ? "native" : "torch",
                         .instructions = engine_choice.instructions,
                         .device = options.device.str(),
                         .threads = at::get_num_threads(),
                         .from_step = position.step},
                        options.resume);
    note(fmt::format("{} on {}: {} images of {}x{}x{}, batch {}, {} steps an epoch, learning rate {}",
                     config.method.name, images->name, images->size(), images->channels(), images->height(),
                     images->width(), config.train.batch_size, steps_per_epoch, base_lr * lr_scale));
    note(fmt::format("encoder {} width {}: {}; {} threads", config.method.encoder.arch,
                     config.method.encoder.width, engine_choice.reason, at::get_num_threads()));
    if (auto* buffer = method->buffer())
      note(fmt::format("replay buffer: {} chains, {}", buffer->size(),
                       core::human_bytes(static_cast<double>(buffer->bytes()))));
    for (const auto& text : method->warnings()) warn(text);
    if (!options.resume) {
      // The state before the first step: where a roll-back can always go.
      writer->submit(snapshot());
      writer->wait();
    }
  }

  void make_loader() {
    loader = std::make_unique<data::Loader>(images, config.views,
                                            data::LoaderOptions{.batch_size = config.train.batch_size,
                                                                .seed = config.train.seed,
                                                                .threads = options.loader_threads},
                                            position.epoch, position.batch);
  }

  run::Snapshot snapshot() {
    run::Snapshot s;
    s.position = position;
    s.small = {{"method", method->small_state()},
               {"lr_scale", lr_scale},
               {"image", {images->channels(), images->height(), images->width()}}};
    for (auto& [name, tensor] : method->state())
      s.tensors.tensors[run::kMethodPrefix + name] = tensor.detach();
    optimizer->save(s.tensors);
    if (auto* buffer = method->buffer())
      s.buffer.tensors = {{"chains", buffer->chains()}, {"counts", buffer->counts()}};
    return s;
  }

  void restore(const run::Snapshot& s) {
    torch::NoGradGuard no_grad;
    const std::string where = "checkpoint of step " + std::to_string(s.position.step);
    if (s.small.value("imported", false))
      core::usage_error("train",
                        "an imported run has no optimizer state and no chains; it cannot be resumed");
    for (auto& [name, tensor] : method->state()) {
      const auto& source = s.tensors.at(run::kMethodPrefix + name, where);
      if (source.sizes() != tensor.sizes())
        core::usage_error("train",
                          fmt::format("{}: '{}' has another shape than the configuration says", where, name));
      auto t = tensor;
      t.copy_(source);
    }
    optimizer->load(s.tensors, where);
    if (auto* buffer = method->buffer()) {
      const auto& chains = s.buffer.at("chains", where);
      if (chains.sizes() != buffer->chains().sizes() ||
          chains.scalar_type() != buffer->chains().scalar_type())
        core::usage_error(
            "train",
            fmt::format("{}: its replay buffer is not the one that the configuration and data say", where));
      buffer->chains().copy_(chains);
      buffer->counts().copy_(s.buffer.at("counts", where));
    }
    position = s.position;
    try {
      method->load_small_state(s.small.at("method"));
      lr_scale = s.small.at("lr_scale").get<double>();
    } catch (const nlohmann::json::exception&) {
      core::usage_error("train", fmt::format("{}: its state does not fit this method", where));
    }
    make_loader();
  }

  void restore_newest() {
    std::vector<std::string> notes;
    const auto s = run::read_newest(options.folder.checkpoints(), notes);
    for (const auto& n : notes) warn(n);
    if (!s)
      core::usage_error("train", fmt::format("{}: no readable checkpoint; start anew with another --out",
                                             options.folder.root.string()));
    restore(*s);
  }

  /// Why this step must not be kept; nullopt when all is well.
  std::optional<std::string> fault(double loss, double grad_norm,
                                   const std::vector<std::pair<std::string, double>>& values) const {
    if (!std::isfinite(loss)) return "the loss is not finite";
    for (const auto& [name, value] : values) {
      if (!std::isfinite(value)) return fmt::format("{} is not finite", name);
      for (auto limit : method->limits()) {
        if (limit.metric == "gap" && config.guard.max_gap > 0) limit.value = config.guard.max_gap;
        if (name == limit.metric && std::abs(value) > limit.value)
          return fmt::format("the energy {} {:.3g} ran away (limit {:.3g})", name, value, limit.value);
      }
      if (name == "output_norm" && value > config.guard.max_output_norm)
        return fmt::format("the output norm {:.3g} ran away (limit {:.3g})", value,
                           config.guard.max_output_norm);
    }
    if (!std::isfinite(grad_norm)) return "the gradient is not finite";
    if (grad_norm > config.guard.max_grad_norm)
      return fmt::format("the gradient norm {:.3g} ran away (limit {:.3g})", grad_norm,
                         config.guard.max_grad_norm);
    return std::nullopt;
  }

  /// Back to the last good state, with other chains and a lower learning rate.
  void roll_back(const std::string& reason) {
    writer->wait();
    const auto failed_at = position;
    const int64_t tries = failed_at.rollbacks + 1;
    const double lr = base_lr * lr_scale;
    if (tries > config.guard.tries) {
      metrics->write({{"event", "gave_up"},
                      {"step", failed_at.step},
                      {"rollbacks", failed_at.rollbacks},
                      {"reason", reason}});
      core::run_error("train.guard",
                      fmt::format("step {}: {}; gave up after {} roll-backs; lower optimizer.lr (now {:.3g}) "
                                  "or sampler.step_size, or raise method.output_l2; checkpoints are in {}",
                                  failed_at.step + 1, reason, config.guard.tries, lr,
                                  options.folder.checkpoints().string()));
    }
    restore_newest();
    const double seconds = std::max(position.seconds, failed_at.seconds),
                 units = std::max(position.forward_units, failed_at.forward_units);
    position.rollbacks = tries;
    position.seconds = seconds;  // the lost work was still paid for
    position.forward_units = units;
    lr_scale *= config.guard.lr_factor;
    method->reseed(core::make_key({config.train.seed, static_cast<uint64_t>(tries)}));
    metrics->write({{"event", "rollback"},
                    {"step", position.step},
                    {"rollbacks", tries},
                    {"failed_step", failed_at.step + 1},
                    {"reason", reason},
                    {"lr", base_lr * lr_scale}});
    warn(fmt::format("step {}: {}; rolled back to step {}, new chains, learning rate {:.3g} (try {} of {})",
                     failed_at.step + 1, reason, position.step, base_lr * lr_scale, tries,
                     config.guard.tries));
    writer->submit(snapshot());
    writer->wait();
  }

  void save_samples(int64_t epoch) {
    auto* buffer = method->buffer();
    if (!buffer || config.log.samples_every == 0 || epoch % config.log.samples_every != 0) return;
    const auto n = std::min<int64_t>(64, buffer->size());
    fs::create_directories(options.folder.samples());
    const auto grid = plot::image_grid(buffer->chains().narrow(0, 0, n).to(torch::kFloat32), 8, 3);
    plot::write_png(options.folder.samples() / fmt::format("epoch-{:04}.png", epoch), grid);
    if (config.log.tensorboard)
      metrics->picture("chains", position.step, grid.width, grid.height, plot::encode_png(grid));
  }

  void run_monitor() {
    if (!monitor || config.monitor.knn_every == 0 || position.epoch % config.monitor.knn_every != 0) return;
    method->train(false);
    last_knn = monitor();
    method->train(true);
    metrics->write({{"event", "knn"},
                    {"step", position.step},
                    {"rollbacks", position.rollbacks},
                    {"epoch", position.epoch},
                    {"knn", last_knn},
                    {"seconds", position.seconds},
                    {"forward_units", position.forward_units}});
  }

  // An untrained norm-free network starts with little spread, so only a fall after the first epoch counts.
  void watch_collapse(double spread, int64_t dim) {
    const double healthy = 1 / std::sqrt(static_cast<double>(dim));
    widest_spread = std::max(widest_spread, spread);
    const bool collapsed = spread < config.guard.collapse * healthy && spread < 0.5 * widest_spread;
    if (collapsed && !collapse_warned && position.epoch > 0) {
      warn(fmt::format(
          "step {}: projections have collapsed: their spread {:.2g} is far below 1/sqrt({}) = {:.2g}",
          position.step, spread, dim, healthy));
      collapse_warned = true;
    }
    if (spread > 2 * config.guard.collapse * healthy) collapse_warned = false;
  }

  Outcome train(const std::atomic<bool>& stop) {
    Outcome outcome{.finished = position.step >= total_steps, .position = position};
    auto last_checkpoint = Clock::now();
    auto interval_start = Clock::now();
    int64_t interval_images = 0;
    while (position.step < total_steps) {
      if (stop) break;
      writer->poll();
      if (before_step) before_step(position.step);
      auto batch = loader->next();
      const auto start = Clock::now();
      const methods::StepInput input{batch.view1.to(options.device), batch.view2.to(options.device),
                                     position.step,
                                     static_cast<double>(position.step) / static_cast<double>(total_steps)};
      auto output = method->step(input);
      const double loss = output.loss.item<double>();
      auto reason = fault(loss, 0, output.metrics);
      double grad_norm = 0;
      if (!reason) {
        optimizer->zero_grad();
        output.loss.backward();
        grad_norm = optimizer->gradient_norm();
        reason = fault(loss, grad_norm, {});
      }
      if (reason) {
        output = {};
        position.seconds += seconds_since(start);
        roll_back(*reason);
        continue;
      }
      const double lr =
          base_lr * lr_scale *
          schedule_factor(config.optimizer, position.step, steps_per_epoch, config.train.epochs);
      optimizer->step(lr, base_lr * lr_scale);
      method->after_update(input);

      const int64_t n = input.view1.size(0);
      position.seconds += seconds_since(start);
      position.forward_units += method->forward_units(n) * static_cast<double>(n);
      ++position.step;
      if (++position.batch == steps_per_epoch) position.batch = 0, ++position.epoch;
      interval_images += n;
      outcome.loss = loss;

      const double elapsed = seconds_since(interval_start);
      StepReport report{.position = position,
                        .total_steps = total_steps,
                        .steps_per_epoch = steps_per_epoch,
                        .loss = loss,
                        .lr = lr,
                        .grad_norm = grad_norm,
                        .metrics = output.metrics};
      report.images_per_second = static_cast<double>(interval_images) / std::max(elapsed, 1e-9);
      report.seconds_left = static_cast<double>((total_steps - position.step) * config.train.batch_size) /
                            std::max(report.images_per_second, 1e-9);
      if (position.step % config.log.every == 0 || position.step == total_steps) {
        const double spread = methods::projection_spread(output.projections);
        write_metrics(report, spread);
        watch_collapse(spread, output.projections.size(1));
        interval_start = Clock::now();
        interval_images = 0;
      }
      observer.on_step(report);

      const bool epoch_end = position.batch == 0, end = position.step == total_steps;
      if (epoch_end) {
        run_monitor();
        save_samples(position.epoch);
        observer.on_epoch(position.epoch, last_knn);
      }
      if (end || (epoch_end && position.epoch % config.checkpoint.every_epochs == 0) ||
          seconds_since(last_checkpoint) > 60 * config.checkpoint.minutes) {
        writer->submit(snapshot());
        last_checkpoint = Clock::now();
      }
    }
    outcome.position = position;
    outcome.finished = position.step >= total_steps;
    if (!outcome.finished) writer->submit(snapshot());
    writer->wait();
    // In the log alone: who reads it later, or watches, sees that this was no crash.
    if (!outcome.finished)
      log_file << utc_now() << "  stopped at step " << position.step << "; everything is saved" << std::endl;
    if (outcome.finished) write_summary(outcome);
    return outcome;
  }

  void write_metrics(const StepReport& r, double spread) {
    nlohmann::ordered_json line = {
        {"step", r.position.step},
        {"rollbacks", r.position.rollbacks},
        {"epoch", static_cast<double>(r.position.step) / static_cast<double>(steps_per_epoch)},
        {"loss", r.loss}};
    for (const auto& [name, value] : r.metrics) line[name] = value;
    line["grad_norm"] = r.grad_norm;
    line["spread"] = spread;
    line["lr"] = r.lr;
    line["images_per_second"] = r.images_per_second;
    line["seconds"] = r.position.seconds;
    line["forward_units"] = r.position.forward_units;
    metrics->write(line);
  }

  void write_summary(const Outcome& o) {
    nlohmann::ordered_json j = {{"finished", o.finished},
                                {"method", config.method.name},
                                {"data", config.data.source},
                                {"images", images->size()},
                                {"epochs", o.position.epoch},
                                {"steps", o.position.step},
                                {"seconds", o.position.seconds},
                                {"forward_units", o.position.forward_units},
                                {"rollbacks", o.position.rollbacks},
                                {"loss", o.loss},
                                {"peak_memory_bytes", peak_memory_bytes()},
                                {"ended", utc_now()}};
    if (std::isfinite(last_knn)) j["knn"] = last_knn;
    core::write_atomically(options.folder.summary(), j.dump(2) + "\n", "train");
    note(fmt::format("done: {} epochs, {} steps in {}; peak memory {}", o.position.epoch, o.position.step,
                     core::human_seconds(o.position.seconds), core::human_bytes(peak_memory_bytes())));
  }
};

Trainer::Trainer(TrainerOptions options, std::shared_ptr<const data::ImageSet> images, Observer& observer)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(images), observer)) {
  impl_->build();
}

Trainer::~Trainer() = default;

Outcome Trainer::run(const std::atomic<bool>& stop) {
  return impl_->train(stop);
}
methods::Method& Trainer::method() {
  return *impl_->method;
}
void Trainer::set_monitor(std::function<double()> monitor) {
  impl_->monitor = std::move(monitor);
}
void Trainer::set_before_step(std::function<void(int64_t)> hook) {
  impl_->before_step = std::move(hook);
}

}  // namespace ebclr::train
