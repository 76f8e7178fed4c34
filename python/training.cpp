#include "training.h"

#include <fmt/format.h>
#include <pybind11/stl.h>
#include <torch/torch.h>

#include <atomic>
#include <exception>

#include "calls.h"
#include "core/error.h"
#include "data/catalog.h"
#include "eval/features.h"
#include "run/config.h"
#include "run/images.h"
#include "train/trainer.h"

namespace py = pybind11;

namespace ebclr::python {
namespace {

/// Calls Python after each step; what Python raises, Ctrl-C included, stops the run at a checkpoint. So do
/// warnings where Python's filters make errors of them.
class Watch : public train::Observer {
 public:
  explicit Watch(const py::object& on_step) : on_step_(on_step) {}

  void on_step(const train::StepReport& r) override {
    const py::gil_scoped_acquire gil;
    if (failure_) return;
    try {
      if (PyErr_CheckSignals() != 0) throw py::error_already_set();
      if (on_step_.is_none()) return;
      py::dict d;
      d["step"] = r.position.step;
      d["epoch"] = r.position.epoch;
      d["total_steps"] = r.total_steps;
      d["loss"] = r.loss;
      d["lr"] = r.lr;
      d["grad_norm"] = r.grad_norm;
      d["images_per_second"] = r.images_per_second;
      for (const auto& [name, value] : r.metrics) d[py::str(name)] = value;
      on_step_(d);
    } catch (...) {
      end();
    }
  }
  void on_warning(const std::string& text) override {
    if (failure_) return;
    try {
      warn(text);
    } catch (...) {
      end();
    }
  }
  /// What Python raised, if it did.
  void rethrow() const {
    if (failure_) std::rethrow_exception(failure_);
  }

  std::atomic<bool> stop{false};

 private:
  void end() {
    failure_ = std::current_exception();
    stop = true;
  }

  const py::object& on_step_;
  std::exception_ptr failure_;
};

std::string text_of(const py::handle& value) {
  if (py::isinstance<py::bool_>(value)) return value.cast<bool>() ? "true" : "false";
  return bytes_of(value);
}

/// The layers of a file, a shipped name or a mapping of keys.
std::vector<run::Layer> layers_of(const py::object& config, std::vector<std::string>& warnings) {
  if (is_path(config)) return {run::read_layer(as_path(config, "config").string(), warnings)};
  if (!py::hasattr(config, "keys"))
    core::usage_error(
        "python", fmt::format("config of type {}; give a file, a shipped name or a dict", type_of(config)));
  std::vector<run::Layer> layers;
  run::Layer own{"python", {}};
  for (const auto& [key, value] : py::dict(config)) {
    const std::string name = bytes_of(key);
    if (name == "config") {
      layers.push_back(run::read_layer(text_of(value), warnings));
    } else {
      own.values.emplace_back(name, text_of(value));
    }
  }
  layers.push_back(std::move(own));
  return layers;
}

void train_run(const run::RunFolder& folder, const std::vector<run::Layer>& layers, bool resumed,
               const std::string& engine, int threads, Watch& watch) {
  const Threads team(threads);
  auto config = run::resolve(layers);
  if (config.data.source.empty())
    core::usage_error("python", "no images: set 'data.source' to a name or a folder");
  train::check_run_folder(folder, resumed);
  config.data = run::absolute(config.data);
  auto options = engine::parse_engine(engine);
  options.threads = threads;
  const data::LoadContext context{.threads = threads,
                                  .progress = [](const data::LoadProgress&) { check_signals(); }};
  auto sets =
      resumed ? run::load_to_resume(folder, config, context) : run::load_images(folder, config.data, context);
  if (resumed) run::check_same_images(folder, sets.list, config.data.source);
  for (const auto& note : sets.train.notes) watch.on_warning(note);
  const auto images = std::make_shared<data::ImageSet>(std::move(sets.train));
  const auto monitor = resumed ? eval::monitor_to_resume(
                                     config, *images, sets.test,
                                     [&](const std::string& text) { watch.on_warning(text); }, threads)
                               : eval::monitor_of(config, *images, sets.test, threads);
  check_signals();  // before there is a folder
  watch.rethrow();
  train::Trainer trainer({.folder = folder,
                          .config = config,
                          .list = std::move(sets.list),
                          .resume = resumed,
                          .engine = options,
                          .loader_threads = threads},
                         images, watch);
  for (const auto& problem : sets.problems)
    trainer.log(fmt::format("unreadable: {}: {}", problem.path, problem.reason));
  if (monitor) trainer.set_monitor([&] { return monitor(trainer.method().encoder()); });
  trainer.run(watch.stop);
}

py::str start(const py::object& config, const py::object& out, const py::object& on_step,
              const py::object& resume, const std::string& engine, int threads, const py::object& data) {
  if (!on_step.is_none() && !PyCallable_Check(on_step.ptr()))
    core::usage_error("python",
                      fmt::format("on_step of type {}; give a function that takes a dict", type_of(on_step)));
  std::vector<std::string> warnings;
  std::vector<run::Layer> layers;
  run::RunFolder folder;
  const bool resumed = !resume.is_none();
  if (resumed) {
    if (!config.is_none() || !out.is_none())
      core::usage_error("python", "resume takes everything from the run folder; leave config and out away");
    folder.root = as_path(resume, "resume");
    layers.push_back(run::read_run_layer(run::Run::open(folder.root).folder().config()));
    if (!data.is_none())
      layers.push_back(
          {"data", {{"data.source", std::filesystem::absolute(as_path(data, "data")).string()}}});
  } else {
    if (!data.is_none())
      core::usage_error("python", "data says where the images of a run to resume are now; set 'data.source'");
    if (config.is_none())
      core::usage_error("python", "no configuration: give a file, a shipped name or a dict");
    if (out.is_none()) core::usage_error("python", "say where the run goes: out='runs/mine'");
    folder.root = as_path(out, "out");
    layers = layers_of(config, warnings);
  }
  Watch watch(on_step);
  for (const auto& w : warnings) watch.on_warning(w);
  const int count = thread_count(threads);
  {
    const py::gil_scoped_release free;
    train_run(folder, layers, resumed, engine, count, watch);
  }
  watch.rethrow();
  return name_text(folder.root.string());
}

}  // namespace

void add_training(py::module_& m) {
  m.def("train", &start, py::arg("config") = py::none(), py::arg("out") = py::none(),
        py::arg("on_step") = py::none(), py::arg("resume") = py::none(), py::arg("engine") = "auto",
        py::arg("threads") = 0, py::arg("data") = py::none(),
        "Trains a run; the folder of the run. config: a file, a shipped name, or a dict of keys (with "
        "'config' for "
        "a file or name to start from). on_step hears a dict after each step; what it raises, and Ctrl-C, "
        "stops at a "
        "checkpoint, from which resume goes on; data: the folder where its images are now.");
}

}  // namespace ebclr::python
