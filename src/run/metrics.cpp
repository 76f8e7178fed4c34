#include "run/metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/files.h"

namespace ebclr::run {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

double number(const nlohmann::json& j, const char* key, double otherwise = kNan) {
  const auto it = j.find(key);
  return it != j.end() && it->is_number() ? it->get<double>() : otherwise;
}

std::string words(const nlohmann::json& j, const char* key) {
  const auto it = j.find(key);
  return it != j.end() && it->is_string() ? it->get<std::string>() : std::string();
}

}  // namespace

double Metrics::last(const std::string& name) const {
  const auto it = series.find(name);
  if (it == series.end()) return kNan;
  for (auto v = it->second.value.rbegin(); v != it->second.value.rend(); ++v)
    if (std::isfinite(*v)) return *v;
  return kNan;
}

Metrics parse_metrics(const std::string& text) {
  Metrics out;
  const bool complete = text.empty() || text.back() == '\n';
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    ++out.lines;
    const auto j = nlohmann::json::parse(line, nullptr, false);
    if (!j.is_object() || !j.contains("step") || !j["step"].is_number()) {
      // The writer appends whole lines; half a line at the end is one on its way.
      if (in.eof() && !complete) {
        out.cut = true;
      } else {
        ++out.damaged;
      }
      continue;
    }
    const double epoch = number(j, "epoch");
    out.step = static_cast<int64_t>(number(j, "step"));
    if (std::isfinite(epoch)) out.epoch = epoch;
    out.seconds = std::max(out.seconds, number(j, "seconds", 0));
    out.forward_units = std::max(out.forward_units, number(j, "forward_units", 0));
    const std::string event = words(j, "event");
    if (event == "knn") {
      const double accuracy = number(j, "knn");
      if (std::isfinite(epoch) && std::isfinite(accuracy))
        out.monitor.push_back({epoch, number(j, "seconds", 0), number(j, "forward_units", 0), accuracy});
      continue;
    }
    if (!event.empty()) {
      const double failed = number(j, "failed_step", static_cast<double>(out.step));
      out.events.push_back({event, static_cast<int64_t>(failed), words(j, "reason")});
      for (auto& [name, s] : out.series) s.epoch.push_back(s.epoch.back()), s.value.push_back(kNan);
      continue;
    }
    if (!std::isfinite(epoch)) {
      ++out.damaged;
      continue;
    }
    for (const auto& [key, value] : j.items()) {
      if (key == "step" || key == "epoch" || key == "rollbacks") continue;
      // What is not finite is written as null.
      if (!value.is_number() && !value.is_null()) continue;
      auto& s = out.series[key];
      s.epoch.push_back(epoch);
      s.value.push_back(value.is_number() ? value.get<double>() : kNan);
    }
  }
  return out;
}

Metrics read_metrics(const std::filesystem::path& file) {
  return parse_metrics(core::read_text(file, "run.metrics"));
}

}  // namespace ebclr::run
