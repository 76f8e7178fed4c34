#pragma once
// The options that build a configuration, shared by `train` and `config show`.

#include <string>
#include <vector>

#include "run/config.h"

namespace CLI {
class App;
}

namespace ebclr::cli {

struct ConfigOptions {
  std::string config, data, data_root;
  std::vector<std::string> sets;
  int64_t epochs = 0, limit = -1, image_size = 0;
  int64_t seed = -1;
};

/// Adds --config, --set, --data, --data-root, --epochs, --limit, --image-size and --seed.
void add_config_options(CLI::App& command, ConfigOptions& options);
/// The layers that they mean, lowest first.
std::vector<run::Layer> layers_of(const ConfigOptions& options, std::vector<std::string>& warnings);

}  // namespace ebclr::cli
