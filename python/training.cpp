#include "training.h"

#include <fmt/format.h>
#include <pybind11/functional.h>
#include <pybind11/stl.h>
#include <pybind11/stl/filesystem.h>
#include <torch/torch.h>

#include <atomic>
#include <map>

#include "core/error.h"
#include "core/threads.h"
#include "run/config.h"
#include "run/images.h"
#include "train/trainer.h"

namespace py = pybind11;

namespace ebclr::python {
namespace {

/// Calls Python after each step; what Python raises, Ctrl-C included, stops the run at a checkpoint.
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
      failure_ = std::current_exception();
      stop = true;
    }
  }
  void on_warning(const std::string& text) override {
    const py::gil_scoped_acquire gil;
    if (PyErr_WarnEx(PyExc_UserWarning, text.c_str(), 1) != 0) PyErr_Clear();
  }
  void rethrow() const {
    if (failure_) std::rethrow_exception(failure_);
  }

  std::atomic<bool> stop{false};

 private:
  const py::object& on_step_;
  std::exception_ptr failure_;
};

std::string text_of(const py::handle& value) {
  if (py::isinstance<py::bool_>(value)) return value.cast<bool>() ? "true" : "false";
  return py::str(value);
}

std::string start(const py::object& config, const py::object& out, const py::object& on_step,
                  const py::object& resume, const std::string& engine, int threads) {
  std::vector<std::string> warnings;
  std::vector<run::Layer> layers;
  run::RunFolder folder;
  const bool resumed = !resume.is_none();
  if (resumed) {
    if (!config.is_none() || !out.is_none())
      core::usage_error("python", "resume takes everything from the run folder; leave config and out away");
    folder.root = resume.cast<std::filesystem::path>();
    layers.push_back(run::read_run_layer(run::Run::open(folder.root).folder().config()));
  } else {
    if (config.is_none())
      core::usage_error("python", "no configuration: give a file, a shipped name or a dict");
    if (out.is_none()) core::usage_error("python", "say where the run goes: out='runs/mine'");
    folder.root = out.cast<std::filesystem::path>();
    if (py::isinstance<py::dict>(config)) {
      run::Layer layer{"python", {}};
      for (const auto& [key, value] : config.cast<py::dict>()) {
        const std::string name = py::str(key);
        if (name == "config") {
          layers.push_back(run::read_layer(text_of(value), warnings));
        } else {
          layer.values.emplace_back(name, text_of(value));
        }
      }
      layers.push_back(layer);
    } else {
      layers.push_back(run::read_layer(config.cast<std::filesystem::path>().string(), warnings));
    }
  }
  Watch watch(on_step);
  for (const auto& w : warnings) watch.on_warning(w);
  {
    const py::gil_scoped_release free;
    at::set_num_threads(threads > 0 ? threads : core::available_cores());
    auto resolved = run::resolve(layers);
    if (resolved.data.source.empty())
      core::usage_error("python", "no images: set 'data.source' to a name or a folder");
    train::check_run_folder(folder, resumed);
    resolved.data = run::absolute(resolved.data);
    auto options = engine::parse_engine(engine);
    options.threads = at::get_num_threads();
    auto sets = run::load_images(folder, resolved.data);
    if (resumed) run::check_same_images(folder, sets.list, resolved.data.source);
    train::Trainer trainer({.folder = folder,
                            .config = resolved,
                            .list = std::move(sets.list),
                            .resume = resumed,
                            .engine = options},
                           std::make_shared<data::ImageSet>(std::move(sets.train)), watch);
    trainer.run(watch.stop);
  }
  watch.rethrow();
  return folder.root.string();
}

}  // namespace

void add_training(py::module_& m) {
  m.def("train", &start, py::arg("config") = py::none(), py::arg("out") = py::none(),
        py::arg("on_step") = py::none(), py::arg("resume") = py::none(), py::arg("engine") = "auto",
        py::arg("threads") = 0,
        "Trains a run; the folder of the run. config: a file, a shipped name, or a dict of keys (with "
        "'config' for "
        "a file or name to start from). on_step hears a dict after each step; what it raises, and Ctrl-C, "
        "stops at a "
        "checkpoint, from which resume goes on.");
}

}  // namespace ebclr::python
