#pragma once
// Run folders as perform() leaves them, without training.

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "run/provenance.h"
#include "study/findings.h"

namespace ebclr::study {

/// What a fake run is like besides its accuracies.
struct Fake {
  double units_per_epoch = 600;
  int64_t rollbacks = 0, total = 1000;
  std::string instructions = "avx2";
  double seconds_per_epoch = 10;
};

// A run folder as perform() leaves it, with accuracies in percent at epochs 0, 1, 2, ...
inline void fake_run(const RunSpec& spec, const std::vector<double>& accuracy, const Fake& fake = {}) {
  std::filesystem::create_directories(spec.folder);
  std::ofstream(spec.folder / "config.yaml") << run::to_yaml(spec.config);
  const auto epochs = static_cast<double>(accuracy.size() - 1);
  // The last accuracy is that of the last epoch, whatever the configuration says of their number.
  const double stretch = static_cast<double>(spec.config.train.epochs) / epochs;
  std::ofstream(spec.folder / "summary.json")
      << nlohmann::json{{"finished", true},
                        {"epochs", spec.config.train.epochs},
                        {"steps", 10},
                        {"seconds", fake.seconds_per_epoch * epochs},
                        {"rollbacks", fake.rollbacks},
                        {"forward_units", fake.units_per_epoch * epochs}};
  run::record_session({spec.folder}, {.engine = "native", .instructions = fake.instructions, .threads = 2},
                      false);
  for (const auto& judge : spec.judges) {
    if (is_measured_once(judge)) continue;
    const auto [kind, protocol] = judge_and_protocol(judge);
    for (const auto& set : spec.sets) {
      eval::Curve curve{.method = spec.config.method.name,
                        .data = set,
                        .judge = kind,
                        .protocol = protocol,
                        .settings = eval::settings_of(curve_options(spec, set, {judge}), kind, protocol)};
      for (size_t e = 0; e < accuracy.size(); ++e) {
        const auto at = static_cast<double>(e);
        curve.points.push_back(
            {at * stretch, fake.seconds_per_epoch * at, fake.units_per_epoch * at, accuracy[e] / 100,
             static_cast<int64_t>(accuracy[e] / 100 * static_cast<double>(fake.total)), fake.total});
      }
      const bool own = set == spec.config.data.source;
      eval::write_curve(eval::curve_file(spec.folder, kind, protocol, own ? "" : set), curve);
    }
  }
}

inline void fake_distance(const RunSpec& spec, const std::string& judge, double distance,
                          const std::string& label = "Frechet distance on shapes classifier features") {
  std::filesystem::create_directories(spec.folder / "study");
  std::ofstream(distance_file(spec, judge))
      << nlohmann::json{{"settings", distance_settings(spec.judging, judge)},
                        {"distance", distance},
                        {"deviation", 0.3},
                        {"floor", 1},
                        {"ceiling", 100},
                        {"samples", 50},
                        {"steps", 20},
                        {"label", label}};
}

/// EBCLR costs 29 forward-units an image.
inline const Fake kEbclr = {.units_per_epoch = 2900};

}  // namespace ebclr::study
