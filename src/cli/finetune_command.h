#pragma once

#include <nlohmann/json_fwd.hpp>

#include "cli/runtime.h"
#include "data/catalog.h"
#include "index/tuned.h"
#include "methods/method.h"
#include "run/run.h"

namespace CLI {
class App;
}

namespace ebclr::cli {

/// Registers `finetune`.
void add_finetune_command(CLI::App& app);

/// Judges a method that learnt from labels, beside a frozen classifier where training started from another
/// run, and writes classes.json.
index::Tuned judge_run(const run::RunFolder& folder, const run::Config& config, methods::Method& method,
                       const data::ImageSet& train, const data::ImageSet& test, const Runtime& runtime);
void print_tuned(const index::Tuned& tuned);
void add_tuned(nlohmann::ordered_json& out, const index::Tuned& tuned);

}  // namespace ebclr::cli
