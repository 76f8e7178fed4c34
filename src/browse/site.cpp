#include "browse/site.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <list>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>

#include "browse/assets.h"
#include "browse/classes.h"
#include "browse/layout.h"
#include "core/files.h"
#include "image/decode.h"
#include "image/encode.h"
#include "image/resize.h"
#include "index/duplicates.h"
#include "index/outliers.h"
#include "index/search.h"

namespace ebclr::browse {
namespace {

using nlohmann::json;

constexpr int kTile = 48, kColumns = 16;  // of a sheet of thumbnails
constexpr int64_t kPerSheet = kColumns * kColumns;
constexpr size_t kSheetsKept = 64;

std::string dump(const json& j) {
  return j.dump(-1, ' ', true, json::error_handler_t::replace);
}

web::Reply jpeg(std::span<const uint8_t> bytes) {
  return {.type = "image/jpeg", .body = std::string(bytes.begin(), bytes.end())};
}

}  // namespace

struct Site::Impl {
  index::Index images;
  SiteOptions options;
  torch::Tensor places;  // float [N, 2]
  Classes classes;
  std::mutex lock;
  std::map<int64_t, std::string> sheets;  // JPEG by number
  std::list<int64_t> recent;
  std::string copies, strangers;  // JSON, once asked for
  web::Server server;             // last: it stops before what it serves goes

  Impl(index::Index i, const SiteOptions& o) : images(std::move(i)), options(o), server(o.server) {
    if (!o.classes.empty())
      classes = parse_classes(core::read_text(o.classes, "browse"), o.classes.string(), images.size(),
                              [this](const std::string& path) { return images.find(path); });
    places = layout(images, {.progress = o.progress});
    server.get("/", [](const web::Request&) { return web::html(std::string(kPageHtml)); });
    server.get("/page.css", [](const web::Request&) { return web::style(std::string(kPageCss)); });
    server.get("/page.js", [](const web::Request&) { return web::script(std::string(kPageJs)); });
    server.get("/info", [this](const web::Request&) { return web::json(dump(info())); });
    server.get("/map", [this](const web::Request&) {
      return web::Reply{.type = "application/octet-stream",
                        .body = std::string(static_cast<const char*>(places.data_ptr()), places.nbytes())};
    });
    server.get("/sheet", [this](const web::Request& q) {
      const auto n = q.number("n", 0, (images.size() - 1) / kPerSheet);
      return n ? sheet(*n) : web::not_found();
    });
    server.get("/thumb", [this](const web::Request& q) {
      const auto n = q.number("n", 0, images.size() - 1);
      return n ? jpeg(images.thumbnail(*n)) : web::not_found();
    });
    server.get("/image", [this](const web::Request& q) {
      const auto n = q.number("n", 0, images.size() - 1);
      return n ? web::json(dump(facts(*n))) : web::not_found();
    });
    server.get("/near", [this](const web::Request& q) {
      const auto n = q.number("n", 0, images.size() - 1);
      if (!n) return web::not_found();
      const auto top = q.number("top", 1, 500).value_or(60);
      const auto query = torch::from_blob(const_cast<float*>(images.row(*n)), {1, images.info().dim}).clone();
      json list = json::array();
      const auto hits = index::search(images, query, {.top = top}).front();
      for (const auto& h : hits) list.push_back({{"n", h.row}, {"value", h.similarity}});
      return web::json(dump(list));
    });
    server.get("/strangers", [this](const web::Request&) {
      return web::json(once(strangers, [this] { return find_strangers(); }));
    });
    server.get("/copies", [this](const web::Request&) {
      return web::json(once(copies, [this] { return find_copies(); }));
    });
    server.get("/find", [this](const web::Request& q) { return web::json(dump(find(q.text("text")))); });
  }

  template <class F>
  std::string once(std::string& kept, F&& make) {
    const std::lock_guard guard(lock);
    if (kept.empty()) kept = dump(make());
    return kept;
  }

  json info() const {
    const auto& i = images.info();
    json c = json::array();
    for (const int k : classes.of) c.push_back(k);
    return {{"count", i.count}, {"folder", i.folder},  {"method", i.method},     {"epoch", i.epoch},
            {"tile", kTile},    {"columns", kColumns}, {"names", classes.names}, {"classes", c}};
  }

  json facts(int64_t n) const {
    const auto& r = images.record(n);
    json j = {{"n", n}, {"path", std::string(images.path(n))}, {"bytes", r.bytes}};
    if (images.info().has_energies) j["energy"] = r.energy;
    if (!classes.of.empty() && classes.of[static_cast<size_t>(n)] >= 0)
      j["class"] = classes.names[static_cast<size_t>(classes.of[static_cast<size_t>(n)])];
    return j;
  }

  web::Reply sheet(int64_t n) {
    {
      const std::lock_guard guard(lock);
      if (const auto it = sheets.find(n); it != sheets.end())
        return {.type = "image/jpeg", .body = it->second};
    }
    image::Pixels all(kTile * kColumns, kTile * kColumns, 3);
    std::fill(all.data.begin(), all.data.end(), uint8_t{255});
    for (int64_t k = 0; k < kPerSheet && n * kPerSheet + k < images.size(); ++k) {
      const auto bytes = images.thumbnail(n * kPerSheet + k);
      if (bytes.empty()) continue;
      const auto tile = image::resize(image::decode(std::as_bytes(bytes), "thumbnail"), kTile, kTile);
      if (tile.channels != 3) continue;
      const auto left = static_cast<size_t>(k % kColumns) * kTile * 3;
      for (int y = 0; y < kTile; ++y)
        std::copy_n(tile.row(y), kTile * 3, all.row(static_cast<int>(k / kColumns) * kTile + y) + left);
    }
    const auto jpeg_bytes = image::encode_jpeg(all, 80);
    const std::string out(reinterpret_cast<const char*>(jpeg_bytes.data()), jpeg_bytes.size());
    const std::lock_guard guard(lock);
    auto& kept = sheets[n];
    kept = out;
    recent.push_back(n);
    auto reply = web::Reply{.type = "image/jpeg", .body = kept};
    if (recent.size() > kSheetsKept) {
      sheets.erase(recent.front());
      recent.pop_front();
    }
    return reply;
  }

  json find_strangers() const {
    const auto scores = index::outlier_scores(images, {.by = options.strangers_by});
    const auto order = index::strangest(scores);
    json list = json::array();
    for (int64_t i = 0; i < std::min<int64_t>(200, images.size()); ++i) {
      const auto row = order[i].item<int64_t>();
      list.push_back({{"n", row}, {"value", scores[row].item<double>()}});
    }
    return list;
  }

  json find_copies() const {
    json list = json::array();
    for (const auto& g : index::find_duplicates(images, {})) {
      list.push_back(g.rows);
      if (list.size() == 300) break;
    }
    return list;
  }

  json find(const std::string& text) const {
    json list = json::array();
    if (text.empty()) return list;
    for (int64_t i = 0; i < images.size() && list.size() < 200; ++i)
      if (images.path(i).find(text) != std::string_view::npos) list.push_back({{"n", i}});
    return list;
  }
};

Site::Site(index::Index index, const SiteOptions& options)
    : impl_(std::make_unique<Impl>(std::move(index), options)) {}
Site::~Site() = default;

void Site::start() {
  impl_->server.start();
}
std::string Site::address() const {
  return impl_->server.address();
}
std::string Site::reply_to(const std::string& request) {
  return impl_->server.reply_to(request);
}

}  // namespace ebclr::browse
