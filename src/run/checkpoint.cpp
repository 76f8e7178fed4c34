#include "run/checkpoint.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <sstream>

#include "core/error.h"
#include "core/files.h"
#include "core/rng.h"

namespace ebclr::run {
namespace {
namespace fs = std::filesystem;

constexpr std::string_view kCheckpointComponent = "checkpoint";
constexpr int kFormat = 1;

// A fast 64-bit checksum: four independent multiply-mix lanes over 32 bytes at a time.
uint64_t checksum(const torch::Tensor& tensor, uint64_t seed) {
  const auto t = tensor.detach().to(torch::kCPU).contiguous();
  const auto* p = static_cast<const unsigned char*>(t.data_ptr());
  size_t n = t.nbytes();
  uint64_t lane[4] = {seed, seed + 1, seed + 2, seed + 3};
  for (; n >= 32; n -= 32, p += 32)
    for (int i = 0; i < 4; ++i) {
      uint64_t w;
      std::memcpy(&w, p + 8 * i, 8);
      lane[i] = (lane[i] ^ w) * 0x9E3779B97F4A7C15ull;
      lane[i] ^= lane[i] >> 29;
    }
  uint64_t h = core::make_key({lane[0], lane[1], lane[2], lane[3], n});
  for (; n > 0; --n, ++p) h = core::mix64(h ^ *p);
  return h;
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

bool parse_name(const std::string& name, int64_t& step, int64_t& rollbacks) {
  constexpr std::string_view head = "step-", middle = "-r", tail = ".safetensors";
  if (!name.starts_with(head) || !name.ends_with(tail)) return false;
  const auto at = name.find(middle);
  if (at == std::string::npos) return false;
  const auto number = [&](size_t from, size_t to, int64_t& out) {
    const auto [end, ec] = std::from_chars(name.data() + from, name.data() + to, out);
    return ec == std::errc() && end == name.data() + to;
  };
  return number(head.size(), at, step) && number(at + middle.size(), name.size() - tail.size(), rollbacks);
}

nlohmann::json to_json(const Position& p) {
  return {{"step", p.step},
          {"epoch", p.epoch},
          {"batch", p.batch},
          {"forward_units", p.forward_units},
          {"rollbacks", p.rollbacks}};
}

constexpr std::string_view kClock = "clock.jsonl";

// The training clock of a checkpoint; the last line about it counts.
double seconds_of(const fs::path& folder, const CheckpointId& id) {
  double seconds = 0;
  std::error_code ec;
  if (!fs::exists(folder / kClock, ec)) return seconds;
  std::istringstream in(core::read_text(folder / kClock, kCheckpointComponent));
  for (std::string line; std::getline(in, line);) {
    const auto j = nlohmann::json::parse(line, nullptr, false);
    const auto is = [&](const char* key, int64_t value) {
      return j.contains(key) && j[key].is_number_integer() && j[key].get<int64_t>() == value;
    };
    if (j.is_object() && is("step", id.step) && is("rollbacks", id.rollbacks) && j.contains("seconds") &&
        j["seconds"].is_number())
      seconds = j["seconds"].get<double>();
  }
  return seconds;
}

// Version 1.0 kept the clock in the checkpoint.
Position to_position(const nlohmann::json& j, const fs::path& folder) {
  const auto whole = [&](const char* key) { return j.at(key).get_ref<const int64_t&>(); };  // 1.5 throws
  Position p{.step = whole("step"),
             .epoch = whole("epoch"),
             .batch = whole("batch"),
             .forward_units = j.at("forward_units"),
             .rollbacks = whole("rollbacks")};
  p.seconds = j.contains("seconds") ? j["seconds"].get<double>() : seconds_of(folder, {p.rollbacks, p.step});
  return p;
}

nlohmann::json parse_state(const std::map<std::string, std::string>& metadata, const fs::path& path) {
  const auto it = metadata.find("state");
  if (it == metadata.end())
    core::usage_error(kCheckpointComponent, fmt::format("{}: not a checkpoint of ebclr", path.string()));
  auto state = nlohmann::json::parse(it->second, nullptr, false);
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
  return {s.position, s.small, cloned(s.tensors), cloned(s.buffer)};
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
  if (!snapshot.buffer.tensors.empty()) {
    core::SafeTensors buffer = snapshot.buffer;
    const std::string name = name_of("buffer", p.step, p.rollbacks), sum = checksum(buffer, "");
    buffer.metadata["checksum"] = sum;
    core::write_safetensors(folder / name, buffer);
    state["buffer"] = {{"file", name}, {"checksum", sum}};
  }
  core::SafeTensors content = snapshot.tensors;
  content.metadata["state"] = state.dump();
  content.metadata["checksum"] = checksum(content, content.metadata["state"]);
  core::write_safetensors(folder / name_of("step", p.step, p.rollbacks), content);
}

std::vector<CheckpointFile> list_checkpoints(const fs::path& folder) {
  std::vector<CheckpointFile> files;
  std::error_code ec;
  for (const auto& entry : fs::directory_iterator(folder, ec)) {
    CheckpointFile file{.path = entry.path()};
    if (!parse_name(entry.path().filename().string(), file.step, file.rollbacks)) continue;
    const auto buffer = folder / name_of("buffer", file.step, file.rollbacks);
    if (fs::exists(buffer)) file.buffer = buffer;
    files.push_back(file);
  }
  std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) {
    return std::tie(a.rollbacks, a.step) < std::tie(b.rollbacks, b.step);
  });
  return files;
}

Snapshot read_checkpoint(const CheckpointFile& file, bool with_buffer) {
  Snapshot out;
  out.tensors = core::read_safetensors(file.path);
  const auto state = parse_state(out.tensors.metadata, file.path);
  const auto stored = out.tensors.metadata.find("checksum");
  if (stored == out.tensors.metadata.end() ||
      stored->second != checksum(out.tensors, out.tensors.metadata["state"]))
    core::usage_error(kCheckpointComponent,
                      fmt::format("{}: checksum does not fit; the file is damaged", file.path.string()));
  try {
    out.position = to_position(state.at("position"), file.path.parent_path());
    out.small = state.at("small");
  } catch (const nlohmann::json::exception&) {
    core::usage_error(kCheckpointComponent, fmt::format("{}: its state is incomplete", file.path.string()));
  }
  if (with_buffer && state.contains("buffer")) {
    if (file.buffer.empty())
      core::usage_error(kCheckpointComponent,
                        fmt::format("{}: its replay buffer is not there any more", file.path.string()));
    out.buffer = core::read_safetensors(file.buffer);
    const auto& about = state["buffer"];
    if (!about.is_object() || !about.contains("checksum") || !about["checksum"].is_string() ||
        checksum(out.buffer, "") != about["checksum"].get_ref<const std::string&>())
      core::usage_error(kCheckpointComponent,
                        fmt::format("{}: checksum does not fit; the file is damaged", file.buffer.string()));
  }
  return out;
}

std::optional<Snapshot> read_newest(const fs::path& folder, std::vector<std::string>& notes) {
  auto files = list_checkpoints(folder);
  for (auto it = files.rbegin(); it != files.rend(); ++it) {
    try {
      return read_checkpoint(*it, true);
    } catch (const core::Error& e) {
      notes.push_back(fmt::format("{}; trying the checkpoint before it", e.what()));
    }
  }
  return std::nullopt;
}

Position read_position(const CheckpointFile& file) {
  try {
    return to_position(parse_state(core::read_safetensors_metadata(file.path), file.path).at("position"),
                       file.path.parent_path());
  } catch (const nlohmann::json::exception&) {
    core::usage_error(kCheckpointComponent, fmt::format("{}: its state is incomplete", file.path.string()));
  }
}

namespace {

bool is_milestone(const CheckpointFile& file, int64_t every_epochs) {
  if (every_epochs <= 0) return false;
  try {
    const auto p = read_position(file);
    return p.batch == 0 && p.epoch > 0 && p.epoch % every_epochs == 0;
  } catch (const core::Error&) {  // a damaged old one is of no use
    return false;
  }
}

// Buffers whose checkpoint never came (a kill between the two writes), and half-written files.
void sweep(const fs::path& folder) {
  core::sweep_temporaries(folder);
  std::error_code ec;
  std::vector<fs::path> stray;
  for (const auto& entry : fs::directory_iterator(folder, ec)) {
    std::string name = entry.path().filename().string();
    if (name.starts_with("step-") && name.ends_with(".tmp")) stray.push_back(entry.path());  // version 1.0
    if (!name.starts_with("buffer-")) continue;
    name.replace(0, 6, "step");
    if (!fs::exists(folder / name, ec)) stray.push_back(entry.path());
  }
  for (const auto& path : stray) fs::remove(path, ec);
}

}  // namespace

void prune_checkpoints(const fs::path& folder, const PruneOptions& o) {
  auto files = list_checkpoints(folder);
  std::error_code ec;
  const auto remove = [&](const CheckpointFile& f, bool weights) {
    // The checkpoint first: without it its buffer is rubbish, without its buffer it looks damaged.
    if (weights) fs::remove(f.path, ec);
    if (!f.buffer.empty()) fs::remove(f.buffer, ec);
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
