#include "run/provenance.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "core/files.h"
#include "core/json.h"
#include "core/text.h"
#include "core/threads.h"
#include "run/training_code.h"

namespace ebclr::run {
namespace {

using nlohmann::json;

json to_json(const Session& s) {
  json j = {{"version", s.version},           {"code", s.code},     {"engine", s.engine},
            {"instructions", s.instructions}, {"device", s.device}, {"threads", s.threads},
            {"from_step", s.from_step}};
  if (!s.processor.empty()) j["processor"] = s.processor;
  if (s.ranks > 1) j["ranks"] = s.ranks;
  return j;
}

Session from_json(const json& j) {
  const auto word = [&](const char* key) {
    const auto it = j.find(key);
    return it != j.end() && it->is_string() ? it->get<std::string>() : std::string();
  };
  const auto number = [&](const char* key) {
    const auto it = j.find(key);
    return it != j.end() && it->is_number_integer() ? it->get<int64_t>() : int64_t{0};
  };
  return {.version = word("version"),
          .code = word("code"),
          .engine = word("engine"),
          .instructions = word("instructions"),
          .device = word("device"),
          .processor = word("processor"),
          .threads = static_cast<int>(number("threads")),
          .ranks = static_cast<int>(std::max<int64_t>(1, number("ranks"))),
          .from_step = number("from_step")};
}

// A few names and how many more.
std::string some(std::vector<std::string> names) {
  constexpr size_t kShown = 4;
  const size_t all = names.size();
  if (all > kShown) names.resize(kShown);
  auto text = core::join(names, ", ");
  return all > kShown ? fmt::format("{} and {} more", text, all - kShown) : text;
}

}  // namespace

std::string Session::text() const {
  return fmt::format("{} (code {}), {}{}{}, {}{} thread{}{}", version, code, engine,
                     instructions.empty() ? "" : " " + instructions,
                     device.empty() || device == "cpu" ? "" : " on " + device,
                     ranks == 1 ? "" : fmt::format("{} ranks of ", ranks), threads, threads == 1 ? "" : "s",
                     processor.empty() ? "" : " on " + processor);
}

bool Session::same_arithmetic(const Session& other) const {
  return code == other.code && engine == other.engine && instructions == other.instructions &&
         device == other.device;
}

std::string this_version() {
  return EBCLR_VERSION;
}

std::string this_code() {
  return kTrainingCode;
}

void record_session(const RunFolder& folder, Session session, bool append) {
  session.version = this_version();
  session.code = this_code();
  session.processor = core::processor_name();
  auto sessions = append ? read_sessions(folder) : std::vector<Session>{};
  sessions.push_back(std::move(session));
  json j = {{"sessions", json::array()}};
  for (const auto& s : sessions) j["sessions"].push_back(to_json(s));
  core::write_atomically(folder.provenance(), j.dump(2) + "\n", "run.provenance");
}

std::vector<Session> read_sessions(const RunFolder& folder) {
  std::vector<Session> out;
  std::error_code ec;
  if (!std::filesystem::exists(folder.provenance(), ec)) return out;
  const auto j = core::parse_json(core::read_text(folder.provenance(), "run.provenance"));
  if (!j.is_object() || !j.contains("sessions") || !j["sessions"].is_array()) return out;
  for (const auto& s : j["sessions"])
    if (s.is_object()) out.push_back(from_json(s));
  return out;
}

std::vector<std::string> provenance_warnings(const std::vector<NamedSessions>& runs) {
  std::vector<std::string> out, silent, changed;
  std::map<std::string, std::vector<std::string>> alike;  // names by what trained them
  for (const auto& [name, sessions] : runs) {
    if (sessions.empty()) {
      silent.push_back(name);
      continue;
    }
    alike[sessions.back().text()].push_back(name);
    if (sessions.back().code != this_code()) changed.push_back(name);
    const auto other =
        std::find_if(sessions.begin(), sessions.end(),
                     [&first = sessions.front()](const Session& s) { return !s.same_arithmetic(first); });
    if (other != sessions.end())
      out.push_back(fmt::format("{} was begun by {} and went on at step {} by {}", name,
                                sessions.front().text(), other->from_step, other->text()));
  }
  if (alike.size() > 1) {
    std::vector<std::string> groups;
    for (const auto& [text, names] : alike) groups.push_back(fmt::format("{}: {}", text, some(names)));
    out.push_back("not all were trained alike: last digits may differ, and times cannot be compared (" +
                  core::join(groups, "; ") + ")");
  }
  if (!changed.empty())
    out.push_back(fmt::format("the training code has changed since {} (now {})", some(changed), this_code()));
  if (!silent.empty())
    out.push_back(
        fmt::format("no record of what trained {}: from before runs recorded it, or imported", some(silent)));
  return out;
}

}  // namespace ebclr::run
