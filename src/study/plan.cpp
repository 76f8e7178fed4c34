#include "study/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <span>

#include "core/error.h"
#include "core/files.h"
#include "core/text.h"
#include "data/catalog.h"
#include "methods/method.h"

namespace ebclr::study {
namespace {

// The parts between separators, without blanks before them; empty ones are left out.
std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> out;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    const size_t first = std::min(text.find_first_not_of(' ', begin), end);
    if (end > first) out.push_back(text.substr(first, end - first));
    begin = end + 1;
  }
  return out;
}

// Axis names of a product are "data, batch"; the ids of its values are "fmnist/16".
bool wanted(const Selection& selection, const std::string& axes, const Value& value) {
  const auto names = split(axes, ',');
  const auto parts = names.size() > 1 ? split(value.id, '/') : std::vector<std::string>{value.id};
  for (size_t i = 0; i < names.size() && i < parts.size(); ++i) {
    const auto it = selection.only.find(names[i]);
    if (it != selection.only.end() &&
        std::find(it->second.begin(), it->second.end(), parts[i]) == it->second.end())
      return false;
  }
  return true;
}

std::set<std::string> axis_names(const Study& study) {
  std::set<std::string> out;
  for (const auto& axes : {study.row_axis, study.column_axis})
    for (const auto& name : split(axes, ',')) out.insert(name);
  return out;
}

std::set<std::string> ids_of(const Study& study, const std::string& axis) {
  std::set<std::string> out;
  const auto add = [&](const std::string& axes, const std::vector<Value>& values) {
    const auto names = split(axes, ',');
    for (size_t i = 0; i < names.size(); ++i) {
      if (names[i] != axis) continue;
      for (const auto& v : values) out.insert(names.size() > 1 ? split(v.id, '/').at(i) : v.id);
    }
  };
  add(study.row_axis, study.rows);
  add(study.column_axis, study.columns);
  return out;
}

}  // namespace

void add_only(Selection& selection, const std::string& text, const Study& study) {
  const auto at = text.find('=');
  const std::string axis = text.substr(0, at);
  const auto names = axis_names(study);
  if (at == std::string::npos || !names.count(axis))
    core::usage_error(kComponent,
                      fmt::format("--only '{}': expected axis=value,... with an axis of {} ({})", text,
                                  study.name, core::join({names.begin(), names.end()}, ", ")));
  const auto known = ids_of(study, axis);
  for (const auto& id : split(text.substr(at + 1), ',')) {
    if (!known.count(id))
      core::usage_error(
          kComponent, fmt::format("--only '{}': {} has no {} '{}'; there are {}", text, study.name, axis, id,
                                  core::join({known.begin(), known.end()}, ", ")));
    selection.only[axis].push_back(id);
  }
  if (selection.only[axis].empty()) core::usage_error(kComponent, fmt::format("--only '{}': no value", text));
}

const PlannedCell* Plan::find(const CellId& id) const {
  for (const auto& c : cells)
    if (c.id == id) return &c;
  return nullptr;
}

std::string digest(const run::Config& config) {
  // What differs from the defaults, so that a key that is added later leaves old runs valid. Where images lie
  // does not change what is learned from them, and how many outputs `supervised` has is for its labels to
  // say.
  const auto defaults = run::resolve({});
  const bool labels_decide = config.method.name == methods::kSupervised;
  std::string text;
  for (const auto& f : run::fields())
    if (f.key != "data.root" && !(labels_decide && f.key == "head.out") && f.get(config) != f.get(defaults))
      text += fmt::format("{}={}\n", f.key, f.get(config));
  return core::sha256(std::as_bytes(std::span(text.data(), text.size()))).substr(0, 10);
}

double units_per_image(const run::Config& config) {
  return methods::forward_units(config.method, config.train.batch_size);
}

std::string describe_seeds(const Plan& p) {
  if (p.seeds == 1) return p.first_seed == 0 ? "one seed" : fmt::format("one seed ({})", p.first_seed);
  const auto count = fmt::format("{} seeds", p.seeds);
  return p.first_seed == 0 ? count
                           : fmt::format("{} ({} to {})", count, p.first_seed, p.first_seed + p.seeds - 1);
}

Plan make_plan(const Study& study, const std::string& scale, const Scales& scales, int seeds,
               const Selection& selection, const std::filesystem::path& out,
               const std::filesystem::path& data_root, int first_seed) {
  const size_t at = scales.index(scale);
  Plan plan{.study = study,
            .scale = scale,
            .seeds = seeds,
            .first_seed = first_seed,
            .decides = at >= scales.decides.size() || scales.decides[at],
            .judging = scales.judging[at]};
  std::map<std::string, size_t> known;
  for (const auto& row : study.rows) {
    for (const auto& column : study.columns) {
      if (!wanted(selection, study.row_axis, row) || !wanted(selection, study.column_axis, column)) continue;
      PlannedCell cell{{row.id, column.id}, "", {}};
      for (int seed = first_seed; seed < first_seed + seeds; ++seed) {
        auto settings = settings_of(study, row, column, scale, scales);
        settings.emplace_back("train.seed", std::to_string(seed));
        if (!data_root.empty()) settings.emplace_back("data.root", data_root.string());
        const auto config = run::resolve({{fmt::format("study {}", study.name), settings}});
        if (config.data.source.empty())
          core::usage_error(kComponent, fmt::format("{}: row '{}' has no data.source", study.name, row.id));
        cell.on = !column.on.empty() ? column.on : !row.on.empty() ? row.on : config.data.source;
        const std::string key = digest(config);
        const auto [it, fresh] = known.try_emplace(key, plan.runs.size());
        if (fresh) {
          RunSpec spec;
          spec.config = config;
          spec.folder = out / "runs" / fmt::format("{}-{}-{}", config.method.name, config.data.source, key);
          spec.title =
              fmt::format("{}{}{}, seed {}", row.label, column.label.empty() ? "" : ", ", column.label, seed);
          spec.judging = plan.judging;
          spec.judges = study.judges;
          const int64_t all = data::train_images(config.data.source);
          spec.images = config.data.limit > 0 ? std::min(all, config.data.limit) : all;
          spec.forward_units =
              units_per_image(config) * static_cast<double>(spec.images / config.train.batch_size *
                                                            config.train.batch_size * config.train.epochs);
          plan.runs.push_back(std::move(spec));
        }
        auto& spec = plan.runs[it->second];
        if (std::find(spec.sets.begin(), spec.sets.end(), cell.on) == spec.sets.end()) {
          spec.sets.push_back(cell.on);
          // The untrained encoder, what is kept, and the end.
          const int64_t every = config.checkpoint.keep_every, epochs = config.train.epochs;
          const auto points = static_cast<double>(1 + (every > 0 ? (epochs + every - 1) / every : 1));
          const auto tests = static_cast<double>(config.data.validation > 0    ? config.data.validation
                                                 : plan.judging.limit_test > 0 ? plan.judging.limit_test
                                                                               : 10000);
          if (!std::all_of(spec.judges.begin(), spec.judges.end(), is_measured_once))
            spec.judging_units += points * (tests + static_cast<double>(spec.images));
        }
        cell.runs.push_back(it->second);
      }
      plan.cells.push_back(std::move(cell));
    }
  }
  if (plan.cells.empty()) core::usage_error(kComponent, "--only leaves no run");
  return plan;
}

std::vector<std::string> sets_of(const Plan& plan) {
  std::set<std::string> sets;
  for (const auto& r : plan.runs) {
    sets.insert(r.config.data.source);
    sets.insert(r.sets.begin(), r.sets.end());
  }
  return {sets.begin(), sets.end()};
}

void mark_missing(Plan& plan, const Missing& missing) {
  for (auto& r : plan.runs) {
    auto needs = r.sets;
    needs.push_back(r.config.data.source);
    for (const auto& name : needs)
      if (const auto it = missing.find(name); it != missing.end()) r.blocked = it->second;
  }
}

}  // namespace ebclr::study
