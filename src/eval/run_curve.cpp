#include "eval/run_curve.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/files.h"
#include "eval/untrained.h"
#include "run/images.h"

namespace ebclr::eval {
namespace {

/// A checkpoint to judge, and the epochs behind it.
struct Judged {
  run::CheckpointInfo checkpoint;
  double epochs = 0;
};

// At 0 stands the untrained encoder alone.
std::vector<Judged> checkpoints_of(const run::Run& run, CurvePoints which) {
  const auto all = run.lineage();
  const auto& config = run.config();
  const int64_t every = config.checkpoint.keep_every, steps = steps_of_epoch(all);
  const auto wanted = [&](const run::Position& p) {
    if (which == CurvePoints::kAll) return true;
    const bool kept = every > 0 && p.epoch % every == 0;
    return p.batch == 0 && (kept || p.epoch == config.train.epochs);
  };
  std::vector<Judged> out;
  for (const auto& c : all)
    if (const double epochs = epochs_of(c.position, steps); epochs > 0 && wanted(c.position))
      out.push_back({c, epochs});
  return out;
}

std::string schedule_of(const run::Run& run) {
  return run.config().optimizer.schedule == run::ScheduleKind::kCosine ? "cosine" : "constant";
}

}  // namespace

int64_t steps_of_epoch(const std::vector<run::CheckpointInfo>& checkpoints) {
  for (const auto& [file, at] : checkpoints)
    if (at.epoch > 0 && at.step > at.batch) return (at.step - at.batch) / at.epoch;
  return 0;
}

double epochs_of(const run::Position& at, int64_t per_epoch) {
  const double part = per_epoch > 0 ? static_cast<double>(at.batch) / static_cast<double>(per_epoch) : 0;
  return static_cast<double>(at.epoch) + part;
}

std::optional<Reached> reached(const run::Run& run) {
  const auto all = run.lineage();
  if (all.empty()) return std::nullopt;
  const auto& newest = all.back().position;
  return Reached{epochs_of(newest, steps_of_epoch(all)), newest.step};
}

std::string settings_of(const CurveOptions& o, const std::string& judge, const std::string& protocol) {
  std::string text;
  if (judge == "linear") {
    const auto& p = o.judging.probe;
    text = fmt::format("{} epochs, {} rates, batches of {}{}, seed {}", p.epochs, p.rates.size(),
                       p.batch_size, p.standardise ? ", standardised" : "", p.seed);
  } else {
    for (const auto& n : o.judging.neighbours)
      if (n.protocol == protocol) text = label(n);
  }
  if (o.data.limit > 0) text += fmt::format(", {} train images", o.data.limit);
  if (o.data.validation > 0) text += fmt::format(", judged on {} other train images", o.data.validation);
  if (o.data.limit_test > 0) text += fmt::format(", {} test images", o.data.limit_test);
  return text + "; untrained with statistics of train images";
}

RunCurves curve_of_run(const run::Run& run, const CurveOptions& o) {
  const auto checkpoints = checkpoints_of(run, o.points);
  if (checkpoints.empty()) run.load("last");  // throws with what to do
  if (checkpoints.empty())
    core::run_error("eval.curve", fmt::format("{}: has no checkpoint of a whole epoch to judge",
                                              run.folder().root.string()));
  auto first = run.load(checkpoints.front().checkpoint.file);
  const auto sets = make_eval_sets(run::load_images(run.folder(), o.data), first.encoder->options().channels,
                                   first.image_shape, o.grayscale);
  RunCurves out;
  out.notes = sets.notes;
  const auto point = [&](const std::string& name, run::Model& model, const run::Position& at, double epochs) {
    engine::place(*model.encoder, model.head.get(), o.placement);
    auto rows = judge(encoder_subject(name, model, sets, o.progress), sets.classes, o.judging, o.progress);
    for (size_t i = 0; i < rows.size(); ++i) {
      auto& row = rows[i];
      if (out.curves.size() <= i) {
        out.rows.emplace_back();
        out.curves.push_back({.method = run.config().method.name,
                              .data = o.data.source,
                              .judge = row.judge,
                              .protocol = row.protocol,
                              .train_images = sets.raw.train.size(),
                              .test_images = sets.raw.test.size(),
                              .settings = settings_of(o, row.judge, row.protocol),
                              .schedule = schedule_of(run)});
      }
      out.curves[i].points.push_back(
          {epochs, at.seconds, at.forward_units, row.score.accuracy, row.score.correct, row.score.total});
      out.rows[i].push_back(std::move(row));
    }
  };
  const size_t points = checkpoints.size() + 1;
  for (size_t i = 0; i < points; ++i) {
    if (o.on_point) o.on_point(i, points);
    if (i == 0) {
      auto model = untrained_model(run, sets);
      point("untrained encoder", model, {}, 0);
    } else {
      const auto& [checkpoint, epochs] = checkpoints[i - 1];
      auto model = run.load(checkpoint.file);
      point(fmt::format("epoch {:g}", epochs), model, checkpoint.position, epochs);
    }
  }
  return out;
}

std::filesystem::path keep_curve(const run::Run& run, const Curve& curve) {
  const bool own = curve.data == run.config().data.source;
  const auto file = curve_file(run.folder().root, curve.judge, curve.protocol, own ? "" : curve.data);
  write_curve(file, curve);
  auto csv = file;
  core::write_atomically(csv.replace_extension(".csv"), curve_csv(curve), "eval.curve");
  return file;
}

}  // namespace ebclr::eval
