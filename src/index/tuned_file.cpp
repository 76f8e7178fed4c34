// classes.json of a run that was trained with labels.

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/files.h"
#include "core/json.h"
#include "index/tuned.h"

namespace ebclr::index {
namespace {

constexpr std::string_view kTunedComponent = "finetune";

nlohmann::ordered_json score_json(const eval::Score& s) {
  return {{"correct", s.correct},
          {"total", s.total},
          {"accuracy", s.accuracy},
          {"interval", {s.interval.low, s.interval.high}}};
}

eval::Score score_from(const nlohmann::json& j) {
  eval::Score s;
  s.correct = core::whole_number(j.at("correct"));
  s.total = core::whole_number(j.at("total"));
  s.accuracy = j.at("accuracy").get<double>();
  s.interval = {j.at("interval").at(0).get<double>(), j.at("interval").at(1).get<double>()};
  return s;
}

}  // namespace

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
    // What is no JSON throws at the first look into it.
    const auto j = core::parse_json(core::read_text(run.folder().classes(), kTunedComponent, 1 << 24));
    t.classes = j.at("classes").get<std::vector<std::string>>();
    t.labels = core::whole_number(j.at("labels"));
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
