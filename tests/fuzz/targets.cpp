#include "targets.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <torch/torch.h>
#include <unistd.h>
#include <zlib.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "bench/compare.h"
#include "browse/classes.h"
#include "core/checksum.h"
#include "core/files.h"
#include "core/npy.h"
#include "core/rng.h"
#include "core/safetensors.h"
#include "data/cifar.h"
#include "data/fetch_parts.h"
#include "data/folder.h"
#include "data/idx.h"
#include "data/image_list.h"
#include "data/tar_gz.h"
#include "eval/curve.h"
#include "image/decode.h"
#include "index/graph.h"
#include "index/index_file.h"
#include "reading.h"
#include "report/run_record.h"
#include "run/config.h"
#include "run/metrics.h"
#include "run/provenance.h"
#include "run/torch_file.h"
#include "study/study.h"
#include "temp_dir.h"
#include "train/metrics_log.h"
#include "web/server.h"

namespace ebclr::fuzz {
namespace fs = std::filesystem;

const fs::path& scratch() {
  static const auto* dir = [] {
    std::error_code ec;
    if (!std::getenv("TMPDIR") && fs::is_directory("/dev/shm", ec)) ::setenv("TMPDIR", "/dev/shm", 0);
    return new testing::TempDir;
  }();
  // The folder must go when the process does, whichever main it has.
  static const struct Tidy {
    ~Tidy() {
      std::error_code ec;
      fs::remove_all(dir->path(), ec);
    }
  } tidy;
  return dir->path();
}

fs::path file_of(Bytes bytes, const std::string& name) {
  const auto path = scratch() / name;
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  return path;
}

namespace {

template <class T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

}  // namespace

std::string zip_around(const std::vector<std::pair<std::string, std::string>>& entries) {
  std::string out, directory;
  for (const auto& [name, content] : entries) {
    const auto at = static_cast<uint32_t>(out.size()), size = static_cast<uint32_t>(content.size());
    const auto sum = static_cast<uint32_t>(::crc32(0, reinterpret_cast<const Bytef*>(content.data()), size));
    const auto common = [&, &title = name](std::string& to) {
      put<uint16_t>(to, 20), put<uint16_t>(to, 0), put<uint16_t>(to, 0), put<uint32_t>(to, 0), put(to, sum);
      put(to, size), put(to, size), put(to, static_cast<uint16_t>(title.size())), put<uint16_t>(to, 0);
    };
    put<uint32_t>(out, 0x04034b50), common(out);
    out += name + content;
    put<uint32_t>(directory, 0x02014b50), put<uint16_t>(directory, 20), common(directory);
    for (int i = 0; i < 3; ++i) put<uint16_t>(directory, 0);
    put<uint32_t>(directory, 0), put(directory, at);
    directory += name;
  }
  const auto start = static_cast<uint32_t>(out.size()), size = static_cast<uint32_t>(directory.size());
  const auto count = static_cast<uint16_t>(entries.size());
  out += directory;
  put<uint32_t>(out, 0x06054b50), put<uint32_t>(out, 0), put(out, count), put(out, count), put(out, size);
  put(out, start), put<uint16_t>(out, 0);
  return out;
}

namespace {

void safetensors(Bytes bytes) {
  core::parse_safetensors(bytes, "x.safetensors");
}
void npy(Bytes bytes) {
  core::parse_npy(bytes, "x.npy");
}
void torch_zip(Bytes bytes) {
  run::parse_torch_file({bytes.begin(), bytes.end()}, "x.pt");
}
/// The pickle inside, without the zip's checksums in the way.
void pickle(Bytes bytes) {
  const auto zip = zip_around({{"a/data.pkl", text_of(bytes)}, {"a/data/0", std::string(64, '\1')}});
  const auto* p = reinterpret_cast<const std::byte*>(zip.data());
  run::parse_torch_file({p, p + zip.size()}, "x.pt");
}

void idx_images(Bytes bytes) {
  data::read_idx_images(file_of(bytes, "images-idx3-ubyte"));
}
void idx_labels(Bytes bytes) {
  data::read_idx_labels(file_of(bytes, "labels-idx1-ubyte"), 10);
}
void cifar10(Bytes bytes) {
  file_of(bytes, "test_batch.bin");
  data::read_cifar10(scratch(), "test");
}
void cifar100(Bytes bytes) {
  file_of(bytes, "test.bin");
  data::read_cifar100(scratch(), "test");
}
void gzip(Bytes bytes) {
  data::gunzip(file_of(bytes, "x.gz"), scratch() / "x", 1 << 16);
}
void tar_gz(Bytes bytes) {
  data::extract(file_of(bytes, "x.tar.gz"), {{"a", scratch() / "a"}, {"b", scratch() / "b"}}, 1 << 16);
}
void config(Bytes bytes) {
  std::vector<std::string> warnings;
  run::resolve({run::parse_layer(text_of(bytes), "x.yaml", warnings)});
}
void study_file(Bytes bytes) {
  study::parse_study("x", text_of(bytes), "x.yaml");
}
void image(Bytes bytes) {
  std::vector<uint8_t> out(3 * 16 * 16);
  data::decode_image(bytes, "x", 16, false, out.data());
}
void image_full(Bytes bytes) {
  ebclr::image::decode(bytes, "x");
}
void image_list(Bytes bytes) {
  data::read_image_list(file_of(bytes, "images.csv"));
}
const fs::path& pictures() {
  static const fs::path folder = [] {
    const auto f = scratch() / "pictures";
    fs::create_directories(f);
    // The smallest picture there is: 16 x 16 grey points as PGM.
    for (const char* name : {"a.pgm", "b.pgm"}) {
      std::ofstream(f / name, std::ios::binary) << "P5\n16 16\n255\n" << std::string(256, 'x');
      const timespec times[2] = {};
      ::utimensat(AT_FDCWD, (f / name).c_str(), times, 0);  // of 1970, as the seeds of image_cache say
    }
    return f;
  }();
  return folder;
}
void labels_csv(Bytes bytes) {
  data::read_folder(pictures(), {.image_size = 16, .labels_csv = file_of(bytes, "labels.csv"), .threads = 1});
}
void metrics(Bytes bytes) {
  run::parse_metrics(text_of(bytes));
}
void metrics_log(Bytes bytes) {
  train::keep_lines(text_of(bytes), 1, 5);
}

/// What `ebclr eval curve` keeps.
void curve(Bytes bytes) {
  eval::curve_csv(eval::read_curve(file_of(bytes, "curve.json")));
}

/// What a report reads besides: judgements below eval/ ...
void judgement(Bytes bytes) {
  report::RunRecord record;
  report::add_judgement(text_of(bytes), "eval/x.json", record);
}

/// ... and a whole folder of a run: its summary, with the judgement as a file.
void run_record(Bytes bytes) {
  static const fs::path folder = [] {
    const auto f = scratch() / "judged";
    fs::create_directories(f / "eval");
    std::ofstream(run::RunFolder{f}.config()) << "method:\n  name: ebclr\n...\n";
    return f;
  }();
  file_of(bytes, "judged/summary.json");
  file_of(bytes, "judged/eval/x.json");
  report::read_record(folder);
}

uint64_t index_checksum(const char* p, size_t n) {  // as src/index/index_file.cpp has it
  return core::lane_sum(p, n, n, false);
}

/// With the checksums of its head and its description made right: whoever means harm can count too.
void index_file(Bytes bytes) {
  std::string text = text_of(bytes);
  if (text.size() > 56) {
    uint64_t field[5];  // file_size, json_offset, json_bytes, json_check, check
    std::memcpy(field, text.data() + 16, sizeof field);
    field[0] = text.size();
    field[1] = std::min<uint64_t>(field[1], text.size());
    field[2] = text.size() - field[1];
    field[3] = index_checksum(text.data() + field[1], field[2]);
    std::memcpy(text.data() + 16, field, 32);
    field[4] = index_checksum(text.data(), 48);
    std::memcpy(text.data() + 48, field + 4, 8);
  }
  const auto index = index::Index::open(file_of(bytes_of(text), "x.index"));
  // Whoever looks at pictures as the index did decodes them into memory of these sizes.
  if (!index::can_be_read(index.info().image_size, index.info().channels)) std::abort();
  // A damaged row is refused when it is used; the others still count.
  for (int64_t i = 0; i < index.size(); ++i) {
    attempt([&] { index.row(i); });
    attempt([&] { index.find(index.path(i)); });
    attempt([&] { index.thumbnail(i); });
    attempt([&] { index.small(i); });
    for (int64_t layer = 0; !index.graph().empty() && layer < 3; ++layer)
      attempt([&] { index.links(i, layer); });
  }
  if (index.size() > 0 && !index.graph().empty())
    attempt([&] { index::search_graph(index, index.row(0), 2, 4); });
  index.energies();
  index.features();
}

void provenance(Bytes bytes) {
  file_of(bytes, "provenance.json");
  run::read_sessions({scratch()});
}

/// What `browse --classes` colours the map by.
void browse_classes(Bytes bytes) {
  browse::parse_classes(text_of(bytes), "x.csv", 2, [](const std::string& path) -> int64_t {
    return path == "a" ? 0 : path == "b" ? 1 : -1;
  });
}

/// What `bench --against` compares with.
void bench_results(Bytes bytes) {
  static const auto now = nlohmann::json::parse(
      R"([{"bench":"step","method":"ebclr","batch_norm":false,"batch":64,"width":64,"size":32,"channels":3,
           "threads":2,"instructions":"avx2","ms_per_image":{"native":1,"lean":2,"released":3},
           "ms_per_image_median":{"native":1,"lean":2,"released":3}}])");
  bench::compare(bench::read_results(file_of(bytes, "bench.json").string()), now);
}

/// Labels from an npm package.
void mirror_labels(Bytes bytes) {
  data::parse_mirror_labels(text_of(bytes));
}

/// Headers that a server answers a download with, after the address: Location, Content-Range, a line each.
void http_answer(Bytes bytes) {
  const std::string text = text_of(bytes) + "\n\n\n";
  const auto first = text.find('\n'), second = text.find('\n', first + 1),
             third = text.find('\n', second + 1);
  data::parse_content_range(std::string_view(text).substr(second + 1, third - second - 1));
  data::parse_url(data::redirected(text.substr(0, first), text.substr(first + 1, second - first - 1)));
}

/// A request, to a page for everybody and to one behind a token.
void http_request(Bytes bytes) {
  const auto make = [](const std::string& token) {
    auto server = std::make_unique<web::Server>(web::ServerOptions{.token = token});
    server->get("/", [](const web::Request& q) {
      return web::json(q.text("text") + (q.number("n", 0, 100) ? "a number" : ""));
    });
    return server;
  };
  static const auto open = make(""), closed = make("secret");
  open->reply_to(text_of(bytes));
  closed->reply_to(text_of(bytes));
}

/// The index of a cache of decoded pictures, behind the number of its rows; the file around it is made right.
void image_cache(Bytes bytes) {
  struct Head {  // as src/data/image_cache.cpp has it
    char magic[8];
    uint64_t rows, channels, size, large, index_at, index_bytes;
    char index_sha[64];
  };
  constexpr uint64_t kPage = 4096, kSize = 8, kLarge = 16;
  static const data::DecodeRequest request{.folder = pictures(),
                                           .files = {{"a.pgm", {.size = 269}}, {"b.pgm", {.size = 269}}},
                                           .image_size = kSize,
                                           .grayscale = true,
                                           .cache = data::CacheKind::kDisk,
                                           .cache_folder = scratch() / "cache",
                                           .threads = 1};
  static const auto name = [] {
    data::decode_images(request);
    for (const auto& e : fs::directory_iterator(request.cache_folder))
      if (e.path().extension() == ".images") return "cache/" + e.path().filename().string();
    return std::string("none");
  }();
  const uint64_t rows = bytes.empty() ? 0 : static_cast<uint64_t>(bytes[0]) % 8;
  const auto index = bytes.subspan(std::min<size_t>(1, bytes.size()));
  const uint64_t large_at = (kPage + rows * kSize * kSize + kPage - 1) / kPage * kPage;
  Head head{.magic = {'E', 'B', 'C', 'L', 'R', 'I', 'M', '1'},
            .rows = rows,
            .channels = 1,
            .size = kSize,
            .large = kLarge,
            .index_at = large_at + rows * kLarge * kLarge,
            .index_bytes = index.size(),
            .index_sha = {}};
  std::memcpy(head.index_sha, core::sha256(index).data(), sizeof head.index_sha);
  std::string file(reinterpret_cast<const char*>(&head), sizeof head);
  file.resize(head.index_at);
  file_of(bytes_of(file + text_of(index)), name);
  const auto images = data::decode_images(request);
  images.pixels.sum();
  images.large.sum();
}

}  // namespace

const std::vector<Target>& targets() {
  static const std::vector<Target> table = {
      {"safetensors", safetensors},
      {"npy", npy},
      {"torch_zip", torch_zip},
      {"pickle", pickle},
      {"idx_images", idx_images},
      {"idx_labels", idx_labels},
      {"cifar10", cifar10},
      {"cifar100", cifar100},
      {"gzip", gzip},
      {"tar_gz", tar_gz},
      {"config", config},
      {"study", study_file},
      {"image", image},
      {"image_full", image_full},
      {"image_list", image_list},
      {"labels_csv", labels_csv},
      {"metrics", metrics},
      {"metrics_log", metrics_log},
      {"provenance", provenance},
      {"curve", curve},
      {"judgement", judgement},
      {"run_record", run_record},
      {"index", index_file},
      {"image_cache", image_cache},
      {"mirror_labels", mirror_labels},
      {"browse_classes", browse_classes},
      {"bench_results", bench_results},
      {"http_answer", http_answer},
      {"http_request", http_request},
  };
  static const std::vector<Target> all = [] {
    auto list = table;
    const auto more = run_targets();
    list.insert(list.end(), more.begin(), more.end());
    return list;
  }();
  return all;
}

std::string run(const Target& target, Bytes bytes) {
  try {
    target.read(bytes);
  } catch (const core::Error& e) {
    const std::string text = e.what();
    if (text.find('\n') != std::string::npos) return "more than one line: " + text;
  } catch (const std::exception& e) {
    return std::string("another exception: ") + e.what();
  }
  return "";
}

}  // namespace ebclr::fuzz
