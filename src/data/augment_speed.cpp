#include "data/augment_speed.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/files.h"
#include "data/loader.h"
#include "data/process.h"
#include "data/shapes.h"

namespace ebclr::data {

namespace {

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
      core::run_error("data.bench", "the pool's views differ from one thread's");
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

std::optional<TorchvisionSpeed> bench_torchvision(const std::filesystem::path& script, double seconds) {
  namespace fs = std::filesystem;
  std::error_code ec;
  if (!fs::exists(script, ec)) return std::nullopt;
  std::string log = (fs::temp_directory_path() / "ebclr-torchvision-XXXXXX").string();
  const int fd = ::mkstemp(log.data());
  if (fd < 0) return std::nullopt;
  ::close(fd);
  const auto code = run_program({"python3", fs::absolute(script).string(), std::to_string(seconds)}, ".", log,
                                std::chrono::seconds(60 + static_cast<int>(4 * seconds)));
  const auto text = core::read_text(log, "data.bench");
  fs::remove(log, ec);
  // Python may warn before it prints the one line of JSON.
  const auto json =
      nlohmann::json::parse(text.substr(std::min(text.size(), text.rfind('{'))), nullptr, false);
  if (code != 0 || !json.is_object() || !json.contains("colour32")) return std::nullopt;
  return TorchvisionSpeed{json.value("torchvision", ""), json.value("colour32", 0.0),
                          json.value("gray28", 0.0)};
}

}  // namespace ebclr::data
