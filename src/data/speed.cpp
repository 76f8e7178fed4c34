#include "data/speed.h"

#include <fmt/format.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/files.h"
#include "core/json.h"
#include "data/image_cache.h"
#include "data/loader.h"
#include "data/process.h"
#include "data/shapes.h"
#include "data/walk.h"
#include "image/decode.h"
#include "image/read_file.h"
#include "image/resize.h"

namespace ebclr::data {
namespace fs = std::filesystem;

namespace {

constexpr std::string_view kSpeedComponent = "data.bench";

using Clock = std::chrono::steady_clock;
// Seconds of processor time of this thread: what other programs take does not count.
double thread_seconds() {
  timespec t{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

AugmentSpeed bench_augment(int64_t channels, int64_t size, const ViewOptions& views, int threads,
                           double seconds) {
  constexpr int64_t kImages = 1024, kBatch = 128;
  auto set = std::make_shared<ImageSet>(
      make_shapes({.size = size, .gray = channels == 1, .count = kImages}, "train"));
  const ViewMaker maker(views, channels, size, size);
  const LoaderOptions options{.batch_size = kBatch, .threads = threads, .ahead = 2 * threads};

  {
    Loader loader(set, views, options);
    const auto b = loader.next();
    if (!torch::equal(b.view1, make_views(maker, *set, b.indices, 0, 0, 0, 0)))
      core::run_error(kSpeedComponent, "the pool's views differ from one thread's");
  }

  AugmentSpeed speed;
  speed.threads = threads;
  const auto indices = torch::arange(kBatch);
  int64_t made = 0;
  const double first = thread_seconds();
  for (uint64_t epoch = 0; thread_seconds() - first < seconds; ++epoch, made += kBatch)
    make_views(maker, *set, indices, 0, epoch, 0, 0);
  speed.per_core = static_cast<double>(made) / (thread_seconds() - first);

  Loader loader(set, views, options);
  for (int i = 0; i < options.ahead; ++i) loader.next();  // what was ready before the clock started
  made = 0;
  const auto start = Clock::now();
  for (; since(start) < seconds; made += 2 * kBatch) loader.next();
  speed.pool = static_cast<double>(made) / since(start);
  return speed;
}

namespace {

/// A file for another program, gone afterwards.
struct Scratch {
  std::string path = (fs::temp_directory_path() / "ebclr-python-XXXXXX").string();
  Scratch() {
    const int fd = ::mkstemp(path.data());
    if (fd < 0) core::run_error(kSpeedComponent, "no temporary file can be made");
    ::close(fd);
  }
  ~Scratch() {
    std::error_code ignored;
    fs::remove(path, ignored);
  }
};

// The JSON object that a Python script prints; nothing where Python or what it needs is absent.
std::optional<nlohmann::json> ask_python(const fs::path& script, const std::vector<std::string>& arguments,
                                         std::chrono::seconds patience) {
  std::error_code ec;
  if (!fs::exists(script, ec)) return std::nullopt;
  const Scratch answer;
  std::vector<std::string> command = {"python3", fs::absolute(script).string()};
  command.insert(command.end(), arguments.begin(), arguments.end());
  const auto code = run_program(command, ".", answer.path, patience);
  const auto text = core::read_text(answer.path, kSpeedComponent);
  // Python may warn before it prints the one line of JSON.
  auto json = core::parse_json(text.substr(std::min(text.size(), text.rfind('{'))));
  if (code != 0 || !json.is_object()) return std::nullopt;
  return json;
}

}  // namespace

std::optional<TorchvisionSpeed> bench_torchvision(const fs::path& script, double seconds) {
  const auto json =
      ask_python(script, {std::to_string(seconds)}, std::chrono::seconds(60 + static_cast<int>(4 * seconds)));
  if (!json || !json->contains("colour32")) return std::nullopt;
  return TorchvisionSpeed{json->value("torchvision", ""), json->value("colour32", 0.0),
                          json->value("gray28", 0.0)};
}

std::vector<DecodeSpeed> bench_decode(const fs::path& folder, int size, int64_t limit, const fs::path& script,
                                      int64_t& images) {
  std::vector<std::vector<std::byte>> files;
  std::vector<std::string> names;
  for (const auto& file : find_pictures(folder).files) {
    if (static_cast<int64_t>(files.size()) == limit) break;
    names.push_back(fs::absolute(folder / file.path).string());
    files.push_back(image::read_regular(names.back()));
  }
  images = static_cast<int64_t>(files.size());
  if (images == 0)
    core::usage_error(kSpeedComponent, fmt::format("{}: no pictures in it or below it", folder.string()));
  const int larger = static_cast<int>(large_size(size));
  std::vector<uint8_t> out(3 * static_cast<size_t>(larger) * static_cast<size_t>(larger));
  const auto speed = [&](int at_least) {
    const double start = thread_seconds();
    for (size_t i = 0; i < files.size(); ++i) {
      const auto pixels = image::decode(files[i], names[i], {.at_least = at_least});
      for (const int side : {size, larger}) image::square_planes(pixels, side, false, out.data());
    }
    return static_cast<double>(images) / (thread_seconds() - start);
  };
  speed(larger);  // warm
  std::vector<DecodeSpeed> rows = {{"ours, JPEGs at reduced scale", speed(larger)},
                                   {"ours, full scale", speed(0)}};
  // The names go by a file: there may be more than a command line holds.
  const Scratch list;
  std::ofstream(list.path) << nlohmann::json(names).dump(-1, ' ', false,
                                                         nlohmann::json::error_handler_t::replace);
  if (const auto json = ask_python(script, {list.path, std::to_string(size), std::to_string(larger)},
                                   std::chrono::minutes(10)))
    for (const auto& [name, value] : json->items())
      if (value.is_number()) rows.push_back({name, value.get<double>()});
  return rows;
}

}  // namespace ebclr::data
