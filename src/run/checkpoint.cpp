#include "run/checkpoint.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>
#include <set>
#include <sstream>

#include "core/checksum.h"
#include "core/error.h"
#include "core/files.h"
#include "core/json.h"
#include "core/rng.h"

namespace ebclr::run {
namespace {
namespace fs = std::filesystem;

constexpr std::string_view kCheckpointComponent = "checkpoint";
constexpr int kFormat = 1;

uint64_t checksum(const torch::Tensor& tensor, uint64_t seed) {
  const auto t = tensor.detach().to(torch::kCPU).contiguous();
  return core::lane_sum(t.data_ptr(), t.nbytes(), seed, /*rest=*/true);
}

std::string checksum(const core::SafeTensors& content, const std::string& text) {
  uint64_t h = 1;
  for (const auto& [name, tensor] : content.tensors) {
    for (char c : name) h = core::mix64(h ^ static_cast<unsigned char>(c));
    h = checksum(tensor, h);
  }
  for (char c : text) h = core::mix64(h ^ static_cast<unsigned char>(c));
  return fmt::format("{:016x}", h);
}

std::string name_of(std::string_view kind, int64_t step, int64_t rollbacks) {
  return fmt::format("{}-{:08}-r{}.safetensors", kind, step, rollbacks);
}

constexpr std::string_view kTail = ".safetensors";

std::string shard_name(int64_t step, int64_t rollbacks, int64_t part, int64_t parts) {
  std::string name = name_of("buffer", step, rollbacks);
  return name.insert(name.size() - kTail.size(), fmt::format("-{}of{}", part, parts));
}

// "step-00001200-r0.safetensors", or of a buffer's part "buffer-00001200-r0-2of4.safetensors".
struct Name {
  std::string_view kind = {};
  CheckpointId id = {};
  int64_t part = 1, parts = 1;
};

std::optional<Name> parse_name(std::string_view name) {
  if (!name.ends_with(kTail)) return std::nullopt;
  name.remove_suffix(kTail.size());
  Name out;
  // Reads a number up to `end` and steps over that.
  const auto number = [&name](std::string_view end, int64_t& value) {
    const size_t at = end.empty() ? name.size() : name.find(end);
    if (at == std::string_view::npos) return false;
    const auto [rest, ec] = std::from_chars(name.data(), name.data() + at, value);
    if (ec != std::errc() || rest != name.data() + at) return false;
    name.remove_prefix(at + end.size());
    return true;
  };
  for (const std::string_view kind : {"step", "buffer"})
    if (name.starts_with(kind) && name.substr(kind.size()).starts_with("-")) out.kind = kind;
  if (out.kind.empty()) return std::nullopt;
  name.remove_prefix(out.kind.size() + 1);
  if (!number("-r", out.id.step)) return std::nullopt;
  const bool shard = out.kind == "buffer" && name.find('-') != std::string_view::npos;
  if (!number(shard ? "-" : "", out.id.rollbacks)) return std::nullopt;
  if (shard && (!number("of", out.part) || !number("", out.parts))) return std::nullopt;
  return out;
}

// A buffer's files by how many parts it was written in.
using BufferFiles = std::map<int64_t, std::map<int64_t, fs::path>>;

// Those of sets that are whole.
std::vector<fs::path> whole_sets(const BufferFiles& files) {
  std::vector<fs::path> out;
  for (const auto& [parts, paths] : files)
    if (static_cast<int64_t>(paths.size()) == parts)
      for (const auto& [part, path] : paths) out.push_back(path);
  return out;
}

nlohmann::json to_json(const Position& p) {
  return {{"step", p.step},
          {"epoch", p.epoch},
          {"batch", p.batch},
          {"forward_units", p.forward_units},
          {"rollbacks", p.rollbacks}};
}

constexpr std::string_view kClock = "clock.jsonl";

// The clock is worth less than any checkpoint: one that is absent or cannot be read spoils none.
std::string clock_text(const fs::path& folder) {
  try {
    return core::read_text(folder / kClock, kCheckpointComponent);
  } catch (const core::Error&) {
    return "";
  }
}

/// The training clocks of all checkpoints of a folder; the last line about one counts.
class Clocks {
 public:
  explicit Clocks(const fs::path& folder) {
    std::istringstream in(clock_text(folder));
    for (std::string line; std::getline(in, line);) {
      const auto j = core::parse_json(line);
      const auto whole = [&](const char* key) { return j.contains(key) && j[key].is_number_integer(); };
      if (j.is_object() && whole("step") && whole("rollbacks") && j.contains("seconds") &&
          j["seconds"].is_number())
        seconds_[{j["rollbacks"].get<int64_t>(), j["step"].get<int64_t>()}] = j["seconds"].get<double>();
    }
  }
  double of(const CheckpointId& id) const {
    const auto it = seconds_.find(id);
    return it == seconds_.end() ? 0 : it->second;
  }

 private:
  std::map<CheckpointId, double> seconds_;
};

// The clock apart; version 0.1.0 kept it in the checkpoint.
Position to_position(const nlohmann::json& j) {
  const auto whole = [&](const char* key) { return core::whole_number(j.at(key)); };
  Position p{.step = whole("step"),
             .epoch = whole("epoch"),
             .batch = whole("batch"),
             .forward_units = j.at("forward_units"),
             .rollbacks = whole("rollbacks")};
  if (j.contains("seconds")) p.seconds = j["seconds"].get<double>();
  return p;
}

Position to_position(const nlohmann::json& j, const CheckpointFile& file) {
  auto p = to_position(j);
  if (!j.contains("seconds"))
    p.seconds = file.seconds ? *file.seconds : Clocks(file.path.parent_path()).of({p.rollbacks, p.step});
  return p;
}

nlohmann::json parse_state(const std::map<std::string, std::string>& metadata, const fs::path& path) {
  const auto it = metadata.find("state");
  if (it == metadata.end())
    core::usage_error(kCheckpointComponent, fmt::format("{}: not a checkpoint of ebclr", path.string()));
  auto state = core::parse_json(it->second);
  if (!state.is_object() || !state.contains("format") || !state.contains("position"))
    core::usage_error(kCheckpointComponent, fmt::format("{}: its state cannot be read", path.string()));
  if (state["format"] != kFormat)
    core::usage_error(
        kCheckpointComponent,
        fmt::format("{}: format {} is not the {} of this program; use the version that wrote it",
                    path.string(), state["format"].dump(), kFormat));
  return state;
}

core::SafeTensors cloned(const core::SafeTensors& content) {
  core::SafeTensors out;
  out.metadata = content.metadata;
  for (const auto& [name, tensor] : content.tensors)
    out.tensors[name] = tensor.detach()
                            .to(torch::kCPU, tensor.scalar_type(), /*non_blocking=*/false, /*copy=*/true)
                            .contiguous();
  return out;
}

}  // namespace

Snapshot clone(const Snapshot& s) {
  return {s.position, s.small, cloned(s.tensors), cloned(s.buffer), s.slots, s.shards};
}

namespace {

// Writes a buffer, or a part of it; returns what the checkpoint must know.
nlohmann::json write_buffer(const fs::path& folder, const std::string& name, core::SafeTensors buffer) {
  const std::string sum = checksum(buffer, "");
  buffer.metadata["checksum"] = sum;
  core::write_safetensors(folder / name, buffer);
  return {{"file", name}, {"checksum", sum}};
}

}  // namespace

nlohmann::json write_shard(const fs::path& folder, const Snapshot& snapshot, int rank, int world) {
  core::make_folder(folder, kCheckpointComponent);
  const auto& p = snapshot.position;
  auto shard = write_buffer(folder, shard_name(p.step, p.rollbacks, rank + 1, world), snapshot.buffer);
  shard["slots"] = snapshot.buffer.tensors.at("counts").size(0);
  return shard;
}

void write_checkpoint(const fs::path& folder, const Snapshot& snapshot) {
  core::make_folder(folder, kCheckpointComponent);
  const auto& p = snapshot.position;
  const nlohmann::ordered_json clock = {{"step", p.step}, {"rollbacks", p.rollbacks}, {"seconds", p.seconds}};
  core::AppendFile clock_file(folder / kClock, kCheckpointComponent);
  clock_file.append(clock.dump() + "\n");
  clock_file.sync();
  nlohmann::json state = {
      {"format", kFormat}, {"version", EBCLR_VERSION}, {"position", to_json(p)}, {"small", snapshot.small}};
  if (!snapshot.shards.empty()) state["buffer"] = {{"shards", snapshot.shards}};
  if (!snapshot.buffer.tensors.empty())
    state["buffer"] = write_buffer(folder, name_of("buffer", p.step, p.rollbacks), snapshot.buffer);
  core::SafeTensors content = snapshot.tensors;
  content.metadata["state"] = state.dump();
  content.metadata["checksum"] = checksum(content, content.metadata["state"]);
  core::write_safetensors(folder / name_of("step", p.step, p.rollbacks), content);
}

namespace {

// Without their clocks.
std::vector<CheckpointFile> list_files(const fs::path& folder) {
  std::vector<CheckpointFile> files;
  std::map<CheckpointId, BufferFiles> buffers;
  std::error_code ec;
  for (const auto& entry : fs::directory_iterator(folder, ec)) {
    const std::string text = entry.path().filename().string();
    const auto name = parse_name(text);
    if (!name) continue;
    if (name->kind == "buffer")
      buffers[name->id][name->parts][name->part] = entry.path();
    else
      files.push_back({.path = entry.path(), .step = name->id.step, .rollbacks = name->id.rollbacks});
  }
  for (auto& file : files)
    if (const auto it = buffers.find(file.id()); it != buffers.end()) file.buffer = whole_sets(it->second);
  std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) {
    return std::tie(a.rollbacks, a.step) < std::tie(b.rollbacks, b.step);
  });
  return files;
}

}  // namespace

std::vector<CheckpointFile> list_checkpoints(const fs::path& folder) {
  auto files = list_files(folder);
  if (files.empty()) return files;
  const Clocks clocks(folder);
  for (auto& file : files) file.seconds = clocks.of(file.id());
  return files;
}

namespace {

// One file of a buffer, verified against what the checkpoint says of it.
core::SafeTensors read_part(const fs::path& path, const nlohmann::json& about) {
  auto content = core::read_safetensors(path);
  if (!about.contains("checksum") || !about["checksum"].is_string() ||
      checksum(content, "") != about["checksum"].get_ref<const std::string&>())
    core::usage_error(kCheckpointComponent,
                      fmt::format("{}: checksum does not fit; the file is damaged", path.string()));
  return content;
}

// Slots of a part; -1 for the whole buffer of one process, which does not say it.
int64_t slots_of(const nlohmann::json& part) {
  const auto it = part.find("slots");
  if (it == part.end() || !it->is_number_integer()) return -1;
  return std::clamp(it->get<int64_t>(), int64_t{0}, int64_t{1} << 40);
}

// Its parts in their order; a buffer of one process is its only part.
std::vector<nlohmann::json> parts_of(const nlohmann::json& about) {
  if (about.is_object() && about.contains("shards") && about["shards"].is_array())
    return {about["shards"].begin(), about["shards"].end()};
  return {about};
}

// Rows of a tensor from the parts that hold them.
torch::Tensor joined(const std::vector<torch::Tensor>& rows, const fs::path& path) {
  const auto& first = rows[0];
  for (const auto& t : rows)
    if (t.scalar_type() != first.scalar_type() || t.sizes().slice(1) != first.sizes().slice(1))
      core::usage_error(kCheckpointComponent,
                        fmt::format("{}: parts of its replay buffer do not fit each other", path.string()));
  return rows.size() == 1 ? first : torch::cat(rows);
}

// The rows of a buffer's tensors that belong to these slots; `slots` gets the number of all.
core::SafeTensors read_slots(const CheckpointFile& file, const nlohmann::json& about, const SlotRange& range,
                             int64_t& slots) {
  std::map<std::string, std::vector<torch::Tensor>> pieces;
  std::set<fs::path> read;
  core::SafeTensors out;
  slots = 0;
  for (const auto& part : parts_of(about)) {
    if (file.buffer.empty() || !part.is_object() || !part.contains("file") || !part["file"].is_string())
      core::usage_error(kCheckpointComponent,
                        fmt::format("{}: its replay buffer is not there any more", file.path.string()));
    const int64_t known = slots_of(part), first = slots;
    const bool wanted = known < 0 || (first < range.end && first + known > range.first);
    slots += std::max(known, int64_t{0});
    if (!wanted) continue;
    // The name alone: what a checkpoint says must not lead out of its folder.
    const auto path = file.path.parent_path() / fs::path(part["file"].get<std::string>()).filename();
    if (!read.insert(path).second)
      core::usage_error(kCheckpointComponent,
                        fmt::format("{}: names {} twice", file.path.string(), path.filename().string()));
    auto content = read_part(path, part);
    for (auto& [name, tensor] : content.tensors) {
      if (tensor.dim() == 0)
        core::usage_error(kCheckpointComponent,
                          fmt::format("{}: '{}' of its replay buffer has no rows", file.path.string(), name));
      const int64_t rows = tensor.size(0);
      if (known < 0) slots = std::max(slots, rows);
      pieces[name].push_back(tensor.slice(0, std::clamp(range.first - first, int64_t{0}, rows),
                                          std::clamp(range.end - first, int64_t{0}, rows)));
    }
    out.metadata = std::move(content.metadata);
  }
  for (const auto& [name, list] : pieces) out.tensors[name] = joined(list, file.path);
  return out;
}

}  // namespace

Snapshot read_checkpoint(const CheckpointFile& file, bool with_buffer, const SlotRange& slots) {
  Snapshot out;
  out.tensors = core::read_safetensors(file.path);
  const auto state = parse_state(out.tensors.metadata, file.path);
  const auto stored = out.tensors.metadata.find("checksum");
  if (stored == out.tensors.metadata.end() ||
      stored->second != checksum(out.tensors, out.tensors.metadata["state"]))
    core::usage_error(kCheckpointComponent,
                      fmt::format("{}: checksum does not fit; the file is damaged", file.path.string()));
  const auto incomplete = [&] {
    core::usage_error(kCheckpointComponent, fmt::format("{}: its state is incomplete", file.path.string()));
  };
  try {
    out.position = to_position(state.at("position"), file);
    out.small = state.at("small");
  } catch (const nlohmann::json::exception&) {
    incomplete();
  }
  if (!out.small.is_object() && !out.small.is_null()) incomplete();
  if (with_buffer && state.contains("buffer"))
    out.buffer = read_slots(file, state["buffer"], slots, out.slots);
  return out;
}

core::SafeTensors read_buffer(const CheckpointFile& file) {
  const auto state = parse_state(core::read_safetensors_metadata(file.path), file.path);
  int64_t slots = 0;
  return state.contains("buffer") ? read_slots(file, state["buffer"], {}, slots) : core::SafeTensors{};
}

Position read_position(const CheckpointFile& file) {
  try {
    return to_position(parse_state(core::read_safetensors_metadata(file.path), file.path).at("position"),
                       file);
  } catch (const nlohmann::json::exception&) {
    core::usage_error(kCheckpointComponent, fmt::format("{}: its state is incomplete", file.path.string()));
  }
}

namespace {

bool is_milestone(const CheckpointFile& file, int64_t every_epochs) {
  if (every_epochs <= 0) return false;
  try {
    const auto state = parse_state(core::read_safetensors_metadata(file.path), file.path);
    const auto p = to_position(state.at("position"));
    return p.batch == 0 && p.epoch > 0 && p.epoch % every_epochs == 0;
  } catch (const core::Error&) {  // a damaged old one is of no use
    return false;
  } catch (const nlohmann::json::exception&) {
    return false;
  }
}

// Buffers whose checkpoint never came (a kill between the two writes), or whose other parts are gone, and
// half-written files.
void sweep(const fs::path& folder) {
  core::sweep_temporaries(folder);
  std::error_code ec;
  std::vector<fs::path> stray;
  std::set<fs::path> of_checkpoints;
  for (const auto& file : list_files(folder)) of_checkpoints.insert(file.buffer.begin(), file.buffer.end());
  for (const auto& entry : fs::directory_iterator(folder, ec)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("step-") && name.ends_with(".tmp")) stray.push_back(entry.path());  // version 0.1.0
    if (name.starts_with("buffer-") && !of_checkpoints.contains(entry.path())) stray.push_back(entry.path());
  }
  for (const auto& path : stray) fs::remove(path, ec);
}

}  // namespace

void prune_checkpoints(const fs::path& folder, const PruneOptions& o) {
  auto files = list_files(folder);
  std::error_code ec;
  const auto remove = [&](const CheckpointFile& f, bool weights) {
    // The checkpoint first: without it its buffer is rubbish, without its buffer it looks damaged.
    if (weights) fs::remove(f.path, ec);
    for (const auto& path : f.buffer) fs::remove(path, ec);
  };
  // Newer ones were passed over as damaged when the run was resumed, and what they held is made anew.
  while (!files.empty() && files.back().id() > o.newest) {
    remove(files.back(), true);
    files.pop_back();
  }
  for (size_t i = 0; i + static_cast<size_t>(o.keep_last) < files.size(); ++i)
    if (std::find(o.protect.begin(), o.protect.end(), files[i].id()) == o.protect.end())
      remove(files[i], !is_milestone(files[i], o.keep_every));
  sweep(folder);
}

}  // namespace ebclr::run
