#include "train/trainer.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <torch/torch.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <optional>
#include <span>
#include <thread>

#include "core/error.h"
#include "core/file_lock.h"
#include "core/files.h"
#include "core/text.h"
#include "data/loader.h"
#include "density/proposals.h"
#include "nn/batch_sum.h"
#include "plot/plot.h"
#include "run/images.h"
#include "run/provenance.h"
#include "train/checkpoint_writer.h"
#include "train/guard.h"
#include "train/metrics_log.h"
#include "train/optimizer.h"
#include "train/run_log.h"

namespace ebclr::train {
namespace fs = std::filesystem;
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kOwnSampler = "own_sampler";  // in a checkpoint's small state

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double peak_memory_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024;
}

}  // namespace

void check_run_folder(const run::RunFolder& folder, bool resume) {
  std::error_code ec;
  if (resume && !fs::exists(folder.config(), ec))
    core::usage_error("train",
                      fmt::format("{}: nothing to resume (it has no config.yaml); begin with --out {}",
                                  folder.root.string(), folder.root.string()));
  if (!resume && fs::exists(folder.root, ec) && !fs::is_directory(folder.root, ec))
    core::usage_error("train", fmt::format("{}: is a file; choose another --out", folder.root.string()));
  if (!resume && !run::list_checkpoints(folder.checkpoints()).empty())
    core::usage_error(
        "train", fmt::format("{}: already holds a run; continue it with --resume {} or choose another --out",
                             folder.root.string(), folder.root.string()));
}

struct Trainer::Impl {
  TrainerOptions options;
  const run::Config& config = options.config;
  std::shared_ptr<const data::ImageSet> images;
  std::shared_ptr<dist::Group> ranks = options.ranks;
  const bool leads = ranks->rank() == 0;  // writes logs and the folder, and speaks to the observer
  Observer nobody;
  Observer& observer;
  std::optional<core::FileLock> lock;  // one training at a time in a folder
  std::optional<RunLog> log;
  std::optional<Guard> guard;
  std::unique_ptr<methods::Method> method;
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<data::Loader> loader;
  std::unique_ptr<CheckpointWriter> writer;
  std::unique_ptr<MetricsLog> metrics;
  std::function<double()> monitor;
  std::function<void(int64_t)> before_step;

  engine::EngineChoice engine_choice;
  run::Position position;
  bool created = false;  // the run folder is new
  std::string labels;    // digest of what a run that learns from labels is told; empty for others
  double base_lr = 0;
  int64_t steps_per_epoch = 0, total_steps = 0;
  int64_t interval_images = 0;  // since the last line of metrics.jsonl
  Clock::time_point interval_start, last_checkpoint;
  double last_knn = std::numeric_limits<double>::quiet_NaN();
  int64_t visit_steps = 0;     // of a chain in the last step
  dist::Traffic told_traffic;  // as of the last line of metrics
  int64_t steps_since_traffic = 0;

  Impl(TrainerOptions o, std::shared_ptr<const data::ImageSet> set, Observer& obs)
      : options(std::move(o)), images(std::move(set)), observer(leads ? obs : nobody) {}

  void note(const std::string& text) { log->note(text); }
  void warn(const std::string& text) { log->warn(text); }

  void make_folder() {
    std::error_code ec;
    const auto& folder = options.folder;
    created = !fs::exists(folder.root, ec);
    if (created) core::make_folder(folder.root, "train");
  }

  /// A run that could not begin leaves no folder: what is in it was made by this process.
  void unmake_folder() {
    const auto& f = options.folder;
    if (!created || !run::list_checkpoints(f.checkpoints()).empty()) return;
    std::error_code ec;
    const auto events = metrics ? metrics->events() : fs::path();
    log.reset();
    metrics.reset();
    if (lock)
      for (const auto& path : {f.config(), f.images(), f.metrics(), events, f.provenance(), f.log(), f.lock(),
                               f.checkpoints() / "clock.jsonl"})
        fs::remove(path, ec);
    if (lock) run::prune_checkpoints(f.checkpoints(), {});  // parts of a buffer that no checkpoint names
    for (const auto& path : {f.checkpoints(), f.root}) fs::remove(path, ec);  // if they are empty
  }

  void take_lock() {
    lock = core::FileLock::try_take(options.folder.lock(), "train");
    if (!lock)
      core::usage_error("train", fmt::format("{}: another training is running in this folder",
                                             options.folder.root.string()));
  }

  /// What any rank objects to, in the words of the first that does; the same on all ranks.
  std::optional<std::string> agree(const std::optional<std::string>& mine) {
    if (!ranks->any(mine.has_value())) return std::nullopt;
    for (const auto& text : ranks->gather_text(mine.value_or("")))
      if (!text.empty()) return text;
    return std::nullopt;
  }

  /// Every rank must see the folder of rank 0: checkpoints lie there in parts.
  void check_shared_folder() {
    if (ranks->alone()) return;
    const auto name = ranks->gather_text(fmt::format(".seen-{}-{}", ::getpid(), utc_now()))[0];
    const auto token = options.folder.root / name;
    if (leads) core::write_atomically(token, "", "train");
    ranks->meet();
    std::error_code ec;
    // A network file system may take a moment.
    for (int tries = 0; tries < 50 && !fs::exists(token, ec); ++tries)
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const bool seen = fs::exists(token, ec);
    const auto trouble = agree(
        seen ? std::nullopt
             : std::optional(fmt::format("rank {} does not see {} of rank 0; the run folder must lie on a "
                                         "disk that all hosts share, under the same path",
                                         ranks->rank(), fs::absolute(options.folder.root).string())));
    if (leads) fs::remove(token, ec);
    if (trouble) core::usage_error("train", *trouble);
  }

  void check_data() {
    if (config.method.name == methods::kSupervised && !images->labelled())
      core::usage_error("train",
                        fmt::format("{} has images without a label, and method.name supervised learns from "
                                    "labels; give them with --labels FILE.csv, or leave the others out with "
                                    "--set data.labelled=true",
                                    images->name));
    methods::fit_to_classes(options.config.method, images->classes());
    if (images->size() < config.train.batch_size)
      core::usage_error("train",
                        fmt::format("{} has {} train images, fewer than train.batch_size {}; lower "
                                    "it with --set train.batch_size={}",
                                    images->name, images->size(), config.train.batch_size,
                                    std::min(images->size(), std::max<int64_t>(2, images->size() / 4))));
    if (const auto least = methods::least_batch(config.method.name); config.train.batch_size < least)
      core::usage_error("train", fmt::format("train.batch_size must be at least {}", least));
    if (config.train.batch_size < ranks->world())
      core::usage_error("train", fmt::format("train.batch_size {} cannot be shared by {} ranks; start fewer",
                                             config.train.batch_size, ranks->world()));
  }

  /// What no engine computes in bfloat16; whether this one does is asked when it is there.
  void check_coarse_chains() const {
    const auto& m = config.method;
    const bool labels = m.name == methods::kSupervised;
    if (m.ebclr.sampler.precision == ebm::Precision::kFloat || m.ebclr.objective.lambda == 0 ||
        (m.name != "ebclr" && !labels))
      return;
    const bool norm = m.encoder.norm == nn::Norm::kBatch || m.head.hidden_norm || m.head.output_norm;
    if (!norm && !labels) return;
    core::usage_error(
        "train", fmt::format("sampler.precision bfloat16 is not there for {}; compute chains in float: --set "
                             "sampler.precision=float",
                             labels ? "chains of method.name supervised"
                                    : "networks with BatchNorm (encoder.norm, head.hidden_norm, "
                                      "head.output_norm)"));
  }

  void build() {
    if (leads) check_run_folder(options.folder, options.resume);
    check_data();
    check_coarse_chains();
    if (leads) {
      open_folder();
      log.emplace(options.folder.log(), observer);
    } else {
      log.emplace(observer);
    }
    check_shared_folder();
    begin();
  }

  void open_folder() {
    make_folder();
    take_lock();
    check_run_folder(options.folder, options.resume);  // nobody has begun meanwhile
    for (const auto& folder : {options.folder.root, options.folder.checkpoints(), options.folder.samples()})
      core::sweep_temporaries(folder);
  }

  /// Labels of a CSV may change while the images stay what they were, and no list of files shows it.
  std::string digest_of_labels() const {
    if (config.method.name != methods::kSupervised) return "";
    const auto all = images->labels.contiguous();
    return core::sha256({static_cast<const std::byte*>(all.data_ptr()), all.nbytes()}).substr(0, 32);
  }

  void begin() {
    labels = digest_of_labels();
    auto method_options = config.method;
    method_options.encoder.channels = images->channels();
    method_options.seed = config.train.seed;
    methods::MethodContext context{.data_proposals = density::data_proposals(images, config.views),
                                   .image_shape = {images->channels(), images->height(), images->width()},
                                   .train_images = images->size(),
                                   .batch = config.train.batch_size,
                                   .make_sampler = options.make_sampler,
                                   .ranks = ranks};
    method = options.make_method(method_options, context);
    method->to(options.device);
    method->train();
    for (auto& encoder : method->encoders())
      engine_choice = engine::place(*encoder, nullptr, {options.device, options.engine});
    check_precision();
    share_batches();
    base_lr = config.effective_lr();
    optimizer = std::make_unique<Optimizer>(config.optimizer, method->parameter_groups(), base_lr);
    writer = std::make_unique<CheckpointWriter>(options.folder.checkpoints(), config.checkpoint.keep_last,
                                                config.checkpoint.keep_every, ranks);
    make_loader();
    steps_per_epoch = loader->batches_per_epoch();
    total_steps = steps_per_epoch * config.train.epochs;
    guard.emplace(config, method->limits(), steps_per_epoch);

    // A run that was killed before its first checkpoint begins anew.
    const bool begun = ranks->any(leads && !run::list_checkpoints(options.folder.checkpoints()).empty());
    if (begun) {
      restore_newest();
      if (position.step > total_steps)
        core::usage_error("train",
                          fmt::format("{}: has {} epochs behind it; it can be made longer, not shorter "
                                      "than that: --epochs {} is too few",
                                      options.folder.root.string(), position.epoch, config.train.epochs));
      note(fmt::format("resumed at epoch {} batch {} (step {} of {})", position.epoch, position.batch,
                       position.step, total_steps));
    }
    metrics = std::make_unique<MetricsLog>();
    if (leads && begun) warn_of_other_length();
    if (leads) open_records(begun);
    describe();
    if (!begun) {
      if (!config.train.from.empty()) take_first_weights();
      // The state before the first step: where a roll-back can always go.
      save(snapshot());
      writer->wait();
    }
  }

  /// What runs from the first epoch to the last runs otherwise when there are more of them.
  void warn_of_other_length() {
    const bool cosine = config.optimizer.schedule == run::ScheduleKind::kCosine,
               byol = config.method.name == "byol";
    if (!cosine && !byol) return;
    int64_t before = config.train.epochs;
    try {
      before = run::resolve({run::read_run_layer(options.folder.config())}).train.epochs;
    } catch (const core::Error&) {  // it is written anew
    }
    if (before == config.train.epochs) return;
    warn(
        fmt::format("the run goes from {} to {} epochs: the cosine of the {} spans those now and jumps here; "
                    "the result is not that of {} epochs from the start",
                    before, config.train.epochs,
                    cosine && byol ? "learning rate and of the momentum"
                    : cosine       ? "learning rate"
                                   : "momentum",
                    config.train.epochs));
  }

  /// Those of another run's encoder. Later they are in the checkpoints.
  void take_first_weights() {
    torch::NoGradGuard no_grad;
    const auto other = run::Run::open(config.train.from).load("last");
    core::SafeTensors weights;
    for (const auto& [name, tensor] : nn::state_of(*other.encoder, "encoder."))
      weights.tensors[name] = tensor;
    for (const auto& encoder : method->encoders())
      run::load_module(*encoder, weights, "encoder.", config.train.from);
    note(fmt::format("starts from the encoder of {}, epoch {}", config.train.from, other.position.epoch));
  }

  /// Bits of a run must not depend on where it goes on: bfloat16 is never replaced by float without a word.
  void check_precision() {
    if (config.method.ebclr.sampler.precision == ebm::Precision::kFloat || method->buffer() == nullptr)
      return;
    for (const auto& encoder : method->encoders()) {
      if (encoder->has_backend() && encoder->backend()->has_bfloat16_chains()) continue;
      core::usage_error(
          "train", fmt::format("sampler.precision bfloat16 needs the native CPU engine and a processor with "
                               "avx512_bf16, and the encoder runs as {}; compute chains in float: --set "
                               "sampler.precision=float",
                               engine_choice.reason));
    }
  }

  /// BatchNorm looks at the images of all ranks.
  void share_batches() {
    if (ranks->alone()) return;
    // The engines visit the layers in another order, and each of them is an exchange.
    ranks->require_same("engine", engine_choice.native ? "native" : "torch");
    for (const auto& m : method->modules())
      nn::share_batch(*m.module, [group = ranks](std::span<double> sums) {
        auto t = torch::from_blob(sums.data(), {static_cast<int64_t>(sums.size())}, torch::kFloat64);
        group->sum(t);
      });
  }

  void open_records(bool begun) {
    // Also when resuming: a run that was made longer stays so after the next interruption.
    core::write_atomically(options.folder.config(), run::to_yaml(config), "train");
    // Before the first checkpoint: whatever can be resumed knows its images. One that was lost comes back.
    std::error_code ec;
    if (!begun || !fs::exists(options.folder.images(), ec))
      run::write_image_list(options.folder, options.list);
    metrics = std::make_unique<MetricsLog>(options.folder.metrics(), position.rollbacks, position.step,
                                           config.log.tensorboard);
    last_knn = metrics->last_knn();
    run::record_session(options.folder,
                        {.engine = engine_choice.native ? "native" : "torch",
                         .instructions = engine_choice.instructions,
                         .device = options.device.str(),
                         .threads = at::get_num_threads(),
                         .ranks = ranks->world(),
                         .from_step = position.step},
                        begun);
  }

  /// What is trained and on what, for the log.
  void describe() {
    if (!ranks->alone()) note(ranks->describe());
    note(fmt::format("{} on {}: {} images of {}x{}x{}, batch {}, {} steps an epoch, learning rate {}",
                     config.method.name, images->name, images->size(), images->channels(), images->height(),
                     images->width(), config.train.batch_size, steps_per_epoch, base_lr * guard->lr_scale()));
    note(fmt::format("encoder {} width {}: {}; {} thread{}", config.method.encoder.arch,
                     config.method.encoder.width, engine_choice.reason, at::get_num_threads(),
                     at::get_num_threads() == 1 ? "" : "s"));
    if (auto* buffer = method->buffer())
      note(fmt::format("replay buffer: {} chains, {}{}", buffer->size(),
                       core::human_bytes(static_cast<double>(buffer->bytes())),
                       ranks->alone() ? "" : " on each rank"));
    for (const auto& text : method->warnings()) warn(text);
    warn_of_foreign_rate();
  }

  /// optimizer.lr 0 is a rule for the optimizer that the method comes with.
  void warn_of_foreign_rate() {
    if (config.optimizer.lr > 0) return;
    std::string own = "adam";
    for (const auto& [key, value] : run::method_preset(config.method.name))
      if (key == "optimizer.kind") own = value;
    const std::string kind = config.optimizer.kind == run::OptimizerKind::kAdam ? "adam" : "sgd";
    if (kind != own)
      warn(fmt::format("the learning rate {} is {}'s rule for {}, and optimizer.kind is {}; set optimizer.lr",
                       base_lr, config.method.name, own, kind));
  }

  void make_loader() {
    loader = std::make_unique<data::Loader>(images, config.views,
                                            data::LoaderOptions{.batch_size = config.train.batch_size,
                                                                .seed = config.train.seed,
                                                                .threads = options.loader_threads,
                                                                .rank = ranks->rank(),
                                                                .world = ranks->world()},
                                            position.epoch, position.batch);
  }

  run::CheckpointId id() const { return {position.rollbacks, position.step}; }

  void submit(const run::Snapshot& s) {
    std::error_code ec;
    if (leads && !fs::exists(options.folder.config(), ec))  // a checkpoint alone would be no run
      core::run_error("train", fmt::format("{}: the run folder was removed", options.folder.root.string()));
    metrics->sync();  // a checkpoint never knows of steps that the log has lost
    writer->submit(s, guard->protect());
  }

  void save(const run::Snapshot& s) {
    guard->saved(id());
    submit(s);
  }

  run::Snapshot snapshot() {
    run::Snapshot s;
    s.position = position;
    s.small = {{"method", method->small_state()},
               {"lr_scale", guard->lr_scale()},
               {"guard", guard->state()},
               {"image", {images->channels(), images->height(), images->width()}},
               {kOwnSampler, options.own_sampler}};
    if (!labels.empty()) s.small["labels"] = labels;
    for (auto& [name, tensor] : method->state())
      s.tensors.tensors[run::kMethodPrefix + name] = tensor.detach();
    optimizer->save(s.tensors);
    if (auto* buffer = method->buffer())
      s.buffer.tensors = {{"chains", buffer->chains()}, {"counts", buffer->counts()}};
    return s;
  }

  /// Throws Error unless this run can go on from that state with these images.
  void check_belongs(const run::Snapshot& s, const std::string& where) const {
    const auto says = [&](const char* key, const nlohmann::json& value) {
      const auto it = s.small.find(key);
      return it != s.small.end() && *it == value;
    };
    if (says("imported", true))
      core::usage_error("train",
                        "an imported run has no optimizer state and no chains; it cannot be resumed");
    const auto& p = s.position;
    if (p.step < 0 || p.epoch != p.step / steps_per_epoch || p.batch != p.step % steps_per_epoch)
      core::usage_error("train", fmt::format("{}: was made with another number of images than the {} of {}; "
                                             "put them back or start a new run",
                                             where, images->size(), images->name));
    // Checkpoints of earlier versions do not say.
    if (const bool own = says(kOwnSampler, true); s.small.contains(kOwnSampler) && own != options.own_sampler)
      core::usage_error(
          "train",
          fmt::format("{}: its chains are moved by {}", where,
                      own ? "a sampler of another program; resume it there (TrainingOptions::sampler)"
                          : "the sampler of its configuration; resume it without "
                            "TrainingOptions::sampler"));
    if (!labels.empty() && s.small.contains("labels") && !says("labels", labels))
      core::usage_error("train", fmt::format("{}: was made with other labels than {} has now; put them back "
                                             "or start a new run",
                                             where, images->name));
  }

  void restore(const run::Snapshot& s) {
    torch::NoGradGuard no_grad;
    const std::string where = "checkpoint of step " + std::to_string(s.position.step);
    check_belongs(s, where);
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
      if (s.slots != buffer->size() || chains.sizes() != buffer->chains().sizes() ||
          chains.scalar_type() != buffer->chains().scalar_type() ||
          s.buffer.at("counts", where).sizes() != buffer->counts().sizes())
        core::usage_error(
            "train",
            fmt::format("{}: its replay buffer is not the one that the configuration and data say", where));
      buffer->chains().copy_(chains);
      buffer->counts().copy_(s.buffer.at("counts", where));
    }
    position = s.position;
    try {
      method->load_small_state(s.small.at("method"));
      guard->load_state(s.small, position);
    } catch (const nlohmann::json::exception&) {
      core::usage_error("train", fmt::format("{}: its state does not fit this method", where));
    }
    make_loader();
  }

  // Checkpoints that a run of this method can be restored from.
  std::vector<run::CheckpointFile> whole_checkpoints() const {
    auto files = run::list_checkpoints(options.folder.checkpoints());
    if (method->buffer()) std::erase_if(files, [](const auto& f) { return f.buffer.empty(); });
    return files;
  }

  /// These, as rank 0 knows them: all ranks go through the same list.
  std::vector<run::CheckpointFile> as_rank_0(std::vector<run::CheckpointFile> files) {
    if (ranks->alone()) return files;
    nlohmann::json ids = nlohmann::json::array();
    for (const auto& f : files) ids.push_back({f.path.filename().string(), f.rollbacks, f.step});
    std::vector<run::CheckpointFile> out;
    for (const auto& id : nlohmann::json::parse(ranks->gather_text(ids.dump())[0])) {
      run::CheckpointFile file{
          .path = options.folder.checkpoints() / id[0].get<std::string>(), .step = id[2], .rollbacks = id[1]};
      // One that is not seen here cannot be read here, and is passed over by all.
      for (const auto& f : files)
        if (f.id() == file.id()) file = f;
      out.push_back(file);
    }
    return out;
  }

  /// The first of them that every rank can read, and that is sound if that is asked for; the others are
  /// named with what `next` says.
  std::optional<run::Snapshot> read_first(const std::vector<run::CheckpointFile>& files, bool sound,
                                          const std::string& next) {
    const auto* buffer = method->buffer();
    const auto [first, end] = buffer ? buffer->slots() : std::pair<int64_t, int64_t>{0, 0};
    for (const auto& file : files) {
      std::optional<std::string> trouble;
      run::Snapshot s;
      try {
        s = run::read_checkpoint(file, true, {first, end});
      } catch (const core::Error& e) {
        trouble = e.what();
      }
      trouble = agree(trouble);
      if (trouble) warn(*trouble + next);
      if (!trouble && !(sound && agree(unsound(s)))) return s;
    }
    return std::nullopt;
  }

  void restore_newest() {
    auto files = as_rank_0(run::list_checkpoints(options.folder.checkpoints()));
    std::reverse(files.begin(), files.end());
    const auto s = read_first(files, /*sound=*/false, "; trying the checkpoint before it");
    if (!s)
      core::usage_error("train", fmt::format("{}: no readable checkpoint; start anew with another --out",
                                             options.folder.root.string()));
    restore(*s);
    std::vector<run::CheckpointId> earlier;
    for (const auto& f : as_rank_0(whole_checkpoints())) earlier.push_back(f.id());
    guard->resumed(id(), earlier);
    // A kill may have come before the tidying. Damaged newer files stay until there is another one.
    if (id() == files.front().id()) writer->prune(id(), guard->protect());
  }

  /// The state that the guard calls good; if that file was damaged meanwhile, the nearest sound one before
  /// it, else after it.
  void restore_good() {
    auto files = as_rank_0(whole_checkpoints());
    const auto good = guard->good().value_or(run::CheckpointId{});
    const auto after =
        std::partition_point(files.begin(), files.end(), [&](const auto& f) { return f.id() <= good; });
    std::reverse(files.begin(), after);
    if (const auto s = read_first(files, /*sound=*/true, "; trying another checkpoint")) return restore(*s);
    core::run_error("train.guard",
                    fmt::format("{}: no readable checkpoint to go back to; start anew with another "
                                "--out",
                                options.folder.root.string()));
  }

  /// Back to the last good state, with other chains and a lower learning rate.
  void roll_back(const std::string& reason) {
    writer->wait();
    ranks->meet();  // rank 0 has written what the others may read now
    const auto failed_at = position;
    const double lr = base_lr * guard->lr_scale();
    if (!guard->may_roll_back()) {
      metrics->write({{"event", "gave_up"},
                      {"step", failed_at.step},
                      {"rollbacks", failed_at.rollbacks},
                      {"reason", reason}});
      core::run_error(
          "train.guard",
          fmt::format("step {}: {}; gave up after {} roll-backs; lower optimizer.lr (now {:.3g}) "
                      "or sampler.step_size, or raise method.output_l2; checkpoints are in {}",
                      failed_at.step + 1, reason, guard->tries(), lr, options.folder.checkpoints().string()));
    }
    const auto so_far = *guard;
    restore_good();
    *guard = so_far;  // what was tried since that checkpoint counts
    position.rollbacks = failed_at.rollbacks + 1;
    guard->rolled_back(failed_at, id());
    // The lost work was still paid for.
    position.seconds = std::max(position.seconds, failed_at.seconds);
    position.forward_units = std::max(position.forward_units, failed_at.forward_units);
    method->reseed(core::make_key({config.train.seed, static_cast<uint64_t>(position.rollbacks)}));
    metrics->write({{"event", "rollback"},
                    {"step", position.step},
                    {"rollbacks", position.rollbacks},
                    {"failed_step", failed_at.step + 1},
                    {"reason", reason},
                    {"lr", base_lr * guard->lr_scale()}});
    last_knn = metrics->last_knn();
    warn(fmt::format("step {}: {}; rolled back to step {}, new chains, learning rate {:.3g} (try {} of {})",
                     failed_at.step + 1, reason, position.step, base_lr * guard->lr_scale(), guard->tries(),
                     config.guard.tries));
    submit(snapshot());
    writer->wait();
  }

  void save_samples(int64_t epoch) {
    auto* buffer = method->buffer();
    if (!buffer || config.log.samples_every == 0 || epoch % config.log.samples_every != 0) return;
    const double visits = buffer->mean_visits();
    if (!leads) return;
    const auto n = std::min<int64_t>(64, buffer->chains().size(0));
    core::make_folder(options.folder.samples(), "train");
    const auto grid = plot::image_grid(
        buffer->chains().narrow(0, 0, n).to(torch::kFloat32),
        {.columns = 8,
         .scale = images->height() <= 48 ? 3 : 1,
         .title =
             fmt::format("chains after epoch {}: visited {:.1f} times on average, {} steps the last time",
                         epoch, visits, visit_steps)});
    plot::write_png(options.folder.samples() / fmt::format("epoch-{:04}.png", epoch), grid);
    if (config.log.tensorboard)
      metrics->picture("chains", position.step, grid.width, grid.height, plot::encode_png(grid));
  }

  void run_monitor() {
    // The others wait for it where they meet next.
    if (!leads || !monitor || config.monitor.knn_every == 0 || position.epoch % config.monitor.knn_every != 0)
      return;
    method->train(false);
    try {
      last_knn = monitor();
    } catch (const std::exception& e) {  // libtorch's too: there may be no memory for features
      // Features of a network that has diverged cannot be judged; what becomes of it is the guard's to say.
      last_knn = std::numeric_limits<double>::quiet_NaN();
      const std::string text = e.what();
      warn(fmt::format("epoch {}: no kNN check: {}", position.epoch, text.substr(0, text.find('\n'))));
    }
    method->train(true);
    if (!std::isfinite(last_knn)) return;
    metrics->write({{"event", "knn"},
                    {"step", position.step},
                    {"rollbacks", position.rollbacks},
                    {"epoch", position.epoch},
                    {"knn", last_knn},
                    {"seconds", position.seconds},
                    {"forward_units", position.forward_units}});
  }

  Outcome train(const std::atomic<bool>& stop) {
    Outcome outcome;
    outcome.loss = metrics->last_loss();
    last_checkpoint = interval_start = Clock::now();
    while (position.step < total_steps && !ranks->any(stop)) {
      writer->poll();
      if (before_step) before_step(position.step);
      if (const auto report = take_step()) {
        outcome.loss = report->loss;
        observer.on_step(*report);
        end_step(report->loss);
      }
    }
    outcome.position = position;
    outcome.finished = position.step >= total_steps;
    if (!outcome.finished) outcome.saved = save_interrupted();
    writer->wait();
    // In the log alone: who reads it later, or watches, sees that this was no crash.
    if (!outcome.finished)
      log->write(fmt::format("stopped at step {} of {}; {}", position.step, total_steps,
                             outcome.saved ? "everything is saved" : "goes on from the checkpoint before"));
    if (outcome.finished && leads) write_summary(outcome);
    ranks->meet();  // nobody leaves before everything is written
    return outcome;
  }

  /// One step forward; nullopt when the guard refused it and the run went back instead.
  std::optional<StepReport> take_step() {
    auto batch = loader->next();
    const auto start = Clock::now();
    const methods::StepInput input{
        batch.view1.to(options.device),
        batch.view2.to(options.device),
        position.step,
        static_cast<double>(position.step) / static_cast<double>(total_steps),
        batch.total,
        images->labels.defined() ? images->labels.index_select(0, batch.indices) : torch::Tensor()};
    auto output = method->step(input);
    // Before a balance changes them for the next step.
    const double units = method->forward_units(input.images()) * static_cast<double>(input.images());
    visit_steps = steps_of_visit(output);
    const bool logged = (position.step + 1) % config.log.every == 0 || position.step + 1 == total_steps;
    Signs signs{.position = position,
                .loss = output.loss.item<double>(),
                .metrics = output.metrics,
                .projection_dim = output.projections.defined() ? output.projections.size(1) : 0};
    // Also before the first update: what a collapse falls from.
    if ((logged || position.step == 0) && output.projections.defined())
      signs.spread = methods::projection_spread(output.projections);
    auto reason = agree(guard->fault(signs));
    if (!reason) {
      optimizer->zero_grad();
      output.loss.backward();
      optimizer->sum_gradients(*ranks);
      signs.grad_norm = optimizer->gradient_norm();
      reason = agree(guard->fault(signs));
    }
    if (reason) {
      output = {};
      position.seconds += seconds_since(start);
      position.forward_units += units;
      roll_back(*reason);
      return std::nullopt;
    }
    const double lr = base_lr * guard->lr_scale() *
                      schedule_factor(config.optimizer, position.step, steps_per_epoch, config.train.epochs);
    optimizer->step(lr, base_lr * guard->lr_scale());
    method->after_update(input);
    position.seconds += seconds_since(start);
    position.forward_units += units;
    count_step(input.images());
    guard->kept(position);

    auto report = make_report(signs, lr);
    if (signs.spread) {
      signs.position = position;
      if (const auto text = guard->warning(signs)) warn(*text);
    }
    if (logged) {
      write_metrics(report, signs.spread);
      interval_start = Clock::now();
      interval_images = 0;
    }
    return report;
  }

  /// As the method says, for a balance may have changed them.
  int64_t steps_of_visit(const methods::StepOutput& output) const {
    for (const auto& [name, value] : output.metrics)
      if (name == "sgld_steps") return std::llround(value);
    return ebm::steps_per_visit(config.method.ebclr.sampler);
  }

  void count_step(int64_t images_done) {
    ++position.step;
    if (++position.batch == steps_per_epoch) position.batch = 0, ++position.epoch;
    interval_images += images_done;
    ++steps_since_traffic;
  }

  StepReport make_report(const Signs& signs, double lr) const {
    StepReport report{.position = position,
                      .total_steps = total_steps,
                      .steps_per_epoch = steps_per_epoch,
                      .loss = signs.loss,
                      .lr = lr,
                      .grad_norm = signs.grad_norm.value_or(0),
                      .metrics = signs.metrics};
    report.images_per_second =
        static_cast<double>(interval_images) / std::max(seconds_since(interval_start), 1e-9);
    report.seconds_left = static_cast<double>((total_steps - position.step) * config.train.batch_size) /
                          std::max(report.images_per_second, 1e-9);
    return report;
  }

  bool to_save(int64_t epoch) const {
    const auto& c = config.checkpoint;
    return epoch % c.every_epochs == 0 || (c.keep_every > 0 && epoch % c.keep_every == 0);
  }

  /// What is due after a step: at the end of an epoch the monitor and pictures, and checkpoints.
  void end_step(double loss) {
    const bool epoch_end = position.batch == 0, end = position.step == total_steps;
    const int64_t epoch = position.epoch;
    bool kept = true;
    if (epoch_end) {
      run_monitor();
      save_samples(position.epoch);
      log->write(fmt::format("epoch {} of {}: loss {:.4g}{}", position.epoch, config.train.epochs, loss,
                             std::isfinite(last_knn) ? fmt::format(", kNN {:.2f} %", 100 * last_knn) : ""));
    }
    if (end || (epoch_end && to_save(position.epoch)) ||
        ranks->any(leads && seconds_since(last_checkpoint) > 60 * config.checkpoint.minutes)) {
      kept = save_sound();
      last_checkpoint = Clock::now();
    }
    // After saving: an observer may fail, and the epoch is not lost with it.
    if (epoch_end && kept) observer.on_epoch(epoch, last_knn);
  }

  /// Saves; a state that is not finite is never written over good ones, it counts as a fault of its step:
  /// false.
  bool save_sound() {
    const auto s = snapshot();
    const auto bad = agree(unsound(s));
    if (!bad) {
      save(s);
      return true;
    }
    --position.step;
    roll_back(*bad);
    return false;
  }

  /// Saves where the run is stopped; false: this state is not sound, and the checkpoint before stays newest.
  bool save_interrupted() {
    const auto s = snapshot();
    const auto bad = agree(unsound(s));
    if (bad)
      warn(fmt::format("{}: this state is not saved; the run goes on from the checkpoint before", *bad));
    else
      save(s);
    return !bad;
  }

  void write_metrics(const StepReport& r, std::optional<double> spread) {
    nlohmann::ordered_json line = {
        {"step", r.position.step},
        {"rollbacks", r.position.rollbacks},
        {"epoch", static_cast<double>(r.position.step) / static_cast<double>(steps_per_epoch)},
        {"loss", r.loss}};
    for (const auto& [name, value] : r.metrics) line[name] = value;
    line["grad_norm"] = r.grad_norm;
    if (spread) line["spread"] = *spread;
    line["lr"] = r.lr;
    line["images_per_second"] = r.images_per_second;
    line["seconds"] = r.position.seconds;
    line["forward_units"] = r.position.forward_units;
    if (!ranks->alone()) add_traffic(line);
    metrics->write(line);
  }

  /// What the exchange with the other ranks took since the last line, per step.
  void add_traffic(nlohmann::ordered_json& line) {
    const auto now = ranks->traffic();
    const auto per_step = 1 / static_cast<double>(std::max<int64_t>(1, steps_since_traffic));
    line["exchange_seconds"] = (now.seconds - told_traffic.seconds) * per_step;
    line["exchange_bytes"] = (now.bytes - told_traffic.bytes) * per_step;
    line["exchanges"] = static_cast<double>(now.calls - told_traffic.calls) * per_step;
    told_traffic = now;
    steps_since_traffic = 0;
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
    // The name of a folder of images need not be UTF-8.
    const auto text = j.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
    core::write_atomically(options.folder.summary(), text + "\n", "train");
    note(fmt::format("done: {} epochs, {} steps in {}; peak memory {}", o.position.epoch, o.position.step,
                     core::human_seconds(o.position.seconds), core::human_bytes(peak_memory_bytes())));
  }
};

Trainer::Trainer(TrainerOptions options, std::shared_ptr<const data::ImageSet> images, Observer& observer)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(images), observer)) {
  try {
    impl_->build();
  } catch (...) {
    impl_->unmake_folder();
    throw;
  }
}

Trainer::~Trainer() = default;

void Trainer::log(const std::string& text) {
  impl_->log->write(text);
}

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
