#include "study/study.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "core/error.h"
#include "core/files.h"
#include "core/text.h"
#include "run/config.h"
#include "run/yaml.h"
#include "study/shipped_studies.h"

namespace ebclr::study {
namespace {

constexpr const char* kScales = "scales";  // the one file of studies/ that is no study

/// A file being read, for errors that name it.
struct Reader {
  std::string origin;

  [[noreturn]] void fail(const YAML::Node& node, const std::string& what) const {
    const auto mark = node ? node.Mark() : YAML::Mark::null_mark();
    core::usage_error(kComponent, mark.line >= 0 ? fmt::format("{}: line {}: {}", origin, mark.line + 1, what)
                                                 : fmt::format("{}: {}", origin, what));
  }
  std::string text(const YAML::Node& node, const std::string& what) const {
    if (!node || !node.IsScalar())
      fail(node ? node : YAML::Node(), what + " is missing or not a plain value");
    return node.Scalar();
  }
  std::string text_or(const YAML::Node& node, const std::string& fallback) const {
    return node && node.IsScalar() ? node.Scalar() : fallback;
  }
  double number(const YAML::Node& node, const std::string& what) const {
    try {
      return node.as<double>();
    } catch (const YAML::Exception&) {
      fail(node, fmt::format("{}: expected a number", what));
    }
  }
  int64_t integer(const YAML::Node& node, const std::string& what) const {
    const double value = number(node, what);
    if (!(std::abs(value) < 1e15) || value != std::floor(value))
      fail(node, fmt::format("{}: expected a whole number", what));
    return static_cast<int64_t>(value);
  }
  /// The list itself, not a reference: callers loop over what `node[...]` made for them.
  YAML::Node list(const YAML::Node& node, const std::string& what) const {
    if (!node || !node.IsSequence()) fail(node, fmt::format("{}: expected a list", what));
    return node;
  }
  std::vector<std::string> words(const YAML::Node& node) const {
    std::vector<std::string> out;
    if (!node) return out;
    if (node.IsScalar()) return {node.Scalar()};
    for (const auto& n : list(node, "words")) out.push_back(text(n, "an entry"));
    return out;
  }
  Settings settings(const YAML::Node& node, bool keys_must_exist = true) const {
    Settings out;
    if (!node) return out;
    if (!node.IsMap()) fail(node, "expected keys and values");
    for (const auto& pair : node) {
      const std::string key = text(pair.first, "a key");
      if (keys_must_exist) check_key(pair.first, key);
      out.emplace_back(key, text(pair.second, key));
    }
    return out;
  }
  void check_key(const YAML::Node& node, const std::string& key) const {
    std::vector<std::string> keys;
    for (const auto& f : run::fields()) {
      if (f.key == key) return;
      keys.push_back(f.key);
    }
    const auto near = core::nearest(key, keys);
    fail(node,
         fmt::format("unknown key '{}'{}", key, near ? fmt::format("; did you mean '{}'?", *near) : ""));
  }
  void check_allowed(const YAML::Node& node, const std::vector<std::string>& allowed) const {
    if (!node || !node.IsMap()) fail(node, "expected keys and values");
    for (const auto& pair : node) {
      const std::string key = text(pair.first, "a key");
      if (std::find(allowed.begin(), allowed.end(), key) != allowed.end()) continue;
      const auto near = core::nearest(key, allowed);
      fail(pair.first,
           fmt::format("unknown word '{}'{}", key, near ? fmt::format("; did you mean '{}'?", *near) : ""));
    }
  }
};

YAML::Node parse(const std::string& yaml, const std::string& origin) {
  return run::load_yaml(yaml, origin, kComponent);
}

// How the paper writes names; what is not here is shown as it is.
std::string pretty(const std::string& id) {
  static const std::map<std::string, std::string> names = {
      {"ebclr", "EBCLR"},     {"simclr", "SimCLR"},    {"moco", "MoCo v2"},
      {"simsiam", "SimSiam"}, {"byol", "BYOL"},        {"mnist", "MNIST"},
      {"fmnist", "FMNIST"},   {"cifar10", "CIFAR-10"}, {"cifar100", "CIFAR-100"}};
  const auto it = names.find(id);
  return it == names.end() ? id : it->second;
}

std::vector<Value> read_axis(const Reader& r, const YAML::Node& node, std::string& axis_name) {
  if (!node.IsMap()) r.fail(node, "an axis needs 'axis' and 'values'");
  r.check_allowed(node, {"axis", "key", "values"});
  axis_name = r.text(node["axis"], "axis");
  const std::string key = r.text_or(node["key"], "");
  if (!key.empty()) r.check_key(node["key"], key);
  if (!node["values"] || !node["values"].IsSequence() || node["values"].size() == 0)
    r.fail(node, fmt::format("axis '{}' needs a list of values", axis_name));
  std::vector<Value> out;
  for (const auto& v : node["values"]) {
    Value value;
    if (v.IsScalar()) {
      if (key.empty()) r.fail(v, fmt::format("axis '{}' has plain values but no 'key'", axis_name));
      const auto& id = v.Scalar();
      // A bare number says nothing without its axis.
      const bool number = id.find_first_not_of("0123456789.") == std::string::npos;
      value = {id, number ? axis_name + " " + id : pretty(id), {{key, id}}, ""};
    } else {
      r.check_allowed(v, {"id", "label", "set", "on"});
      value.id = r.text(v["id"], "id");
      value.label = r.text_or(v["label"], pretty(value.id));
      value.set = r.settings(v["set"]);
      if (!key.empty()) value.set.insert(value.set.begin(), {key, value.id});
      value.on = r.text_or(v["on"], "");
    }
    for (const auto& other : out)
      if (other.id == value.id) r.fail(v, fmt::format("'{}' occurs twice", value.id));
    out.push_back(std::move(value));
  }
  return out;
}

// One axis, or the product of a list of them.
std::vector<Value> read_axes(const Reader& r, const YAML::Node& node, std::string& name) {
  if (!node.IsSequence()) return read_axis(r, node, name);
  std::vector<Value> product = {{}};
  for (const auto& axis : node) {
    std::string axis_name;
    const auto values = read_axis(r, axis, axis_name);
    name += (name.empty() ? "" : ", ") + axis_name;
    std::vector<Value> next;
    if (product.size() * values.size() > 10000) r.fail(axis, "more than 10000 combinations of these axes");
    for (const auto& left : product)
      for (const auto& right : values) {
        Value v = left;
        v.id += (v.id.empty() ? "" : "/") + right.id;
        v.label += (v.label.empty() ? "" : ", ") + right.label;
        v.set.insert(v.set.end(), right.set.begin(), right.set.end());
        if (!right.on.empty()) v.on = right.on;
        next.push_back(std::move(v));
      }
    product = std::move(next);
  }
  return product;
}

bool has(const std::vector<Value>& values, const std::string& id) {
  return std::any_of(values.begin(), values.end(), [&](const Value& v) { return v.id == id; });
}

// Figures of the paper, by judge and row: one for each column, "-" where it has none.
void read_paper(const Reader& r, const YAML::Node& node, Study& s) {
  for (const auto& judge : node) {
    auto& figures = s.paper[r.text(judge.first, "a judge")];
    for (const auto& row : judge.second) {
      const std::string id = r.text(row.first, "a row");
      if (!has(s.rows, id)) r.fail(row.first, fmt::format("the paper's row '{}' does not exist", id));
      const auto figure = [&](const YAML::Node& n, size_t column) {
        if (n.IsScalar() && n.Scalar() == "-") return;
        figures[{id, s.columns[column].id}] = r.number(n, "a figure of the paper");
      };
      if (row.second.IsScalar() && s.columns.size() == 1) {
        figure(row.second, 0);
      } else {
        if (!row.second.IsSequence() || row.second.size() != s.columns.size())
          r.fail(row.second,
                 fmt::format("row '{}' needs {} figures, one for each column", id, s.columns.size()));
        for (size_t i = 0; i < s.columns.size(); ++i) figure(row.second[i], i);
      }
    }
  }
}

// A map, or the name of the study whose tuning holds here too.
void read_tuning(const Reader& r, const YAML::Node& node, Study& s) {
  if (node.IsScalar()) {
    s.tuned_by = r.text(node, "tuning");
    return;
  }
  r.check_allowed(node, {"scales", "column", "judge", "held_out", "seed", "trials"});
  Tuning t;
  if (node["scales"]) t.scales = r.words(node["scales"]);
  t.column = r.text_or(node["column"], s.columns.front().id);
  if (!has(s.columns, t.column))
    r.fail(node, fmt::format("tuning names column '{}', which does not exist", t.column));
  t.judge = r.text_or(node["judge"], s.judges.front());
  if (is_measured_once(t.judge)) r.fail(node, "tuning needs a judge of accuracies");
  if (node["held_out"]) t.held_out = r.integer(node["held_out"], "held_out");
  if (t.held_out < 1) r.fail(node, fmt::format("held_out {}: expected 1 image or more", t.held_out));
  if (node["seed"]) t.seed = static_cast<int>(r.integer(node["seed"], "seed"));
  if (!node["trials"] || !node["trials"].IsMap()) r.fail(node, "tuning needs 'trials', a list for each row");
  size_t count = 0;
  for (const auto& row : node["trials"]) {
    const std::string id = r.text(row.first, "a row");
    if (!has(s.rows, id)) r.fail(row.first, fmt::format("tuning names row '{}', which does not exist", id));
    auto& list = t.trials[id];
    for (const auto& trial : r.list(row.second, id)) list.push_back(r.settings(trial));
    if (count == 0) count = list.size();
    if (list.empty() || list.size() != count)
      r.fail(row.first, fmt::format("row '{}' has {} trials, others {}: every row gets the same number", id,
                                    list.size(), count));
  }
  s.tuning = std::move(t);
  s.tuned_by = s.name;
}

// Under which budget, and by which judge of the other side.
void read_terms(const Reader& r, const YAML::Node& node, const Study& s, Claim& c) {
  c.judge = r.text_or(node["judge"], s.judges.front());
  c.than_judge = r.text_or(node["than_judge"], "");
  for (const auto& judge : {c.judge, c.than_judge})
    if (!judge.empty() && std::find(s.judges.begin(), s.judges.end(), judge) == s.judges.end())
      r.fail(node, fmt::format("claim names judge '{}', which the study does not have", judge));
  static const std::map<std::string, Currency> currencies = {
      {"epochs", Currency::kEpochs}, {"units", Currency::kForwardUnits}, {"seconds", Currency::kSeconds}};
  const auto at = r.text_or(node["at"], "");
  if (!at.empty() && !currencies.count(at))
    r.fail(node["at"], fmt::format("at '{}': expected epochs, units or seconds", at));
  if (!at.empty()) c.at = currencies.at(at);
  if (c.kind != ClaimKind::kBetter && (c.at || !c.than_judge.empty()))
    r.fail(node, "'at' and 'than_judge' belong to claims of kind better");
  if (c.at && (is_measured_once(c.judge) || !c.than_judge.empty()))
    r.fail(node, "'at' needs a judge of accuracies, the same for both sides");
  if (!c.than_judge.empty() && is_distance(c.judge) != is_distance(c.than_judge))
    r.fail(node, "'than_judge' must measure the same way round");
}

Claim read_claim(const Reader& r, const YAML::Node& node, const Study& s) {
  r.check_allowed(node, {"says", "kind", "judge", "rows", "than", "columns", "pairs", "within", "below", "by",
                         "at", "than_judge"});
  Claim c;
  c.says = r.text(node["says"], "says");
  const std::string kind = r.text(node["kind"], "kind");
  static const std::map<std::string, ClaimKind> kinds = {{"better", ClaimKind::kBetter},
                                                         {"equal", ClaimKind::kEqual},
                                                         {"equal_rows", ClaimKind::kEqualRows},
                                                         {"efficiency", ClaimKind::kEfficiency}};
  const auto it = kinds.find(kind);
  if (it == kinds.end())
    r.fail(node["kind"], fmt::format("kind '{}': expected better, equal, equal_rows or efficiency", kind));
  c.kind = it->second;
  read_terms(r, node, s, c);
  c.rows = r.words(node["rows"]);
  c.than = r.words(node["than"]);
  c.columns = r.words(node["columns"]);
  if (node["pairs"])
    for (const auto& p : r.list(node["pairs"], "pairs")) {
      const auto words = r.words(p);
      if (words.size() != 2) r.fail(p, "a pair needs two columns");
      c.pairs.emplace_back(words[0], words[1]);
    }
  if (node["within"]) c.within = r.number(node["within"], "within");
  if (node["by"]) c.by = r.number(node["by"], "by");
  if (node["below"]) c.below = r.number(node["below"], "below");
  for (const auto* rows : {&c.rows, &c.than})
    for (const auto& id : *rows)
      if (!has(s.rows, id)) r.fail(node, fmt::format("claim names row '{}', which does not exist", id));
  for (const auto& id : c.columns)
    if (!has(s.columns, id)) r.fail(node, fmt::format("claim names column '{}', which does not exist", id));
  for (const auto& [a, b] : c.pairs)
    for (const auto& id : {a, b})
      if (!has(s.columns, id)) r.fail(node, fmt::format("claim names column '{}', which does not exist", id));
  if (c.rows.empty() || (c.kind == ClaimKind::kBetter && c.than.empty()) ||
      (c.kind == ClaimKind::kEqual && c.pairs.empty()) || (c.kind == ClaimKind::kEfficiency && c.below <= 0))
    r.fail(node, "a claim needs rows, and 'than', 'pairs' or 'below' by its kind");
  if (c.kind == ClaimKind::kEfficiency && s.reference.empty())
    r.fail(node, "a claim of efficiency needs the study's 'reference'");
  return c;
}

}  // namespace

size_t Scales::index(const std::string& name) const {
  const auto it = std::find(names.begin(), names.end(), name);
  if (it != names.end()) return static_cast<size_t>(it - names.begin());
  core::usage_error(kComponent, fmt::format("no scale '{}'; there are {}", name, core::join(names, ", ")));
}

bool Scales::covers(const std::string& other, const std::string& name) const {
  for (std::string at = name; !at.empty(); at = like[index(at)])
    if (at == other) return true;
  return false;
}

const std::vector<std::string>& judge_names() {
  static const std::vector<std::string> names = {"linear",
                                                 "knn",
                                                 "knn-dino",
                                                 "frechet-noise",
                                                 "frechet-data",
                                                 "strangers-energy",
                                                 "strangers-neighbour",
                                                 "strangers-mahalanobis",
                                                 "strangers-combined"};
  return names;
}

bool is_measured_once(const std::string& judge) {
  return is_distance(judge) || judge.starts_with("strangers");
}

bool is_distance(const std::string& judge) {
  return judge.starts_with("frechet");
}

Study parse_study(const std::string& name, const std::string& yaml, const std::string& origin) {
  const Reader r{origin};
  const auto node = parse(yaml, origin);
  r.check_allowed(node, {"order", "title", "source", "about", "judges", "rows", "columns", "fixed",
                         "reference", "paper", "claims", "tuning"});
  Study s;
  s.name = name;
  if (node["order"]) s.order = r.number(node["order"], "order");
  s.title = r.text(node["title"], "title");
  s.source = r.text_or(node["source"], "");
  s.about = r.text_or(node["about"], "");
  s.judges = r.words(node["judges"]);
  if (s.judges.empty()) r.fail(node, "judges is missing");
  for (const auto& j : s.judges)
    if (std::find(judge_names().begin(), judge_names().end(), j) == judge_names().end())
      r.fail(node["judges"], fmt::format("judge '{}': expected {}", j, core::join(judge_names(), ", ")));
  if (!node["rows"]) r.fail(node, "rows is missing");
  s.rows = read_axes(r, node["rows"], s.row_axis);
  s.columns = node["columns"] ? read_axes(r, node["columns"], s.column_axis) : std::vector<Value>{{}};
  s.fixed = r.settings(node["fixed"]);
  s.reference = r.text_or(node["reference"], "");
  if (!s.reference.empty() && !has(s.rows, s.reference))
    r.fail(node["reference"], fmt::format("reference '{}' is no row", s.reference));
  if (node["paper"]) read_paper(r, node["paper"], s);
  if (node["tuning"]) read_tuning(r, node["tuning"], s);
  if (node["claims"])
    for (const auto& c : r.list(node["claims"], "claims")) s.claims.push_back(read_claim(r, c, s));
  return s;
}

Scales parse_scales(const std::string& yaml, const std::string& origin) {
  const Reader r{origin};
  const auto node = parse(yaml, origin);
  r.check_allowed(node, {"scales", "rules"});
  Scales out;
  for (const auto& pair : node["scales"]) {
    const auto& n = pair.second;
    r.check_allowed(n, {"about", "like", "seeds", "decides", "probe_epochs", "probe_rates", "limit_test",
                        "frechet_samples", "frechet_steps"});
    out.names.push_back(r.text(pair.first, "a scale"));
    out.about.push_back(r.text(n["about"], "about"));
    out.seeds.push_back(n["seeds"] ? static_cast<int>(r.integer(n["seeds"], "seeds")) : 1);
    out.decides.push_back(r.text_or(n["decides"], "true") != "false");
    // An earlier scale, so that no two can be like each other.
    out.like.push_back(r.text_or(n["like"], ""));
    if (n["like"] &&
        std::find(out.names.begin(), out.names.end() - 1, out.like.back()) == out.names.end() - 1)
      r.fail(n["like"], fmt::format("like '{}': no scale above this one has that name", out.like.back()));
    Judging j = n["like"] ? out.judging[out.index(out.like.back())] : Judging{};
    const auto read = [&](const char* key, int64_t& target) {
      if (n[key]) target = r.integer(n[key], key);
    };
    read("probe_epochs", j.probe_epochs);
    read("probe_rates", j.probe_rates);
    read("limit_test", j.limit_test);
    read("frechet_samples", j.frechet_samples);
    read("frechet_steps", j.frechet_steps);
    out.judging.push_back(j);
  }
  for (const auto& n : r.list(node["rules"], "rules")) {
    r.check_allowed(n, {"when", "set"});
    Rule rule;
    rule.when = r.settings(n["when"], false);
    for (const auto& [key, value] : rule.when) {
      if (key == "scale")
        out.index(value);
      else if (key != "study")
        r.check_key(n["when"], key);
    }
    rule.set = r.settings(n["set"]);
    out.rules.push_back(std::move(rule));
  }
  return out;
}

std::vector<std::string> study_names() {
  std::vector<Study> all;
  for (const auto& s : shipped_studies())
    if (s.name != kScales) all.push_back(parse_study(s.name, s.text, s.name));
  std::stable_sort(all.begin(), all.end(), [](const Study& a, const Study& b) { return a.order < b.order; });
  std::vector<std::string> names;
  for (const auto& s : all) names.push_back(s.name);
  return names;
}

Study load_study(const std::string& name_or_file) {
  for (const auto& s : shipped_studies())
    if (s.name == name_or_file && s.name != kScales) return parse_study(s.name, s.text, s.name);
  if (std::filesystem::is_regular_file(name_or_file))
    return parse_study(std::filesystem::path(name_or_file).stem().string(),
                       core::read_text(name_or_file, kComponent), name_or_file);
  const auto near = core::nearest(name_or_file, study_names());
  core::usage_error(kComponent, fmt::format("{}: no such study or file{}", name_or_file,
                                            near ? fmt::format("; did you mean '{}'?", *near)
                                                 : "; `ebclr reproduce list` names the shipped ones"));
}

Scales load_scales() {
  for (const auto& s : shipped_studies())
    if (s.name == kScales) return parse_scales(s.text, s.name);
  core::run_error(kComponent, "the program was built without studies/scales.yaml");
}

Settings settings_of(const Study& study, const Value& row, const Value& column, const std::string& scale,
                     const Scales& scales) {
  // The axes win over everything; rules see them, and what earlier rules have set.
  std::map<std::string, std::string> fixed, seen = {{"study", study.name}};
  Settings axes = study.fixed;
  axes.insert(axes.end(), column.set.begin(), column.set.end());
  axes.insert(axes.end(), row.set.begin(), row.set.end());
  for (const auto& [key, value] : axes) fixed[key] = seen[key] = value;
  Settings out;
  for (const auto& rule : scales.rules) {
    const bool holds = std::all_of(rule.when.begin(), rule.when.end(), [&](const auto& condition) {
      if (condition.first == "scale") return scales.covers(condition.second, scale);
      const auto it = seen.find(condition.first);
      return it != seen.end() && it->second == condition.second;
    });
    if (!holds) continue;
    for (const auto& [key, value] : rule.set) {
      if (fixed.count(key)) continue;
      seen[key] = value;
      out.emplace_back(key, value);
    }
  }
  out.insert(out.end(), axes.begin(), axes.end());
  return out;
}

}  // namespace ebclr::study
