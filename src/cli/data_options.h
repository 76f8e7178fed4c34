#pragma once
// The options that say which images: the same in every command that reads some.

#include <string>
#include <vector>

#include "data/catalog.h"
#include "data/walk.h"

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

/// The first of those options that was given and says which images of a set are meant; "": none.
std::string choice_of_images(const DataOptions& options);

/// Files that were named one by one, as one set; those that cannot be read are left out and named in
/// `problems`. Throws Error when none can.
data::ImageSet read_named(const std::vector<std::string>& files, int64_t image_size, int threads,
                          std::vector<data::FileProblem>& problems);

/// `base` with what was given on the command line; --data is left to the caller.
data::SourceOptions apply(const DataOptions& options, data::SourceOptions base);

/// A line on the terminal while pictures are decoded; nothing elsewhere. The context follows --threads.
data::LoadContext load_context(int threads, bool quiet);

}  // namespace ebclr::cli
