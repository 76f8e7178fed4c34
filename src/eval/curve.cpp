#include "eval/curve.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/files.h"

namespace ebclr::eval {

Efficiency relative_efficiency(std::vector<CurvePoint> reference, std::vector<CurvePoint> other) {
  if (reference.empty() || other.empty()) {
    core::usage_error("eval.curve", "a curve without points cannot be compared; run: ebclr eval curve RUN");
  }
  const auto by_epoch = [](const CurvePoint& a, const CurvePoint& b) { return a.epoch < b.epoch; };
  std::stable_sort(reference.begin(), reference.end(), by_epoch);
  std::stable_sort(other.begin(), other.end(), by_epoch);
  const CurvePoint& last = other.back();
  Efficiency e;
  e.target = last.accuracy;
  const auto hit = std::find_if(reference.begin(), reference.end(),
                                [&](const CurvePoint& p) { return p.accuracy >= e.target; });
  if (hit == reference.end()) return e;
  e.reached = *hit;
  if (last.epoch > 0) e.epochs = hit->epoch / last.epoch;
  if (last.seconds > 0) e.seconds = hit->seconds / last.seconds;
  if (last.forward_units > 0) e.forward_units = hit->forward_units / last.forward_units;
  return e;
}

std::filesystem::path curve_file(const std::filesystem::path& run, const std::string& judge,
                                 const std::string& protocol) {
  return run / "eval" / fmt::format("curve_{}_{}.json", judge, protocol);
}

void write_curve(const std::filesystem::path& file, const Curve& curve) {
  nlohmann::json j{{"method", curve.method},
                   {"data", curve.data},
                   {"judge", curve.judge},
                   {"protocol", curve.protocol},
                   {"train_images", curve.train_images},
                   {"test_images", curve.test_images},
                   {"points", nlohmann::json::array()}};
  for (const auto& p : curve.points) {
    j["points"].push_back({{"epoch", p.epoch},
                           {"seconds", p.seconds},
                           {"forward_units", p.forward_units},
                           {"accuracy", p.accuracy}});
  }
  std::error_code error;
  if (file.has_parent_path()) std::filesystem::create_directories(file.parent_path(), error);
  if (error) {
    core::run_error("eval.curve",
                    fmt::format("cannot create {} ({})", file.parent_path().string(), error.message()));
  }
  core::write_atomically(file, j.dump(2) + "\n", "eval.curve");
}

Curve read_curve(const std::filesystem::path& file) {
  const std::string text = core::read_text(file, "eval.curve");
  try {
    const auto j = nlohmann::json::parse(text);
    Curve c{j.at("method"),
            j.at("data"),
            j.at("judge"),
            j.at("protocol"),
            j.at("train_images"),
            j.at("test_images"),
            {}};
    for (const auto& p : j.at("points")) {
      c.points.push_back({p.at("epoch"), p.at("seconds"), p.at("forward_units"), p.at("accuracy")});
    }
    return c;
  } catch (const nlohmann::json::exception& e) {
    core::usage_error("eval.curve", fmt::format("{} is not a curve ({}); make it again: ebclr eval curve RUN",
                                                file.string(), e.what()));
  }
}

void check_comparable(const Curve& a, const Curve& b) {
  auto differ = [](std::string_view what, const auto& x, const auto& y) {
    if (x == y) return;
    core::usage_error("eval.curve",
                      fmt::format("curves judged on different {} ({} and {}) cannot be compared; make them "
                                  "alike with: ebclr eval curve RUN",
                                  what, x, y));
  };
  differ("data", a.data, b.data);
  differ("judges", a.judge, b.judge);
  differ("protocols", a.protocol, b.protocol);
  differ("numbers of train images", a.train_images, b.train_images);
  differ("numbers of test images", a.test_images, b.test_images);
}

}  // namespace ebclr::eval
