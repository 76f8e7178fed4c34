// The module `ebclr`. docs/python.md shows its use; ebclr.pyi has its types.

#include <fmt/format.h>
#include <pybind11/functional.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <pybind11/stl/filesystem.h>
#include <torch/torch.h>

#include <mutex>

#include "core/error.h"
#include "core/threads.h"
#include "data/image_set.h"
#include "density/density.h"
#include "density/samples.h"
#include "images.h"
#include "index/build.h"
#include "index/search.h"
#include "run/run.h"
#include "training.h"

namespace py = pybind11;

namespace ebclr::python {
namespace {

/// Ctrl-C: asked between batches, with the GIL for a moment.
void check_signals() {
  const py::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

engine::Placement placement(const std::string& name, int threads) {
  at::set_num_threads(threads > 0 ? threads : core::available_cores());
  engine::Placement p;
  p.engine = engine::parse_engine(name);
  p.engine.threads = at::get_num_threads();
  return p;
}

class Encoder {
 public:
  Encoder(const std::filesystem::path& folder, const std::string& checkpoint, const std::string& engine,
          int threads)
      : run_(run::Run::open(folder)),
        placement_(placement(engine, threads)),
        model_(run_.load(checkpoint)),
        checkpoint_(checkpoint) {
    engine::place(*model_.encoder, model_.head.get(), placement_);
  }

  py::object embed(const py::object& images, const std::string& part, int64_t batch) {
    if (part != "features" && part != "projection")
      core::usage_error("python", fmt::format("part '{}'; choose features or projection", part));
    return to_numpy(compute(images, batch, [&](const torch::Tensor& x) {
      const auto f = model_.encoder->forward(x);
      return part == "features" ? f : model_.head->forward(f);
    }));
  }

  py::object energy(const py::object& images, int64_t references, int64_t batch) {
    need_density(references);
    return to_numpy(compute(images, batch, [&](const torch::Tensor& x) {
      return density::energy_of(*density_, model_.head->forward(model_.encoder->forward(x)));
    }));
  }

  py::tuple sample(int64_t count, int64_t steps, const std::string& init, uint64_t seed, int64_t references) {
    if (count < 1 || steps < 1) core::usage_error("python", "count and steps start at 1");
    need_density(references);
    torch::Tensor images, energies;
    {
      const py::gil_scoped_release free;
      const std::lock_guard guard(lock_);
      density::ChainStarts starts(run_, *density_, init, seed);
      const auto drawn = density::draw_samples(
          *density_, starts.next(count),
          {.steps = steps, .age = starts.age(), .seed = seed, .progress = [](double) { check_signals(); }});
      images = drawn.samples.to(torch::kCPU);
      energies = drawn.energy_end;
    }
    return py::make_tuple(to_numpy(images), to_numpy(energies));
  }

  const std::string& method() const { return run_.config().method.name; }
  int64_t dim() const { return model_.encoder->feature_dim(); }
  int64_t epoch() const { return model_.position.epoch; }
  Wanted wanted() const {
    return {model_.encoder->options().channels, model_.image_shape.size() == 3 ? model_.image_shape[1] : 32};
  }
  std::string repr() const {
    return fmt::format("<ebclr.Encoder of {}: {}, epoch {}, {} features, {}x{}x{} images>",
                       run_.folder().root.string(), method(), epoch(), dim(), wanted().channels,
                       wanted().size, wanted().size);
  }

 private:
  template <class F>
  torch::Tensor compute(const py::object& images, int64_t batch, F&& f) {
    if (batch < 1) core::usage_error("python", "batch starts at 1");
    auto all = to_images(images, wanted());
    torch::Tensor out;
    {
      const py::gil_scoped_release free;
      // One call at a time: an encoder's scratch memory is its own.
      const std::lock_guard guard(lock_);
      torch::NoGradGuard no_grad;
      for (int64_t i = 0; i < all.size(0); i += batch) {
        auto x = all.narrow(0, i, std::min(batch, all.size(0) - i));
        if (x.scalar_type() == torch::kUInt8) x = data::to_unit_range(x);
        const auto y = f(x.contiguous()).to(torch::kCPU);
        if (!out.defined()) {
          auto sizes = y.sizes().vec();
          sizes[0] = all.size(0);
          out = torch::empty(sizes);
        }
        out.narrow(0, i, y.size(0)).copy_(y);
        check_signals();
      }
    }
    all.reset();  // while the GIL is held
    return out;
  }

  void need_density(int64_t references) {
    if (density_ && references_ == references) return;
    const py::gil_scoped_release free;
    const std::lock_guard guard(lock_);
    density_ = std::make_unique<density::Density>(density::load_density(
        run_, {.checkpoint = checkpoint_, .references = references, .placement = placement_}));
    references_ = references;
  }

  run::Run run_;
  engine::Placement placement_;
  run::Model model_;
  std::string checkpoint_;
  std::unique_ptr<density::Density> density_;
  int64_t references_ = 0;
  std::mutex lock_;
};

std::vector<std::string> as_paths(const py::object& given) {
  if (py::isinstance<py::str>(given) || py::hasattr(given, "__fspath__"))
    return {given.cast<std::filesystem::path>().string()};
  std::vector<std::string> out;
  for (const auto& item : given) out.push_back(item.cast<std::filesystem::path>().string());
  return out;
}

std::vector<std::pair<std::string, float>> search(const std::filesystem::path& file,
                                                  const py::object& queries, const py::object& without,
                                                  int64_t top, bool exact, const std::string& run) {
  const auto wanted = as_paths(queries);
  const auto unwanted = without.is_none() ? std::vector<std::string>{} : as_paths(without);
  if (wanted.empty()) core::usage_error("python", "no query");
  const py::gil_scoped_release free;
  const auto idx = index::Index::open(file);
  const auto looker = index::load_looker(idx, run, placement("auto", 0));
  const auto query =
      index::combine(index::look_at_queries(looker, wanted), index::look_at_queries(looker, unwanted));
  std::vector<std::pair<std::string, float>> out;
  const auto hits = index::search(idx, query, {.top = top, .exact = exact}).front();
  for (const auto& h : hits) out.emplace_back(std::string(idx.path(h.row)), h.similarity);
  return out;
}

int64_t make_index(const std::filesystem::path& run, const std::filesystem::path& data,
                   const std::filesystem::path& out, bool fresh) {
  const py::gil_scoped_release free;
  std::vector<std::string> notes;
  const auto looker = index::load_looker(
      run::Run::open(run), {.placement = placement("auto", 0), .version = EBCLR_VERSION}, notes);
  const auto r = index::build_index(looker, data, out, {.fresh = fresh, .stop = [] {
                                                          check_signals();
                                                          return false;
                                                        }});
  return r.kept + r.added;
}

}  // namespace
}  // namespace ebclr::python

PYBIND11_MODULE(ebclr, m) {
  using namespace ebclr;
  using namespace ebclr::python;
  m.doc() = "Visual representations without labels by Energy-Based Contrastive Learning.";
  m.attr("__version__") = EBCLR_VERSION;

  static py::exception<core::Error> error(m, "Error", PyExc_RuntimeError);
  static py::handle usage =
      py::reinterpret_steal<py::object>(
          PyErr_NewException("ebclr.UsageError", py::make_tuple(error, py::handle(PyExc_ValueError)).ptr(),
                             nullptr))
          .release();
  m.attr("UsageError") = usage;
  py::register_exception_translator([](std::exception_ptr p) {
    try {
      if (p) std::rethrow_exception(p);
    } catch (const core::Error& e) {
      PyErr_SetString(e.code() == core::ExitCode::kUsage ? usage.ptr() : error.ptr(), e.what());
    } catch (const c10::Error& e) {
      PyErr_SetString(error.ptr(), e.what_without_backtrace());
    }
  });

  py::class_<Encoder>(m, "Encoder", "A trained encoder, frozen.")
      .def("embed", &Encoder::embed, py::arg("images"), py::arg("part") = "features", py::arg("batch") = 256,
           "Features float32 [N, D] of images (before the projection head, or behind it with "
           "part='projection').")
      .def("energy", &Encoder::energy, py::arg("images"), py::arg("references") = 512, py::arg("batch") = 256,
           "Energies float32 [N]: low where the model expects images. Needs the run's own images.")
      .def("sample", &Encoder::sample, py::arg("count") = 64, py::arg("steps") = 100,
           py::arg("init") = "data", py::arg("seed") = 0, py::arg("references") = 128,
           "Images float32 [N, C, H, W] drawn by Langevin dynamics, and their energies.")
      .def_property_readonly("method", &Encoder::method)
      .def_property_readonly("dim", &Encoder::dim, "Features per image.")
      .def_property_readonly("epoch", &Encoder::epoch)
      .def_property_readonly("channels", [](const Encoder& e) { return e.wanted().channels; })
      .def_property_readonly("image_size", [](const Encoder& e) { return e.wanted().size; })
      .def("__repr__", &Encoder::repr);
  m.def(
      "load",
      [](const std::filesystem::path& run, const std::string& checkpoint, const std::string& engine,
         int threads) {
        const py::gil_scoped_release free;
        return std::make_unique<Encoder>(run, checkpoint, engine, threads);
      },
      py::arg("run"), py::arg("checkpoint") = "last", py::arg("engine") = "auto", py::arg("threads") = 0,
      "The encoder of a run folder.");
  m.def("index", &make_index, py::arg("run"), py::arg("data"), py::arg("out"), py::arg("fresh") = false,
        "Makes or renews an index of a folder of images; the number of images in it.");
  m.def("search", &search, py::arg("index"), py::arg("queries"), py::arg("without") = py::none(),
        py::arg("top") = 12, py::arg("exact") = false, py::arg("run") = "",
        "Pairs of path and similarity, most similar first.");
  add_training(m);
  // For the tests: where the images that an encoder would read begin in memory.
  m.def("_address", [](const py::object& images, int64_t channels) {
    return reinterpret_cast<uintptr_t>(to_images(images, {channels, 32}).data_ptr());
  });
}
