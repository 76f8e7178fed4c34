#include "index/index_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <torch/torch.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/checksum.h"
#include "core/error.h"
#include "core/files.h"
#include "core/json.h"
#include "core/rng.h"
#include "density/density.h"

namespace ebclr::index {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kIndexComponent = "index";
constexpr char kMagic[8] = {'E', 'B', 'C', 'L', 'R', 'I', 'D', 'X'};
constexpr uint32_t kVersion = 1;
constexpr uint64_t kAlign = 64;

/// The first bytes of a file; `check` covers those before it.
struct Head {
  char magic[8];
  uint32_t version, records;  // sizeof(Record)
  uint64_t file_size, json_offset, json_bytes, json_check, check;
};
static_assert(sizeof(Head) == 56 && sizeof(Record) == 56);

uint64_t checksum(const void* data, size_t n) {
  return core::lane_sum(data, n, n, /*rest=*/false);
}
uint32_t row_check(const void* data, size_t n) {
  return static_cast<uint32_t>(checksum(data, n) >> 16);
}

/// How a part of the file is guarded: as a whole when it is opened, or row by row when it is used.
enum class Guard { kWhole, kRows };

struct Section {
  std::string name;
  Guard guard;
  const void* data = nullptr;
  uint64_t bytes = 0;
};

template <class T>
Section section(const std::string& name, Guard guard, const std::vector<T>& v) {
  return {name, guard, v.data(), v.size() * sizeof(T)};
}
Section section(const std::string& name, Guard guard, const torch::Tensor& t) {
  return t.defined() ? Section{name, guard, t.data_ptr(), t.nbytes()} : Section{name, guard};
}

std::vector<uint32_t> row_checks(const torch::Tensor& t) {
  std::vector<uint32_t> out;
  if (!t.defined() || t.size(0) == 0) return out;
  const size_t stride = t.nbytes() / static_cast<size_t>(t.size(0));
  const auto* p = static_cast<const char*>(t.data_ptr());
  for (int64_t i = 0; i < t.size(0); ++i, p += stride) out.push_back(row_check(p, stride));
  return out;
}

/// The contents as they lie in the file, with the tables that only the file has.
class Sections {
 public:
  /// The contents must outlive it.
  explicit Sections(const Contents& c)
      : features_(c.features.contiguous()),
        small_(c.small.contiguous()),
        references_(c.references.defined() ? c.references.contiguous() : torch::Tensor()),
        feature_checks_(row_checks(features_)),
        small_checks_(row_checks(small_)),
        link_checks_(row_checks(c.graph.links)),
        upper_checks_(row_checks(c.graph.upper)) {
    for (const auto& p : c.paths) {
      paths_ += p;
      path_offsets_.push_back(paths_.size());
    }
    for (const auto& t : c.thumbnails) {
      thumbs_.insert(thumbs_.end(), t.begin(), t.end());
      thumb_offsets_.push_back(thumbs_.size());
      thumb_checks_.push_back(row_check(t.data(), t.size()));
    }
    // Parts with checks of their own rows come first in the table, the checks after them.
    list_ = {section("features", Guard::kRows, features_),
             section("small", Guard::kRows, small_),
             section("thumbs", Guard::kRows, thumbs_),
             section("links", Guard::kRows, c.graph.links),
             section("upper", Guard::kRows, c.graph.upper),
             section("upper_first", Guard::kWhole, c.graph.upper_first),
             section("feature_checks", Guard::kWhole, feature_checks_),
             section("small_checks", Guard::kWhole, small_checks_),
             section("thumb_checks", Guard::kWhole, thumb_checks_),
             section("link_checks", Guard::kWhole, link_checks_),
             section("upper_checks", Guard::kWhole, upper_checks_),
             section("references", Guard::kWhole, references_),
             section("records", Guard::kWhole, c.records),
             section("path_offsets", Guard::kWhole, path_offsets_),
             {"paths", Guard::kWhole, paths_.data(), paths_.size()},
             section("thumb_offsets", Guard::kWhole, thumb_offsets_)};
  }
  // The list points into it.
  Sections(const Sections&) = delete;
  Sections& operator=(const Sections&) = delete;

  const std::vector<Section>& list() const { return list_; }

 private:
  torch::Tensor features_, small_, references_;
  std::vector<uint32_t> feature_checks_, small_checks_, link_checks_, upper_checks_, thumb_checks_;
  std::vector<uint64_t> path_offsets_ = {0}, thumb_offsets_ = {0};
  std::string paths_;
  std::vector<uint8_t> thumbs_;
  std::vector<Section> list_;
};

/// What ends the file: facts, and where each part lies.
struct Description {
  std::string json;
  uint64_t offset = kAlign;  ///< of itself: behind the head and all parts
};

// Names of files are bytes, and JSON holds text: where they are no UTF-8, a key beside the text that can be
// shown has them in hex.
std::string bytes_key(const char* key) {
  return std::string(key) + "_bytes";
}

void put_bytes(nlohmann::ordered_json& json, const char* key, const std::string& bytes) {
  try {
    (void)nlohmann::json(bytes).dump();
  } catch (const nlohmann::json::exception&) {
    std::string hex;
    for (const char c : bytes) hex += fmt::format("{:02x}", static_cast<uint8_t>(c));
    json[bytes_key(key)] = hex;
  }
}

// Nothing where the hex is none.
std::optional<std::string> get_bytes(const nlohmann::json& json, const char* key) {
  const auto it = json.find(bytes_key(key));
  if (it == json.end()) return json.at(key).get<std::string>();
  constexpr std::string_view digits = "0123456789abcdef";
  const auto& hex = it->get_ref<const std::string&>();
  std::string out;
  for (size_t i = 0; i < hex.size(); i += 2) {
    const auto high = digits.find(hex[i]), low = i + 1 < hex.size() ? digits.find(hex[i + 1]) : digits.npos;
    if (high == digits.npos || low == digits.npos) return std::nullopt;
    out += static_cast<char>(16 * high + low);
  }
  return out;
}

Description description_of(const Contents& c, const std::vector<Section>& sections) {
  const auto& i = c.info;
  nlohmann::ordered_json json = {
      {"fingerprint", i.fingerprint},
      {"run", i.run},
      {"method", i.method},
      {"version", i.version},
      {"epoch", i.epoch},
      {"step", i.step},
      {"folder", i.folder},
      {"image_size", i.image_size},
      {"channels", i.channels},
      {"count", i.count},
      {"dim", i.dim},
      {"has_energies", i.has_energies},
      {"tau", i.tau},
      {"reference_dim", c.references.defined() ? c.references.size(1) : 0},
      {"graph", {{"degree", c.graph.degree}, {"entry", c.graph.entry}, {"top", c.graph.top}}},
      {"sections", nlohmann::ordered_json::array()}};
  put_bytes(json, "run", i.run);
  put_bytes(json, "folder", i.folder);
  Description out;
  for (const auto& s : sections) {
    json["sections"].push_back({{"name", s.name},
                                {"offset", out.offset},
                                {"bytes", s.bytes},
                                {"check", s.guard == Guard::kWhole ? checksum(s.data, s.bytes) : 0}});
    out.offset += (s.bytes + kAlign - 1) / kAlign * kAlign;
  }
  out.json = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return out;
}

Head head_of(const Description& description) {
  Head head{};
  std::memcpy(head.magic, kMagic, sizeof kMagic);
  head.version = kVersion;
  head.records = sizeof(Record);
  head.json_offset = description.offset;
  head.json_bytes = description.json.size();
  head.json_check = checksum(description.json.data(), description.json.size());
  head.file_size = description.offset + description.json.size();
  head.check = checksum(&head, offsetof(Head, check));
  return head;
}

}  // namespace

bool is_index(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe opens at once
  if (fd < 0) return false;
  struct stat status {};
  char magic[sizeof kMagic] = {};
  ssize_t n = -1;
  if (::fstat(fd, &status) == 0 && S_ISREG(status.st_mode)) n = ::read(fd, magic, sizeof magic);
  ::close(fd);
  return n >= 0 && std::memcmp(magic, kMagic, static_cast<size_t>(n)) == 0;
}

void write_index(const fs::path& path, const Contents& c) {
  const auto n = static_cast<size_t>(c.info.count);
  TORCH_CHECK(c.paths.size() == n && c.records.size() == n && c.thumbnails.size() == n,
              "index: uneven parts");
  TORCH_CHECK(c.features.dim() == 2 && c.features.size(0) == c.info.count &&
              c.features.size(1) == c.info.dim);
  const Sections sections(c);
  const auto description = description_of(c, sections.list());
  const Head head = head_of(description);

  core::AtomicFile file(path, kIndexComponent);
  const auto write = [&](const void* data, uint64_t bytes) {
    constexpr char zeros[kAlign] = {};
    file.write(std::span(static_cast<const std::byte*>(data), bytes));
    if (bytes % kAlign) file.write(std::string_view(zeros, kAlign - bytes % kAlign));
  };
  write(&head, sizeof head);
  for (const auto& s : sections.list()) write(s.data, s.bytes);
  file.write(description.json);
  file.commit();
}

struct Mapping {
  fs::path path;
  const char* data = nullptr;
  size_t size = 0;
  IndexInfo info;
  const float* features = nullptr;
  const uint8_t* small = nullptr;
  const uint8_t* thumbs = nullptr;
  const Record* records = nullptr;
  const uint64_t *path_offsets = nullptr, *thumb_offsets = nullptr;
  const char* paths = nullptr;
  const uint32_t *feature_checks = nullptr, *small_checks = nullptr, *thumb_checks = nullptr,
                 *link_checks = nullptr, *upper_checks = nullptr;
  torch::Tensor references;
  Graph graph;
  // Rows that were found whole; a race at worst checks one twice.
  std::unique_ptr<std::atomic<bool>[]> seen_features, seen_links, seen_upper;
  std::atomic<bool> all_seen{false};

  ~Mapping() {
    if (data) ::munmap(const_cast<char*>(data), size);
  }
  [[noreturn]] void damaged(const std::string& what) const {
    core::usage_error(kIndexComponent,
                      fmt::format("{}: damaged ({}); make it anew: ebclr index {} --data {} --out {} --fresh",
                                  path.string(), what, info.run.empty() ? "RUN" : info.run,
                                  info.folder.empty() ? "FOLDER" : info.folder, path.string()));
  }
  void check_row(std::atomic<bool>& seen, const void* row, size_t bytes, uint32_t check, const char* what,
                 int64_t i) const {
    if (seen.load(std::memory_order_relaxed)) return;
    if (row_check(row, bytes) != check) damaged(fmt::format("{} of image {}", what, i));
    seen.store(true, std::memory_order_relaxed);
  }
};

namespace {

// The file's head, after the file was mapped into `m`; throws unless it is an index of this version and
// whole.
Head map_file(const fs::path& path, Mapping& m) {
  m.path = path;
  // O_NONBLOCK: a pipe opens at once, to be refused.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat status {};
  if (fd >= 0 && (::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode))) {
    ::close(fd);
    core::usage_error(kIndexComponent,
                      fmt::format("{}: no such index (it is {}); name a file", path.string(),
                                  S_ISDIR(status.st_mode) ? "a folder" : "a pipe or device"));
  }
  if (fd < 0)
    core::usage_error(kIndexComponent,
                      fmt::format("{}: no such index; make one: ebclr index RUN --data FOLDER --out {}",
                                  path.string(), path.string()));
  m.size = static_cast<size_t>(status.st_size);
  Head head{};
  if (m.size >= sizeof head) {
    void* at = ::mmap(nullptr, m.size, PROT_READ, MAP_SHARED, fd, 0);
    if (at != MAP_FAILED) {
      m.data = static_cast<const char*>(at);
      std::memcpy(&head, m.data, sizeof head);
    }
  }
  ::close(fd);
  if (std::memcmp(head.magic, kMagic, sizeof kMagic) != 0)
    core::usage_error(kIndexComponent, fmt::format("{}: not an index of ebclr", path.string()));
  if (head.version != kVersion)
    core::usage_error(kIndexComponent,
                      fmt::format("{}: format {}, this ebclr reads {}; make it anew: ebclr index RUN --data "
                                  "FOLDER --out {} --fresh",
                                  path.string(), head.version, kVersion, path.string()));
  if (head.check != checksum(&head, offsetof(Head, check)) || head.records != sizeof(Record))
    m.damaged("its head");
  if (head.file_size != m.size) m.damaged(fmt::format("{} bytes, its head says {}", m.size, head.file_size));
  if (head.json_offset > m.size || head.json_bytes != m.size - head.json_offset ||
      head.json_check != checksum(m.data + head.json_offset, head.json_bytes))
    m.damaged("its description");
  return head;
}

// The parts of a mapped file by their names, each inside the file and, where it has one, with the right
// checksum.
struct Parts {
  const Mapping& file;
  std::map<std::string, std::pair<const char*, uint64_t>> parts;

  uint64_t size_of(const char* name) const {
    const auto it = parts.find(name);
    return it == parts.end() ? 0 : it->second.second;
  }
  template <class T = char>
  const T* get(const char* name, uint64_t count) const {
    const auto it = parts.find(name);
    if (it == parts.end() || it->second.second != count * sizeof(T))
      file.damaged(fmt::format("part {}", name));
    return reinterpret_cast<const T*>(it->second.first);
  }
  template <class T>
  torch::Tensor view(const char* name, const std::vector<int64_t>& sizes) const {
    uint64_t count = 1;
    for (const int64_t s : sizes) count *= static_cast<uint64_t>(s);
    return torch::from_blob(const_cast<T*>(get<T>(name, count)), sizes, c10::CppTypeToScalarType<T>::value);
  }
};

// Fills `m.info` and the graph's numbers.
Parts read_description(const Head& head, Mapping& m, int64_t& reference_dim) {
  Parts out{m, {}};
  const auto place = [](const nlohmann::json& j) { return j.get_ref<const uint64_t&>(); };
  try {
    // No JSON, like a kind that is not as it should be, throws at the first look into it.
    const auto json = core::parse_json({m.data + head.json_offset, head.json_bytes});
    auto& i = m.info;
    json.at("fingerprint").get_to(i.fingerprint);
    const auto bytes_of = [&](const char* key) {
      auto bytes = get_bytes(json, key);
      if (!bytes) m.damaged("its description");
      return std::move(*bytes);
    };
    i.run = bytes_of("run");
    json.at("method").get_to(i.method);
    json.at("version").get_to(i.version);
    i.epoch = core::whole_number(json.at("epoch"));
    i.step = core::whole_number(json.at("step"));
    i.folder = bytes_of("folder");
    i.image_size = core::whole_number(json.at("image_size"));
    i.channels = core::whole_number(json.at("channels"));
    i.count = core::whole_number(json.at("count"));
    i.dim = core::whole_number(json.at("dim"));
    // Indexes of methods that learn no density once had energies, which meant nothing.
    i.has_energies = json.at("has_energies").get<bool>() && density::learns_density(i.method, 1);
    json.at("tau").get_to(i.tau);
    reference_dim = core::whole_number(json.at("reference_dim"));
    m.graph.degree = core::whole_number(json.at("graph").at("degree"));
    m.graph.entry = core::whole_number(json.at("graph").at("entry"));
    m.graph.top = core::whole_number(json.at("graph").at("top"));
    for (const auto& s : json.at("sections")) {
      const auto name = s.at("name").get<std::string>();
      const uint64_t offset = place(s.at("offset")), bytes = place(s.at("bytes")),
                     check = place(s.at("check"));
      if (offset > m.size || bytes > m.size - offset || offset % kAlign) m.damaged("a part lies outside");
      if (check != 0 && check != checksum(m.data + offset, bytes)) m.damaged("part " + name);
      out.parts[name] = {m.data + offset, bytes};
    }
  } catch (const nlohmann::json::exception&) {
    m.damaged("its description");
  }
  // Sizes that fit into the file cannot overflow when they are multiplied later.
  if (m.info.count < 0 || m.info.dim < 1 || static_cast<uint64_t>(m.info.count) > m.size ||
      static_cast<uint64_t>(m.info.dim) > m.size / std::max<uint64_t>(1, m.info.count))
    m.damaged("its size");
  // Pictures are decoded into memory of these sizes.
  if (!can_be_read(m.info.image_size, m.info.channels))
    m.damaged(fmt::format("images of {} channels at {} pixels", m.info.channels, m.info.image_size));
  return out;
}

void attach_rows(const Parts& parts, Mapping& m) {
  const auto n = static_cast<uint64_t>(m.info.count);
  m.features = parts.get<float>("features", n * static_cast<uint64_t>(m.info.dim));
  m.small = parts.get<uint8_t>("small", n * kSmallSide * kSmallSide);
  m.records = parts.get<Record>("records", n);
  m.feature_checks = parts.get<uint32_t>("feature_checks", n);
  m.small_checks = parts.get<uint32_t>("small_checks", n);
  m.thumb_checks = parts.get<uint32_t>("thumb_checks", n);
  m.path_offsets = parts.get<uint64_t>("path_offsets", n + 1);
  m.thumb_offsets = parts.get<uint64_t>("thumb_offsets", n + 1);
  m.paths = parts.get("paths", m.path_offsets[n]);
  m.thumbs = parts.get<uint8_t>("thumbs", m.thumb_offsets[n]);
  for (uint64_t i = 0; i < n; ++i)
    if (m.path_offsets[i] > m.path_offsets[i + 1] || m.thumb_offsets[i] > m.thumb_offsets[i + 1])
      m.damaged("its tables");
  m.seen_features = std::make_unique<std::atomic<bool>[]>(n);
}

void attach_references(const Parts& parts, int64_t dim, Mapping& m) {
  const uint64_t bytes = parts.size_of("references");
  if (bytes == 0) return;
  const auto width = static_cast<uint64_t>(dim);
  if (dim < 1 || width > bytes / sizeof(float) || bytes % (sizeof(float) * width))
    m.damaged("part references");
  const auto rows = static_cast<int64_t>(bytes / sizeof(float)) / dim;
  m.references = parts.view<float>("references", {rows, dim}).clone();
}

void attach_graph(const Parts& parts, Mapping& m) {
  if (parts.size_of("links") == 0) return;
  auto& g = m.graph;
  if (g.degree < 2 || g.degree > 1024 || g.entry < 0 || g.entry >= m.info.count) m.damaged("its graph");
  const auto n = static_cast<uint64_t>(m.info.count);
  g.links = parts.view<int32_t>("links", {m.info.count, g.degree + 1});
  g.upper_first = parts.view<int64_t>("upper_first", {m.info.count + 1});
  const auto* first = g.upper_first.data_ptr<int64_t>();
  for (uint64_t i = 0; i < n; ++i)
    if (first[i] < 0 || first[i] > first[i + 1]) m.damaged("its graph");
  const auto lists = static_cast<uint64_t>(first[n]);
  if (lists > m.size) m.damaged("its graph");
  g.upper = parts.view<int32_t>("upper", {first[n], g.degree / 2 + 1});
  m.link_checks = parts.get<uint32_t>("link_checks", n);
  m.upper_checks = parts.get<uint32_t>("upper_checks", lists);
  m.seen_links = std::make_unique<std::atomic<bool>[]>(n);
  m.seen_upper = std::make_unique<std::atomic<bool>[]>(lists);
  if (g.top < 0 || g.top > first[g.entry + 1] - first[g.entry]) m.damaged("its graph");
}

}  // namespace

Index Index::open(const fs::path& path) {
  Index index;
  index.mapping_ = std::make_shared<Mapping>();
  auto& m = *index.mapping_;
  const Head head = map_file(path, m);
  int64_t reference_dim = 0;
  const auto parts = read_description(head, m, reference_dim);
  attach_rows(parts, m);
  attach_references(parts, reference_dim, m);
  attach_graph(parts, m);
  return index;
}

const IndexInfo& Index::info() const {
  return mapping_->info;
}
const fs::path& Index::file() const {
  return mapping_->path;
}

const float* Index::row(int64_t i) const {
  const auto& m = *mapping_;
  const auto* p = m.features + i * m.info.dim;
  m.check_row(m.seen_features[static_cast<size_t>(i)], p, static_cast<size_t>(m.info.dim) * sizeof(float),
              m.feature_checks[i], "features", i);
  return p;
}

torch::Tensor Index::features() const {
  auto& m = *mapping_;
  if (!m.all_seen) {
    for (int64_t i = 0; i < m.info.count; ++i) row(i);
    m.all_seen = true;
  }
  // The mapping lives as long as any tensor that looks into it.
  return torch::from_blob(
      const_cast<float*>(m.features), {m.info.count, m.info.dim}, [keep = mapping_](void*) {},
      torch::kFloat32);
}

const Record& Index::record(int64_t i) const {
  return mapping_->records[i];
}
std::string_view Index::path(int64_t i) const {
  const auto& m = *mapping_;
  return {m.paths + m.path_offsets[i], m.path_offsets[i + 1] - m.path_offsets[i]};
}
std::span<const uint8_t> Index::thumbnail(int64_t i) const {
  const auto& m = *mapping_;
  const std::span<const uint8_t> bytes(m.thumbs + m.thumb_offsets[i],
                                       m.thumb_offsets[i + 1] - m.thumb_offsets[i]);
  if (row_check(bytes.data(), bytes.size()) != m.thumb_checks[i])
    m.damaged(fmt::format("thumbnail of image {}", i));
  return bytes;
}
const uint8_t* Index::small(int64_t i) const {
  const auto& m = *mapping_;
  constexpr int64_t bytes = kSmallSide * kSmallSide;
  if (row_check(m.small + i * bytes, bytes) != m.small_checks[i])
    m.damaged(fmt::format("small picture of image {}", i));
  return m.small + i * bytes;
}
torch::Tensor Index::energies() const {
  auto out = torch::empty({size()});
  for (int64_t i = 0; i < size(); ++i) out.data_ptr<float>()[i] = record(i).energy;
  return out;
}
torch::Tensor Index::references() const {
  return mapping_->references;
}
const Graph& Index::graph() const {
  return mapping_->graph;
}

std::span<const int32_t> Index::links(int64_t node, int64_t layer) const {
  const auto& m = *mapping_;
  const int32_t* list = nullptr;
  int64_t most = m.graph.degree;
  if (layer == 0) {
    list = m.graph.links.data_ptr<int32_t>() + node * (most + 1);
    m.check_row(m.seen_links[static_cast<size_t>(node)], list, static_cast<size_t>(most + 1) * 4,
                m.link_checks[node], "links", node);
  } else {
    most /= 2;
    const auto* first = m.graph.upper_first.data_ptr<int64_t>();
    const int64_t at = first[node] + layer - 1;
    if (at >= first[node + 1]) m.damaged(fmt::format("links of image {}", node));
    list = m.graph.upper.data_ptr<int32_t>() + at * (most + 1);
    m.check_row(m.seen_upper[static_cast<size_t>(at)], list, static_cast<size_t>(most + 1) * 4,
                m.upper_checks[at], "links", node);
  }
  if (list[0] < 0 || list[0] > most) m.damaged(fmt::format("links of image {}", node));
  return {list + 1, static_cast<size_t>(list[0])};
}

int64_t Index::find(std::string_view wanted) const {
  int64_t low = 0, high = size();
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (path(middle) < wanted) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low < size() && path(low) == wanted ? low : -1;
}

}  // namespace ebclr::index
