#include "cli/export_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/answer.h"
#include "cli/checks.h"
#include "cli/runtime.h"
#include "core/error.h"
#include "core/files.h"
#include "density/density.h"
#include "export/export.h"
#include "run/run.h"

namespace ebclr::cli {
namespace {

struct ExportArgs {
  std::string folder, format = "onnx", part = "features", out, checkpoint = "last", data, data_root;
  bool preprocess = false, json = false;
  int64_t references = 512, seed = 0;
  RuntimeOptions runtime;
};

void export_run(const ExportArgs& a) {
  const auto runtime = apply(a.runtime);
  const auto run = run::Run::open(a.folder);
  const auto format = exporting::parse_format(a.format);
  const auto part = exporting::parse_part(a.part);
  exporting::check_expressible(format, part, a.preprocess);
  core::check_writable(a.out, "export");  // before anything takes time
  run::Model model;
  torch::Tensor references;
  if (part == exporting::Part::kEnergy) {
    if (run.config().method.name == methods::kSupervised)
      core::usage_error("export",
                        fmt::format("{} has classes: export --part projection, whose outputs are their "
                                    "logits; the energy is -logsumexp of them",
                                    a.folder));
    if (run.config().method.name != "ebclr")
      core::usage_error("export", fmt::format("{} is a run of {}, which learns no energy; export --part "
                                              "features or projection",
                                              a.folder, run.config().method.name));
    auto density = density::load_density(run, {.checkpoint = a.checkpoint,
                                               .data_root = a.data_root,
                                               .data = a.data,
                                               .references = a.references,
                                               .seed = static_cast<uint64_t>(a.seed),
                                               .placement = runtime.placement()});
    for (const auto& n : density.images->notes) fmt::print(stderr, "note: {}\n", n);
    model = std::move(density.model);
    references = density.references;
  } else {
    model = run.load(a.checkpoint);
    engine::place(*model.encoder, model.head.get(), runtime.placement());
  }
  const exporting::Network network{*model.encoder, *model.head, part,
                                   a.preprocess,   references,  run.config().method.ebclr.objective.tau};
  const auto metadata = exporting::describe_run(run, model, network, EBCLR_VERSION);
  const auto result = exporting::export_network(network, format, metadata, model.image_shape, a.out);
  if (a.json) {
    print_answer(nlohmann::ordered_json{{"out", a.out},
                                        {"format", a.format},
                                        {"part", a.part},
                                        {"bytes", result.bytes},
                                        {"images_compared", result.images},
                                        {"largest_difference", result.error},
                                        {"python", result.python}});
    return;
  }
  fmt::print(
      "{}: {} of {}, epoch {}, {}; read back and compared on {} images: largest difference {:.1e} of the "
      "largest value\n\nIn Python:\n",
      a.out, a.part, a.folder, model.position.epoch, core::human_bytes(static_cast<double>(result.bytes)),
      result.images, result.error);
  for (const auto& line : result.python) fmt::print("    {}\n", line);
}

}  // namespace

void add_export_command(CLI::App& app) {
  auto a = std::make_shared<ExportArgs>();
  auto* c = app.add_subcommand("export", "Write the trained network for other programs");
  c->add_option("RUN", a->folder, "Run folder")->required();
  c->add_option("--format", a->format, "onnx, torchscript, safetensors or state_dict")
      ->check(CLI::IsMember({"onnx", "torchscript", "safetensors", "state_dict"}))
      ->capture_default_str();
  c->add_option("--out", a->out, "File to write")->required();
  c->add_option("--part", a->part, "features (before the head), projection (behind it) or energy")
      ->check(CLI::IsMember({"features", "projection", "energy"}))
      ->capture_default_str();
  c->add_flag("--preprocess", a->preprocess, "The graph takes uint8 [N, H, W, C], pixels as they are");
  c->add_option("--checkpoint", a->checkpoint, "Epoch or last")->capture_default_str();
  c->add_option("--references", a->references, "energy: views that define the marginal")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  c->add_option("--seed", a->seed, "energy: of those views")->check(kNotNegative);
  c->add_option("--data", a->data, "energy: where the run's folder of images lies now");
  c->add_option("--data-root", a->data_root, "energy: where named sets are kept");
  c->add_flag("--json", a->json, "Print the outcome as JSON");
  add_runtime_options(*c, a->runtime);
  c->callback([a] { export_run(*a); });
}

}  // namespace ebclr::cli
