#include "run/metric_record.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

namespace ebclr::run {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// Takes the members of the outermost object; no tree is built, since a page reads a million lines.
struct Members {
  using number_integer_t = nlohmann::json::number_integer_t;
  using number_unsigned_t = nlohmann::json::number_unsigned_t;
  using number_float_t = nlohmann::json::number_float_t;
  using string_t = nlohmann::json::string_t;
  using binary_t = nlohmann::json::binary_t;

  MetricRecord& out;
  size_t used = 0;  // of out.values
  int depth = 0;
  bool object = false, has_step = false;
  string_t name = {};

  bool number(double v) {
    if (depth == 0) return false;
    if (depth > 1) return true;
    if (name == "step") {
      out.step = v;
      has_step = std::abs(v) < 9e15;  // beyond that a double is no count
    } else if (name == "epoch") {
      out.epoch = v;
    } else if (name == "seconds") {
      out.seconds = v;
    } else if (name == "forward_units") {
      out.forward_units = v;
    } else if (name == "rollbacks") {
      out.rollbacks = v;
    } else if (used == kMostMetrics) {
      out.more = true;
    } else if (used < out.values.size()) {
      out.values[used].first = name;
      out.values[used++].second = v;
    } else {
      out.values.emplace_back(name, v);
      ++used;
    }
    return true;
  }
  bool null() { return number(kNan); }
  bool boolean(bool) { return depth > 0; }
  bool number_integer(number_integer_t v) { return number(static_cast<double>(v)); }
  bool number_unsigned(number_unsigned_t v) { return number(static_cast<double>(v)); }
  bool number_float(number_float_t v, const string_t&) { return number(v); }
  bool string(string_t& text) {
    if (depth == 1 && name == "event") out.event = text;
    if (depth == 1 && name == "reason") out.reason = text;
    return depth > 0;
  }
  bool binary(binary_t&) { return false; }
  bool start_object(size_t) {
    if (depth == 0) object = true;
    return ++depth < 64;
  }
  bool key(string_t& text) {
    if (depth == 1) name.swap(text);
    return true;
  }
  bool end_object() {
    --depth;
    return true;
  }
  bool start_array(size_t) { return depth > 0 && ++depth < 64; }
  bool end_array() {
    --depth;
    return true;
  }
  bool parse_error(size_t, const std::string&, const nlohmann::json::exception&) { return false; }
};

}  // namespace

bool parse_record(std::string_view line, MetricRecord& out) {
  out.step = out.epoch = out.seconds = out.forward_units = out.rollbacks = kNan;
  out.event.clear();
  out.reason.clear();
  out.more = false;
  Members members{out};
  const bool whole = nlohmann::json::sax_parse(line.begin(), line.end(), &members);
  out.values.resize(members.used);
  return whole && members.object && members.has_step;
}

}  // namespace ebclr::run
