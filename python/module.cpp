// The module `ebclr`. docs/python.md shows its use; ebclr.pyi has its types.

#include <fmt/format.h>
#include <pybind11/functional.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <pybind11/stl/filesystem.h>
#include <torch/torch.h>

#include <exception>
#include <memory>

#include "calls.h"
#include "core/error.h"
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

// Of one call: at 32 x 32 they take 12 GB, and their noise and gradients as much each.
constexpr int64_t kMostSamples = 1 << 20;

engine::Placement placement(const std::string& name, int threads) {
  engine::Placement p;
  p.engine = engine::parse_engine(name);
  p.engine.threads = threads;
  return p;
}

class Encoder {
 public:
  Encoder(const std::filesystem::path& folder, const std::string& checkpoint, const std::string& engine,
          int threads)
      : run_(run::Run::open(folder)), placement_(placement(engine, threads)), model_(run_.load(checkpoint)) {
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

  py::object energy(const py::object& images, int64_t references, int64_t batch, const py::object& data) {
    const auto density = density_with(references, data);
    return to_numpy(compute(images, batch, [&](const torch::Tensor& x) {
      return density::energy_of(*density, model_.head->forward(model_.encoder->forward(x)));
    }));
  }

  py::tuple sample(int64_t count, int64_t steps, const std::string& init, uint64_t seed, int64_t references,
                   const py::object& data) {
    if (count < 1 || steps < 1) core::usage_error("python", "count and steps start at 1");
    if (count > kMostSamples)
      core::usage_error("python", fmt::format("{} samples in one call; draw at most {} and others with "
                                              "another seed",
                                              count, kMostSamples));
    const auto density = density_with(references, data);
    torch::Tensor images, energies;
    {
      const py::gil_scoped_release free;
      const Turns::Turn turn(turns_);
      const Threads threads(placement_.engine.threads);
      density::ChainStarts starts(run_, *density, init, seed);
      const auto drawn = density::draw_samples(
          *density, starts.next(count),
          {.steps = steps, .age = starts.age(), .seed = seed, .progress = [](double) { check_signals(); }});
      images = drawn.samples.to(torch::kCPU);
      energies = drawn.energy_end;
    }
    return py::make_tuple(to_numpy(images), to_numpy(energies));
  }

  const std::string& method() const { return run_.config().method.name; }
  int64_t dim() const { return model_.encoder->feature_dim(); }
  int64_t epoch() const { return model_.position.epoch; }
  Wanted wanted() const { return {model_.encoder->options().channels, model_.side}; }
  py::str repr() const {
    return message_text(fmt::format("<ebclr.Encoder of {}: {}, epoch {}, {} features, {}x{}x{} images>",
                                    run_.folder().root.string(), method(), epoch(), dim(), wanted().channels,
                                    wanted().size, wanted().size));
  }

 private:
  template <class F>
  torch::Tensor compute(const py::object& images, int64_t batch, F&& f) {
    if (batch < 1) core::usage_error("python", "batch starts at 1");
    const auto all = to_images(images, wanted());
    torch::Tensor out;
    {
      const py::gil_scoped_release free;
      // One call at a time: an encoder's scratch memory is its own.
      const Turns::Turn turn(turns_);
      const Threads threads(placement_.engine.threads);
      torch::NoGradGuard no_grad;
      for (int64_t i = 0; i < all.size(); i += batch) {
        const auto y = f(all.batch(i, std::min(batch, all.size() - i))).to(torch::kCPU);
        if (!out.defined()) {
          auto sizes = y.sizes().vec();
          sizes[0] = all.size();
          out = torch::empty(sizes);
        }
        out.narrow(0, i, y.size(0)).copy_(y);
        check_signals();
      }
    }
    return out;
  }

  /// This model as a density with so many references, of the run's images where they are now; none: where
  /// they were. They are read once, whatever the numbers.
  std::shared_ptr<const density::Density> density_with(int64_t references, const py::object& data) {
    if (references < 1) core::usage_error("python", "references start at 1");
    const auto folder = data.is_none() ? std::string() : as_path(data, "data").string();
    const py::gil_scoped_release free;
    const Turns::Turn turn(turns_);
    const bool moved = !folder.empty() && folder != folder_;
    if (!moved)
      for (const auto& [number, density] : densities_)
        if (number == references) return density;
    const Threads threads(placement_.engine.threads);
    auto made = std::make_shared<const density::Density>(
        density::density_of(run_, model_,
                            {.data = moved ? folder : folder_,
                             .images = moved ? nullptr : images_,
                             .reading = [](const data::LoadProgress&) { check_signals(); },
                             .references = references,
                             .placement = placement_}));
    check_signals();
    const bool fresh = made->images != images_;
    images_ = made->images;
    if (moved) folder_ = folder, densities_.clear();
    if (densities_.size() == 2) densities_.erase(densities_.begin());  // energy and sample ask for one each
    densities_.emplace_back(references, made);
    if (fresh)
      for (const auto& note : made->images->notes) warn(note);
    return made;
  }

  run::Run run_;
  engine::Placement placement_;
  run::Model model_;
  Turns turns_;                                   // with the model's work space and what follows
  std::string folder_;                            // where the run's images are now, if they moved
  std::shared_ptr<const data::ImageSet> images_;  // the run's, once needed
  std::vector<std::pair<int64_t, std::shared_ptr<const density::Density>>> densities_;  // by references
};

std::vector<std::string> strings(const std::vector<std::filesystem::path>& paths) {
  return {paths.begin(), paths.end()};
}

py::list search(const std::filesystem::path& file, const py::object& queries, const py::object& without,
                int64_t top, bool exact, const std::filesystem::path& run, int threads) {
  const auto wanted = strings(as_paths(queries, "a query"));
  const auto unwanted =
      without.is_none() ? std::vector<std::string>{} : strings(as_paths(without, "a query"));
  if (wanted.empty()) core::usage_error("python", "no query");
  const int count = thread_count(threads);
  std::vector<std::pair<std::string, float>> found;
  {
    const py::gil_scoped_release free;
    const Threads team(count);
    const auto idx = index::Index::open(file);
    const auto looker = index::load_looker(idx, run.string(), placement("auto", count));
    const auto query =
        index::combine(index::look_at_queries(looker, wanted), index::look_at_queries(looker, unwanted));
    const auto hits = index::search(idx, query, {.top = top, .exact = exact}).front();
    for (const auto& h : hits) found.emplace_back(std::string(idx.path(h.row)), h.similarity);
  }
  py::list out;
  for (const auto& [name, similarity] : found) out.append(py::make_tuple(name_text(name), similarity));
  return out;
}

int64_t make_index(const std::filesystem::path& run, const std::filesystem::path& data,
                   const std::filesystem::path& out, bool fresh, int threads) {
  const int count = thread_count(threads);
  const py::gil_scoped_release free;
  const Threads team(count);
  std::vector<std::string> notes;
  const auto looker = index::load_looker(
      run::Run::open(run),
      {.images = data.string(), .placement = placement("auto", count), .version = EBCLR_VERSION}, notes);
  for (const auto& n : notes) warn(n);
  std::exception_ptr interrupt;  // thrown once what was done is in the file
  const auto stop = [&] {
    try {
      check_signals();
    } catch (...) {
      interrupt = std::current_exception();
    }
    return interrupt != nullptr;
  };
  index::BuildReport r;
  try {
    r = index::build_index(looker, data, out, {.fresh = fresh, .stop = stop});
  } catch (const core::Error&) {
    if (!interrupt) throw;  // else there was nothing to keep yet
  }
  if (interrupt) std::rethrow_exception(interrupt);
  constexpr size_t kNamed = 10;
  for (size_t i = 0; i < std::min(kNamed, r.unreadable.size()); ++i)
    warn("left out: " + index::line(r.unreadable[i]));
  if (r.unreadable.size() > kNamed) warn(fmt::format("left out: {} more", r.unreadable.size() - kNamed));
  for (size_t i = 0; i < std::min(kNamed, r.unseen.size()); ++i) warn(r.unseen[i]);
  for (const auto& n : r.notes) warn(n);
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
      PyErr_SetObject(e.code() == core::ExitCode::kUsage ? usage.ptr() : error.ptr(),
                      message_text(e.what()).ptr());
    } catch (const c10::Error& e) {
      PyErr_SetObject(error.ptr(), message_text(e.what_without_backtrace()).ptr());
    }
  });

  py::class_<Encoder>(m, "Encoder", "A trained encoder, frozen.")
      .def("embed", &Encoder::embed, py::arg("images"), py::arg("part") = "features", py::arg("batch") = 256,
           "Features float32 [N, D] of images (before the projection head, or behind it with "
           "part='projection').")
      .def("energy", &Encoder::energy, py::arg("images"), py::arg("references") = 512, py::arg("batch") = 256,
           py::arg("data") = py::none(),
           "Energies float32 [N]: low where the model expects images. Needs the run's own images; data: the "
           "folder where they are now.")
      .def("sample", &Encoder::sample, py::arg("count") = 64, py::arg("steps") = 100,
           py::arg("init") = "data", py::arg("seed") = 0, py::arg("references") = 128,
           py::arg("data") = py::none(),
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
        const int count = thread_count(threads);
        const py::gil_scoped_release free;
        const Threads team(count);
        return std::make_unique<Encoder>(run, checkpoint, engine, count);
      },
      py::arg("run"), py::arg("checkpoint") = "last", py::arg("engine") = "auto", py::arg("threads") = 0,
      "The encoder of a run folder. threads: of its calls; 0: as many as torch uses now.");
  m.def("index", &make_index, py::arg("run"), py::arg("data"), py::arg("out"), py::arg("fresh") = false,
        py::arg("threads") = 0,
        "Makes or renews an index of a folder of images; the number of images in it. Files that cannot be "
        "read are left out with a warning. Ctrl-C keeps what was done.");
  m.def("search", &search, py::arg("index"), py::arg("queries"), py::arg("without") = py::none(),
        py::arg("top") = 12, py::arg("exact") = false, py::arg("run") = "", py::arg("threads") = 0,
        "Pairs of path and similarity, most similar first.");
  add_training(m);
  // For the tests: where the images that an encoder would read begin in memory.
  m.def("_address", [](const py::object& images, int64_t channels) {
    return reinterpret_cast<uintptr_t>(to_images(images, {channels, 32}).pixels.data_ptr());
  });
}
