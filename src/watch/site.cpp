#include "watch/site.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

#include "watch/assets.h"
#include "web/assets.h"

namespace ebclr::watch {
namespace {

using nlohmann::json;

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
constexpr size_t kMostAsked = 200;  // runs of one request

std::string dump(const json& j) {
  return j.dump(-1, ' ', true, json::error_handler_t::replace);
}

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

// ask=RUN.GENERATION.PER.HAVE,...: what each of these runs has that the page has not.
web::Reply series(const Watcher& watcher, const web::Request& q) {
  const auto most = static_cast<size_t>(q.number("most", 16, 1024).value_or(1024));
  std::string out = "[";
  size_t count = 0;
  const auto asked = q.text("ask");
  for (std::string_view rest = asked; !rest.empty();) {
    const auto end = std::min(rest.find(','), rest.size());
    const auto n = numbers(rest.substr(0, end), '.', 4);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (!n || n->size() != 4 || ++count > kMostAsked) return wrong("ask=RUN.GENERATION.PER.HAVE,...");
    const auto run = watcher.run((*n)[0]);
    if (!run) continue;
    run->want_curves();
    out += (out.size() > 1 ? "," : "") + run->curves({(*n)[1], (*n)[2], (*n)[3]}, most);
  }
  return web::json(out + "]");
}

web::Reply detail(const Watcher& watcher, const web::Request& q) {
  const auto ids = numbers(q.text("runs"), ',', kMostAsked);
  const auto low = real(q.text("low")), high = real(q.text("high"));
  const auto axis = q.text("x");
  if (!ids || !low || !high) return wrong("runs=N,..., low=A, high=B");
  Range range{axis == "seconds" ? Range::Axis::kSeconds
              : axis == "units" ? Range::Axis::kForwardUnits
                                : Range::Axis::kEpoch,
              *low, *high};
  std::string out = "[";
  for (const auto id : *ids)
    if (const auto run = watcher.run(id)) out += (out.size() > 1 ? "," : "") + run->detail(range);
  return web::json(out + "]");
}

web::Reply configurations(const Watcher& watcher, const web::Request& q) {
  const auto ids = numbers(q.text("runs"), ',', kMostAsked);
  if (!ids) return wrong("runs=N,...");
  json out = json::array();
  for (const auto id : *ids)
    if (const auto run = watcher.run(id)) out.push_back(run->configuration());
  return web::json(dump(out));
}

}  // namespace

Site::Site(web::ServerOptions options, std::vector<std::filesystem::path> roots, std::string title)
    : title_(std::move(title)), watcher_(std::move(roots)), server_(std::move(options)) {
  server_.get("/", [](const web::Request&) { return web::html(std::string(kPageHtml)); });
  server_.get("/page.js", [](const web::Request&) { return web::script(std::string(kPageJs)); });
  server_.get("/page.css", [](const web::Request&) { return web::style(std::string(kPageCss)); });
  server_.get("/uplot.js", [](const web::Request&) { return web::script(std::string(web::kUplotJs)); });
  server_.get("/uplot.css", [](const web::Request&) { return web::style(std::string(web::kUplotCss)); });
  server_.get("/about", [this](const web::Request&) {
    size_t bytes = 0;
    for (const auto& r : watcher_.runs()) bytes += r->bytes();
    return web::json(dump({{"title", title_}, {"runs", watcher_.runs().size()}, {"bytes", bytes}}));
  });
  server_.get("/series", [this](const web::Request& q) { return series(watcher_, q); });
  server_.get("/detail", [this](const web::Request& q) { return detail(watcher_, q); });
  server_.get("/config", [this](const web::Request& q) { return configurations(watcher_, q); });
  server_.get("/log", [this](const web::Request& q) {
    const auto id = q.number("run", 0, kMost);
    const auto run = id ? watcher_.run(*id) : nullptr;
    return run ? web::json(dump(run->log_tail())) : web::not_found();
  });
  server_.get("/sample", [this](const web::Request& q) {
    const auto id = q.number("run", 0, kMost), epoch = q.number("epoch", 0, kMost);
    const auto run = id && epoch ? watcher_.run(*id) : nullptr;
    auto picture = run ? run->sample(*epoch) : std::nullopt;
    return picture ? web::png(std::move(*picture)) : web::not_found();
  });
  server_.events("/events", [this](const web::Request&) -> web::Events {
    auto listener = std::make_shared<Watcher::Listener>(watcher_);
    return
        [listener]() -> std::optional<std::string> { return listener->next(std::chrono::milliseconds(800)); };
  });
}

Site::~Site() {
  server_.stop();
}

void Site::start() {
  server_.start();
  watcher_.start();
}

void Site::finish() {
  if (server_.listeners() == 0) return;
  watcher_.find();
  watcher_.refresh();
  std::this_thread::sleep_for(std::chrono::milliseconds(1200));
}

std::string Site::address() const {
  return server_.address();
}

void Site::show(const StudyBoard& board) {
  watcher_.show(board);
}

}  // namespace ebclr::watch
