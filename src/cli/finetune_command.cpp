#include "cli/finetune_command.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/answer.h"
#include "cli/progress.h"
#include "cli/train_command.h"
#include "core/error.h"
#include "core/files.h"
#include "dist/launch.h"
#include "run/images.h"
#include "train/trainer.h"

namespace ebclr::cli {
namespace {
namespace fs = std::filesystem;

constexpr double kHeldOut = 0.2;      // of labels in a CSV
constexpr double kJointLambda = 0.1;  // of the generative term, as in the paper

struct FinetuneArgs {
  std::string folder, out, resume;
  bool joint = false;
  ConfigOptions config;
  TrainingOptions training;
};

// What a fine-tuned run takes over: the network, its views and how chains move; not how it was trained.
run::Layer inherited(const run::Run& run, bool other_data) {
  run::Layer out{run.folder().root.string(), {}};
  const auto all = run::read_run_layer(run.folder().config());
  for (const auto& [key, value] : all.values) {
    const auto section = key.substr(0, key.find('.'));
    const bool kept = section == "encoder" || section == "augment" || section == "sampler" ||
                      section == "buffer" || key == "method.output_l2" ||
                      (section == "data" && !other_data) || key == "data.root" || key == "data.cache";
    if (kept) out.values.emplace_back(key, value);
  }
  return out;
}

// The images as the encoder saw its own, where their size is open.
run::Layer size_of_images(const run::Model& model, const std::string& source) {
  run::Layer out{"size of the run's images", {}};
  if (!data::is_folder(source) || model.image_shape.size() != 3) return out;
  out.values = {{"data.image_size", std::to_string(model.image_shape[1])},
                {"data.grayscale", model.image_shape[0] == 1 ? "true" : "false"}};
  return out;
}

// Batch and epochs for so many labels: a thousand steps, at least ten epochs.
run::Layer length_of(int64_t labels) {
  const int64_t batch = labels >= 512 ? 64 : labels >= 64 ? 32 : std::max<int64_t>(2, labels / 2);
  const int64_t steps = std::max<int64_t>(1, labels / batch);
  const int64_t epochs = std::clamp<int64_t>((999 + steps) / steps, 10, 200);
  return {"chosen for these labels",
          {{"train.batch_size", std::to_string(batch)},
           {"train.epochs", std::to_string(epochs)},
           {"log.every", std::to_string(std::clamp<int64_t>(steps / 5, 1, 10))},
           {"checkpoint.every_epochs", std::to_string(std::max<int64_t>(1, epochs / 10))},
           {"log.samples_every", std::to_string(std::max<int64_t>(1, epochs / 5))},
           {"buffer.size", std::to_string(std::clamp<int64_t>(labels, 4 * batch, 10000))}}};
}

// The run's own split counts where the images are the run's: a folder of other pictures may have the same
// names and sizes.
data::TrainTest images_of_run(const run::Run& run, const data::SourceOptions& source, bool other_data,
                              const data::LoadContext& context) {
  const auto list = run::image_list(run.folder());
  if (!list || (other_data && !run::is_moved(run, source.source))) return data::load(source, context);
  auto sets = run::load_images(run.folder(), source, context);
  const auto changes = data::compare(*list, sets.list);
  const auto used =
      std::count_if(list->images.begin(), list->images.end(), [](const auto& i) { return i.used(); });
  const auto same =
      static_cast<size_t>(used) - changes.missing.size() - changes.left_out.size() - changes.changed.size();
  return other_data && changes.changed.size() > same ? data::load(source, context) : sets;
}

Training begun(const FinetuneArgs& a, const Runtime& runtime, std::vector<std::string>& warnings) {
  if (a.folder.empty() || a.out.empty())
    core::usage_error("finetune", "give the run to start from and --out, or --resume RUN");
  const auto run = run::Run::open(a.folder);
  const auto model = run.load("last");
  const bool other_data = !a.config.data.empty(), csv = !a.config.labels_csv.empty();
  const std::string source = other_data ? a.config.data : run.config().data.source;
  std::error_code ec;
  run::Layer base{"finetune",
                  {{"method.name", methods::kSupervised},
                   {"train.from", fs::weakly_canonical(a.folder, ec).string()},
                   {"data.labelled", "true"},
                   {"data.validation", "0"},
                   {"method.lambda", fmt::format("{}", a.joint ? kJointLambda : 0)}}};
  if (csv) base.values.emplace_back("data.test_fraction", fmt::format("{}", kHeldOut));
  std::vector<run::Layer> below = {inherited(run, other_data), base, size_of_images(model, source)};
  const auto above = layers_of(a.config, warnings);
  const auto layered = [&](const std::vector<run::Layer>& middle) {
    auto all = below;
    all.insert(all.end(), middle.begin(), middle.end());
    all.insert(all.end(), above.begin(), above.end());
    return run::resolve(all);
  };
  Training t{.config = layered({}), .folder = {a.out}};
  if (t.config.method.name != methods::kSupervised)
    core::usage_error("finetune",
                      "method.name stays supervised; other methods: ebclr train --set train.from=RUN");
  t.config.data = run::absolute(t.config.data);
  train::check_run_folder(t.folder, false);
  core::check_writable(t.folder.config(), "finetune");
  // Labels of a CSV are split by class.
  const auto context = load_context(runtime.threads, a.training.silent());
  t.sets = csv ? data::load(t.config.data, context) : images_of_run(run, t.config.data, other_data, context);
  const auto data = t.config.data;
  t.config = layered({length_of(t.sets.train.size())});
  t.config.data = data;
  return t;
}

void finetune(const FinetuneArgs& a) {
  if (!a.resume.empty()) {
    if (!a.folder.empty() || !a.out.empty() || a.joint)
      core::usage_error(
          "finetune",
          "--resume takes everything from the run folder; RUN, --out and --joint do not go with it");
    if (const auto run = run::Run::open(a.resume); run.config().method.name != methods::kSupervised)
      core::usage_error("finetune",
                        fmt::format("{}: is no fine-tuning but a run of {}; continue it with ebclr "
                                    "train --resume {}",
                                    a.resume, run.config().method.name, command_word(a.resume)));
    return continue_run(a.resume, a.config, a.training);
  }
  const auto launch = dist::find_launch(dist::process_environment());
  if (launch && launch->world > 1)
    core::usage_error(
        "finetune",
        "begins in one process; start it without a launcher (`ebclr finetune --resume` may then "
        "go on with many)");
  std::vector<std::string> warnings;
  const auto runtime = apply(a.training.runtime);
  TrainProgress progress(a.training.quiet);
  auto t = begun(a, runtime, warnings);
  for (const auto& w : warnings) progress.on_warning(w);
  for (const auto& n : t.sets.train.notes) progress.on_warning(n);
  perform(std::move(t), a.training, runtime, progress, dist::solo());
}

std::string with_interval(const eval::Score& s) {
  return fmt::format("{:.1f} % (95 %: {:.1f} .. {:.1f})", 100 * s.accuracy, 100 * s.interval.low,
                     100 * s.interval.high);
}

}  // namespace

index::Tuned judge_run(const run::RunFolder& folder, const run::Config& config, methods::Method& method,
                       const data::ImageSet& train, const data::ImageSet& test, const Runtime& runtime) {
  method.train(false);
  std::shared_ptr<nn::Encoder> before;
  std::error_code ec;
  if (!config.train.from.empty() && fs::exists(config.train.from, ec)) {
    before = run::Run::open(config.train.from).load("last").encoder;
    engine::place(*before, nullptr, runtime.placement());
  }
  auto tuned =
      index::judge_tuned(method.encoder(), method.head(), before.get(), train, test, config.train.seed);
  index::write_tuned(folder, tuned);
  return tuned;
}

void print_tuned(const index::Tuned& t) {
  if (!t.held_out) {
    fmt::print("{} labels of {} classes; none were held out, so that its accuracy is not known\n", t.labels,
               t.classes.size());
    return;
  }
  fmt::print("{} labels of {} classes learnt, {} held out: {} right\n", t.labels, t.classes.size(),
             t.held_out->total, with_interval(*t.held_out));
  if (t.frozen)
    fmt::print("a linear classifier on the encoder as it was, same labels: {} right\n",
               with_interval(*t.frozen));
}

void add_tuned(nlohmann::ordered_json& out, const index::Tuned& t) {
  out["labels"] = t.labels;
  out["classes"] = t.classes;
  const auto add = [&](const char* name, const std::optional<eval::Score>& s) {
    if (!s) return;
    out[name] = {{"accuracy", s->accuracy},
                 {"interval", {s->interval.low, s->interval.high}},
                 {"correct", s->correct},
                 {"total", s->total}};
  };
  add("held_out", t.held_out);
  add("frozen", t.frozen);
  out["temperature"] = t.temperature;
}

void add_finetune_command(CLI::App& app) {
  auto a = std::make_shared<FinetuneArgs>();
  auto* c = app.add_subcommand("finetune", "Train the whole encoder of a run with labels");
  c->add_option("RUN", a->folder, "Run whose encoder it starts from");
  c->add_option("--out", a->out, "Run folder to write");
  c->add_option("--resume", a->resume, "Continue the fine-tuning in this folder");
  c->add_flag("--joint", a->joint,
              fmt::format("Also learn a density (JEM): the generative term with weight {}, or --set "
                          "method.lambda=X",
                          kJointLambda));
  add_config_options(*c, a->config);
  add_training_options(*c, a->training);
  c->callback([a] { finetune(*a); });
}

}  // namespace ebclr::cli
