#include "index/tuned.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/files.h"
#include "eval/features.h"
#include "index/classify.h"

namespace ebclr::index {
namespace {

constexpr std::string_view kTunedComponent = "finetune";

/// The images of a set that have a label.
data::ImageSet with_labels(const data::ImageSet& set) {
  if (set.size() == 0 || set.labelled()) return set;
  return data::select(set, set.labels.ge(0).nonzero().flatten());
}

nlohmann::ordered_json score_json(const eval::Score& s) {
  return {{"correct", s.correct},
          {"total", s.total},
          {"accuracy", s.accuracy},
          {"interval", {s.interval.low, s.interval.high}}};
}

eval::Score score_from(const nlohmann::json& j) {
  eval::Score s;
  s.correct = j.at("correct").get<int64_t>();
  s.total = j.at("total").get<int64_t>();
  s.accuracy = j.at("accuracy").get<double>();
  s.interval = {j.at("interval").at(0).get<double>(), j.at("interval").at(1).get<double>()};
  return s;
}

}  // namespace

torch::Tensor class_logits(nn::Encoder& encoder, nn::Head& head, const data::ImageSet& set) {
  return eval::features(encoder, set, {.head = &head}).to(torch::kCPU);
}

Tuned judge_tuned(nn::Encoder& encoder, nn::Head& head, nn::Encoder* before, const data::ImageSet& train,
                  const data::ImageSet& test, uint64_t seed) {
  Tuned out{.classes = train.class_names, .labels = train.size()};
  const auto asked = with_labels(test);
  if (asked.size() == 0) return out;
  const auto logits = class_logits(encoder, head, asked);
  out.held_out = eval::score(asked.labels, logits.argmax(1), train.classes());
  out.temperature = fit_temperature(logits, asked.labels);
  if (before == nullptr) return out;
  const eval::Labelled known{eval::features(*before, train), train.labels};
  const auto frozen = classify_split(known, eval::features(*before, asked), train.classes(), seed);
  out.frozen = eval::score(asked.labels, frozen.argmax(1), train.classes());
  return out;
}

void write_tuned(const run::RunFolder& folder, const Tuned& t) {
  nlohmann::ordered_json j = {{"classes", t.classes}, {"labels", t.labels}, {"temperature", t.temperature}};
  if (t.held_out) j["held_out"] = score_json(*t.held_out);
  if (t.frozen) j["frozen"] = score_json(*t.frozen);
  core::write_atomically(folder.classes(),
                         j.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n",
                         kTunedComponent);
}

Tuned read_tuned(const run::Run& run) {
  const std::string root = run.folder().root.string();
  if (run.config().method.name != methods::kSupervised)
    core::usage_error(kTunedComponent,
                      fmt::format("{}: a run of {} knows no classes; give labels with --labels FILE.csv, or "
                                  "teach it some: ebclr finetune {} --labels FILE.csv",
                                  root, run.config().method.name, root));
  std::error_code ec;
  if (!std::filesystem::exists(run.folder().classes(), ec))
    core::usage_error(kTunedComponent,
                      fmt::format("{}: is not trained to its end; ebclr finetune --resume {}", root, root));
  Tuned t;
  try {
    const auto j = nlohmann::json::parse(core::read_text(run.folder().classes(), kTunedComponent, 1 << 24));
    t.classes = j.at("classes").get<std::vector<std::string>>();
    t.labels = j.at("labels").get<int64_t>();
    t.temperature = j.at("temperature").get<double>();
    if (j.contains("held_out")) t.held_out = score_from(j["held_out"]);
    if (j.contains("frozen")) t.frozen = score_from(j["frozen"]);
  } catch (const nlohmann::json::exception& e) {
    core::usage_error(kTunedComponent,
                      fmt::format("{}: damaged ({}); write it anew: ebclr finetune --resume {}",
                                  run.folder().classes().string(), e.what(), root));
  }
  if (static_cast<int64_t>(t.classes.size()) != run.config().method.head.out || !(t.temperature > 0))
    core::usage_error(
        kTunedComponent,
        fmt::format("{}: names {} classes, the network has {}; write it anew: ebclr finetune "
                    "--resume {}",
                    run.folder().classes().string(), t.classes.size(), run.config().method.head.out, root));
  return t;
}

}  // namespace ebclr::index
