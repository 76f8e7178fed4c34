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
constexpr int64_t kParts = 10;  // of the samples, each left out once to see how much their choice matters

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
  // The classifier is of the set, not of the part that a run was trained on: runs stay comparable.
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
    if (views) maker_.emplace(*views, set);
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
  FeatureExtractor& extractor;
  const eval::Progress& progress;

  void tell(const std::string& what, double share) const {
    if (progress) progress(what, share);
  }
  torch::Tensor features(const torch::Tensor& images) const { return extractor.features(quantise(images)); }
  void add(Moments& moments, const torch::Tensor& images) const { moments.add(features(images)); }

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

// As many samples as there are starts.
void settle_samples(const density::ChainStarts& starts, const FrechetOptions& o, FrechetResult& r) {
  r.samples = o.samples;
  if (starts.available() < 0 || starts.available() >= r.samples) return;
  r.samples = starts.available();
  r.notes.push_back(
      fmt::format("the replay buffer holds {} chains: so many samples instead of {}", r.samples, o.samples));
  if (r.samples < 2)
    core::usage_error(kFidComponent,
                      "the replay buffer holds fewer than 2 chains; use --init data or uniform");
}

void check_real(const data::ImageSet& real, const std::vector<int64_t>& shape, bool any_shape) {
  if (real.size() < 4)
    core::usage_error(kFidComponent,
                      fmt::format("'{}' has {} train images; 4 or more are needed", real.name, real.size()));
  if (!any_shape && real.pixels.sizes().slice(1) != torch::IntArrayRef(shape))
    core::usage_error(
        kFidComponent,
        fmt::format(
            "samples of the run are {}, images of {} are {}; choose a set of the same shape, or compare with "
            "--inception",
            fmt::join(shape, " x "), real.name, fmt::join(real.pixels.sizes().slice(1).vec(), " x ")));
}

std::filesystem::path classifier_cache(const run::Run& run, const FrechetOptions& o) {
  const auto& own = run.config().data.data_root;
  return (!o.data_root.empty() ? o.data_root : !own.empty() ? own : data::default_data_root()) / "fid";
}

/// Two disjoint parts of the real images: the reference, and what a perfect model would give.
struct RealParts {
  RealImages reference, others;
};

RealParts real_parts(const data::ImageSet& real, torch::Tensor pool, const run::Run& run,
                     const FrechetOptions& o, const FrechetResult& r) {
  pool = pool.index_select(0, data::epoch_order(pool.numel(), o.seed, 0xF1D));
  const int64_t floor_part = std::min(r.samples, pool.numel() / 2);
  const int64_t reference_part = std::min(o.reference_images, pool.numel() - floor_part);
  const data::ViewOptions* views = o.against == "views" ? &run.config().views : nullptr;
  return {RealImages(real, pool.narrow(0, floor_part, reference_part), views, o.seed),
          RealImages(real, pool.narrow(0, 0, floor_part), views, o.seed)};
}

// Counts that change what the figures mean.
void note_counts(const std::string& set, int64_t floor_count, const FrechetOptions& o, FrechetResult& r) {
  if (r.references > r.reference_sources)
    r.notes.push_back(
        fmt::format("{} reference views show only {} different images", r.references, r.reference_sources));
  else if (r.references < o.reference_images)
    r.notes.push_back(fmt::format("{} reference {} instead of {}: '{}' has no more", r.references, o.against,
                                  o.reference_images, set));
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
}

// Draws the samples chunk by chunk and measures them against the reference.
void measure_samples(const run::Run& run, const density::Density& density, density::ChainStarts& starts,
                     const Meter& meter, const FrechetReference& ground, const FrechetOptions& o,
                     FrechetResult& r) {
  Moments begun, drawn;
  std::vector<Moments> parts(kParts);
  std::vector<torch::Tensor> grid;
  for (int64_t done = 0; done < r.samples; done = drawn.count()) {
    const auto start = starts.next(std::min(kChunk, r.samples - done));
    const int64_t n = start.size(0);
    const auto share = [&](double of_chunk) {
      meter.tell("sampling", (static_cast<double>(done) + of_chunk * static_cast<double>(n)) /
                                 static_cast<double>(r.samples));
    };
    const auto chunk = density::draw_samples(density, start.to(o.placement.device),
                                             {.steps = o.steps,
                                              .age = starts.age(),
                                              .seed = core::make_key({o.seed, static_cast<uint64_t>(done)}),
                                              .progress = share});
    const auto samples = chunk.samples.to(torch::kCPU);
    if (!torch::isfinite(samples).all().item<bool>())
      core::run_error(kFidComponent,
                      fmt::format("chains of {} diverged: samples are not finite; use fewer --steps",
                                  run.folder().root.string()));
    meter.add(begun, start);
    const auto features = meter.features(samples);
    drawn.add(features);
    for (int64_t p = 0; p < kParts && p < n; ++p)
      parts[static_cast<size_t>(p)].add(features.slice(0, p, n, kParts));
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
  r.deviation = distance_deviation(ground, parts);
}

}  // namespace

torch::Tensor quantise(const torch::Tensor& images) {
  return images.add(1).mul_(127.5).round_().clamp_(0, 255).mul_(2.0 / 255.0).sub_(1);
}

FrechetResult frechet_of_run(const run::Run& run, const FrechetOptions& o, const eval::Progress& progress) {
  check(o);
  FrechetResult r;
  // What can be wrong with files and names is found before anything takes time.
  std::unique_ptr<FeatureExtractor> extractor;
  if (!o.inception.empty())
    extractor = make_inception({.file = o.inception,
                                .range = o.inception_range,
                                .dimensions = o.inception_dimensions,
                                .device = o.placement.device});
  auto density = density::load_density(run, {.checkpoint = o.checkpoint,
                                             .data_root = o.data_root,
                                             .references = o.marginal_views,
                                             .seed = o.seed,
                                             .placement = o.placement});
  density::ChainStarts starts(run, density, o.init, o.seed);
  settle_samples(starts, o, r);
  const auto sets = load_set(run, o);
  const auto& real = sets.train;
  const std::vector<int64_t> shape = {density.images->channels(), density.images->height(),
                                      density.images->width()};
  check_real(real, shape, /*any_shape=*/!o.inception.empty());

  auto pool = torch::arange(real.size(), torch::kInt64);
  if (!extractor) {
    auto c = make_classifier(sets, o.classifier, classifier_cache(run, o), o.placement, progress);
    r.classifier_accuracy = c.accuracy;
    r.classifier_cached = c.cached;
    r.notes.insert(r.notes.end(), c.notes.begin(), c.notes.end());
    // Features of images that the classifier was trained on differ from those of new ones: none of them is
    // used.
    pool = c.unseen;
    extractor = std::move(c.extractor);
  }
  r.inception = !o.inception.empty();
  r.label = extractor->label();
  r.measured_by = extractor->description();
  r.dimensions = extractor->dimensions();
  r.data = real.name;
  r.against = o.against;
  r.epoch = density.model.position.epoch;

  const auto parts = real_parts(real, pool, run, o, r);
  r.references = parts.reference.available(o.reference_images);
  const int64_t floor_count = parts.others.available(r.samples);
  r.reference_sources = parts.reference.sources(r.references);
  r.floor_sources = parts.others.sources(floor_count);
  note_counts(real.name, floor_count, o, r);

  const Meter meter{*extractor, progress};
  const FrechetReference ground(
      meter.real(parts.reference, r.references, fmt::format("measuring real {}", o.against)));
  r.floor = ground.distance(
      meter.real(parts.others, floor_count, fmt::format("measuring other real {}", o.against)));
  r.ceiling = ground.distance(meter.noise(r.samples, shape, o.seed));
  measure_samples(run, density, starts, meter, ground, o, r);
  return r;
}

}  // namespace ebclr::fid
