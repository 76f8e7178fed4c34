#include "fid/fid.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>

#include "core/error.h"
#include "data/loader.h"
#include "data/other_set.h"
#include "density/samples.h"
#include "ebm/replay_buffer.h"
#include "fid/frechet.h"
#include "fid/inception.h"

namespace ebclr::fid {
namespace {
constexpr std::string_view kFidComponent = "fid";
constexpr int64_t kChunk = 250;  // images in memory at a time
constexpr int64_t kGrid = 64;

void check(const FrechetOptions& o) {
  if (o.samples < 2) core::usage_error(kFidComponent, fmt::format("{} samples; use 2 or more", o.samples));
  if (o.reference_images < 2)
    core::usage_error(kFidComponent, fmt::format("{} reference images; use 2 or more", o.reference_images));
  if (o.steps < 0) core::usage_error(kFidComponent, fmt::format("{} steps; use 0 or more", o.steps));
  if (o.marginal_views < 1)
    core::usage_error(kFidComponent,
                      fmt::format("{} views that define the marginal; use 1 or more", o.marginal_views));
  if (o.against != "views" && o.against != "images")
    core::usage_error(kFidComponent, fmt::format("comparison with '{}'; choose views or images", o.against));
}

data::TrainTest load_set(const run::Run& run, const FrechetOptions& o) {
  auto source = data::other_set(run.config().data, o.data);
  // The ruler is of the set, not of the part that a run was trained on: runs stay comparable.
  source.limit = o.limit;
  source.limit_test = o.limit;
  if (!o.data_root.empty()) source.data_root = o.data_root;
  return data::load(source);
}

/// Real images or views of them in a fixed order.
class RealImages {
 public:
  RealImages(const data::ImageSet& set, torch::Tensor indices, const data::ViewOptions* views, uint64_t seed)
      : set_(set), indices_(std::move(indices)), seed_(core::make_key({seed, 0xF1D})) {
    if (views) maker_.emplace(*views, set.channels(), set.height(), set.width());
  }

  /// Views may show an image more than once, images may not.
  int64_t available(int64_t wanted) const { return maker_ ? wanted : std::min(wanted, indices_.numel()); }
  int64_t sources(int64_t wanted) const { return std::min(wanted, indices_.numel()); }

  /// Images number first .. first + n - 1 [n, C, H, W], at most up to the end of a round over the images.
  torch::Tensor get(int64_t first, int64_t n) const {
    const int64_t round = first / indices_.numel(), offset = first % indices_.numel();
    const auto rows = indices_.narrow(0, offset, std::min(n, indices_.numel() - offset));
    if (!maker_) return data::to_unit_range(set_.pixels.index_select(0, rows));
    return data::make_views(*maker_, set_, rows, seed_, static_cast<uint64_t>(round), 0,
                            static_cast<uint64_t>(first));
  }

 private:
  const data::ImageSet& set_;
  torch::Tensor indices_;
  std::optional<data::ViewMaker> maker_;
  uint64_t seed_;
};

struct Meter {
  Ruler& ruler;
  const eval::Progress& progress;

  void tell(const std::string& what, double share) const {
    if (progress) progress(what, share);
  }
  void add(Moments& moments, const torch::Tensor& images) const {
    moments.add(ruler.features(quantise(images)));
  }

  Gaussian real(const RealImages& images, int64_t count, const std::string& what) const {
    Moments moments;
    while (moments.count() < count) {
      tell(what, static_cast<double>(moments.count()) / static_cast<double>(count));
      add(moments, images.get(moments.count(), std::min(kChunk, count - moments.count())));
    }
    return moments.gaussian();
  }
  Gaussian noise(int64_t count, const std::vector<int64_t>& shape, uint64_t seed) const {
    Moments moments;
    core::Rng rng(seed, core::Stream::kEval, {0xF1D});
    while (moments.count() < count) {
      tell("measuring noise", static_cast<double>(moments.count()) / static_cast<double>(count));
      add(moments, ebm::uniform_images(std::min(kChunk, count - moments.count()), shape, rng));
    }
    return moments.gaussian();
  }
};

}  // namespace

torch::Tensor quantise(const torch::Tensor& images) {
  return images.add(1).mul_(127.5).round_().clamp_(0, 255).mul_(2.0 / 255.0).sub_(1);
}

FrechetResult frechet_of_run(const run::Run& run, const FrechetOptions& o, const eval::Progress& progress) {
  check(o);
  FrechetResult r;
  // What can be wrong with files and names is found before anything takes time.
  std::unique_ptr<Ruler> ruler;
  if (!o.inception.empty())
    ruler = make_inception_ruler({.file = o.inception,
                                  .range = o.inception_range,
                                  .dimensions = o.inception_dimensions,
                                  .device = o.placement.device});
  auto density = density::load_density(run, {.checkpoint = o.checkpoint,
                                             .data_root = o.data_root,
                                             .references = o.marginal_views,
                                             .seed = o.seed,
                                             .placement = o.placement});
  density::ChainStarts starts(run, density, o.init, o.seed);
  r.samples = o.samples;
  if (starts.available() >= 0 && starts.available() < r.samples) {
    r.samples = starts.available();
    r.notes.push_back(fmt::format("the replay buffer holds {} chains: so many samples instead of {}",
                                  r.samples, o.samples));
    if (r.samples < 2)
      core::usage_error(kFidComponent,
                        "the replay buffer holds fewer than 2 chains; use --init data or uniform");
  }
  const auto sets = load_set(run, o);
  const auto& real = sets.train;
  const std::vector<int64_t> shape = {density.images->channels(), density.images->height(),
                                      density.images->width()};
  if (real.size() < 4)
    core::usage_error(kFidComponent,
                      fmt::format("'{}' has {} train images; 4 or more are needed", real.name, real.size()));
  if (o.inception.empty() && real.pixels.sizes().slice(1) != torch::IntArrayRef(shape))
    core::usage_error(
        kFidComponent,
        fmt::format(
            "samples of the run are {}, images of {} are {}; choose a set of the same shape, or compare with "
            "--inception",
            fmt::join(shape, " x "), real.name, fmt::join(real.pixels.sizes().slice(1).vec(), " x ")));

  auto pool = torch::arange(real.size(), torch::kInt64);
  if (!ruler) {
    const auto root = !o.data_root.empty()                   ? o.data_root
                      : !run.config().data.data_root.empty() ? run.config().data.data_root
                                                             : data::default_data_root();
    auto c = make_classifier_ruler(sets, o.classifier, root / "fid", o.placement, progress);
    r.classifier_accuracy = c.accuracy;
    r.classifier_cached = c.cached;
    r.notes.insert(r.notes.end(), c.notes.begin(), c.notes.end());
    // Features of images that the classifier was trained on differ from those of new ones: none of them is
    // used.
    pool = c.unseen;
    ruler = std::move(c.ruler);
  }
  r.inception = !o.inception.empty();
  r.label = ruler->label();
  r.ruler = ruler->description();
  r.dimensions = ruler->dimensions();
  r.data = real.name;
  r.against = o.against;
  r.epoch = density.model.position.epoch;

  // Two disjoint parts of the real images: the reference, and the floor's.
  pool = pool.index_select(0, data::epoch_order(pool.numel(), o.seed, 0xF1D));
  const int64_t floor_part = std::min(r.samples, pool.numel() / 2);
  const int64_t reference_part = std::min(o.reference_images, pool.numel() - floor_part);
  const data::ViewOptions* views = o.against == "views" ? &run.config().views : nullptr;
  const RealImages reference(real, pool.narrow(0, floor_part, reference_part), views, o.seed);
  const RealImages others(real, pool.narrow(0, 0, floor_part), views, o.seed);
  r.references = reference.available(o.reference_images);
  const int64_t floor_count = others.available(r.samples);
  r.reference_sources = reference.sources(r.references);
  r.floor_sources = others.sources(floor_count);
  const std::string kind = o.against == "views" ? "views" : "images";
  if (r.references > r.reference_sources)
    r.notes.push_back(
        fmt::format("{} reference views show only {} different images", r.references, r.reference_sources));
  else if (r.references < o.reference_images)
    r.notes.push_back(fmt::format("{} reference {} instead of {}: '{}' has no more", r.references, kind,
                                  o.reference_images, real.name));
  if (floor_count < r.samples)
    r.notes.push_back(fmt::format("the floor is measured with {} images only, which raises it", floor_count));
  else if (floor_count > r.floor_sources)
    r.notes.push_back(fmt::format("the floor's {} views show only {} different images, which raises it",
                                  floor_count, r.floor_sources));
  if (const int64_t fewest = std::min(r.samples, r.references); fewest <= r.dimensions)
    r.notes.push_back(
        fmt::format("{} images are not more than the {} dimensions: covariances are singular and the "
                    "distance is too large; compare only with equal counts, or use more images",
                    fewest, r.dimensions));

  const Meter meter{*ruler, progress};
  const FrechetReference ground(meter.real(reference, r.references, fmt::format("measuring real {}", kind)));
  r.floor = ground.distance(meter.real(others, floor_count, fmt::format("measuring other real {}", kind)));
  r.ceiling = ground.distance(meter.noise(r.samples, shape, o.seed));

  Moments begun, drawn;
  std::vector<torch::Tensor> grid;
  for (int64_t done = 0; done < r.samples; done = drawn.count()) {
    const auto share = [&](double of_chunk, int64_t n) {
      meter.tell("sampling", (static_cast<double>(done) + of_chunk * static_cast<double>(n)) /
                                 static_cast<double>(r.samples));
    };
    const auto start = starts.next(std::min(kChunk, r.samples - done));
    const int64_t n = start.size(0);
    const auto chunk = density::draw_samples(density, start.to(o.placement.device),
                                             {.steps = o.steps,
                                              .age = starts.age(),
                                              .seed = core::make_key({o.seed, static_cast<uint64_t>(done)}),
                                              .progress = [&](double part) { share(part, n); }});
    const auto samples = chunk.samples.to(torch::kCPU);
    if (!torch::isfinite(samples).all().item<bool>())
      core::run_error(kFidComponent,
                      fmt::format("chains of {} diverged: samples are not finite; use fewer --steps",
                                  run.folder().root.string()));
    meter.add(begun, start);
    meter.add(drawn, samples);
    const double weight = static_cast<double>(n) / static_cast<double>(r.samples);
    r.energy_start += weight * chunk.energy_start.mean().item<double>();
    r.energy_end += weight * chunk.energy_end.mean().item<double>();
    r.out_of_range += weight * chunk.out_of_range;
    if (done < kGrid) grid.push_back(samples.narrow(0, 0, std::min(n, kGrid - done)).clone());
  }
  r.grid = torch::cat(grid);
  meter.tell("computing distances", 1);
  r.start = ground.distance(begun.gaussian());
  r.distance = ground.distance(drawn.gaussian());
  return r;
}

}  // namespace ebclr::fid
