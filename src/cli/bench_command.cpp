#include "cli/bench_command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>

#include "bench/compare.h"
#include "bench/engine_bench.h"
#include "bench/onnxruntime_bench.h"
#include "bench/ranks_bench.h"
#include "cli/bench_index.h"
#include "cli/runtime.h"
#include "core/error.h"
#include "core/files.h"
#include "data/speed.h"
#include "eval/knn.h"
#include "methods/method.h"

namespace ebclr::cli {
namespace {

using bench::BenchOptions;
using bench::EngineBench;

struct BenchArgs {
  std::vector<std::string> methods = {"ebclr"};
  std::vector<int64_t> batches = {64}, widths = {64};
  std::vector<std::string> images = {"32x3"};
  std::string norm = "none", instructions, stem = "cifar", against;
  int64_t yopo_inner = 0;
  int cut = 0;
  double chains = 0;
  bool channels_last = false;
  int64_t sgld_steps = 10;
  int repeats = 3, warmup = 1;
  bool json = false;
  int64_t train = 50000, queries = 10000, dimensions = 512;
  double seconds = 2;
  std::string torchvision_script, decode_script, folder;
  int decode_size = 128;
  int64_t limit = 600;
  int ranks = 2, timed = 3;
  std::string through, master = "127.0.0.1", scratch;
  bool onnxruntime = false;
  std::string precision = "float";
  bench::EnergyOptions energies;
  RuntimeOptions runtime;
};

// "32x3" is 32 pixels a side with 3 channels.
std::pair<int64_t, int64_t> parse_image(const std::string& text) {
  int64_t size = 0, channels = 0;
  char rest = 0;
  if (std::sscanf(text.c_str(), "%ldx%ld%c", &size, &channels, &rest) != 2 || size < 16 ||
      (channels != 1 && channels != 3))
    throw CLI::ValidationError("--image",
                               fmt::format("'{}': expected SIZExCHANNELS, e.g. 32x3 or 28x1", text));
  return {size, channels};
}

// One row of a table.
BenchOptions row_of(const BenchArgs& a, const std::string& method, const std::string& image, int64_t width,
                    int64_t batch) {
  const auto [size, channels] = parse_image(image);
  return {.method = method,
          // The rivals run with BatchNorm unless told otherwise, as they are used.
          .batch_norm = a.norm == "batch" || (a.norm == "auto" && method != "ebclr"),
          .batch = batch,
          .width = width,
          .size = size,
          .channels = channels,
          .stem = a.stem,
          .sgld_steps = a.sgld_steps,
          .yopo_inner = a.yopo_inner,
          .cut = a.cut,
          .chains = method == "ebclr" ? a.chains : 0,
          .channels_last = a.channels_last,
          .warmup = a.warmup,
          .repeats = a.repeats,
          .instructions = a.instructions};
}

// Those that learn from images alone: made-up ones have no labels.
std::vector<std::string> measurable_methods() {
  auto names = methods::method_names();
  std::erase(names, methods::kSupervised);
  return names;
}

// Every combination that was asked for.
std::vector<BenchOptions> combinations(const BenchArgs& a, bool with_methods) {
  std::vector<BenchOptions> out;
  auto methods = with_methods ? a.methods : std::vector<std::string>{"ebclr"};
  const bool all = methods == std::vector<std::string>{"all"};
  if (all) methods = measurable_methods();
  for (const auto& method : methods)
    for (const auto& image : a.images)
      for (int64_t width : a.widths)
        for (int64_t batch : a.batches) {
          out.push_back(row_of(a, method, image, width, batch));
          if (all && method == "simclr" && out.back().batch_norm) {
            // EBCLR with lambda 0: what a step of `fast` is held against.
            out.push_back(out.back());
            out.back().label = "lambda 0";
            out.back().batch_norm = false;
          }
          if (!all || method != "ebclr") continue;
          // As configs/fast: one chain for eight images, five steps.
          out.push_back(out.back());
          out.back().label = "fast";
          out.back().chains = 0.125;
          out.back().sgld_steps = 5;
        }
  return out;
}

void print_json(const nlohmann::ordered_json& rows) {
  fmt::print("{}\n", rows.dump(2));
}

void print(const std::vector<EngineBench>& results, bool json) {
  if (json) {
    fmt::print("{}\n", bench::to_json(results).dump(2));
    return;
  }
  fmt::print("libtorch {}, {}\n", bench::torch_version(), bench::engine_name(results.front().options));
  fmt::print("{:<8} {:<8} {:>5} {:>5} {:>6} {:>5}  {:>22} {:>15} {:>9} {:>7} {:>8} {:>9}\n", "bench",
             "method", "norm", "batch", "width", "image", "ms/image released", "lean", "native", "x rel.",
             "x lean", "img/s");
  for (const auto& b : results) {
    const auto& o = b.options;
    fmt::print(
        "{:<8} {:<8} {:>5} {:>5} {:>6} {:>5}  {:>22.2f} {:>15.2f} {:>9.2f} {:>7.2f} {:>8.2f} {:>9.1f}\n",
        b.what, o.label.empty() ? o.method : o.label, o.batch_norm ? "batch" : "none", o.batch, o.width,
        fmt::format("{}x{}", o.size, o.channels), b.ms_per_image(b.released), b.ms_per_image(b.lean),
        b.ms_per_image(b.native), b.ratio_released(), b.ratio_lean(), 1e3 / b.ms_per_image(b.native));
    fmt::print(
        "{:<8} medians: released {:.2f}, lean {:.2f}, native {:.2f}; {:.0f} % of {:.0f} GFLOPS as if direct, "
        "{:.0f} % of Winograd's floor; error {:.1e}\n",
        "", b.released.median * 1e3 / static_cast<double>(o.batch),
        b.lean.median * 1e3 / static_cast<double>(o.batch),
        b.native.median * 1e3 / static_cast<double>(o.batch), 100 * b.peak_share(), b.peak_flops / 1e9,
        100 * b.floor_share(), b.error);
  }
}

void print_precision(const std::vector<bench::PrecisionBench>& results, bool json) {
  if (json) {
    fmt::print("{}\n", bench::to_json(results).dump(2));
    return;
  }
  fmt::print("{}\n", bench::engine_name(results.front().options));
  for (const auto& b : results) {
    const auto per_image = [&](double seconds) {
      return seconds * 1e3 / static_cast<double>(b.options.batch);
    };
    fmt::print(
        "width {}, batch {}, {} steps: float {:.3f} ms/image, bfloat16 {:.3f}, x {:.2f}; medians {:.3f}, "
        "{:.3f}, x {:.2f}\n",
        b.options.width, b.options.batch, b.options.sgld_steps, per_image(b.single.min),
        per_image(b.coarse.min), b.single.min / b.coarse.min, per_image(b.single.median),
        per_image(b.coarse.median), b.single.median / b.coarse.median);
    for (const auto& c : b.chains)
      fmt::print(
          "  energies after {} steps: float {:.4f} (sd {:.4f}), bfloat16 {:.4f} (sd {:.4f}), KS {:.3f}; "
          "float "
          "with other noise {:.4f} (sd {:.4f}), KS {:.3f}\n",
          c.steps, c.single.mean, c.single.sd, c.coarse.mean, c.coarse.sd, c.ks, c.other.mean, c.other.sd,
          c.ks_other);
  }
}

void print_conv(const std::vector<bench::ConvBench>& results, bool json) {
  if (json) {
    fmt::print("{}\n", bench::to_json(results).dump(2));
    return;
  }
  fmt::print("{:<16} {:<8} {:>12} {:>12} {:>7} {:>10} {:>9}\n", "layer", "pass", "torch ms/img", "native",
             "ratio", "of floor", "error");
  for (const auto& r : results) {
    const double n = static_cast<double>(r.batch);
    fmt::print("{:<16} {:<8} {:>12.3f} {:>12.3f} {:>7.2f} {:>8.0f} % {:>9.1e}\n", r.layer, r.pass,
               r.torch.min * 1e3 / n, r.native.min * 1e3 / n, r.torch.min / r.native.min,
               100 * r.floor_flops / (r.native.min * r.peak_flops), r.error);
  }
}

// Prints unless it is asked for JSON; the rows come back either way.
nlohmann::ordered_json run_augment(const BenchArgs& a, int threads) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  const auto torchvision =
      a.torchvision_script.empty() ? std::nullopt : data::bench_torchvision(a.torchvision_script, a.seconds);
  for (const auto& [name, channels, size] :
       {std::tuple{"colour 32x32", int64_t{3}, int64_t{32}}, {"grey 28x28", int64_t{1}, int64_t{28}}}) {
    const auto s = data::bench_augment(channels, size, {}, threads, a.seconds);
    nlohmann::ordered_json row = {{"bench", "augment"},
                                  {"images", name},
                                  {"views_per_second_per_core", s.per_core},
                                  {"views_per_second_pool", s.pool},
                                  {"threads", s.threads}};
    if (torchvision)
      row["torchvision_per_core"] = channels == 3 ? torchvision->colour32 : torchvision->gray28;
    list.push_back(row);
    if (!a.json) {
      fmt::print("views of {}: {:.0f} per second and core, {:.0f} per second with the pool of {} threads",
                 name, s.per_core, s.pool, s.threads);
      if (torchvision)
        fmt::print("; torchvision {} {:.0f} ({:.1f}x)", torchvision->version,
                   channels == 3 ? torchvision->colour32 : torchvision->gray28,
                   s.per_core / (channels == 3 ? torchvision->colour32 : torchvision->gray28));
      fmt::print("\n");
    }
  }
  return list;
}

nlohmann::ordered_json run_knn(const BenchArgs& a) {
  torch::manual_seed(0);
  const auto train = torch::randn({a.train, a.dimensions}), queries = torch::randn({a.queries, a.dimensions});
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const std::string protocol : {"paper", "dino"}) {
    const auto options = eval::knn_protocol(protocol);
    const auto r = eval::bench_knn(train, queries, options, a.repeats);
    const char* name = protocol == "paper" ? "L2, K 20" : "cosine, K 20";
    list.push_back({{"bench", "knn"},
                    {"search", name},
                    {"train", a.train},
                    {"queries", a.queries},
                    {"dimensions", a.dimensions},
                    {"ours_seconds", r.ours_seconds},
                    {"same_neighbours", r.same_neighbours},
                    {"block_bytes", r.block_bytes}});
    if (r.faiss_seconds) {
      list.back()["faiss_seconds"] = *r.faiss_seconds;
      list.back()["ratio"] = *r.faiss_seconds / r.ours_seconds;
    }
    const auto faiss = r.faiss_seconds ? fmt::format("FAISS flat {:.2f} s ({:.2f}x)", *r.faiss_seconds,
                                                     *r.faiss_seconds / r.ours_seconds)
                                       : std::string("built without FAISS");
    if (!a.json)
      fmt::print(
          "{}: {} queries in {} x {}: ours {:.2f} s, {}; same neighbours {:.4f} %; {} beyond the features\n",
          name, a.queries, a.train, a.dimensions, r.ours_seconds, faiss, 100 * r.same_neighbours,
          core::human_bytes(r.block_bytes));
  }
  return list;
}

void run_decode(const BenchArgs& a) {
  int64_t images = 0;
  const auto rows = data::bench_decode(a.folder, a.decode_size, a.limit, a.decode_script, images);
  if (a.json) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const auto& r : rows)
      list.push_back({{"bench", "decode"},
                      {"way", r.name},
                      {"images", images},
                      {"size", a.decode_size},
                      {"images_per_second_per_core",
                       r.per_second > 0 ? nlohmann::ordered_json(r.per_second) : nullptr}});
    print_json(list);
    return;
  }
  fmt::print("{} pictures to {} pixels, images per second of processor time:\n", images, a.decode_size);
  for (const auto& r : rows) {
    if (r.per_second > 0)
      fmt::print("  {:<32} {:>8.0f}  {:.2f}x\n", r.name, r.per_second,
                 r.per_second / rows.front().per_second);
    else
      fmt::print("  {}: not measured, the python3 of this PATH has no such module\n", r.name);
  }
}

void run_onnxruntime(const BenchArgs& a) {
  const auto modules = bench::find_onnxruntime({});
  std::vector<bench::OnnxRuntimeBench> results;
  for (const auto& o : combinations(a, false)) results.push_back(bench::bench_onnxruntime(o, modules));
  if (a.json) {
    fmt::print("{}\n", bench::to_json(results).dump(2));
    return;
  }
  for (const auto& r : results) {
    const double n = static_cast<double>(r.options.batch);
    fmt::print(
        "width {}, batch {}, {}x{}: ours {:.3f} ms/image, ONNX Runtime {} {:.3f} ({:.2f}x; medians {:.3f} "
        "and {:.3f}); "
        "{} threads, features differ by {:.1e}\n",
        r.options.width, r.options.batch, r.options.size, r.options.channels, r.native.min * 1e3 / n,
        r.version, r.theirs.min * 1e3 / n, r.ratio(), r.native.median * 1e3 / n, r.theirs.median * 1e3 / n,
        r.threads, r.error);
  }
}

std::vector<EngineBench> measure(const BenchArgs& a, EngineBench (*bench)(const BenchOptions&),
                                 bool with_methods) {
  std::vector<EngineBench> results;
  for (const auto& o : combinations(a, with_methods)) results.push_back(bench(o));
  return results;
}

// What `bench step` of this or another build has to be told for one turn of these measurements.
std::vector<std::string> turn_options(const BenchArgs& a) {
  std::vector<std::string> options = {"--method",  fmt::format("{}", fmt::join(a.methods, ",")),
                                      "--batch",   fmt::format("{}", fmt::join(a.batches, ",")),
                                      "--width",   fmt::format("{}", fmt::join(a.widths, ",")),
                                      "--image",   fmt::format("{}", fmt::join(a.images, ",")),
                                      "--norm",    a.norm,
                                      "--steps",   std::to_string(a.sgld_steps),
                                      "--warmup",  std::to_string(a.warmup),
                                      "--repeats", "1"};
  if (!a.instructions.empty()) options.insert(options.end(), {"--isa", a.instructions});
  if (a.stem != "cifar") options.insert(options.end(), {"--stem", a.stem});
  if (a.chains != 0) options.insert(options.end(), {"--chains", fmt::format("{}", a.chains)});
  if (a.runtime.threads > 0) options.insert(options.end(), {"--threads", std::to_string(a.runtime.threads)});
  return options;
}

void print_comparison(const BenchArgs& a, const nlohmann::json& before, const nlohmann::json& now) {
  const auto rows = bench::compare(before, now);
  if (rows.empty()) fmt::print("{} has none of these rows\n", a.against);
  for (const auto& r : rows)
    fmt::print("{}: native {:.2f} -> {:.2f} ms/image, libtorch's own time x{:.2f}: {:+.0f} % ({})\n", r.row,
               r.before, r.now, r.machine, 100 * r.change(),
               r.slower()   ? "SLOWER, beyond noise"
               : r.faster() ? "faster"
                            : fmt::format("within noise of {:.0f} %", 100 * r.noise));
}

// Two builds in turns, each as a process of its own; who begins changes from turn to turn, so that a machine
// that becomes slower favours nobody.
void run_against_program(const BenchArgs& a) {
  const auto self = std::filesystem::read_symlink("/proc/self/exe").string();
  const auto options = turn_options(a);
  std::vector<nlohmann::json> before, now;
  for (int turn = 0; turn < a.repeats; ++turn) {
    if (turn % 2 == 0) before.push_back(bench::results_of(a.against, options));
    now.push_back(bench::results_of(self, options));
    if (turn % 2 == 1) before.push_back(bench::results_of(a.against, options));
  }
  const auto then = bench::merge(before), ours = bench::merge(now);
  if (a.json) {
    fmt::print("{}\n", nlohmann::json{{"before", then}, {"now", ours}}.dump(2));
  } else {
    print_comparison(a, then, ours);
  }
}

void run_step(const BenchArgs& a) {
  if (!a.against.empty() && bench::is_program(a.against)) return run_against_program(a);
  const auto results = measure(a, bench::bench_step, true);
  print(results, a.json);
  if (!a.against.empty() && !a.json) {
    print_comparison(a, bench::read_results(a.against), bench::to_json(results));
  }
}

void run_neighbour(const BenchArgs& a) {
  for (const auto& o : combinations(a, true)) {
    const auto results = bench::bench_neighbour(o);
    if (a.json) {
      fmt::print("{}\n", bench::to_json(results).dump(2));
      continue;
    }
    for (const auto& r : results)
      fmt::print(
          "{:<8} batch {} width {}: {:.1f} ms a step alone, {:.1f} beside a busy loop (medians): {:.2f} "
          "of its speed\n",
          r.what, o.batch, o.width, r.alone.median * 1e3, r.beside.median * 1e3, r.speed_kept());
  }
}

// This program, training on made-up images.
std::vector<std::string> training(const BenchOptions& o, const std::filesystem::path& folder, int threads,
                                  int64_t steps) {
  std::vector<std::string> words = {std::filesystem::read_symlink("/proc/self/exe").string(),
                                    "train",
                                    "--quiet",
                                    "--data",
                                    "shapes",
                                    "--limit",
                                    std::to_string(steps * o.batch),
                                    "--out",
                                    folder.string(),
                                    "--threads",
                                    std::to_string(threads),
                                    "--engine",
                                    o.instructions.empty() ? "native" : o.instructions};
  for (const auto& set :
       {"method.name=" + o.method, fmt::format("encoder.width={}", o.width),
        fmt::format("encoder.norm={}", o.batch_norm ? "batch" : "none"),
        fmt::format("train.batch_size={}", o.batch), fmt::format("sampler.steps={}", o.sgld_steps),
        fmt::format("sampler.chains={}", o.chains), fmt::format("buffer.size={}", 16 * o.batch),
        std::string("train.epochs=1"), std::string("log.every=1"), std::string("log.samples_every=0"),
        std::string("log.tensorboard=false"), std::string("monitor.knn_every=0")})
    words.insert(words.end(), {"--set", set});
  return words;
}

void run_ranks(const BenchArgs& a) {
  namespace fs = std::filesystem;
  auto rows = nlohmann::ordered_json::array();
  for (const auto& o : combinations(a, true)) {
    auto scratch =
        (a.scratch.empty() ? fs::temp_directory_path() : fs::path(a.scratch)) / "ebclr-ranks-XXXXXX";
    std::string name = scratch.string();
    if (::mkdtemp(name.data()) == nullptr)
      core::run_error("bench.ranks", fmt::format("{}: no folder could be made there; choose --scratch",
                                                 scratch.parent_path().string()));
    const auto tidy = std::shared_ptr<void>(nullptr, [&](void*) {
      std::error_code ec;
      fs::remove_all(name, ec);
    });
    const auto r = bench::bench_ranks({.ranks = a.ranks,
                                       .batch = o.batch,
                                       .steps = a.timed,
                                       .rounds = a.repeats,
                                       .least_bytes = bench::least_exchange(o),
                                       .master = a.master,
                                       .through = a.through,
                                       .scratch = name,
                                       .command = [&](const fs::path& folder, int threads, int64_t steps) {
                                         return training(o, folder, threads, steps);
                                       }});
    nlohmann::ordered_json row(bench::to_json(r));
    row["method"] = o.method;
    row["width"] = o.width;
    row["batch_norm"] = o.batch_norm;
    row["sgld_steps"] = o.sgld_steps;
    rows.push_back(row);
    if (a.json) continue;
    const double batch = static_cast<double>(o.batch);
    fmt::print(
        "{} width {} batch {}: 1 process with {} threads {:.1f} images/s, {} ranks with 1 thread {:.1f}: "
        "{:.3f} "
        "of it; {:.1f} % of their time in {:.0f} exchanges a step, {} handed over ({} is the least)\n",
        o.method, o.width, o.batch, a.ranks, batch / r.threads.median, a.ranks, batch / r.ranks.median,
        r.efficiency(), 100 * r.exchange_share(), r.exchanges, core::human_bytes(r.exchange_bytes),
        core::human_bytes(r.options.least_bytes));
  }
  if (a.json) print_json(rows);
}

// What the numbers are measured with.
using Configure = std::function<void(CLI::App&, BenchArgs&)>;

void add_bench(CLI::App& group, const char* name, const char* description, const Configure& configure,
               const std::function<void(const BenchArgs&, int threads)>& run) {
  auto a = std::make_shared<BenchArgs>();
  auto* command = group.add_subcommand(name, description);
  configure(*command, *a);
  command->add_option("--repeats", a->repeats, "Timed runs of each")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command->add_flag("--json", a->json, "Print JSON");
  command->add_option("--threads", a->runtime.threads,
                      "Threads (default: the cores that this process may use)");
  command->callback([a, run] {
    const auto runtime = apply(a->runtime);
    run(*a, runtime.threads);
  });
}

void add_encoder(CLI::App& c, BenchArgs& a) {
  c.add_option("--batch", a.batches, "Batch sizes")
      ->delimiter(',')
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  c.add_option("--width", a.widths, "Encoder widths")
      ->delimiter(',')
      ->check(CLI::Range(8, 1024))
      ->capture_default_str();
  c.add_option("--image", a.images, "SIZExCHANNELS, e.g. 32x3,28x1")->delimiter(',')->capture_default_str();
  c.add_option("--isa", a.instructions,
               "Instruction set of the native kernels (libtorch's: ATEN_CPU_CAPABILITY=avx2 "
               "ONEDNN_MAX_CPU_ISA=AVX2)")
      ->check(CLI::IsMember({"avx2", "avx512", "amx"}));
  c.add_flag("--channels-last", a.channels_last, "libtorch with channels last");
  c.add_option("--warmup", a.warmup, "Runs before the clock starts")
      ->check(CLI::Range(0, 100))
      ->capture_default_str();
}

void add_norm(CLI::App& c, BenchArgs& a) {
  c.add_option("--norm", a.norm, "Encoder normalisation; auto: batch for all but ebclr")
      ->check(CLI::IsMember({"none", "batch", "auto"}))
      ->capture_default_str();
}

void add_steps(CLI::App& c, BenchArgs& a) {
  c.add_option("--steps", a.sgld_steps, "SGLD steps T")->check(CLI::Range(1, 1000))->capture_default_str();
}

void add_stem(CLI::App& c, BenchArgs& a) {
  c.add_option("--stem", a.stem, "The encoder's stem")
      ->check(CLI::IsMember({"cifar", "imagenet", "patch"}))
      ->capture_default_str();
}

void add_step(CLI::App& c, BenchArgs& a) {
  add_encoder(c, a);
  add_stem(c, a);
  add_norm(c, a);
  add_steps(c, a);
  c.add_option("--chains", a.chains, "EBCLR's chains a step: 0 one per image, below 1 a share of the batch")
      ->check(CLI::Range(0.0, 4096.0))
      ->capture_default_str();
  auto names = measurable_methods();
  names.push_back("all");
  c.add_option("--method", a.methods, "Methods, or all")
      ->delimiter(',')
      ->check(CLI::IsMember(names))
      ->capture_default_str();
}

void add_yopo(CLI::App& c, BenchArgs& a) {
  c.add_option("--yopo", a.yopo_inner, "YOPO with so many steps per costate instead of Langevin steps")
      ->check(CLI::Range(1, 100));
  c.add_option("--cut", a.cut, "YOPO's cut: 0 after the stem, 1 after the first stage")
      ->check(CLI::Range(0, 1))
      ->capture_default_str();
}

void add_seconds(CLI::App& c, BenchArgs& a) {
  c.add_option("--seconds", a.seconds, "Time of each measurement of views")
      ->check(CLI::Range(0.1, 600.0))
      ->capture_default_str();
}

void add_neighbours(CLI::App& c, BenchArgs& a) {
  c.add_option("--train", a.train, "Vectors to search")
      ->check(CLI::Range(int64_t{100}, int64_t{10000000}))
      ->capture_default_str();
  c.add_option("--queries", a.queries, "Queries")
      ->check(CLI::Range(int64_t{1}, int64_t{10000000}))
      ->capture_default_str();
  c.add_option("--dim", a.dimensions, "Dimensions")
      ->check(CLI::Range(int64_t{1}, int64_t{100000}))
      ->capture_default_str();
}

void run_sampler(const BenchArgs& a) {
  if (a.precision == "float") {
    if (a.energies.chains > 0 || a.energies.updates > 0)
      core::usage_error("bench",
                        "--energies and --updates need --precision bfloat16: they compare it with float");
    return print(measure(a, bench::bench_sampler, false), a.json);
  }
  if (a.yopo_inner > 0) core::usage_error("bench", "--yopo is measured in float only");
  std::vector<bench::PrecisionBench> results;
  for (const BenchOptions& o : combinations(a, false))
    results.push_back(bench::bench_precision(o, a.energies));
  print_precision(results, a.json);
}

void add_encoder_benches(CLI::App& group) {
  add_bench(
      group, "step", "A whole training step: as the released code does it, lean libtorch, native",
      [](CLI::App& c, BenchArgs& a) {
        add_step(c, a);
        c.add_option(
             "--against", a.against,
             "Earlier results (--json), or another build's ebclr, then run in turns: say what became slower")
            ->check(CLI::ExistingFile);
      },
      [](const BenchArgs& a, int) { run_step(a); });
  add_bench(group, "neighbour", "A training step alone and beside a process that wants a core", add_step,
            [](const BenchArgs& a, int) { run_neighbour(a); });
  add_bench(
      group, "sampler", "The SGLD steps alone",
      [](CLI::App& c, BenchArgs& a) {
        add_encoder(c, a);
        add_stem(c, a);
        add_steps(c, a);
        add_yopo(c, a);
        c.add_option("--precision", a.precision,
                     "bfloat16: chains in float and in bfloat16 in turns, instead of libtorch")
            ->check(CLI::IsMember({"float", "bfloat16"}))
            ->capture_default_str();
        c.add_option(
             "--energies", a.energies.chains,
             "With --precision bfloat16: compare the energies of so many chains after 10 and 100 steps")
            ->check(CLI::Range(2, 100000));
        c.add_option("--updates", a.energies.updates,
                     "With --precision bfloat16: first train the network for so many steps on made-up images")
            ->check(CLI::Range(0, 100000));
      },
      [](const BenchArgs& a, int) { run_sampler(a); });
  add_bench(
      group, "embed", "Features without gradients",
      [](CLI::App& c, BenchArgs& a) {
        add_encoder(c, a);
        add_stem(c, a);
        add_norm(c, a);
        c.add_flag("--onnxruntime", a.onnxruntime,
                   "Against ONNX Runtime instead of libtorch (tools/install-deps --judges brings it)");
      },
      [](const BenchArgs& a, int) {
        if (a.onnxruntime) {
          run_onnxruntime(a);
        } else {
          print(measure(a, bench::bench_embed, false), a.json);
        }
      });
  add_bench(group, "conv", "Every kind of layer, forward and backward", add_encoder,
            [](const BenchArgs& a, int) {
              for (const auto& o : combinations(a, false)) print_conv(bench::bench_conv(o), a.json);
            });
}

void add_ranks(CLI::App& group) {
  add_bench(
      group, "ranks",
      "Training by several ranks with one thread each against one process with as many threads",
      [](CLI::App& c, BenchArgs& a) {
        add_step(c, a);
        c.add_option("--ranks", a.ranks, "Ranks, and threads of the one process")
            ->check(CLI::Range(2, 1024))
            ->capture_default_str();
        c.add_option("--timed", a.timed, "Timed steps of each training; --repeats is how often in turns")
            ->check(CLI::Range(1, 1000))
            ->capture_default_str();
        c.add_option("--through", a.through,
                     "Words that bring a rank to its host, {} being its number: 'ip netns exec host{}'");
        c.add_option("--master", a.master, "Address of rank 0")->capture_default_str();
        c.add_option("--scratch", a.scratch, "Folder that all hosts see (default: that of temporary files)");
      },
      [](const BenchArgs& a, int) { run_ranks(a); });
}

void add_data_benches(CLI::App& group) {
  add_bench(
      group, "augment", "Views per second",
      [](CLI::App& c, BenchArgs& a) {
        add_seconds(c, a);
        c.add_option("--torchvision", a.torchvision_script,
                     "tools/bench_torchvision.py, to measure torchvision in the same run");
      },
      [](const BenchArgs& a, int threads) {
        const auto rows = run_augment(a, threads);
        if (a.json) print_json(rows);
      });
  add_bench(
      group, "decode", "Picture files to pixels, on one core",
      [](CLI::App& c, BenchArgs& a) {
        c.add_option("FOLDER", a.folder, "Pictures")->required()->check(CLI::ExistingDirectory);
        c.add_option("--image-size", a.decode_size, "Size that they come out with")
            ->check(CLI::Range(16, 1024))
            ->capture_default_str();
        c.add_option("--limit", a.limit, "At most so many")
            ->check(CLI::Range(int64_t{1}, int64_t{100000}))
            ->capture_default_str();
        c.add_option("--peers", a.decode_script,
                     "tools/bench_decode.py, to measure Pillow and OpenCV in the same run");
      },
      [](const BenchArgs& a, int) { run_decode(a); });
  add_bench(group, "knn", "Exact nearest neighbours against FAISS's flat index", add_neighbours,
            [](const BenchArgs& a, int) {
              const auto rows = run_knn(a);
              if (a.json) print_json(rows);
            });
}

void add_all(CLI::App& group) {
  add_bench(
      group, "all", "A quick look at views, neighbours, features and steps",
      [](CLI::App& c, BenchArgs& a) {
        a.widths = {16, 64};
        a.batches = {16};
        add_encoder(c, a);
        add_steps(c, a);
        add_seconds(c, a);
        add_neighbours(c, a);
      },
      [](const BenchArgs& a, int threads) {
        auto rows = run_augment(a, threads);
        for (auto& row : run_knn(a)) rows.push_back(row);
        for (auto* pass : {bench::bench_embed, bench::bench_step}) {
          const auto results = measure(a, pass, pass == bench::bench_step);
          if (!a.json) print(results, false);
          for (const auto& row : bench::to_json(results)) rows.push_back(nlohmann::ordered_json(row));
        }
        if (a.json) print_json(rows);
      });
}

}  // namespace

void add_bench_commands(CLI::App& app) {
  auto* group = app.add_subcommand(
      "bench", "Measure against libtorch, FAISS and torchvision, side by side in one process");
  group->require_subcommand(1);
  add_encoder_benches(*group);
  add_ranks(*group);
  add_data_benches(*group);
  add_index_benches(*group);
  add_all(*group);
}

}  // namespace ebclr::cli
