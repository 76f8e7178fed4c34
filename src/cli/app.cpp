#include "cli/app.h"

#include <CLI/CLI.hpp>

#include "cli/bench_command.h"
#include "cli/browse_command.h"
#include "cli/classify_command.h"
#include "cli/config_command.h"
#include "cli/data_command.h"
#include "cli/duplicates_command.h"
#include "cli/eval_command.h"
#include "cli/export_command.h"
#include "cli/fid_command.h"
#include "cli/finetune_command.h"
#include "cli/import_command.h"
#include "cli/index_command.h"
#include "cli/outliers_command.h"
#include "cli/plot_command.h"
#include "cli/report_command.h"
#include "cli/reproduce_command.h"
#include "cli/sample_command.h"
#include "cli/train_command.h"
#include "cli/watch_command.h"

namespace ebclr::cli {

void add_commands(CLI::App& app) {
  app.description("ebclr: visual representations without labels by Energy-Based Contrastive Learning");
  app.name("ebclr");
  app.set_version_flag("--version", std::string("ebclr ") + EBCLR_VERSION);
  app.require_subcommand(1);
  app.fallthrough(false);
  add_data_commands(app);
  add_config_commands(app);
  add_train_command(app);
  add_watch_command(app);
  add_sample_commands(app);
  add_eval_commands(app);
  add_embed_command(app);
  add_map_command(app);
  add_compare_command(app);
  add_index_commands(app);
  add_duplicates_command(app);
  add_outliers_command(app);
  add_browse_command(app);
  add_classify_command(app);
  add_finetune_command(app);
  add_export_command(app);
  add_fid_command(app);
  add_plot_command(app);
  add_report_command(app);
  add_import_command(app);
  add_reproduce_commands(app);
  add_bench_commands(app);
}

}  // namespace ebclr::cli
