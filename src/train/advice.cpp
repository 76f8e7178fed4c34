#include "train/advice.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/files.h"
#include "core/text.h"

namespace ebclr::train {

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

Advice advise(const FolderFacts& f) {
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
  set("method.name", "ebclr");
  set("encoder.init", "residual");
  const bool stem = size >= 64;
  if (stem) {
    // No pooling, which is kinder to image gradients; not yet compared with the imagenet stem by measurement.
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
  set("optimizer.lr", "0.001");
  set("optimizer.schedule", "cosine");
  set("buffer.rho", "0.2");
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

Advice fit_budget(const run::Config& c, int64_t train_images, const std::vector<int64_t>& shape,
                  double step_seconds, double budget) {
  Advice a;
  const auto set = [&](const char* key, int64_t value) { a.values.emplace_back(key, std::to_string(value)); };
  const int64_t steps = std::max<int64_t>(1, train_images / c.train.batch_size);
  const double epoch = step_seconds * static_cast<double>(steps);
  // What follows is for the epochs that there will be.
  const auto epochs = c.origins.at("train.epochs") != "default"
                          ? c.train.epochs
                          : std::clamp<int64_t>(static_cast<int64_t>(budget / epoch), 1, 400);
  set("train.epochs", epochs);
  a.reasons.push_back(
      {{"train.epochs"},
       fmt::format("{} epochs of {} steps: a step takes {:.2f} s here, an epoch {}, all of it {}", epochs,
                   steps, step_seconds, core::human_seconds(epoch),
                   core::human_seconds(epoch * static_cast<double>(epochs)))});
  if (epoch > budget)
    a.reasons.push_back(
        {{"train.epochs"},
         fmt::format("one epoch alone is longer than the {} asked for; take smaller or fewer images",
                     core::human_seconds(budget))});
  // A chain is worth keeping when it is visited again and again: twenty times over the run, and within 128
  // MB.
  const int64_t bytes = shape[0] * shape[1] * shape[2] * 4;
  const int64_t visits = epochs * steps * c.train.batch_size;
  const int64_t chains =
      std::clamp<int64_t>(std::min(visits / 20, int64_t{128'000'000} / bytes), 2 * c.train.batch_size,
                          std::max<int64_t>(2 * c.train.batch_size, 10000));
  set("buffer.size", chains);
  if (c.method.name == "ebclr")
    a.reasons.push_back(
        {{"buffer.size"},
         fmt::format("{} chains in the replay buffer ({}): each is visited about {} times", chains,
                     core::human_bytes(static_cast<double>(chains * bytes)), visits / chains)});
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
