// What lies in the folders of runs: checkpoints behind their checksum, the clock, classes, what the live page
// and a study read, and files of torch.save that become runs.

#include <fmt/format.h>
#include <torch/torch.h>

#include <fstream>

#include "core/checksum.h"
#include "core/json.h"
#include "core/rng.h"
#include "core/safetensors.h"
#include "index/tuned.h"
#include "reading.h"
#include "run/run.h"
#include "watch/run_view.h"
#ifndef EBCLR_FUZZ_LEAN
#include "study/perform.h"
#include "study/workers.h"
#endif

namespace ebclr::fuzz {
namespace {
namespace fs = std::filesystem;

constexpr const char* kCheckpoint = "step-00000001-r0.safetensors";
constexpr const char* kState =
    R"({"format":1,"position":{"step":1,"epoch":1,"batch":0,"forward_units":3.0,"rollbacks":0},"small":{}})";

/// As src/run/checkpoint.cpp has it.
std::string checkpoint_sum(const core::SafeTensors& content, const std::string& text) {
  uint64_t h = 1;
  for (const auto& [name, tensor] : content.tensors) {
    for (const char c : name) h = core::mix64(h ^ static_cast<unsigned char>(c));
    h = core::lane_sum(tensor.data_ptr(), tensor.nbytes(), h, true);
  }
  for (const char c : text) h = core::mix64(h ^ static_cast<unsigned char>(c));
  return fmt::format("{:016x}", h);
}

/// A folder with a buffer that states may refer to, and nothing else.
fs::path checkpoint_folder(const std::string& name) {
  fs::create_directories(scratch() / name);
  core::SafeTensors buffer;
  buffer.tensors = {{"chains", torch::zeros({2, 1})}, {"counts", torch::zeros({2}, torch::kInt64)}};
  file_of(bytes_of(core::to_bytes(buffer)), name + "/buffer-00000001-r0.safetensors");
  return scratch() / name;
}

/// A checkpoint whose sum is right.
run::CheckpointFile put_checkpoint(core::SafeTensors content, const std::string& folder) {
  content.metadata["checksum"] = checkpoint_sum(content, content.metadata["state"]);
  file_of(bytes_of(core::to_bytes(content)), folder + "/" + kCheckpoint);
  return run::list_checkpoints(scratch() / folder).at(0);
}

fs::path make_run(const std::string& name, const std::vector<std::pair<std::string, std::string>>& keys) {
  fs::create_directories(scratch() / name / "eval");
  std::ofstream(run::RunFolder{scratch() / name}.config()) << run::to_yaml(run::resolve({{"fuzz", keys}}));
  return scratch() / name;
}

/// A run of the smallest network there is, and the tensors of its checkpoint.
struct SmallRun {
  run::Run run;
  core::SafeTensors good;
};
const SmallRun& small_run() {
  static const auto* const made = [] {
    auto* r = new SmallRun;
    r->run = run::Run::open(make_run(
        "run", {{"method.name", "ebclr"}, {"encoder.width", "1"}, {"head.hidden", "0"}, {"head.out", "2"}}));
    const auto model = r->run.untrained({3, 8, 8});
    for (const auto& [name, t] : nn::state_of(*model.encoder, "method/encoder.")) r->good.tensors[name] = t;
    for (const auto& [name, t] : nn::state_of(*model.head, "method/head.")) r->good.tensors[name] = t;
    for (auto& [name, t] : r->good.tensors) t = t.detach().contiguous().clone();
    r->good.metadata["state"] = kState;
    checkpoint_folder("run/checkpoints");
    return r;
  }();
  return *made;
}

/// As it is, then with its checksum made right.
void checkpoint(Bytes bytes) {
  static const fs::path folder = checkpoint_folder("checkpoints");
  const auto read = [] {
    const auto file = run::list_checkpoints(folder).at(0);
    attempt([&] { run::read_position(file); });
    run::read_checkpoint(file, true);
  };
  file_of(bytes, std::string("checkpoints/") + kCheckpoint);
  attempt(read);
  put_checkpoint(core::parse_safetensors(bytes, "x"), "checkpoints");
  read();
}

/// The state that a checkpoint carries as text, in one that is good otherwise. `run_load` has states before a
/// network.
void checkpoint_state(Bytes bytes) {
  const auto& run = small_run().run;
  core::SafeTensors content;
  content.metadata["state"] = text_of(bytes);
  const auto file = put_checkpoint(std::move(content), "run/checkpoints");
  attempt([&] { run::read_position(file); });
  attempt([&] { run.newest_buffer(); });
  run::read_checkpoint(file, true);
}

/// Tensors, and the state if there is one, put into a checkpoint that is good otherwise.
void run_load(Bytes bytes) {
  const auto other = core::parse_safetensors(bytes, "x");
  auto content = small_run().good;
  for (const auto& [name, t] : other.tensors) content.tensors[name] = t;
  if (const auto it = other.metadata.find("state"); it != other.metadata.end())
    content.metadata["state"] = it->second;
  small_run().run.load(put_checkpoint(std::move(content), "run/checkpoints"));
}

/// clock.jsonl beside a good checkpoint.
void clock(Bytes bytes) {
  static const auto file = [] {
    checkpoint_folder("clock");
    core::SafeTensors content;
    content.metadata["state"] = kState;
    return put_checkpoint(std::move(content), "clock");
  }();
  file_of(bytes, "clock/clock.jsonl");
  run::read_checkpoint(file, false);
}

/// The program of a pickle, as weights of torchvision and of the released code.
void import_run(Bytes bytes) {
  static const auto config =
      file_of(bytes_of("method:\n  name: ebclr\nhead:\n  hidden: 0\n  out: 2\n"), "import.yaml");
  const auto zip = zip_around({{"a/data.pkl", text_of(bytes)}, {"a/data/0", std::string(4096, '\1')}});
  const auto path = file_of(bytes_of(zip), "import.pt"), out = scratch() / "imported";
  std::error_code ec;
  fs::remove_all(out, ec);
  attempt([&] { run::import_torchvision(path, out); });
  fs::remove_all(out, ec);
  run::import_released(path, config.string(), out);
  run::Run::open(out).load();
}

/// classes.json of a run that learnt from labels.
void classes_json(Bytes bytes) {
  static const auto run =
      run::Run::open(make_run("tuned", {{"method.name", "supervised"}, {"head.out", "2"}}));
  file_of(bytes, "tuned/classes.json");
  index::read_tuned(run);
}

/// What the live page shows of a folder: all files that others write are this one.
void watched(Bytes bytes) {
  static const auto folder = [] {
    const auto f = scratch() / "watched";
    fs::create_directories(f / "eval");
    std::ofstream(run::RunFolder{f}.config())
        << "method:\n  name: ebclr\n...\n";  // read anew each time: short
    return f;
  }();
  for (const char* name : {"metrics.jsonl", "summary.json", "train.log", "eval/x.json"})
    file_of(bytes, std::string("watched/") + name);
  watch::RunView view(0, "run", folder);
  view.want_curves();
  do view.refresh(1 << 20, {});
  while (view.behind());
  const auto dump = [](const nlohmann::json& j) {
    return j.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  };
  dump(view.status());
  dump(view.log_tail());
  view.curves({});
  for (const auto axis : {watch::Range::Axis::kEpoch, watch::Range::Axis::kSeconds})
    view.detail({axis, 0, 10});
}

#ifndef EBCLR_FUZZ_LEAN
/// A run's folder as a study reads it: summary, curve, distances, and the failure that was remembered.
void findings(Bytes bytes) {
  static const auto spec = [] {
    study::RunSpec s;
    s.folder =
        make_run("studied", {{"method.name", "ebclr"}, {"data.source", "shapes"}, {"train.epochs", "1"}});
    s.config = run::Run::open(s.folder).config();
    s.judges = {"knn", "frechet", "strangers"};
    s.sets = {"shapes"};
    fs::create_directories(s.folder / "study");
    return s;
  }();
  for (const char* name : {"/summary.json", "/study/frechet.json", "/study/strangers.json",
                           "/eval/curve_knn_paper.json", "/provenance.json", ".failed"})
    file_of(bytes, std::string("studied") + name);
  study::complete(spec, study::read_findings(spec));
  study::Plan plan;
  plan.runs = {spec};
  study::remembered_failures(plan);
}

/// What a worker process is told.
void worker_spec(Bytes bytes) {
  try {
    study::spec_from_json(core::parse_json(text_of(bytes)));
  } catch (const nlohmann::json::exception& e) {  // as the worker itself says it
    core::usage_error("fuzz", e.what());
  }
}
#endif

}  // namespace

std::vector<Target> run_targets() {
  return {
      {"checkpoint", checkpoint}, {"checkpoint_state", checkpoint_state},
      {"run_load", run_load},     {"clock", clock},
      {"import", import_run},     {"classes_json", classes_json},
      {"watched", watched},
#ifndef EBCLR_FUZZ_LEAN
      {"findings", findings},     {"worker_spec", worker_spec},
#endif
  };
}

}  // namespace ebclr::fuzz
