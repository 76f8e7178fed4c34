// The corpus, through every target: seeds, and what fuzzing once found. Needs no clang.

#include <gtest/gtest.h>
#include <malloc.h>
#include <signal.h>
#include <sys/resource.h>
#include <torch/torch.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "core/files.h"
#include "targets.h"

namespace ebclr::fuzz {
namespace {
namespace fs = std::filesystem;

// What is being read, for the handler.
std::string reading;

void too_slow(int) {
  for (const std::string_view text :
       {std::string_view(reading), std::string_view(" takes 20 seconds or more\n")})
    if (::write(STDERR_FILENO, text.data(), text.size()) < 0) break;
  ::_exit(1);
}

/// As tools/fuzz bounds it: 20 seconds, and for pictures 2 GB, else a few megabytes. (Here 500: an allocator
/// takes its memory in larger pieces than are asked for.)
class Bounds {
 public:
  explicit Bounds(const Target& target) {
    torch::set_num_threads(1);
    ::mallopt(M_ARENA_MAX, 1);  // threads of a decoder would reserve 64 MB each
    ::signal(SIGALRM, too_slow);
#if !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)  // their shadows are larger than any bound
    rlim_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const bool picture = target.name == "image" || target.name == "image_full";
    ::getrlimit(RLIMIT_AS, &before_);
    rlimit now = before_;
    now.rlim_cur =
        pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) + (picture ? 2'500'000'000 : 500'000'000);
    if (pages > 0 && now.rlim_cur < before_.rlim_cur) ::setrlimit(RLIMIT_AS, &now);
#endif
  }
  ~Bounds() {
    ::signal(SIGALRM, SIG_DFL);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    ::setrlimit(RLIMIT_AS, &before_);
#endif
  }
  Bounds(const Bounds&) = delete;
  Bounds& operator=(const Bounds&) = delete;

 private:
  rlimit before_{};
};

std::string run_bounded(const Target& target, std::span<const std::byte> bytes, const std::string& what) {
  reading = target.name + " " + what;
  ::alarm(20);
  auto wrong = run(target, bytes);
  ::alarm(0);
  return wrong;
}

class Corpus : public ::testing::TestWithParam<Target> {};

TEST_P(Corpus, EveryFileEndsInAValueOrALine) {
  const auto& target = GetParam();
  const auto folder = fs::path(EBCLR_FUZZ_CORPUS) / target.name;
  ASSERT_TRUE(fs::is_directory(folder)) << folder << " holds the seeds of this target";
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(folder)) paths.push_back(entry.path());
  // Pictures of every format that the decoder knows.
  if (target.name.starts_with("image") && target.name != "image_list")
    for (const auto& entry : fs::directory_iterator(EBCLR_PICTURES))
      if (entry.is_regular_file() && entry.file_size() <= 4096) paths.push_back(entry.path());
  // What a long search has learned (tools/fuzz), when there was one.
  std::error_code ec;
  if (const char* more = std::getenv("EBCLR_FUZZ_MORE"))
    for (const auto& entry : fs::directory_iterator(fs::path(more) / target.name, ec))
      paths.push_back(entry.path());
  int files = 0, values = 0;
  const Bounds bounds(target);
  for (const auto& path : paths) {
    const auto bytes = core::read_bytes(path, "test");
    EXPECT_EQ(run_bounded(target, bytes, path.string()), "") << path;
    ++files;
    try {
      target.read(bytes);
      ++values;
    } catch (const std::exception&) {
    }
    // Every prefix of a small one, and every one with a byte changed.
    if (bytes.size() > 400) continue;
    for (size_t n = 0; n < bytes.size(); n += 1 + bytes.size() / 40) {
      EXPECT_EQ(run_bounded(target, {bytes.data(), n}, path.string()), "") << path << " cut at " << n;
      auto changed = bytes;
      changed[n] ^= std::byte{0x5a};
      EXPECT_EQ(run_bounded(target, changed, path.string()), "") << path << " changed at " << n;
    }
  }
  EXPECT_GE(files, 2);
  EXPECT_GE(values, 1) << "at least one seed must be a good file";
}

// Well-formed all through, so that a parser accepts it and whoever copies or writes the value meets its
// depth.
TEST_P(Corpus, NestingTakesNoStack) {
  constexpr int kDepth = 100000;
  const auto repeated = [](const std::string& part) {
    std::string out;
    for (int i = 0; i < kDepth; ++i) out += part;
    return out;
  };
  const std::string lists = repeated("[") + repeated("]"), maps = repeated("{\"a\":") + "1" + repeated("}");
  const Bounds bounds(GetParam());
  for (const auto& deep : {lists, maps})
    for (const char* frame :
         {"%", "{\"finished\":%}", "{\"judge\":\"knn\",\"points\":%}", "{\"format\":%,\"position\":{}}",
          "{\"format\":1,\"position\":{},\"small\":%}", "{\"classes\":%}", "{\"config\":%}"}) {
      std::string text = frame;
      text.replace(text.find('%'), 1, deep);
      EXPECT_EQ(run_bounded(GetParam(), std::as_bytes(std::span(text)), frame), "") << frame;
    }
}

INSTANTIATE_TEST_SUITE_P(Readers, Corpus, ::testing::ValuesIn(targets()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace ebclr::fuzz
