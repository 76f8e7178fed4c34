#include "bench/onnxruntime_bench.h"

#include <ATen/Parallel.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "core/error.h"
#include "core/files.h"
#include "engine/engine.h"
#include "export/export.h"

extern char** environ;

namespace ebclr::bench {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kOrtComponent = "bench";

// Answers each line with the seconds of one run; the first answer is the version, the second the features.
constexpr const char* kScript = R"js(
const fs = require('fs');
const [modules, file, input, output, threads, ...dims] = process.argv.slice(2);
const ort = require(modules + '/onnxruntime-node');
const version = require(modules + '/onnxruntime-node/package.json').version;
(async () => {
  const session = await ort.InferenceSession.create(file,
      {intraOpNumThreads: Number(threads), interOpNumThreads: 1, graphOptimizationLevel: 'all'});
  const bytes = new Uint8Array(fs.readFileSync(input));
  const feeds = {images: new ort.Tensor('float32', new Float32Array(bytes.buffer), dims.map(Number))};
  const result = (await session.run(feeds)).features;
  fs.writeFileSync(output, Buffer.from(result.data.buffer, result.data.byteOffset, result.data.byteLength));
  process.stdout.write(version + '\n');
  for await (const line of require('readline').createInterface({input: process.stdin})) {
    const start = process.hrtime.bigint();
    await session.run(feeds);
    process.stdout.write(Number(process.hrtime.bigint() - start) * 1e-9 + '\n');
  }
})().catch(e => { process.stderr.write(String(e) + '\n'); process.exit(1); });
)js";

/// Another program with its input and output in our hands.
class Child {
 public:
  explicit Child(const std::vector<std::string>& words) {
    int in[2], out[2];
    if (::pipe2(in, O_CLOEXEC) != 0 || ::pipe2(out, O_CLOEXEC) != 0)
      core::run_error(kOrtComponent, "no pipe to another program");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], 0);
    posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    std::vector<char*> argv;
    for (const auto& w : words) argv.push_back(const_cast<char*>(w.c_str()));
    argv.push_back(nullptr);
    const int failed = ::posix_spawnp(&pid_, argv[0], &actions, nullptr, argv.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    ::close(in[0]);
    ::close(out[1]);
    to_ = ::fdopen(in[1], "w");
    from_ = ::fdopen(out[0], "r");
    if (failed) {
      pid_ = -1;
      core::usage_error(kOrtComponent,
                        fmt::format("{} cannot be started; install it (Debian: nodejs)", words[0]));
    }
  }
  ~Child() {
    if (to_) std::fclose(to_);  // the end of its input ends it
    if (from_) std::fclose(from_);
    int status = 0;
    if (pid_ > 0) ::waitpid(pid_, &status, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  void say(const char* line) {
    std::fputs(line, to_);
    std::fflush(to_);
  }
  std::string line() {
    char text[256];
    if (!std::fgets(text, sizeof text, from_))
      core::run_error(kOrtComponent, "ONNX Runtime gave up; what it said is above");
    text[std::strcspn(text, "\n")] = 0;
    return text;
  }

 private:
  pid_t pid_ = -1;
  FILE *to_ = nullptr, *from_ = nullptr;
};

/// A folder that is gone afterwards.
struct Scratch {
  fs::path path;
  Scratch() {
    std::string pattern = (fs::temp_directory_path() / "ebclr-ort-XXXXXX").string();
    if (!::mkdtemp(pattern.data())) core::run_error(kOrtComponent, "no temporary folder");
    path = pattern;
  }
  ~Scratch() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
};

Timing summary(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  return {seconds.front(), seconds[seconds.size() / 2]};
}

}  // namespace

fs::path find_onnxruntime(const fs::path& given) {
  std::vector<fs::path> places;
  if (!given.empty()) {
    places.push_back(given);
  } else {
    if (const char* e = std::getenv("EBCLR_ONNXRUNTIME")) places.emplace_back(e);
    if (const char* home = std::getenv("HOME"))
      places.push_back(fs::path(home) / ".cache" / "ebclr" / "judges" / "node_modules");
  }
  for (const auto& p : places)
    for (const auto& q : {p, p / "node_modules"})
      if (fs::exists(q / "onnxruntime-node" / "package.json")) return fs::absolute(q);
  core::usage_error(kOrtComponent, "no ONNX Runtime; get it with: tools/install-deps --judges");
}

OnnxRuntimeBench bench_onnxruntime(const BenchOptions& o, const fs::path& modules) {
  torch::NoGradGuard no_grad;
  OnnxRuntimeBench bench{.options = o};
  bench.threads = o.threads > 0 ? o.threads : at::get_num_threads();
  nn::EncoderOptions options{.width = o.width, .channels = o.channels};
  if (o.batch_norm) options.norm = nn::Norm::kBatch;
  nn::Encoder encoder(options, 1);
  nn::Head head({.in = encoder.feature_dim()}, 1);
  encoder.eval();
  engine::attach(
      encoder, {.engine = engine::Engine::kNative, .threads = bench.threads, .instructions = o.instructions});
  Scratch scratch;
  const auto file = scratch.path / "encoder.onnx", in = scratch.path / "in.raw",
             out = scratch.path / "out.raw";
  core::write_atomically(file, exporting::to_onnx({encoder, head}, {}), kOrtComponent);
  torch::manual_seed(0);
  const auto x = torch::rand({o.batch, o.channels, o.size, o.size}) * 2 - 1;
  std::ofstream(in, std::ios::binary)
      .write(static_cast<const char*>(x.data_ptr()), static_cast<std::streamsize>(x.nbytes()));
  core::write_atomically(scratch.path / "run.js", kScript, kOrtComponent);

  Child child({"node", (scratch.path / "run.js").string(), modules.string(), file.string(), in.string(),
               out.string(), std::to_string(bench.threads), std::to_string(o.batch),
               std::to_string(o.channels), std::to_string(o.size), std::to_string(o.size)});
  bench.version = child.line();
  const auto ours = encoder.forward(x);
  const auto bytes = core::read_bytes(out, kOrtComponent);
  if (bytes.size() != ours.nbytes()) core::run_error(kOrtComponent, "ONNX Runtime computed another shape");
  const auto theirs = torch::from_blob(const_cast<std::byte*>(bytes.data()), ours.sizes());
  bench.error = ((ours - theirs).abs().max() / ours.abs().max()).item<double>();
  if (!(bench.error < 1e-3))
    core::run_error(
        kOrtComponent,
        fmt::format("ONNX Runtime's features differ from ours by {:.1e}; nothing was timed", bench.error));

  // In turn, with a pause in which the other's waiting threads fall asleep.
  constexpr auto pause = std::chrono::milliseconds(60);
  std::vector<double> mine, its;
  for (int i = 0; i < o.warmup + o.repeats; ++i) {
    std::this_thread::sleep_for(pause);
    const auto start = std::chrono::steady_clock::now();
    encoder.forward(x);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    std::this_thread::sleep_for(pause);
    child.say("run\n");
    const double answer = std::stod(child.line());
    if (i < o.warmup) continue;
    mine.push_back(seconds);
    its.push_back(answer);
  }
  bench.native = summary(mine);
  bench.theirs = summary(its);
  return bench;
}

nlohmann::json to_json(const std::vector<OnnxRuntimeBench>& results) {
  nlohmann::json list = nlohmann::json::array();
  for (const auto& b : results) {
    const double n = static_cast<double>(b.options.batch);
    list.push_back(
        {{"bench", "embed against ONNX Runtime"},
         {"version", b.version},
         {"batch", b.options.batch},
         {"width", b.options.width},
         {"size", b.options.size},
         {"channels", b.options.channels},
         {"threads", b.threads},
         {"ms_per_image", {{"native", b.native.min * 1e3 / n}, {"onnxruntime", b.theirs.min * 1e3 / n}}},
         {"ms_per_image_median",
          {{"native", b.native.median * 1e3 / n}, {"onnxruntime", b.theirs.median * 1e3 / n}}},
         {"ratio", b.ratio()},
         {"ratio_median", b.theirs.median / b.native.median},
         {"difference", b.error}});
  }
  return list;
}

}  // namespace ebclr::bench
