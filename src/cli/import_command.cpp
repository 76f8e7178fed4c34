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
  auto* command = app.add_subcommand(
      "import", "Make a run folder from a checkpoint of the paper's released code, or a torchvision ResNet");
  command->add_option("FILE", a->file, "The .pt file")->required();
  command->add_option("--config", a->config,
                      "Its YAML configuration (released code); without it the file is a state dict of "
                      "torchvision's ResNet-18, -34 or -50");
  command->add_option("--out", a->out, "Run folder to make")->required();
  command->callback([a] {
    const auto notes = a->config.empty() ? run::import_torchvision(a->file, a->out)
                                         : run::import_released(a->file, a->config, a->out);
    for (const auto& n : notes) fmt::print(stderr, "note: {}\n", n);
    fmt::print("run folder: {}\n", a->out);
  });
}

}  // namespace ebclr::cli
