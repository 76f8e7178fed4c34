#include "train/advice.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "core/error.h"
#include "core/files.h"
#include "core/text.h"
#include "methods/method.h"

namespace ebclr::train {

Advice advise(const FolderFacts& f) {
  Advice a;
  const auto set = [&](const char* key, const std::string& value) { a.values.emplace_back(key, value); };
  int64_t size = f.image_size;
  if (size == 0) {
    size = f.median_side >= 160 ? 128 : f.median_side >= 96 ? 64 : 32;
    a.reasons.push_back(fmt::format("images of {} x {} pixels: the pictures' short side is {} (median)", size,
                                    size, f.median_side));
  }
  set("data.image_size", std::to_string(size));
  set("method.name", "ebclr");
  set("encoder.init", "residual");
  const bool stem = size >= 64;
  if (stem) {
    // No pooling, which is kinder to image gradients; not yet compared with the imagenet stem by measurement.
    set("encoder.stem", "patch");
    set("encoder.width", "32");
    a.reasons.push_back("encoder resnet18 of width 32 with 4 x 4 patches: the cost of a quarter of the side");
  } else {
    set("encoder.width", "16");
    a.reasons.push_back("encoder resnet18 of width 16 at full resolution");
  }
  const int64_t train = std::max<int64_t>(1, f.images * 9 / 10);
  int64_t batch = 64;
  while (batch > 8 && batch * 8 > train)
    batch /= 2;  // eight steps an epoch at least, where there are images for it
  set("train.batch_size", std::to_string(batch));
  if (batch < 64) a.reasons.push_back(fmt::format("batches of {}: there are {} images", batch, f.images));
  set("optimizer.lr", "0.001");
  set("optimizer.schedule", "cosine");
  set("buffer.rho", "0.2");
  return a;
}

double seconds_per_step(const run::Config& config, const std::vector<int64_t>& shape,
                        const engine::Placement& placement) {
  auto options = config.method;
  options.encoder.channels = shape[0];
  options.seed = config.train.seed;
  options.ebclr.buffer.size = std::min<int64_t>(options.ebclr.buffer.size, 2 * config.train.batch_size);
  options.moco.queue = std::min<int64_t>(options.moco.queue, 2 * config.train.batch_size);
  const auto noise = [shape](int64_t n) { return torch::rand({n, shape[0], shape[1], shape[2]}) * 2 - 1; };
  const methods::MethodContext context{.data_proposals = [noise](int64_t n, core::Rng&) { return noise(n); },
                                       .image_shape = shape,
                                       .train_images = 4 * config.train.batch_size};
  auto method = methods::make_method(options, context);
  method->to(placement.device);
  method->train();
  for (auto& encoder : method->encoders()) engine::place(*encoder, nullptr, placement);
  using Clock = std::chrono::steady_clock;
  double best = INFINITY;
  for (int64_t i = 0; i < 3; ++i) {  // the first step sets things up
    const auto start = Clock::now();
    const methods::StepInput input{noise(config.train.batch_size).to(placement.device),
                                   noise(config.train.batch_size).to(placement.device),
                                   i,
                                   0,
                                   0,
                                   torch::zeros({config.train.batch_size}, torch::kInt64)};
    method->step(input).loss.backward();
    method->after_update(input);
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    if (i > 0) best = std::min(best, seconds);
    if (i > 0 && seconds > 20) break;
  }
  return 1.1 * best;  // views, optimizer, logs
}

Advice fit_budget(const run::Config& c, int64_t train_images, const std::vector<int64_t>& shape,
                  double step_seconds, double budget) {
  Advice a;
  const auto set = [&](const char* key, int64_t value) { a.values.emplace_back(key, std::to_string(value)); };
  const int64_t steps = std::max<int64_t>(1, train_images / c.train.batch_size);
  const double epoch = step_seconds * static_cast<double>(steps);
  const auto epochs = std::clamp<int64_t>(static_cast<int64_t>(budget / epoch), 1, 400);
  set("train.epochs", epochs);
  a.reasons.push_back(fmt::format(
      "{} epochs of {} steps: a step takes {:.2f} s here, an epoch {}, all of it {}", epochs, steps,
      step_seconds, core::human_seconds(epoch), core::human_seconds(epoch * static_cast<double>(epochs))));
  if (epoch > budget)
    a.reasons.push_back(
        fmt::format("one epoch alone is longer than the {} asked for; take smaller or fewer images",
                    core::human_seconds(budget)));
  // A chain is worth keeping when it is visited again and again: twenty times over the run, and within 128
  // MB.
  const int64_t bytes = shape[0] * shape[1] * shape[2] * 4;
  const int64_t visits = epochs * steps * c.train.batch_size;
  const int64_t chains =
      std::clamp<int64_t>(std::min(visits / 20, int64_t{128'000'000} / bytes), 2 * c.train.batch_size,
                          std::max<int64_t>(2 * c.train.batch_size, 10000));
  set("buffer.size", chains);
  if (c.method.name == "ebclr")
    a.reasons.push_back(fmt::format("{} chains in the replay buffer ({}): each is visited about {} times",
                                    chains, core::human_bytes(static_cast<double>(chains * bytes)),
                                    visits / chains));
  set("log.every", std::clamp<int64_t>(steps / 5, 1, 10));
  set("log.samples_every", std::max<int64_t>(1, epochs / 5));
  set("checkpoint.every_epochs", std::max<int64_t>(1, epochs / 20));
  set("checkpoint.keep_every", std::max<int64_t>(1, epochs / 5));
  return a;
}

double parse_duration(const std::string& text) {
  const auto wrong = [&] {
    core::usage_error("train",
                      fmt::format("budget '{}': expected a time such as 30m, 2h, 90s or 1h30m", text));
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
