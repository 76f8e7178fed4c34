#include "train/advice.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/files.h"
#include "core/text.h"
#include "methods/method.h"

namespace ebclr::train {
namespace {

constexpr int64_t kMostEpochs = 400, kMostChains = 10000, kMostBufferBytes = 128'000'000;

bool is_ebclr(const run::Config& c) {
  return c.method.name == "ebclr";
}

bool has_chains(const run::Config& c) {
  return (is_ebclr(c) || c.method.name == methods::kSupervised) && c.method.ebclr.objective.lambda > 0;
}

std::string time_text(double seconds) {
  return seconds < 1 ? "less than a second" : core::human_seconds(seconds);
}

// The recipe `fast` (configs/fast.yaml), apart from what depends on the machine and the number of images.
void add_recipe(Advice& a, const run::Config& asked) {
  const auto set = [&](const char* key, const char* value) { a.values.emplace_back(key, value); };
  set("method.name", "ebclr");
  set("encoder.init", "residual");
  set("optimizer.lr", "0.001");
  set("optimizer.warmup_epochs", "1");
  set("buffer.rho", "0.2");
  if (!has_chains(asked)) return;
  const auto& chosen = asked.method.ebclr;
  set("sampler.chains", "0.125");
  a.reasons.push_back({{"sampler.chains"}, "one chain for eight images (the recipe fast)"});
  if (chosen.sampler.kind != ebm::SamplerKind::kYopo) {
    set("sampler.steps", "5");
    a.reasons.push_back({{"sampler.steps"}, "five Langevin steps a visit"});
  }
  // Both rules at once are an error.
  if (!chosen.adaptive.on) {
    set("balance.kind", "step_size");
    a.reasons.push_back({{"balance.kind"}, "the size of a Langevin step follows the energy gap"});
  }
}

}  // namespace

std::vector<std::string> reasons_left(const Advice& advice, const std::vector<run::Layer>& above) {
  const auto overridden = [&](const std::string& key) {
    for (const auto& layer : above)
      for (const auto& [set, value] : layer.values)
        if (set == key) return true;
    return false;
  };
  std::vector<std::string> out;
  for (const auto& r : advice.reasons)
    if (std::none_of(r.keys.begin(), r.keys.end(), overridden)) out.push_back(r.text);
  return out;
}

Advice advise(const FolderFacts& f, const run::Config& asked) {
  Advice a;
  const auto set = [&](const char* key, const std::string& value) { a.values.emplace_back(key, value); };
  int64_t size = f.image_size;
  if (size == 0) {
    size = f.median_side >= 160 ? 128 : f.median_side >= 96 ? 64 : 32;
    a.reasons.push_back({{"data.image_size"},
                         fmt::format("images of {} x {} pixels: the pictures' short side is {} (median)",
                                     size, size, f.median_side)});
  }
  set("data.image_size", std::to_string(size));
  const bool stem = size >= 64;
  if (stem) {
    // As good as the imagenet stem by kNN, in four fifths of its time (docs/data.md).
    set("encoder.stem", "patch");
    set("encoder.width", "32");
    a.reasons.push_back({{"encoder.arch", "encoder.width"}, "encoder resnet18 of width 32"});
    a.reasons.push_back(
        {{"encoder.stem"}, "its stem takes 4 x 4 patches: the cost of a quarter of the side"});
  } else {
    set("encoder.width", "16");
    a.reasons.push_back({{"encoder.arch", "encoder.width", "encoder.stem"},
                         "encoder resnet18 of width 16 at full resolution"});
  }
  set("optimizer.schedule", "cosine");
  if (is_ebclr(asked)) add_recipe(a, asked);
  return a;
}

Advice advise_batch(int64_t train_images) {
  int64_t batch = 64;
  while (batch > 8 && batch * 8 > train_images) batch /= 2;
  batch = std::clamp<int64_t>(train_images, 1, batch);
  Advice a{.values = {{"train.batch_size", std::to_string(batch)}}};
  if (batch < 64)
    a.reasons.push_back(
        {{"train.batch_size"},
         fmt::format("batches of {}: there {} to learn from", batch,
                     train_images == 1 ? "is 1 image" : fmt::format("are {} images", train_images))});
  return a;
}

Advice advise_ranks(const run::Config& c, int ranks) {
  if (!has_chains(c) || methods::chains_of(c.method.ebclr.chains, c.train.batch_size) >= ranks) return {};
  return {.values = {{"sampler.chains", std::to_string(ranks)}},
          .reasons = {{{"sampler.chains"}, fmt::format("{} chains an update: one for each rank", ranks)}}};
}

namespace {

// Epochs of these steps.
void fit_epochs(Advice& a, const run::Config& c, int64_t epochs, int64_t steps, double step_seconds,
                double budget) {
  const double epoch = step_seconds * static_cast<double>(steps);
  const auto add = [&](const std::string& text) { a.reasons.push_back({{"train.epochs"}, text}); };
  a.values.emplace_back("train.epochs", std::to_string(epochs));
  add(fmt::format("{} epochs of {} steps: a step takes {} here, an epoch {}, all of it {}", epochs, steps,
                  step_seconds < 0.005 ? "less than 0.01 s" : fmt::format("{:.2f} s", step_seconds),
                  time_text(epoch), time_text(epoch * static_cast<double>(epochs))));
  if (epoch > budget)
    add(fmt::format("one epoch alone is longer than the {} asked for; take smaller or fewer images",
                    core::human_seconds(budget)));
  if (budget >= epoch * static_cast<double>(kMostEpochs + 1))
    add(fmt::format("{} epochs are the most that is chosen; --epochs for more", kMostEpochs));
  if (!is_ebclr(c)) return;
  // A run must have most of its steps at the full rate.
  const double warm = std::min(1.0, static_cast<double>(epochs) / 5);
  a.values.emplace_back("optimizer.warmup_epochs", fmt::format("{}", warm));
  a.reasons.push_back({{"optimizer.warmup_epochs"},
                       fmt::format("the learning rate warms up over {}",
                                   warm < 1 ? "a fifth of the run" : "the first epoch")});
}

// A chain is worth keeping when it is visited again and again: twenty times over the run, and within 128 MB.
void fit_buffer(Advice& a, const run::Config& c, int64_t updates, const std::vector<int64_t>& shape) {
  const auto& o = c.method.ebclr;
  const int64_t batch = c.train.batch_size, moved = methods::chains_of(o.chains, batch);
  const int64_t bytes = shape[0] * shape[1] * shape[2] * (o.buffer.half ? 2 : 4);
  const int64_t visits = updates * moved;
  const int64_t wanted = std::clamp<int64_t>(std::min(visits / 20, kMostBufferBytes / bytes), 2 * moved,
                                             std::max<int64_t>(2 * moved, kMostChains));
  // The key is for one chain per image, and shrinks with their number.
  const int64_t size = (wanted * batch + moved / 2) / moved;
  const int64_t kept = methods::buffer_size_of(size, o.chains, batch);
  a.values.emplace_back("buffer.size", std::to_string(size));
  a.reasons.push_back(
      {{"buffer.size"},
       fmt::format("{} chains in the replay buffer ({}): each is visited about {} times", kept,
                   core::human_bytes(static_cast<double>(kept * bytes)), visits / kept)});
}

}  // namespace

Advice fit_budget(const run::Config& c, int64_t train_images, const std::vector<int64_t>& shape,
                  double step_seconds, double budget) {
  Advice a;
  const auto set = [&](const char* key, int64_t value) { a.values.emplace_back(key, std::to_string(value)); };
  const int64_t steps = std::max<int64_t>(1, train_images / c.train.batch_size);
  const double fit = budget / (step_seconds * static_cast<double>(steps));
  // What follows is for the epochs that there will be.
  const auto epochs = c.origins.at("train.epochs") != "default"
                          ? c.train.epochs
                          : static_cast<int64_t>(std::clamp(fit, 1.0, static_cast<double>(kMostEpochs)));
  fit_epochs(a, c, epochs, steps, step_seconds, budget);
  if (has_chains(c)) fit_buffer(a, c, epochs * steps, shape);
  set("log.every", std::clamp<int64_t>(steps / 5, 1, 10));
  set("log.samples_every", std::max<int64_t>(1, epochs / 5));
  set("checkpoint.every_epochs", std::max<int64_t>(1, epochs / 20));
  set("checkpoint.keep_every", std::max<int64_t>(1, epochs / 5));
  return a;
}

double parse_duration(const std::string& text) {
  const auto wrong = [&] {
    core::usage_error(
        "train", fmt::format("budget '{}': expected a time such as 30m, 2h, 90s, 1h30m, or minutes", text));
  };
  double total = 0;
  size_t at = 0;
  while (at < text.size()) {
    size_t used = 0;
    double value = 0;
    try {
      value = std::stod(text.substr(at), &used);
    } catch (const std::exception&) {
      wrong();
    }
    at += used;
    const char unit = at < text.size() ? text[at++] : 'm';
    if (value < 0 || (unit != 's' && unit != 'm' && unit != 'h')) wrong();
    total += value * (unit == 's' ? 1 : unit == 'm' ? 60 : 3600);
  }
  if (!(total >= 1 && total < 1e8)) wrong();
  return total;
}

}  // namespace ebclr::train
