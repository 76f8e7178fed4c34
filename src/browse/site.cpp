#include "browse/site.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "browse/assets.h"
#include "browse/classes.h"
#include "browse/kept.h"
#include "browse/layout.h"
#include "core/checksum.h"
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

/// Small letters for the large ones of ASCII: file names are found however they are typed.
std::string folded(std::string_view text) {
  std::string out(text);
  for (auto& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

web::Reply jpeg(std::span<const uint8_t> bytes) {
  return {.type = "image/jpeg", .body = std::string(bytes.begin(), bytes.end())};
}

}  // namespace

struct Site::Impl {
  index::Index images;
  SiteOptions options;
  torch::Tensor places;        // float [N, 2]
  std::vector<int64_t> tiles;  // rows in the order of the sheets: a view of the map needs few of them
  Classes classes;
  std::string id;                // of what is served
  Pictures sheets{kSheetsKept};  // JPEG by number
  LateAnswer copies, strangers;  // JSON
  web::Server server;            // last: it stops before what it serves goes

  Impl(index::Index i, const SiteOptions& o) : images(std::move(i)), options(o), server(o.server) {
    web::check_access(o.server);  // before the map, which takes its time
    if (!o.classes.empty())
      classes = parse_classes(core::read_text(o.classes, "browse"), o.classes.string(), images.size(),
                              [this](const std::string& path) { return images.find(path); });
    places = layout(images, {.progress = o.progress}).contiguous();
    tiles = along_map(places);
    id = identify();
    server.get("/", [](const web::Request&) { return web::html(std::string(kPageHtml)); });
    server.get("/page.css", [](const web::Request&) { return web::style(std::string(kPageCss)); });
    server.get("/page.js", [](const web::Request&) { return web::script(std::string(kPageJs)); });
    server.get("/info", [this](const web::Request&) { return web::json(dump(info())); });
    // A page that is older than this server asks for rows of another index: it hears so instead of seeing
    // other images than it names.
    const auto get = [this](const char* path, web::Handler handler) {
      server.get(path, [this, handler = std::move(handler)](const web::Request& q) -> web::Reply {
        if (const auto of = q.text("of"); !of.empty() && of != id)
          return {.status = 409, .body = "Another index is shown here now; load the page again.\n"};
        return handler(q);
      });
    };
    get("/map", [this](const web::Request&) { return map(); });
    get("/sheet", [this](const web::Request& q) {
      const auto n = q.number("n", 0, (images.size() - 1) / kPerSheet);
      return n ? sheet(*n) : web::not_found();
    });
    get("/thumb", [this](const web::Request& q) {
      const auto n = q.number("n", 0, images.size() - 1);
      return n ? jpeg(images.thumbnail(*n)) : web::not_found();
    });
    get("/image", [this](const web::Request& q) {
      const auto n = q.number("n", 0, images.size() - 1);
      return n ? web::json(dump(facts(*n))) : web::not_found();
    });
    get("/near", [this](const web::Request& q) {
      const auto n = q.number("n", 0, images.size() - 1);
      if (!n) return web::not_found();
      const auto top = q.number("top", 1, 500).value_or(60);
      const auto query = torch::from_blob(const_cast<float*>(images.row(*n)), {1, images.info().dim}).clone();
      json list = json::array();
      const auto hits = index::search(images, query, {.top = top}).front();
      for (const auto& h : hits) list.push_back(named(h.row, h.similarity));
      return web::json(dump(list));
    });
    get("/strangers", [this](const web::Request& q) {
      return late(strangers.get([this](const auto& stop) { return dump(find_strangers(stop)); }, q.given_up));
    });
    get("/copies", [this](const web::Request& q) {
      return late(copies.get([this](const auto& stop) { return dump(find_copies(stop)); }, q.given_up));
    });
    get("/find", [this](const web::Request& q) { return web::json(dump(find(q.text("text")))); });
  }

  // The same after a restart with the same index, classes and map, and with nothing else.
  std::string identify() const {
    uint64_t sum = 0;
    const auto add = [&](const void* data, size_t bytes) { sum = core::lane_sum(data, bytes, sum, true); };
    const auto& i = images.info();
    for (const auto* text : {&i.folder, &i.fingerprint}) add(text->data(), text->size());
    for (int64_t row = 0; row < images.size(); ++row) {
      add(images.path(row).data(), images.path(row).size());
      add(images.record(row).sha256.data(), images.record(row).sha256.size());
    }
    add(places.data_ptr(), places.nbytes());
    for (const auto& name : classes.names) add(name.data(), name.size());
    add(classes.of.data(), classes.of.size() * sizeof classes.of[0]);
    return fmt::format("{:016x}", sum);
  }

  // Places float32 [N, 2], then where on the sheets each row is, uint32 [N].
  web::Reply map() const {
    std::vector<uint32_t> slots(tiles.size());
    for (size_t k = 0; k < tiles.size(); ++k) slots[static_cast<size_t>(tiles[k])] = static_cast<uint32_t>(k);
    web::Reply reply{.type = "application/octet-stream"};
    reply.body.assign(static_cast<const char*>(places.data_ptr()), places.nbytes());
    reply.body.append(reinterpret_cast<const char*>(slots.data()), slots.size() * sizeof slots[0]);
    return reply;
  }

  json named(int64_t n) const { return {{"n", n}, {"name", std::string(images.path(n))}}; }
  json named(int64_t n, double value) const {
    auto j = named(n);
    j["value"] = value;
    return j;
  }

  json info() const {
    const auto& i = images.info();
    json c = json::array();
    for (const int k : classes.of) c.push_back(k);
    return {{"id", id},         {"count", i.count}, {"folder", i.folder},  {"method", i.method},
            {"epoch", i.epoch}, {"tile", kTile},    {"columns", kColumns}, {"names", classes.names},
            {"classes", c}};
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
    if (auto kept = sheets.find(n)) return {.type = "image/jpeg", .body = std::move(*kept)};
    image::Pixels all(kTile * kColumns, kTile * kColumns, 3);
    std::fill(all.data.begin(), all.data.end(), uint8_t{255});
    for (int64_t k = 0; k < kPerSheet && n * kPerSheet + k < images.size(); ++k) {
      const auto bytes = images.thumbnail(tiles[static_cast<size_t>(n * kPerSheet + k)]);
      if (bytes.empty()) continue;
      const auto tile = image::resize(image::decode(std::as_bytes(bytes), "thumbnail"), kTile, kTile);
      if (tile.channels != 3) continue;
      const auto left = static_cast<size_t>(k % kColumns) * kTile * 3;
      for (int y = 0; y < kTile; ++y)
        std::copy_n(tile.row(y), kTile * 3, all.row(static_cast<int>(k / kColumns) * kTile + y) + left);
    }
    const auto bytes = image::encode_jpeg(all, 80);
    const auto reply = jpeg({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
    sheets.keep(n, reply.body);
    return reply;
  }

  static web::Reply late(std::optional<std::string> text) {
    return text ? web::json(std::move(*text)) : web::not_now();
  }

  json find_strangers(const LateAnswer::Stop& stop) const {
    const auto scores = index::outlier_scores(images, {.by = options.strangers_by, .stop = stop});
    const auto order = index::strangest(scores);
    json list = json::array();
    for (int64_t i = 0; i < std::min<int64_t>(200, images.size()); ++i) {
      const auto row = order[i].item<int64_t>();
      list.push_back(named(row, scores[row].item<double>()));
    }
    return list;
  }

  json find_copies(const LateAnswer::Stop& stop) const {
    json list = json::array();
    for (const auto& g : index::find_duplicates(images, {.stop = stop})) {
      json group = json::array();
      for (const auto row : g.rows) group.push_back(named(row));
      list.push_back(std::move(group));
      if (list.size() == 300) break;
    }
    return list;
  }

  json find(const std::string& text) const {
    json list = json::array();
    if (text.empty()) return list;
    const auto wanted = folded(text);
    for (int64_t i = 0; i < images.size() && list.size() < 200; ++i)
      if (folded(images.path(i)).find(wanted) != std::string::npos) list.push_back(named(i));
    return list;
  }
};

Site::Site(index::Index index, const SiteOptions& options)
    : impl_(std::make_unique<Impl>(std::move(index), options)) {}
Site::~Site() {
  // The server waits for its requests.
  impl_->copies.end();
  impl_->strangers.end();
}

void Site::start() {
  impl_->server.start();
}
std::string Site::address() const {
  return impl_->server.address();
}
std::string Site::caution() const {
  return impl_->server.caution();
}
std::string Site::note() const {
  const auto& i = *impl_;
  if (i.options.classes.empty() || !i.classes.names.empty()) return {};
  return fmt::format(
      "{}: names none of the images of this index (paths are relative to {}); the map has no "
      "colours",
      i.options.classes.string(), i.images.info().folder);
}
std::string Site::reply_to(const std::string& request) {
  return impl_->server.reply_to(request);
}

}  // namespace ebclr::browse
