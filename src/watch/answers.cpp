#include "watch/answers.h"

#include <charconv>
#include <cmath>
#include <optional>
#include <set>
#include <vector>

namespace ebclr::watch {
namespace {

using nlohmann::json;

/// Whole numbers between separators: "3.1.64.900" with '.'; nothing when it is anything else.
std::optional<std::vector<int64_t>> numbers(std::string_view text, char separator, size_t most) {
  std::vector<int64_t> out;
  while (!text.empty()) {
    const auto end = std::min(text.find(separator), text.size());
    int64_t value = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + end, value);
    if (error != std::errc() || stop != text.data() + end || value < 0 || out.size() >= most)
      return std::nullopt;
    out.push_back(value);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

/// Runs of a request in its order, each once; nothing when it names more than `most` of them.
std::optional<std::vector<int64_t>> different(const std::string& text, size_t most) {
  const auto all = numbers(text, ',', kMostAsked);
  if (!all) return std::nullopt;
  std::vector<int64_t> out;
  std::set<int64_t> seen;
  for (const auto id : *all)
    if (seen.insert(id).second) out.push_back(id);
  return out.size() <= most ? std::optional(out) : std::nullopt;
}

std::optional<double> real(const std::string& text) {
  double value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || stop != text.data() + text.size() || !std::isfinite(value))
    return std::nullopt;
  return value;
}

web::Reply wrong(const char* what) {
  return {.status = 400, .body = std::string(what) + "\n"};
}

}  // namespace

web::Reply series(const Watcher& watcher, const web::Request& q) {
  const auto most = static_cast<size_t>(q.number("most", 16, 1024).value_or(1024));
  std::string out = "[";
  size_t count = 0;
  std::set<int64_t> seen;
  const auto asked = q.text("ask");
  for (std::string_view rest = asked; !rest.empty();) {
    const auto end = std::min(rest.find(','), rest.size());
    const auto n = numbers(rest.substr(0, end), '.', 4);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (!n || n->size() != 4 || ++count > kMostAsked) return wrong("ask=RUN.GENERATION.PER.HAVE,...");
    const auto run = watcher.run((*n)[0]);
    if (!run || !seen.insert((*n)[0]).second || out.size() > kMostReply) continue;
    if (q.given_up()) return web::not_now();
    run->want_curves();
    out += (out.size() > 1 ? "," : "") + run->curves({(*n)[1], (*n)[2], (*n)[3]}, most);
  }
  return web::json(out + "]");
}

web::Reply detail(const Watcher& watcher, const web::Request& q) {
  const auto ids = different(q.text("runs"), kMostDetailed);
  const auto low = real(q.text("low")), high = real(q.text("high"));
  const auto axis = q.text("x");
  if (!ids || !low || !high) return wrong("runs=N,... (8 at most), low=A, high=B");
  Range range{axis == "seconds" ? Range::Axis::kSeconds
              : axis == "units" ? Range::Axis::kForwardUnits
                                : Range::Axis::kEpoch,
              *low, *high};
  std::string out = "[";
  for (const auto id : *ids) {
    const auto run = watcher.run(id);
    if (!run || out.size() > kMostReply) continue;
    const auto part = run->detail(range, q.given_up);
    if (part.empty()) return web::not_now();
    out += (out.size() > 1 ? "," : "") + part;
  }
  return web::json(out + "]");
}

web::Reply configurations(const Watcher& watcher, const web::Request& q) {
  const auto ids = different(q.text("runs"), kMostAsked);
  if (!ids) return wrong("runs=N,...");
  json out = json::array();
  for (const auto id : *ids) {
    if (q.given_up()) return web::not_now();
    if (const auto run = watcher.run(id)) out.push_back(run->configuration());
  }
  return web::json(out.dump(-1, ' ', true, json::error_handler_t::replace));
}

}  // namespace ebclr::watch
