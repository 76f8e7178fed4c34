#include "cli/import_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "run/run.h"

namespace ebclr::cli {

void add_import_command(CLI::App& app) {
  struct Args {
    std::string file, config, out;
  };
  auto a = std::make_shared<Args>();
  auto* command =
      app.add_subcommand("import", "Make a run folder from a checkpoint of the paper's released code");
  command->add_option("FILE", a->file, "The .pt file")->required();
  command->add_option("--config", a->config, "Its YAML configuration")->required();
  command->add_option("--out", a->out, "Run folder to make")->required();
  command->callback([a] {
    for (const auto& n : run::import_released(a->file, a->config, a->out))
      fmt::print(stderr, "note: {}\n", n);
    fmt::print("run folder: {}\n", a->out);
  });
}

}  // namespace ebclr::cli
