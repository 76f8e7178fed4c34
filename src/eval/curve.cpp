#include "eval/curve.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/csv.h"
#include "core/error.h"
#include "core/files.h"
#include "core/json.h"
#include "eval/metrics.h"

namespace ebclr::eval {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

bool clearly_above(const CurvePoint& a, const CurvePoint& b) {
  return a.accuracy - b.accuracy > difference_half_width(a, b);
}

std::string percent(double share) {
  return fmt::format("{:.1f} %", 100 * share);
}

}  // namespace

std::string to_text(const Bracket& b) {
  if (!std::isfinite(b.high)) return fmt::format("> {:.3g}", b.low);
  return fmt::format("({:.3g}, {:.3g}]", b.low, b.high);
}

double difference_half_width(const CurvePoint& a, const CurvePoint& b) {
  if (a.total <= 0 || b.total <= 0) return 0;
  const auto variance = [](const CurvePoint& p) {
    return p.accuracy * (1 - p.accuracy) / static_cast<double>(p.total);
  };
  return 1.96 * std::sqrt(variance(a) + variance(b));
}

Efficiency relative_efficiency(std::vector<CurvePoint> reference, std::vector<CurvePoint> other) {
  const auto by_epoch = [](const CurvePoint& a, const CurvePoint& b) { return a.epoch < b.epoch; };
  const auto trained = [](const CurvePoint& p) { return p.epoch > 0; };
  if (!std::any_of(reference.begin(), reference.end(), trained) ||
      !std::any_of(other.begin(), other.end(), trained))
    core::usage_error("eval.curve",
                      "a curve without points of training cannot be compared; run: ebclr eval curve RUN");
  std::stable_sort(reference.begin(), reference.end(), by_epoch);
  std::stable_sort(other.begin(), other.end(), by_epoch);
  const CurvePoint& last = other.back();
  Efficiency e;
  e.target = last.accuracy;
  if (!trained(other.front()) && !clearly_above(last, other.front())) {
    e.void_because = fmt::format("it learnt nothing that can be told from chance ({} before, {} after)",
                                 percent(other.front().accuracy), percent(last.accuracy));
    return e;
  }
  if (!trained(reference.front()) && !clearly_above(last, reference.front())) {
    e.void_because = fmt::format("the reference has {} before training, not clearly below {}",
                                 percent(reference.front().accuracy), percent(last.accuracy));
    return e;
  }
  CurvePoint before{};  // the start of training, where nothing was spent
  CurvePoint at = {kNever, kNever, kNever, 0};
  for (auto p = reference.begin(); p != reference.end(); ++p) {
    // A lucky checkpoint that later ones fall clearly short of has not got there.
    const bool lasts =
        std::none_of(p, reference.end(), [&](const auto& q) { return clearly_above(last, q); });
    if (trained(*p) && p->accuracy >= e.target && lasts) {
      e.reached = at = *p;
      break;
    }
    before = *p;
  }
  const auto ratio = [](double low, double high, double all) -> std::optional<Bracket> {
    if (!(all > 0)) return std::nullopt;
    return Bracket{low / all, high / all};
  };
  e.epochs = ratio(before.epoch, at.epoch, last.epoch);
  e.seconds = ratio(before.seconds, at.seconds, last.seconds);
  e.forward_units = ratio(before.forward_units, at.forward_units, last.forward_units);
  return e;
}

std::filesystem::path curve_file(const std::filesystem::path& run, const std::string& judge,
                                 const std::string& protocol, const std::string& other_set) {
  std::string name = fmt::format("curve_{}_{}", judge, protocol);
  if (!other_set.empty()) {
    name += "_on_";
    for (const char c : other_set) name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  }
  return run / "eval" / (name + ".json");
}

void write_curve(const std::filesystem::path& file, const Curve& curve) {
  nlohmann::json j{{"method", curve.method},
                   {"data", curve.data},
                   {"judge", curve.judge},
                   {"protocol", curve.protocol},
                   {"settings", curve.settings},
                   {"schedule", curve.schedule},
                   {"train_images", curve.train_images},
                   {"test_images", curve.test_images},
                   {"points", nlohmann::json::array()}};
  for (const auto& p : curve.points) {
    j["points"].push_back({{"epoch", p.epoch},
                           {"seconds", p.seconds},
                           {"forward_units", p.forward_units},
                           {"accuracy", p.accuracy},
                           {"correct", p.correct},
                           {"total", p.total}});
  }
  if (file.has_parent_path()) core::make_folder(file.parent_path(), "eval.curve");
  // The name of a folder of images need not be UTF-8.
  const auto text = j.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
  core::write_atomically(file, text + "\n", "eval.curve");
}

Curve read_curve(const std::filesystem::path& file) {
  const std::string text = core::read_text(file, "eval.curve");
  try {
    const auto j = core::parse_json(text);  // what is no JSON throws at the first look into it
    const auto word = [&](const char* key) { return j.at(key).get<std::string>(); };
    const auto whole = [&](const nlohmann::json& from, const char* key) {
      const double v = from.at(key).get<double>();
      if (!(std::abs(v) < 9e15))
        core::usage_error("eval.curve", fmt::format("{} is not a curve ({} is {})", file.string(), key, v));
      return static_cast<int64_t>(v);
    };
    Curve c{.method = word("method"),
            .data = word("data"),
            .judge = word("judge"),
            .protocol = word("protocol"),
            .train_images = whole(j, "train_images"),
            .test_images = whole(j, "test_images")};
    c.settings = j.value("settings", "");
    c.schedule = j.value("schedule", "");
    for (const auto& p : j.at("points")) {
      c.points.push_back({p.at("epoch").get<double>(), p.at("seconds").get<double>(),
                          p.at("forward_units").get<double>(), p.at("accuracy").get<double>(),
                          p.contains("correct") ? whole(p, "correct") : 0,
                          p.contains("total") ? whole(p, "total") : 0});
      // Curves from before the counts were kept.
      auto& last = c.points.back();
      if (last.total == 0 && c.test_images > 0) {
        last.total = c.test_images;
        last.correct = std::llround(std::clamp(last.accuracy, 0.0, 1.0) * static_cast<double>(last.total));
      }
    }
    return c;
  } catch (const nlohmann::json::exception& e) {
    core::usage_error("eval.curve", fmt::format("{} is not a curve ({}); make it again: ebclr eval curve RUN",
                                                file.string(), e.what()));
  }
}

std::string curve_csv(const Curve& curve) {
  std::string text = core::csv_line({"epoch", "seconds", "forward_units", "accuracy", "low95", "high95"});
  for (const auto& p : curve.points) {
    const auto interval = wilson(p.correct, p.total);
    text += core::csv_line({fmt::format("{:g}", p.epoch), fmt::format("{:.3f}", p.seconds),
                            fmt::format("{:.0f}", p.forward_units), fmt::format("{:.6f}", p.accuracy),
                            fmt::format("{:.6f}", interval.low), fmt::format("{:.6f}", interval.high)});
  }
  return text;
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
  if (!a.settings.empty() && !b.settings.empty()) differ("settings", a.settings, b.settings);
}

}  // namespace ebclr::eval
