#include "train/trainer.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <fstream>

#include "core/files.h"
#include "cpu/kernels.h"
#include "data/catalog.h"
#include "expect_error.h"
#include "newest.h"
#include "temp_dir.h"
#include "train/metrics_log.h"

namespace ebclr::train {
namespace {
namespace fs = std::filesystem;

struct Watcher : Observer {
  std::vector<double> losses;
  std::vector<std::string> warnings, notes;
  std::vector<StepReport> reports;
  std::function<void(const StepReport&)> on;
  std::function<void(int64_t)> at_epoch;
  void on_step(const StepReport& r) override {
    losses.push_back(r.loss);
    reports.push_back(r);
    if (on) on(r);
  }
  void on_epoch(int64_t epoch, double) override {
    if (at_epoch) at_epoch(epoch);
  }
  void on_warning(const std::string& text) override { warnings.push_back(text); }
  void on_note(const std::string& text) override { notes.push_back(text); }
  bool warned(const std::string& fragment) const {
    for (const auto& w : warnings)
      if (w.find(fragment) != std::string::npos) return true;
    return false;
  }
};

std::shared_ptr<const data::ImageSet> images() {
  static const auto set =
      std::make_shared<const data::ImageSet>(data::load({.source = "shapes", .limit = 48}).train);
  return set;
}

run::Config small(const std::string& method = "ebclr",
                  std::vector<std::pair<std::string, std::string>> more = {}) {
  run::Layer layer{"test",
                   {{"method.name", method},
                    {"data.source", "shapes"},
                    {"encoder.width", "8"},
                    {"head.out", "16"},
                    {"head.hidden", "32"},
                    {"buffer.size", "40"},
                    {"sampler.steps", "2"},
                    {"moco.queue", "20"},
                    {"simsiam.predictor_hidden", "8"},
                    {"byol.predictor_hidden", "16"},
                    {"train.batch_size", "8"},
                    {"train.epochs", "3"},
                    {"log.every", "1"},
                    {"log.samples_every", "0"}}};
  return run::resolve({layer, {"test", std::move(more)}});
}

const std::atomic<bool> kGoOn{false};

core::SafeTensors with_buffer(const run::Snapshot& snapshot) {
  auto all = snapshot.tensors;
  for (const auto& [name, t] : snapshot.buffer.tensors) all.tensors["buffer/" + name] = t;
  return all;
}

// Trains to the end or until `stop_after` steps; returns all tensors of the newest checkpoint.
core::SafeTensors train_in(const fs::path& folder, const run::Config& config, bool resume,
                           int64_t stop_after = -1, Watcher* watch = nullptr) {
  Watcher own;
  Watcher& watcher = watch ? *watch : own;
  std::atomic<bool> stop{false};
  if (stop_after >= 0)
    watcher.on = [&](const StepReport& r) {
      if (r.position.step >= stop_after) stop = true;
    };
  Trainer trainer({.folder = {folder}, .config = config, .resume = resume}, images(), watcher);
  const auto outcome = trainer.run(stop);
  EXPECT_EQ(outcome.finished, stop_after < 0);
  std::vector<std::string> notes;
  auto snapshot = testing::read_newest(run::RunFolder{folder}.checkpoints(), notes);
  EXPECT_TRUE(snapshot.has_value());
  return with_buffer(*snapshot);
}

void expect_same(const core::SafeTensors& a, const core::SafeTensors& b) {
  ASSERT_EQ(a.tensors.size(), b.tensors.size());
  for (const auto& [name, t] : a.tensors) EXPECT_TRUE(torch::equal(t, b.at(name, "other"))) << name;
}

TEST(Trainer, WritesTheRunFolder) {
  testing::TempDir dir;
  Watcher watcher;
  train_in(dir / "run", small("ebclr", {{"log.samples_every", "1"}}), false, -1, &watcher);
  EXPECT_EQ(watcher.losses.size(), 18u);
  const run::RunFolder folder{dir / "run"};
  for (const auto& p : {folder.config(), folder.metrics(), folder.log(), folder.summary(),
                        folder.samples() / "epoch-0003.png"})
    EXPECT_TRUE(fs::exists(p)) << p;
  std::ifstream metrics(folder.metrics());
  int lines = 0;
  for (std::string line; std::getline(metrics, line); ++lines) {
    const auto j = nlohmann::json::parse(line);
    for (const char* key : {"step", "loss", "disc", "energy_data", "energy_samples", "gap", "grad_norm",
                            "output_norm", "spread", "out_of_range", "chain_age", "lr", "images_per_second"})
      EXPECT_TRUE(j.contains(key)) << key;
  }
  EXPECT_EQ(lines, 18);
  const auto run = run::Run::open(dir / "run");
  const auto model = run.load("last");
  EXPECT_EQ(model.position.epoch, 3);
  EXPECT_EQ(model.position.forward_units, 18 * 8 * 13.0);  // 2 + 2*2 + 1 + 6 units for each of 8 images
  EXPECT_EQ(model.image_shape, (std::vector<int64_t>{3, 32, 32}));
}

class EveryMethod : public ::testing::TestWithParam<const char*> {};

TEST_P(EveryMethod, ResumesByteIdentically) {
  testing::TempDir dir;
  const auto config = small(GetParam());
  const auto whole = train_in(dir / "whole", config, false);
  // Stopped in mid-epoch, at an epoch's end, and twice.
  train_in(dir / "cut", config, false, 4);
  train_in(dir / "cut", config, true, 6);
  train_in(dir / "cut", config, true, 13);
  expect_same(whole, train_in(dir / "cut", config, true));
  // And metrics.jsonl has every step once.
  std::ifstream metrics(run::RunFolder{dir / "cut"}.metrics());
  std::vector<int64_t> steps;
  for (std::string line; std::getline(metrics, line);)
    steps.push_back(nlohmann::json::parse(line)["step"].get<int64_t>());
  ASSERT_EQ(steps.size(), 18u);
  for (size_t i = 0; i < steps.size(); ++i) EXPECT_EQ(steps[i], static_cast<int64_t>(i) + 1);
}

INSTANTIATE_TEST_SUITE_P(Methods, EveryMethod,
                         ::testing::Values("ebclr", "simclr", "moco", "simsiam", "byol", "supervised"));

TEST(Trainer, TheJointObjectiveStartsFromAnotherRunsEncoderAndResumesByteIdentically) {
  testing::TempDir dir;
  train_in(dir / "first", small(), false, 6);
  const auto config =
      small("supervised", {{"method.lambda", "0.1"}, {"train.from", (dir / "first").string()}});
  const auto whole = train_in(dir / "whole", config, false);
  EXPECT_EQ(run::Run::open(dir / "whole").config().method.head.out, 10) << "as many outputs as classes";
  const auto before = run::Run::open(dir / "first").load("last");
  {
    Watcher watcher;
    Trainer fresh({.folder = {dir / "fresh"}, .config = config}, images(), watcher);
    const auto want = nn::state_of(*before.encoder, ""), got = nn::state_of(fresh.method().encoder(), "");
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_TRUE(torch::equal(want[i].second, got[i].second)) << want[i].first;
  }
  // Killed before its first checkpoint it begins anew, from that encoder again.
  fs::remove_all(dir / "fresh" / "checkpoints");
  expect_same(whole, train_in(dir / "fresh", config, true));
  train_in(dir / "cut", config, false, 4);
  fs::remove_all(dir / "first");  // later it is not needed
  expect_same(whole, train_in(dir / "cut", config, true));
}

TEST(Trainer, LabelsAreNeededToLearnFromThem) {
  testing::TempDir dir;
  auto some = *images();
  some.labels = some.labels.clone();
  some.labels[3] = data::kNoLabel;
  Watcher watcher;
  testing::expect_error(
      core::ExitCode::kUsage,
      [&] {
        Trainer t({.folder = {dir / "run"}, .config = small("supervised")},
                  std::make_shared<const data::ImageSet>(some), watcher);
      },
      "data.labelled=true");
  EXPECT_FALSE(fs::exists(dir / "run"));
}

TEST(Trainer, ResumesByteIdenticallyWithChainsInBfloat16) {
  if (cpu::bf16_kernels() == nullptr) GTEST_SKIP() << "no avx512_bf16";
  testing::TempDir dir;
  const auto config = small("ebclr", {{"sampler.precision", "bfloat16"}});
  const auto whole = train_in(dir / "whole", config, false);
  train_in(dir / "cut", config, false, 4);
  expect_same(whole, train_in(dir / "cut", config, true));
  const auto in_float = train_in(dir / "float", small(), false);
  bool same = true;
  for (const auto& [name, t] : in_float.tensors) same = same && torch::equal(t, whole.at(name, "whole"));
  EXPECT_FALSE(same);
}

TEST(Trainer, RefusesBfloat16WhereItCannotRun) {
  testing::TempDir dir;
  Watcher watcher;
  const auto config = small("ebclr", {{"sampler.precision", "bfloat16"}});
  testing::expect_error(
      core::ExitCode::kUsage,
      [&] {
        Trainer({.folder = {dir / "run"}, .config = config, .engine = {.engine = engine::Engine::kTorch}},
                images(), watcher)
            .run(kGoOn);
      },
      "--set sampler.precision=float");
}

// Whatever the processor: no engine has it.
TEST(Trainer, RefusesBfloat16WithBatchNormOrLabelsBeforeThereIsAFolder) {
  testing::TempDir dir;
  Watcher watcher;
  const auto refused = [&](const std::string& method, const std::string& key, const std::string& value,
                           const std::string& reason) {
    const auto config = small(method, {{"sampler.precision", "bfloat16"}, {key, value}});
    testing::expect_error(
        core::ExitCode::kUsage,
        [&] { Trainer({.folder = {dir / "run"}, .config = config}, images(), watcher); }, reason,
        "--set sampler.precision=float");
    EXPECT_FALSE(fs::exists(dir / "run")) << key;
  };
  refused("ebclr", "encoder.norm", "batch", "BatchNorm");
  refused("ebclr", "head.hidden_norm", "true", "BatchNorm");
  refused("ebclr", "head.output_norm", "true", "BatchNorm");
  refused("supervised", "method.lambda", "0.1", "method.name supervised");
  EXPECT_TRUE(watcher.notes.empty());
  // Without chains it says nothing.
  train_in(dir / "run",
           small("ebclr", {{"sampler.precision", "bfloat16"},
                           {"method.lambda", "0"},
                           {"encoder.norm", "batch"},
                           {"train.epochs", "1"}}),
           false);
}

TEST(Trainer, WarnsOfARateForAnotherOptimizer) {
  using Settings = std::vector<std::pair<std::string, std::string>>;
  const auto warned = [](const std::string& method, Settings more) {
    testing::TempDir dir;
    Watcher watcher;
    Trainer({.folder = {dir / "run"}, .config = small(method, std::move(more))}, images(), watcher);
    return watcher.warned("set optimizer.lr");
  };
  EXPECT_TRUE(warned("ebclr", {{"optimizer.kind", "sgd"}}));
  EXPECT_TRUE(warned("simclr", {{"optimizer.kind", "adam"}}));
  EXPECT_FALSE(warned("ebclr", {{"optimizer.kind", "sgd"}, {"optimizer.lr", "0.01"}}));
  EXPECT_FALSE(warned("ebclr", {}));
  EXPECT_FALSE(warned("simclr", {}));
}

TEST(Trainer, SaysWhatAnotherLengthDoesToACosine) {
  const auto warned = [](const std::string& method, const std::string& schedule, const std::string& epochs) {
    testing::TempDir dir;
    train_in(dir / "run", small(method, {{"train.epochs", "1"}, {"optimizer.schedule", schedule}}), false);
    Watcher first, second;
    const auto longer = small(method, {{"train.epochs", epochs}, {"optimizer.schedule", schedule}});
    train_in(dir / "run", longer, true, -1, &first);
    train_in(dir / "run", longer, true, -1, &second);
    EXPECT_FALSE(second.warned("goes from")) << "it is so long already";
    return first.warned("goes from 1 to " + epochs + " epochs");
  };
  EXPECT_TRUE(warned("simclr", "cosine", "2"));
  EXPECT_TRUE(warned("byol", "constant", "2"));
  EXPECT_FALSE(warned("simclr", "constant", "2"));
  EXPECT_FALSE(warned("simclr", "cosine", "1"));
}

TEST(Trainer, AStepCostsWhatItsOwnChainsTook) {
  testing::TempDir dir;
  Watcher watcher;
  train_in(
      dir / "run",
      small("ebclr", {{"adaptive.on", "true"}, {"adaptive.window", "3"}, {"adaptive.threshold", "-100"}}),
      false, -1, &watcher);
  double before = 0, least = 1e9, most = 0;
  for (const auto& r : watcher.reports) {
    double steps = 0;
    for (const auto& [name, value] : r.metrics)
      if (name == "sgld_steps") steps = value;
    EXPECT_EQ(r.position.forward_units - before, 8 * (9 + 2 * steps)) << "step " << r.position.step;
    before = r.position.forward_units;
    least = std::min(least, steps), most = std::max(most, steps);
  }
  EXPECT_LT(least, most) << "nothing was adapted";
}

TEST(Trainer, ResumesByteIdenticallyWithHalfPrecisionChainsAndSchedules) {
  testing::TempDir dir;
  const auto config = small("ebclr", {{"buffer.dtype", "float16"},
                                      {"optimizer.schedule", "cosine"},
                                      {"optimizer.warmup_epochs", "1"},
                                      {"adaptive.on", "true"},
                                      {"adaptive.window", "3"},
                                      {"adaptive.threshold", "-100"}});
  const auto whole = train_in(dir / "whole", config, false);
  train_in(dir / "cut", config, false, 7);
  expect_same(whole, train_in(dir / "cut", config, true));
}

TEST(Trainer, FallsBackFromADamagedCheckpoint) {
  testing::TempDir dir;
  const auto config = small();
  const auto whole = train_in(dir / "whole", config, false);
  for (const char* damage : {"truncated", "flipped", "buffer", "missing buffer"}) {
    const fs::path folder = dir / damage;
    train_in(folder, config, false, 14);
    auto files = run::list_checkpoints(run::RunFolder{folder}.checkpoints());
    ASSERT_GE(files.size(), 2u);
    const auto& newest = files.back();
    EXPECT_EQ(newest.step, 14);
    if (std::string(damage) == "truncated") fs::resize_file(newest.path, fs::file_size(newest.path) / 2);
    if (std::string(damage) == "missing buffer") fs::remove(newest.buffer.at(0));
    if (std::string(damage) == "flipped" || std::string(damage) == "buffer") {
      const auto path = std::string(damage) == "flipped" ? newest.path : newest.buffer.at(0);
      std::fstream f(path, std::ios::in | std::ios::out | std::ios::binary);
      f.seekp(-100, std::ios::end);
      f.put('\x55');
      f.put('\x2a');
    }
    Watcher watcher;
    expect_same(whole, train_in(folder, config, true, -1, &watcher));
    EXPECT_TRUE(watcher.warned("trying the checkpoint before it")) << damage;
    EXPECT_EQ(watcher.reports.front().position.step, 13) << "the one before was at the end of epoch 2";
  }
}

TEST(Trainer, GuardRollsBackFromNotANumber) {
  testing::TempDir dir;
  Watcher watcher;
  Trainer trainer({.folder = {dir / "run"}, .config = small()}, images(), watcher);
  bool injected = false;
  trainer.set_before_step([&](int64_t step) {
    if (step != 9 || injected) return;
    injected = true;
    torch::NoGradGuard guard;
    trainer.method().encoder().parameters()[0].fill_(NAN);
  });
  const auto outcome = trainer.run(kGoOn);
  EXPECT_TRUE(outcome.finished);
  EXPECT_EQ(outcome.position.rollbacks, 1);
  EXPECT_TRUE(watcher.warned("rolled back to step 0")) << "step 6 had only three healthy steps beyond it";
  EXPECT_NEAR(watcher.reports.back().lr, 0.5e-4, 1e-9) << "half the learning rate";
  EXPECT_EQ(outcome.position.forward_units, (9 + 1 + 18) * 8 * 13.0) << "lost and refused work is paid for";
  for (const auto& p : trainer.method().encoder().parameters())
    EXPECT_TRUE(torch::isfinite(p).all().item<bool>());
  EXPECT_TRUE(torch::isfinite(trainer.method().buffer()->chains()).all().item<bool>());
  const std::string metrics = core::read_text(run::RunFolder{dir / "run"}.metrics(), "test");
  EXPECT_NE(metrics.find("\"event\":\"rollback\""), std::string::npos);
}

TEST(Trainer, GuardSurvivesAnInterruptionAfterARollBack) {
  testing::TempDir dir;
  const auto inject = [](Trainer& t, bool& done) {
    t.set_before_step([&t, &done](int64_t step) {
      if (step != 9 || done) return;
      done = true;
      torch::NoGradGuard guard;
      t.method().encoder().parameters()[0].fill_(NAN);
    });
  };
  const auto newest = [](const fs::path& folder) {
    std::vector<std::string> notes;
    return testing::read_newest(run::RunFolder{folder}.checkpoints(), notes)->tensors;
  };
  {
    Watcher w;
    bool done = false;
    Trainer t({.folder = {dir / "whole"}, .config = small()}, images(), w);
    inject(t, done);
    t.run(kGoOn);
  }
  {
    Watcher w;
    bool done = false;
    std::atomic<bool> stop{false};
    w.on = [&](const StepReport& r) {
      if (r.position.rollbacks == 1 && r.position.step == 8) stop = true;
    };
    Trainer t({.folder = {dir / "cut"}, .config = small()}, images(), w);
    inject(t, done);
    EXPECT_FALSE(t.run(stop).finished);
  }
  train_in(dir / "cut", small(), true);
  expect_same(newest(dir / "whole"), newest(dir / "cut"));
}

TEST(Trainer, GuardGivesUpWithAdvice) {
  testing::TempDir dir;
  Watcher watcher;
  // A learning rate that must diverge, whatever it is divided by in two tries.
  Trainer trainer(
      {.folder = {dir / "run"}, .config = small("ebclr", {{"optimizer.lr", "1e18"}, {"guard.tries", "2"}})},
      images(), watcher);
  testing::expect_error(
      core::ExitCode::kRunFailed, [&] { trainer.run(kGoOn); }, "gave up after 2 roll-backs", "optimizer.lr");
  int rolled = 0;
  for (const auto& w : watcher.warnings) rolled += w.find("rolled back") != std::string::npos;
  EXPECT_EQ(rolled, 2);
  EXPECT_TRUE(run::Run::open(dir / "run").load("last").encoder != nullptr) << "nothing is lost";
}

TEST(Trainer, GuardCatchesARunawayOutputNorm) {
  testing::TempDir dir;
  Watcher watcher;
  Trainer trainer({.folder = {dir / "run"},
                   .config = small("ebclr", {{"guard.max_output_norm", "1e-9"}, {"guard.tries", "1"}})},
                  images(), watcher);
  testing::expect_error(
      core::ExitCode::kRunFailed, [&] { trainer.run(kGoOn); }, "output norm");
}

TEST(Trainer, WarnsOfCollapse) {
  testing::TempDir dir;
  Watcher watcher;
  // The paper's warning example: SimSiam without stop-gradient, norm-free so that nothing holds it up.
  train_in(dir / "run",
           small("simsiam", {{"simsiam.stop_gradient", "false"},
                             {"encoder.norm", "none"},
                             {"head.hidden_norm", "false"},
                             {"head.output_norm", "false"},
                             {"optimizer.lr", "0.5"},
                             {"train.epochs", "10"},
                             {"guard.collapse", "0.3"},
                             {"guard.collapse_epochs", "0"}}),
           false, -1, &watcher);
  EXPECT_TRUE(watcher.warned("projections have collapsed"));
}

TEST(Trainer, CollapseInTheFirstEpochsGoesBackAndInTheEndGivesUp) {
  testing::TempDir dir;
  Watcher watcher;
  Trainer trainer({.folder = {dir / "run"},
                   .config = small("simsiam", {{"simsiam.stop_gradient", "false"},
                                               {"encoder.norm", "none"},
                                               {"head.hidden_norm", "false"},
                                               {"head.output_norm", "false"},
                                               {"encoder.init", "residual"},
                                               {"optimizer.lr", "0.5"},
                                               {"train.epochs", "10"},
                                               {"guard.collapse", "0.02"},
                                               {"guard.collapse_epochs", "10"},
                                               {"guard.lr_factor", "0.99"},
                                               {"guard.tries", "1"}})},
                  images(), watcher);
  testing::expect_error(
      core::ExitCode::kRunFailed, [&] { trainer.run(kGoOn); }, "projections have collapsed", "gave up");
  EXPECT_TRUE(watcher.warned("rolled back"));
}

TEST(Trainer, WarnsOfAQueueLongerThanTheData) {
  testing::TempDir dir;
  Watcher watcher;
  train_in(dir / "run", small("moco", {{"moco.queue", "48"}}), false, 1, &watcher);
  EXPECT_TRUE(watcher.warned("its own old key"));
}

TEST(Trainer, MonitorChangesNothing) {
  testing::TempDir dir;
  for (const char* method : {"ebclr", "simclr"}) {
    const auto config = small(method, {{"monitor.knn_every", "1"}});
    const auto without = train_in(dir / (std::string(method) + "-a"), config, false);
    Watcher watcher;
    Trainer trainer({.folder = {dir / (std::string(method) + "-b")}, .config = config}, images(), watcher);
    int calls = 0;
    trainer.set_monitor([&] {
      ++calls;
      torch::NoGradGuard guard;
      EXPECT_FALSE(trainer.method().encoder().is_training());
      return trainer.method().encoder().forward(data::to_unit_range(images()->pixels)).mean().item<double>();
    });
    trainer.run(kGoOn);
    EXPECT_EQ(calls, 3);
    std::vector<std::string> notes;
    auto snapshot =
        testing::read_newest(run::RunFolder{dir / (std::string(method) + "-b")}.checkpoints(), notes);
    for (const auto& [name, t] : snapshot->tensors.tensors)
      EXPECT_TRUE(torch::equal(t, without.at(name, "a"))) << name;
  }
}

// Whoever is told of an epoch may fail over it (a pipe without a reader), and finds it saved.
TEST(Trainer, AnEpochIsSavedBeforeItIsTold) {
  testing::TempDir dir;
  Watcher watcher;
  watcher.at_epoch = [](int64_t epoch) {
    if (epoch == 2) throw std::runtime_error("nobody listens");
  };
  {
    Trainer trainer({.folder = {dir / "run"}, .config = small("simclr")}, images(), watcher);
    EXPECT_THROW(trainer.run(kGoOn), std::runtime_error);
  }
  std::vector<std::string> notes;
  EXPECT_EQ(testing::read_newest(run::RunFolder{dir / "run"}.checkpoints(), notes)->position.epoch, 2);
}

TEST(Trainer, AStopInAStateThatIsNotSoundSaysWhatIsSaved) {
  testing::TempDir dir;
  Watcher watcher;
  std::atomic<bool> stop{false};
  {
    Trainer trainer({.folder = {dir / "run"}, .config = small()}, images(), watcher);
    watcher.on = [&](const StepReport& r) {
      if (r.position.step != 8) return;
      trainer.method().buffer()->chains().fill_(NAN);
      stop = true;
    };
    const auto outcome = trainer.run(stop);
    EXPECT_FALSE(outcome.finished);
    EXPECT_FALSE(outcome.saved);
  }
  const run::RunFolder folder{dir / "run"};
  const auto log = core::read_text(folder.log(), "test");
  EXPECT_NE(log.find("stopped at step 8 of 18; goes on from the checkpoint before"), std::string::npos)
      << log;
  EXPECT_EQ(log.find("everything is saved"), std::string::npos) << log;
  std::vector<std::string> notes;
  EXPECT_EQ(testing::read_newest(folder.checkpoints(), notes)->position.step, 6);
}

double summary_knn(const fs::path& folder) {
  const auto j = nlohmann::json::parse(core::read_text(run::RunFolder{folder}.summary(), "test"));
  return j.value("knn", -1.0);
}

TEST(Trainer, TheSummaryKeepsTheAccuracyOfBeforeAnInterruption) {
  testing::TempDir dir;
  const auto config = small("simclr", {{"monitor.knn_every", "2"}});
  std::atomic<bool> stop{false};
  {
    Watcher watcher;
    watcher.on = [&](const StepReport& r) { stop = r.position.step == 14; };
    Trainer trainer({.folder = {dir / "run"}, .config = config}, images(), watcher);
    trainer.set_monitor([] { return 0.75; });
    EXPECT_FALSE(trainer.run(stop).finished);
  }
  train_in(dir / "run", config, true);
  EXPECT_EQ(summary_knn(dir / "run"), 0.75);
}

TEST(Trainer, ARollBackTakesLaterAccuraciesAlong) {
  MonitorScores scores;
  EXPECT_TRUE(std::isnan(scores.last()));
  scores.see("knn", 6, 0.25);
  scores.see("knn", 12, 0.5);
  scores.see("rollback", 6, 0);
  EXPECT_EQ(scores.last(), 0.25);
  const auto kept = keep_lines(
      R"({"event":"knn","step":6,"rollbacks":0,"knn":0.5}
{"event":"knn","step":12,"rollbacks":0,"knn":0.75}
{"event":7,"step":12,"rollbacks":0}
{"event":"rollback","step":6,"rollbacks":1}
{"event":"knn","step":12,"rollbacks":1,"knn":0.875}
)",
      1, 8);
  EXPECT_EQ(kept.scores.last(), 0.5) << "that of step 12 went with the roll-back, the other is past step 8";
}

// As of an encoder whose features are not finite: what becomes of the run is the guard's to say.
TEST(Trainer, AMonitorThatFailsEndsNothing) {
  testing::TempDir dir;
  const auto config = small("simclr", {{"monitor.knn_every", "1"}});
  const auto without = train_in(dir / "without", config, false);
  Watcher watcher;
  Trainer trainer({.folder = {dir / "run"}, .config = config}, images(), watcher);
  int calls = 0;
  trainer.set_monitor([&] {
    if (++calls == 2) core::usage_error("eval", "features are NaN");
    if (calls == 3) TORCH_CHECK(false, "no memory for features\nof so many images");
    return 0.5;
  });
  EXPECT_TRUE(trainer.run(kGoOn).finished);
  EXPECT_EQ(calls, 3);
  EXPECT_TRUE(watcher.warned("epoch 2: no kNN check: [eval] features are NaN"));
  const auto metrics = core::read_text(run::RunFolder{dir / "run"}.metrics(), "test");
  EXPECT_NE(metrics.find("\"epoch\":1,\"knn\":0.5"), std::string::npos) << metrics;
  EXPECT_TRUE(watcher.warned("epoch 3: no kNN check: no memory for features"));
  for (const char* epoch : {"2", "3"})
    EXPECT_EQ(metrics.find(std::string("\"epoch\":") + epoch + ",\"knn\""), std::string::npos)
        << "what was not measured is not told";
  std::vector<std::string> notes;
  expect_same(without, with_buffer(*testing::read_newest(run::RunFolder{dir / "run"}.checkpoints(), notes)));
}

// The list is there whenever there is something to resume, and comes back where it was lost.
TEST(Trainer, KeepsTheListOfItsImages) {
  testing::TempDir dir;
  const run::RunFolder folder{dir / "run"};
  const data::ImageList list{{{"a.png", "train", 7, "d"}}};
  Watcher watcher;
  const auto train = [&](bool resume) {
    Trainer({.folder = folder, .config = small(), .list = list, .resume = resume}, images(), watcher);
  };
  train(false);
  EXPECT_EQ(core::read_text(folder.images(), "test"), data::to_csv(list));
  fs::remove(folder.images());
  train(true);
  EXPECT_EQ(core::read_text(folder.images(), "test"), data::to_csv(list));
  // What the run began with is not written over.
  core::write_atomically(folder.images(), "kept", "test");
  train(true);
  EXPECT_EQ(core::read_text(folder.images(), "test"), "kept");
}

TEST(Trainer, OtherImagesOrLabelsAreRefused) {
  testing::TempDir dir;
  Watcher watcher;
  auto fewer = data::select(*images(), torch::arange(40)), relabelled = *images();
  relabelled.labels = relabelled.labels.roll(1);
  const auto resume = [&](const std::string& method, const data::ImageSet& set) {
    Trainer({.folder = {dir / method}, .config = small(method), .resume = true},
            std::make_shared<const data::ImageSet>(set), watcher);
  };
  for (const char* method : {"simclr", "supervised"}) train_in(dir / method, small(method), false, 7);
  testing::expect_error(
      core::ExitCode::kUsage, [&] { resume("simclr", fewer); }, "another number of images than the 40");
  testing::expect_error(
      core::ExitCode::kUsage, [&] { resume("supervised", relabelled); }, "other labels");
  EXPECT_NO_THROW(resume("simclr", relabelled)) << "it never saw a label";
  EXPECT_NO_THROW(resume("supervised", *images()));
}

// A state with a right checksum that no version of the program has written.
TEST(Trainer, AStateOfOtherKindsIsRefused) {
  testing::TempDir dir;
  train_in(dir / "run", small(), false, 7);
  const auto checkpoints = run::RunFolder{dir / "run"}.checkpoints();
  std::vector<std::string> notes;
  auto snapshot = *testing::read_newest(checkpoints, notes);
  const auto good = snapshot;
  const auto expect_refused = [&](const std::string& fragment) {
    run::write_checkpoint(checkpoints, snapshot);
    Watcher watcher;
    testing::expect_error(
        core::ExitCode::kUsage,
        [&] { Trainer({.folder = {dir / "run"}, .config = small(), .resume = true}, images(), watcher); },
        fragment);
    snapshot = good;
  };
  snapshot.small = {{"imported", "x"}};
  expect_refused("its state does not fit this method");
  snapshot.small["guard"] = 3;
  expect_refused("its state does not fit this method");
  snapshot.position.batch = 5;
  expect_refused("another number of images");
  snapshot.buffer.tensors["counts"] = torch::zeros({3}, torch::kInt64);
  expect_refused("its replay buffer is not the one");
}

TEST(Trainer, KeepsOnlyTheCheckpointsItShould) {
  testing::TempDir dir;
  train_in(
      dir / "run",
      small("ebclr", {{"train.epochs", "6"}, {"checkpoint.keep_every", "2"}, {"checkpoint.keep_last", "2"}}),
      false);
  const auto files = run::list_checkpoints(run::RunFolder{dir / "run"}.checkpoints());
  std::vector<int64_t> steps;
  int buffers = 0;
  for (const auto& f : files) steps.push_back(f.step), buffers += !f.buffer.empty();
  EXPECT_EQ(steps, (std::vector<int64_t>{12, 24, 30, 36}));
  EXPECT_EQ(buffers, 2) << "the buffer is not duplicated into every kept one";
  const auto run = run::Run::open(dir / "run");
  EXPECT_EQ(run.load("2").position.epoch, 2);
  testing::expect_error(
      core::ExitCode::kUsage, [&] { run.load("3"); }, "no checkpoint of epoch 3", "2, 4, 5, 6");
}

TEST(Trainer, WhatIsToBeKeptIsSaved) {
  testing::TempDir dir;
  train_in(dir / "run",
           small("simclr",
                 {{"train.epochs", "4"}, {"checkpoint.every_epochs", "4"}, {"checkpoint.keep_every", "3"}}),
           false);
  EXPECT_EQ(run::Run::open(dir / "run").load("3").position.epoch, 3);
}

TEST(Trainer, WhatARollBackGaveUpIsNoPartOfTheRun) {
  testing::TempDir dir;
  const auto config =
      small("simclr", {{"train.epochs", "4"}, {"checkpoint.keep_every", "1"}, {"guard.collapse", "0"}});
  Watcher watcher;
  std::atomic<bool> stop{false};
  watcher.on = [&](const StepReport& r) { stop = r.position.rollbacks == 1 && r.position.step == 8; };
  {
    Trainer trainer({.folder = {dir / "run"}, .config = config}, images(), watcher);
    bool injected = false;
    trainer.set_before_step([&](int64_t step) {
      if (step != 15 || injected) return;
      injected = true;
      torch::NoGradGuard guard;
      trainer.method().encoder().parameters()[0].fill_(NAN);
    });
    EXPECT_FALSE(trainer.run(stop).finished);
  }
  ASSERT_TRUE(watcher.warned("rolled back to step 6"));
  const auto run = run::Run::open(dir / "run");
  testing::expect_error(
      core::ExitCode::kUsage, [&] { run.load("2"); }, "no checkpoint of epoch 2");
  EXPECT_EQ(run.load("1").position.rollbacks, 1);
  EXPECT_EQ(run.load("last").position.step, 8);
  train_in(dir / "run", config, true);
  std::vector<int64_t> epochs;
  for (const auto& c : run.lineage())
    if (c.position.epoch > 0 && c.position.batch == 0) {
      epochs.push_back(c.position.epoch);
      EXPECT_EQ(c.position.rollbacks, 1);
    }
  EXPECT_EQ(epochs, (std::vector<int64_t>{1, 2, 3, 4}));
  EXPECT_LT(run.lineage().size(), run.checkpoints().size()) << "nothing was removed";
}

TEST(Trainer, RefusesFoldersThatAreInUse) {
  testing::TempDir dir;
  Watcher watcher;
  {
    Trainer one({.folder = {dir / "run"}, .config = small()}, images(), watcher);
    testing::expect_error(
        core::ExitCode::kUsage,
        [&] { Trainer two({.folder = {dir / "run"}, .config = small(), .resume = true}, images(), watcher); },
        "another training is running");
  }
  testing::expect_error(
      core::ExitCode::kUsage,
      [&] { Trainer again({.folder = {dir / "run"}, .config = small()}, images(), watcher); },
      "already holds a run", "--resume");
  testing::expect_error(
      core::ExitCode::kUsage,
      [&] {
        Trainer none({.folder = {dir / "nothing"}, .config = small(), .resume = true}, images(), watcher);
      },
      "nothing to resume");
}

TEST(Trainer, RefusesTooFewImages) {
  testing::TempDir dir;
  Watcher watcher;
  testing::expect_error(
      core::ExitCode::kUsage,
      [&] {
        Trainer t({.folder = {dir / "run"}, .config = small("simclr", {{"train.batch_size", "64"}})},
                  images(), watcher);
      },
      "48 train images", "train.batch_size");
  EXPECT_FALSE(fs::exists(dir / "run")) << "a run that cannot begin leaves no folder";
}

TEST(Trainer, ARunThatCannotBeginLeavesNoEventFile) {
  testing::TempDir dir;
  Watcher watcher;
  testing::expect_error(
      core::ExitCode::kUsage,
      [&] {
        Trainer t({.folder = {dir / "run"},
                   .config = small(
                       "simclr", {{"log.tensorboard", "true"}, {"train.from", (dir / "nowhere").string()}})},
                  images(), watcher);
      },
      "nowhere");
  EXPECT_FALSE(fs::exists(dir / "run"));
}

TEST(Trainer, ResumedCheckpointsAreTheSameFiles) {
  testing::TempDir dir;
  train_in(dir / "whole", small(), false);
  train_in(dir / "cut", small(), false, 7);
  train_in(dir / "cut", small(), true);
  for (const char* name : {"step-00000018-r0.safetensors", "buffer-00000018-r0.safetensors"})
    EXPECT_EQ(core::read_text(dir / "whole" / "checkpoints" / name, "test"),
              core::read_text(dir / "cut" / "checkpoints" / name, "test"))
        << name;
}

TEST(Trainer, KilledBeforeItsFirstCheckpointItBeginsAnew) {
  testing::TempDir dir;
  const auto whole = train_in(dir / "whole", small(), false);
  fs::create_directories(dir / "early");
  core::write_atomically(dir / "early" / "config.yaml", run::to_yaml(small()), "test");
  expect_same(whole, train_in(dir / "early", small(), true));
}

TEST(Trainer, FewerEpochsThanDoneAreRefused) {
  testing::TempDir dir;
  train_in(dir / "run", small(), false);
  Watcher watcher;
  testing::expect_error(
      core::ExitCode::kUsage,
      [&] {
        Trainer t(
            {.folder = {dir / "run"}, .config = small("ebclr", {{"train.epochs", "2"}}), .resume = true},
            images(), watcher);
      },
      "3 epochs behind it", "--epochs 2");
}

TEST(Trainer, StrangeLinesOfMetricsDoNotBlockResuming) {
  testing::TempDir dir;
  train_in(dir / "run", small(), false, 7);
  {
    std::ofstream out(run::RunFolder{dir / "run"}.metrics(), std::ios::app);
    out << "{\"step\":\"x\"}\n{\"step\":1e99,\"rollbacks\":[]}\n[]\nnull\n\"\"\n{\"st";
  }
  train_in(dir / "run", small(), true);
  std::ifstream metrics(run::RunFolder{dir / "run"}.metrics());
  int lines = 0;
  for (std::string line; std::getline(metrics, line); ++lines)
    EXPECT_TRUE(nlohmann::json::parse(line)["step"].is_number_integer());
  EXPECT_EQ(lines, 18);
}

TEST(Trainer, WritesThroughNoLinkInsideTheRun) {
  testing::TempDir dir;
  const auto config = small("ebclr", {{"log.samples_every", "1"}, {"train.epochs", "1"}});
  for (const std::string name : {"checkpoints", "samples", "metrics.jsonl", "train.log"}) {
    const fs::path folder = dir / ("run-" + name), target = dir / ("target-" + name);
    fs::create_directories(folder);
    if (name == "checkpoints" || name == "samples")
      fs::create_directory(target);
    else
      std::ofstream(target) << "mine";
    fs::create_symlink(target, folder / name);
    Watcher watcher;
    const auto begin = [&] { Trainer({.folder = {folder}, .config = config}, images(), watcher).run(kGoOn); };
    if (name == "metrics.jsonl") {
      begin();  // it is written anew as a whole, which replaces the link
      EXPECT_FALSE(fs::is_symlink(folder / name));
    } else {
      testing::expect_error(core::ExitCode::kRunFailed, begin, "link");
    }
    if (fs::is_directory(target)) {
      EXPECT_TRUE(fs::is_empty(target));
    } else {
      EXPECT_EQ(core::read_text(target, "test"), "mine");
    }
  }
}

}  // namespace
}  // namespace ebclr::train
