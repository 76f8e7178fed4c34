// Training by several processes: each rank is this program once more, started with the environment that a
// launcher would leave, and does the jobs that a file lists.

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include <fstream>
#include <set>

#include "core/files.h"
#include "data/catalog.h"
#include "dist/launch.h"
#include "temp_dir.h"
#include "train/trainer.h"

namespace ebclr::train {
namespace {
namespace fs = std::filesystem;

// One training: its folder, what it is, whether it goes on, after how many steps it stops (0: never).
struct RankJob {
  std::string folder, setting;
  bool resume = false;
  int64_t stop_after = 0;
};

// All five methods, and what else takes another path through the exchange.
const std::vector<std::pair<std::string, run::Layer>>& settings() {
  static const std::vector<std::pair<std::string, run::Layer>> list = {
      {"ebclr", {"test", {{"method.name", "ebclr"}}}},
      {"simclr", {"test", {{"method.name", "simclr"}}}},
      {"moco", {"test", {{"method.name", "moco"}, {"moco.symmetric", "true"}}}},
      {"simsiam", {"test", {{"method.name", "simsiam"}}}},
      {"byol", {"test", {{"method.name", "byol"}}}},
      {"yopo",
       {"test",
        {{"method.name", "ebclr"},
         {"sampler.kind", "yopo"},
         {"sampler.outer", "2"},
         {"sampler.chains", "0.6"},
         {"buffer.dtype", "float16"},
         {"buffer.proposal", "uniform"}}}},
      // Chains that follow the gradient through BatchNorm amplify rounding most: with shorter steps, less.
      {"ebclr_batch_norm",
       {"test", {{"method.name", "ebclr"}, {"encoder.norm", "batch"}, {"sampler.step_size", "0.002"}}}}};
  return list;
}

run::Config rank_config(const std::string& setting) {
  run::Layer base{"test",
                  {{"data.source", "shapes"},
                   {"encoder.width", "8"},
                   {"head.out", "16"},
                   {"head.hidden", "32"},
                   {"buffer.size", "45"},
                   {"sampler.steps", "2"},
                   {"moco.queue", "25"},
                   {"simsiam.predictor_hidden", "8"},
                   {"byol.predictor_hidden", "16"},
                   {"train.batch_size", "10"},  // shares of 2 and 3 for four ranks
                   {"train.epochs", "4"},
                   {"log.samples_every", "2"}}};
  // BatchNorm over ten images makes ten out of one of rounding's errors with each step of the usual length,
  // and ReLU turns those near zero into other gradients: the two engines, too, part within five steps then.
  const run::Layer gentle{"test", {{"encoder.activation", "leaky_relu"}, {"optimizer.lr", "1e-5"}}};
  for (const auto& [name, layer] : settings())
    if (name == setting)
      return run::resolve({base, layer, name == "ebclr" || name == "yopo" ? run::Layer{"test", {}} : gentle});
  throw std::runtime_error("unknown setting " + setting);
}

struct LossWriter : Observer {
  std::ofstream out;
  std::atomic<bool> stop{false};
  int64_t stop_after = 0;
  void on_step(const StepReport& r) override {
    out << std::hexfloat << r.loss << ' ' << r.grad_norm << std::endl;
    if (stop_after > 0 && r.position.step >= stop_after) stop = true;
  }
};

void perform(const RankJob& job, const std::shared_ptr<dist::Group>& ranks) {
  static const auto images =
      std::make_shared<const data::ImageSet>(data::load({.source = "shapes", .limit = 55}).train);
  LossWriter watcher;
  watcher.stop_after = job.stop_after;
  if (ranks->rank() == 0) watcher.out.open(job.folder + ".losses", std::ios::app);
  Trainer trainer(
      {.folder = {job.folder}, .config = rank_config(job.setting), .resume = job.resume, .ranks = ranks},
      images, watcher);
  trainer.run(watcher.stop);
}

// The other half of this file: one rank of a test below. It is no test of its own.
TEST(RankWorker, DISABLED_Jobs) {
  const auto launch = dist::find_launch(dist::process_environment());
  ASSERT_TRUE(launch.has_value());
  at::set_num_threads(1);
  const auto ranks = dist::connect(*launch, {.join = 120, .silence = 60});
  std::ifstream jobs(std::getenv("EBCLR_RANK_JOBS"));
  for (RankJob job; jobs >> job.folder >> job.setting >> job.resume >> job.stop_after;) perform(job, ranks);
}

int free_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in a{.sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
  socklen_t length = sizeof a;
  EXPECT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&a), sizeof a), 0);
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&a), &length);
  ::close(fd);
  return ntohs(a.sin_port);
}

// Does the jobs one after the other, by so many ranks.
void run_ranks(int world, const std::vector<RankJob>& jobs, const fs::path& folder) {
  if (world == 1) {
    for (const auto& job : jobs) perform(job, dist::solo());
    return;
  }
  const auto list = folder / ("jobs" + std::to_string(world));
  std::ofstream out(list);
  for (const auto& j : jobs)
    out << j.folder << ' ' << j.setting << ' ' << j.resume << ' ' << j.stop_after << '\n';
  out.close();
  const std::string port = std::to_string(free_port());
  std::vector<pid_t> pids;
  for (int rank = 0; rank < world; ++rank) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::setenv("RANK", std::to_string(rank).c_str(), 1);
      ::setenv("WORLD_SIZE", std::to_string(world).c_str(), 1);
      ::setenv("MASTER_ADDR", "127.0.0.1", 1);
      ::setenv("MASTER_PORT", port.c_str(), 1);
      ::setenv("OMP_NUM_THREADS", "1", 1);
      ::setenv("EBCLR_RANK_JOBS", list.c_str(), 1);
      if (::freopen((folder / fmt::format("rank{}of{}.txt", rank, world)).c_str(), "w", stdout) != nullptr)
        ::dup2(1, 2);
      ::execl("/proc/self/exe", "train_test", "--gtest_also_run_disabled_tests",
              "--gtest_filter=RankWorker.*", nullptr);
      ::_exit(127);
    }
    pids.push_back(pid);
  }
  for (int rank = 0; rank < world; ++rank) {
    int status = 0;
    ::waitpid(pids[static_cast<size_t>(rank)], &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
        << core::read_text(folder / fmt::format("rank{}of{}.txt", rank, world), "test");
  }
}

struct Steps {
  std::vector<double> losses = {}, norms = {};  // norms of the gradient
};

Steps steps_of(const fs::path& folder) {
  std::ifstream in(folder.string() + ".losses");
  Steps out;
  for (std::string loss, norm; in >> loss >> norm;) {
    out.losses.push_back(std::strtod(loss.c_str(), nullptr));
    out.norms.push_back(std::strtod(norm.c_str(), nullptr));
  }
  return out;
}

void expect_near(const Steps& got, const Steps& want, const std::string& what) {
  const size_t steps = want.losses.size();
  ASSERT_EQ(got.losses.size(), steps) << what;
  for (size_t i = 0; i < steps; ++i)
    EXPECT_NEAR(got.losses[i], want.losses[i], 1e-4 * std::max(1.0, std::abs(want.losses[i])))
        << what << ", step " << i + 1;
  // The first gradient is of the same weights; later ones show what training makes of rounding.
  EXPECT_NEAR(got.norms[0], want.norms[0], 1e-3 * want.norms[0]) << what;
  for (size_t i = 1; i < steps; ++i)
    EXPECT_NEAR(got.norms[i], want.norms[i], 2e-2 * want.norms[i]) << what << ", step " << i + 1;
}

std::string newest_bytes(const fs::path& folder) {
  const auto files = run::list_checkpoints(run::RunFolder{folder}.checkpoints());
  if (files.empty()) return "nothing";
  std::string bytes = core::read_text(files.back().path, "test");
  for (const auto& path : files.back().buffer) bytes += core::read_text(path, "test");
  return bytes;
}

// The number of ranks changes neither losses nor chains; a run goes on with any number of them.
TEST(Ranks, SameTrainingOnOneTwoAndFour) {
  testing::TempDir dir;
  const auto at = [&](const std::string& name) { return (dir / name).string(); };
  std::vector<RankJob> one, two, four, three;
  for (const auto& [name, layer] : settings()) {
    const int64_t stop = name == "ebclr_batch_norm" ? 3 : 0;
    one.push_back({.folder = at(name + "-1"), .setting = name, .stop_after = stop});
    two.push_back({.folder = at(name + "-2"), .setting = name, .stop_after = stop});
    four.push_back({.folder = at(name + "-4"), .setting = name, .stop_after = stop});
  }
  for (const char* ranks : {"1", "2", "3", "4"})
    four.push_back({.folder = at(std::string("cut-") + ranks), .setting = "ebclr", .stop_after = 7});
  four.push_back({.folder = at("cut-4"), .setting = "ebclr", .resume = true});
  two.push_back({.folder = at("cut-2"), .setting = "ebclr", .resume = true});
  three.push_back({.folder = at("cut-3"), .setting = "ebclr", .resume = true});
  one.push_back({.folder = at("cut-1"), .setting = "ebclr", .resume = true});
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  run_ranks(4, four, dir.path());
  run_ranks(2, two, dir.path());
  run_ranks(3, three, dir.path());
  run_ranks(1, one, dir.path());
  at::set_num_threads(threads);

  for (const auto& [name, layer] : settings()) {
    const auto want = steps_of(at(name + "-1"));
    ASSERT_EQ(want.losses.size(), name == "ebclr_batch_norm" ? 3u : 20u) << name;
    EXPECT_GT(std::abs(want.losses.front() - want.losses.back()), 1e-3)
        << name << " sees the same batch again";
    expect_near(steps_of(at(name + "-2")), want, name + " on 2 ranks");
    expect_near(steps_of(at(name + "-4")), want, name + " on 4 ranks");
  }
  const auto want = steps_of(at("ebclr-4"));
  for (const char* ranks : {"1", "2", "3", "4"})
    expect_near(steps_of(at(std::string("cut-") + ranks)), want,
                std::string("cut on 4 ranks, resumed on ") + ranks);
  // With the same ranks and threads to the last byte.
  EXPECT_TRUE(newest_bytes(at("cut-4")) == newest_bytes(at("ebclr-4")));

  // Four parts of the newest two states, nothing left of the older ones.
  const auto files = run::list_checkpoints(run::RunFolder{at("ebclr-4")}.checkpoints());
  size_t whole = 0;
  std::set<fs::path> parts;
  for (const auto& f : files) {
    EXPECT_TRUE(f.buffer.empty() || f.buffer.size() == 4) << f.path;
    whole += !f.buffer.empty();
    parts.insert(f.buffer.begin(), f.buffer.end());
  }
  EXPECT_GE(whole, 2u);
  for (const auto& entry : fs::directory_iterator(run::RunFolder{at("ebclr-4")}.checkpoints()))
    EXPECT_TRUE(!entry.path().filename().string().starts_with("buffer-") || parts.contains(entry.path()))
        << entry.path();
  EXPECT_EQ(run::Run::open(at("ebclr-4")).newest_buffer().at("chains", "test").size(0), 45);
  // Chains, too, are the same.
  const auto alone = run::Run::open(at("ebclr-1")).newest_buffer(),
             shared = run::Run::open(at("ebclr-4")).newest_buffer();
  EXPECT_TRUE(torch::equal(alone.at("counts", "test"), shared.at("counts", "test")));
  EXPECT_LT((alone.at("chains", "test") - shared.at("chains", "test")).abs().max().item<double>(), 1e-2);
}

}  // namespace
}  // namespace ebclr::train
