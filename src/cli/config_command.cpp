#include "cli/config_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/answer.h"
#include "cli/checks.h"
#include "cli/config_options.h"
#include "core/error.h"
#include "run/shipped.h"

namespace ebclr::cli {

void add_config_options(CLI::App& command, ConfigOptions& o) {
  command.add_option("--config", o.config,
                     "YAML file, or the name of a shipped configuration (`ebclr config list`)");
  command.add_option("--set", o.sets, "key=value, may be repeated (`ebclr config keys`)")
      ->allow_extra_args(false);
  command.add_option("--epochs", o.epochs, "Passes over the train images")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  add_data_options(command, o);
  command.add_option("--seed", o.seed, "Decides every random draw")->check(kNotNegative);
}

std::vector<run::Layer> layers_of(const ConfigOptions& o, std::vector<std::string>& warnings) {
  std::vector<run::Layer> layers;
  if (!o.config.empty()) layers.push_back(run::read_layer(o.config, warnings));
  const auto single = [&](const std::string& flag, const std::string& key, const std::string& value) {
    layers.push_back({flag, {{key, value}}});
  };
  for (const auto& s : o.sets) layers.push_back({"--set", {run::parse_assignment(s)}});
  const auto number = [&](const char* flag, const char* key, int64_t value, bool given) {
    if (given) single(flag, key, std::to_string(value));
  };
  if (!o.data.empty()) single("--data", "data.source", o.data);
  if (!o.data_root.empty()) single("--data-root", "data.root", o.data_root);
  if (!o.labels_csv.empty()) single("--labels-csv", "data.labels_csv", o.labels_csv);
  if (!o.cache.empty()) single("--cache", "data.cache", o.cache);
  if (o.grayscale) single("--grayscale", "data.grayscale", "true");
  if (o.test_fraction >= 0)
    single("--test-fraction", "data.test_fraction", fmt::format("{}", o.test_fraction));
  number("--epochs", "train.epochs", o.epochs, o.epochs > 0);
  number("--limit", "data.limit", o.limit, o.limit >= 0);
  number("--limit-test", "data.limit_test", o.limit_test, o.limit_test >= 0);
  number("--image-size", "data.image_size", o.image_size, o.image_size > 0);
  if (o.seed >= 0) single("--seed", "train.seed", std::to_string(o.seed));
  return layers;
}

void add_config_commands(CLI::App& app) {
  auto* config = app.add_subcommand("config", "Configurations: what is in effect, all keys, what is shipped");
  config->require_subcommand(1);

  auto options = std::make_shared<ConfigOptions>();
  auto json = std::make_shared<bool>(false);
  auto* show = config->add_subcommand("show", "The effective configuration and where each value came from");
  add_config_options(*show, *options);
  show->add_flag("--json", *json, "Print JSON");
  show->callback([options, json] {
    std::vector<std::string> warnings;
    const auto c = run::resolve(layers_of(*options, warnings));
    for (const auto& w : warnings) fmt::print(stderr, "warning: {}\n", w);
    auto out = nlohmann::ordered_json::object();
    std::string section;
    for (const auto& f : run::fields()) {
      if (*json) {
        out[f.key] = {{"value", f.get(c)}, {"from", c.origins.at(f.key)}};
        continue;
      }
      const std::string head = f.key.substr(0, f.key.find('.'));
      if (head != section) fmt::print("{}{}:\n", section.empty() ? "" : "\n", head);
      section = head;
      const std::string value = f.get(c), from = c.origins.at(f.key);
      fmt::print("  {:<22} {:<14}{}\n", f.key.substr(head.size() + 1) + ":", value.empty() ? "\"\"" : value,
                 from == "default" ? "" : "# " + from);
    }
    if (*json) {
      print_answer(out);
    } else {
      fmt::print("\n# learning rate in effect: {}\n", c.effective_lr());
    }
  });

  auto* keys = config->add_subcommand("keys", "Every key with its default and meaning");
  keys->callback([] {
    const auto c = run::resolve({});
    for (const auto& f : run::fields())
      fmt::print("{:<28} {:<12} {}{}\n", f.key, f.get(c), f.doc,
                 f.choices.empty() ? "" : " (" + f.choices + ")");
  });

  auto* list = config->add_subcommand("list", "The shipped configurations");
  auto name = std::make_shared<std::string>();
  list->add_option("NAME", *name, "Print this one");
  list->callback([name] {
    if (!name->empty()) {
      std::vector<std::string> warnings;
      run::read_layer(*name, warnings);  // says what is near when there is none
      fmt::print("{}", run::find_shipped(*name).value_or(""));
      return;
    }
    for (const auto& c : run::shipped_configs())
      fmt::print("{:<24} {}\n", c.name, c.text.substr(2, c.text.find('\n') - 2));
  });
}

}  // namespace ebclr::cli
