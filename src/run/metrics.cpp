#include "run/metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>

#include "core/files.h"
#include "run/metric_record.h"

namespace ebclr::run {
namespace {

constexpr double kNoValue = std::numeric_limits<double>::quiet_NaN();

/// A number of the record that has no member of its own.
double value_of(const MetricRecord& r, const char* key, double otherwise = kNoValue) {
  for (const auto& [name, value] : r.values)
    if (name == key) return value;
  return otherwise;
}

double or_zero(double v) {
  return std::isfinite(v) ? v : 0;
}

}  // namespace

double Metrics::last(const std::string& name) const {
  const auto it = series.find(name);
  if (it == series.end()) return kNoValue;
  for (auto v = it->second.value.rbegin(); v != it->second.value.rend(); ++v)
    if (std::isfinite(*v)) return *v;
  return kNoValue;
}

Metrics parse_metrics(const std::string& text) {
  Metrics out;
  const bool complete = text.empty() || text.back() == '\n';
  std::istringstream in(text);
  MetricRecord r;
  for (std::string line; std::getline(in, line);) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    ++out.lines;
    if (!parse_record(line, r)) {
      // The writer appends whole lines; half a line at the end is one on its way.
      if (in.eof() && !complete) {
        out.cut = true;
      } else {
        ++out.damaged;
      }
      continue;
    }
    out.step = static_cast<int64_t>(r.step);
    if (std::isfinite(r.epoch)) out.epoch = r.epoch;
    out.seconds = std::max(out.seconds, or_zero(r.seconds));
    out.forward_units = std::max(out.forward_units, or_zero(r.forward_units));
    if (r.event == "knn") {
      const double accuracy = value_of(r, "knn");
      if (std::isfinite(r.epoch) && std::isfinite(accuracy))
        out.monitor.push_back({r.epoch, or_zero(r.seconds), or_zero(r.forward_units), accuracy});
      continue;
    }
    if (!r.event.empty()) {
      const double failed = value_of(r, "failed_step", r.step);
      out.events.push_back(
          {r.event, static_cast<int64_t>(std::abs(failed) < 9e15 ? failed : r.step), r.reason});
      for (auto& [name, s] : out.series) s.epoch.push_back(s.epoch.back()), s.value.push_back(kNoValue);
      continue;
    }
    if (!std::isfinite(r.epoch)) {
      ++out.damaged;
      continue;
    }
    const auto add = [&](const std::string& key, double value) {
      auto& s = out.series[key];
      s.epoch.push_back(r.epoch);
      s.value.push_back(value);
    };
    for (const auto& [key, value] : r.values) add(key, value);
    if (std::isfinite(r.seconds)) add("seconds", r.seconds);
    if (std::isfinite(r.forward_units)) add("forward_units", r.forward_units);
  }
  return out;
}

Metrics read_metrics(const std::filesystem::path& file) {
  return parse_metrics(core::read_text(file, "run.metrics"));
}

}  // namespace ebclr::run
