#include "watch/site.h"

#include <limits>
#include <optional>

#include "watch/answers.h"
#include "watch/assets.h"
#include "web/assets.h"

namespace ebclr::watch {
namespace {

using nlohmann::json;

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
constexpr auto kWait = std::chrono::seconds(20);  // for one's turn

std::string dump(const json& j) {
  return j.dump(-1, ' ', true, json::error_handler_t::replace);
}

/// A handler that answers one request at a time: however many ask, it is the work of one thread beside a
/// training, and the memory of one answer. Who is gone does not wait.
web::Handler in_turn(std::timed_mutex& turn, web::Handler handler) {
  return [&turn, handler = std::move(handler)](const web::Request& q) -> web::Reply {
    const auto deadline = std::chrono::steady_clock::now() + kWait;
    std::unique_lock lock(turn, std::defer_lock);
    while (!lock.try_lock_for(std::chrono::milliseconds(100)))
      if (q.given_up() || std::chrono::steady_clock::now() > deadline)
        return web::not_now("Others are being answered; try again.\n");
    return handler(q);
  };
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
    size_t runs = 0, bytes = 0;
    for (const auto& r : watcher_.runs()) runs += r->gone() ? 0 : 1, bytes += r->bytes();
    return web::json(dump({{"title", title_}, {"runs", runs}, {"bytes", bytes}}));
  });
  const auto get = [this](const char* path, std::timed_mutex& turn, web::Handler handler) {
    server_.get(path, in_turn(turn, std::move(handler)));
  };
  get("/series", turn_, [this](const web::Request& q) { return series(watcher_, q); });
  get("/detail", detail_turn_, [this](const web::Request& q) { return detail(watcher_, q); });
  get("/config", turn_, [this](const web::Request& q) { return configurations(watcher_, q); });
  get("/log", turn_, [this](const web::Request& q) {
    const auto id = q.number("run", 0, kMost);
    const auto run = id ? watcher_.run(*id) : nullptr;
    return run ? web::json(dump(run->log_tail())) : web::not_found();
  });
  get("/sample", turn_, [this](const web::Request& q) {
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

std::string Site::caution() const {
  return server_.caution();
}

void Site::show(const StudyBoard& board) {
  watcher_.show(board);
}

}  // namespace ebclr::watch
