#pragma once
// The options that say which images: the same in every command that reads some.

#include <string>

#include "data/catalog.h"

namespace CLI {
class App;
}

namespace ebclr::cli {

struct DataOptions {
  std::string data, data_root, labels_csv, cache;
  int64_t image_size = 0, limit = -1, limit_test = -1;
  double test_fraction = -1;
  bool grayscale = false;
};

/// Adds --data (unless the command takes the set otherwise), --data-root, --image-size, --grayscale,
/// --labels-csv,
/// --test-fraction, --limit, --limit-test and --cache.
void add_data_options(CLI::App& command, DataOptions& options, bool with_data = true);

/// `base` with what was given on the command line; --data is left to the caller.
data::SourceOptions apply(const DataOptions& options, data::SourceOptions base);

/// A line on the terminal while pictures are decoded; nothing elsewhere. The context follows --threads.
data::LoadContext load_context(int threads, bool quiet);

}  // namespace ebclr::cli
