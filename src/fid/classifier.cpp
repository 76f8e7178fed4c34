#include "fid/classifier.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/files.h"
#include "core/safetensors.h"
#include "data/loader.h"
#include "eval/features.h"
#include "nn/encoder.h"
#include "run/run.h"
#include "train/optimizer.h"

namespace ebclr::fid {
namespace {
namespace fs = std::filesystem;
constexpr std::string_view kClassifierComponent = "fid.classifier";
// Part of the cache's key: raise it when training changes, so that old files are not taken for new ones.
constexpr int kVersion = 1;
constexpr int64_t kMostJudged = 10000;

// Crops milder than those of contrastive learning; the noise is that of EBCLR's views.
data::ViewOptions light_views() {
  data::ViewOptions v;
  v.crop_min = 0.25;
  v.brightness = v.contrast = v.saturation = 0.2;
  v.hue = 0.05;
  v.grayscale = 0.1;
  return v;
}

std::span<const std::byte> bytes_of(const torch::Tensor& t) {
  return {static_cast<const std::byte*>(t.data_ptr()), t.nbytes()};
}

std::string digest_of(const torch::Tensor& t) {
  const auto c = t.detach().to(torch::kCPU).contiguous();
  return core::sha256(bytes_of(c));
}

struct Network {
  std::shared_ptr<nn::Encoder> encoder;
  std::shared_ptr<nn::Head> head;

  Network(const ClassifierOptions& o, int64_t channels, int64_t classes) {
    auto networks = nn::make_networks({.arch = "resnet18",
                                       .width = o.width,
                                       .channels = channels,
                                       .norm = nn::Norm::kBatch,
                                       .activation = nn::Activation::kRelu},
                                      {.out = classes, .layers = 1}, o.seed);
    encoder = std::move(networks.encoder);
    head = std::move(networks.head);
  }
  core::SafeTensors tensors() const {
    core::SafeTensors out;
    for (const auto& [name, t] : nn::state_of(*encoder, "encoder.")) out.tensors[name] = t;
    for (const auto& [name, t] : nn::state_of(*head, "head.")) out.tensors[name] = t;
    return out;
  }
};

// One digest of all tensors with their names.
std::string digest_of(const core::SafeTensors& content) {
  std::string all;
  for (const auto& [name, t] : content.tensors) all += name + " " + digest_of(t) + "\n";
  return core::sha256(std::as_bytes(std::span(all.data(), all.size())));
}

class Classifier : public FeatureExtractor {
 public:
  Classifier(std::shared_ptr<nn::Encoder> encoder, std::string set, std::vector<int64_t> shape,
             std::string text)
      : encoder_(std::move(encoder)),
        set_(std::move(set)),
        shape_(std::move(shape)),
        text_(std::move(text)) {}

  torch::Tensor features(const torch::Tensor& images) override {
    if (images.sizes().slice(1) != torch::IntArrayRef(shape_))
      core::usage_error(
          kClassifierComponent,
          fmt::format("images are {}, those of {} are {}; choose a set of the same shape, or compare "
                      "with --inception",
                      fmt::join(images.sizes().slice(1).vec(), " x "), set_, fmt::join(shape_, " x ")));
    torch::NoGradGuard no_grad;
    const auto device = encoder_->parameters().front().device();
    std::vector<torch::Tensor> parts;
    constexpr int64_t kBatch = 256;
    for (int64_t i = 0; i < images.size(0); i += kBatch)
      parts.push_back(
          encoder_->forward(images.narrow(0, i, std::min(kBatch, images.size(0) - i)).to(device)));
    return torch::cat(parts);
  }
  int64_t dimensions() const override { return encoder_->feature_dim(); }
  std::string label() const override {
    return fmt::format("Frechet distance on {} classifier features ({}-d)", set_, dimensions());
  }
  std::string description() const override { return text_; }

 private:
  std::shared_ptr<nn::Encoder> encoder_;
  std::string set_;
  std::vector<int64_t> shape_;  // {C, H, W}
  std::string text_;
};

void train_network(Network& net, std::shared_ptr<const data::ImageSet> images, const ClassifierOptions& o,
                   torch::Device device, const eval::Progress& progress) {
  net.encoder->train();
  net.head->train();
  data::Loader loader(
      images, light_views(),
      {.batch_size = std::min(o.batch_size, images->size()), .seed = o.seed, .drop_last = false});
  const run::OptimizerOptions optimizer_options{.kind = run::OptimizerKind::kAdam,
                                                .schedule = run::ScheduleKind::kCosine};
  std::vector<torch::Tensor> parameters = net.encoder->parameters();
  for (const auto& p : net.head->parameters()) parameters.push_back(p);
  train::Optimizer optimizer(optimizer_options, {{.parameters = parameters}}, o.lr);
  const int64_t per_epoch = loader.batches_per_epoch(), steps = per_epoch * o.epochs;
  for (int64_t step = 0; step < steps; ++step) {
    if (progress)
      progress(fmt::format("training a classifier on {}", images->name),
               static_cast<double>(step) / static_cast<double>(steps));
    const auto batch = loader.next();
    const auto labels = images->labels.index_select(0, batch.indices).to(device);
    const auto views = torch::cat({batch.view1, batch.view2}).to(device);
    const auto logits = net.head->forward(net.encoder->forward(views));
    const auto loss = torch::nn::functional::cross_entropy(logits, torch::cat({labels, labels}));
    if (!std::isfinite(loss.item<double>()))
      core::run_error(kClassifierComponent,
                      fmt::format("training on {} diverged at step {}; use --inception or another --data",
                                  images->name, step));
    optimizer.zero_grad();
    loss.backward();
    const double lr = o.lr * train::schedule_factor(optimizer_options, step, per_epoch, o.epochs);
    optimizer.step(lr, lr);
  }
  net.encoder->eval();
  net.head->eval();
}

double accuracy_of(Network& net, const data::ImageSet& set) {
  const auto logits = eval::features(*net.encoder, set, {.head = net.head.get()});
  return logits.argmax(1).eq(set.labels).to(torch::kFloat64).mean().item<double>();
}

// Fills the network from the file and returns the accuracy; throws Error with what is wrong with it.
double read_cache(const fs::path& file, const std::string& key, Network& net) {
  const auto content = core::read_safetensors(file);
  const auto entry = [&](const char* name) {
    const auto it = content.metadata.find(name);
    if (it == content.metadata.end())
      core::usage_error(kClassifierComponent, fmt::format("{}: has no entry '{}'", file.string(), name));
    return it->second;
  };
  if (entry("key") != key)
    core::usage_error(kClassifierComponent, file.string() + ": belongs to other settings");
  if (entry("digest") != digest_of(content))
    core::usage_error(kClassifierComponent, file.string() + ": its weights are damaged");
  const std::string text = entry("accuracy");
  double accuracy = -1;
  std::from_chars(text.data(), text.data() + text.size(), accuracy);
  if (!(accuracy >= 0 && accuracy <= 1))
    core::usage_error(kClassifierComponent,
                      fmt::format("{}: accuracy '{}' is not in 0 .. 1", file.string(), text));
  run::load_module(*net.encoder, content, "encoder.", file.string());
  run::load_module(*net.head, content, "head.", file.string());
  return accuracy;
}

void check_labels(const data::ImageSet& all) {
  if (all.size() == 0 || !all.labelled() || all.classes() < 2)
    core::usage_error(
        kClassifierComponent,
        fmt::format("'{}' {} and the distance without an Inception file needs a classifier of it; use "
                    "--inception FILE or another --data",
                    all.name,
                    all.size() == 0   ? "has no train images"
                    : !all.labelled() ? "has images without a label"
                                      : "has only one class"));
  if (all.size() < 8)
    core::usage_error(kClassifierComponent,
                      fmt::format("'{}' has {} train images, too few for a classifier; use --inception "
                                  "FILE or another --data",
                                  all.name, all.size()));
}

// Everything that the weights depend on.
std::string cache_key(const data::ImageSet& images, const data::ImageSet& held, const ClassifierOptions& o) {
  return nlohmann::json{{"version", kVersion},
                        {"images", digest_of(images.pixels)},
                        {"labels", digest_of(images.labels)},
                        {"judged_on", digest_of(held.pixels)},
                        {"classes", images.classes()},
                        {"shape", {images.channels(), images.height(), images.width()}},
                        {"width", o.width},
                        {"epochs", o.epochs},
                        {"batch_size", o.batch_size},
                        {"lr", o.lr},
                        {"seed", o.seed}}
      .dump();
}

fs::path cache_file(const fs::path& cache, std::string name, const std::string& key) {
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '-') c = '_';
  return cache / fmt::format("classifier-{}-{}.safetensors", name,
                             core::sha256(std::as_bytes(std::span(key.data(), key.size()))).substr(0, 16));
}

// Keeps the network for next time; returns what went wrong.
std::string write_cache(const fs::path& file, const std::string& key, double accuracy, Network& net) {
  auto content = net.tensors();
  content.metadata = {
      {"key", key}, {"digest", digest_of(content)}, {"accuracy", fmt::format("{}", accuracy)}};
  try {
    core::write_safetensors(file, content);
  } catch (const core::Error& e) {
    return e.what();
  }
  return {};
}

}  // namespace

TrainedClassifier make_classifier(const data::TrainTest& sets, const ClassifierOptions& options,
                                  const fs::path& cache, const engine::Placement& placement,
                                  const eval::Progress& progress) {
  const auto& all = sets.train;
  check_labels(all);
  ClassifierOptions o = options;
  // Half at most is used, so that images remain on which features are not those of training.
  const double part = std::min(0.5, static_cast<double>(o.images) / static_cast<double>(all.size()));
  const auto [unseen, used] = data::hold_out(all, part, o.seed);
  TrainedClassifier out;
  out.unseen = unseen;

  const auto images = std::make_shared<const data::ImageSet>(data::select(all, used));
  // A few hundred images need more than five epochs to teach anything.
  if (o.epochs == 0) o.epochs = std::clamp<int64_t>(10000 / images->size(), 5, 40);
  data::ImageSet held =
      sets.test.size() > 0 && sets.test.labelled() ? sets.test : data::select(all, out.unseen);
  held = data::limit(held, kMostJudged, o.seed);
  out.judged_on = held.size();
  const std::string key = cache_key(*images, held, o);
  out.file = cache_file(cache, all.name, key);

  Network net(o, all.channels(), all.classes());
  net.encoder->eval();
  net.head->eval();
  std::error_code ec;
  if (fs::exists(out.file, ec)) {
    try {
      out.accuracy = read_cache(out.file, key, net);
      out.cached = true;
    } catch (const core::Error& e) {
      out.notes.push_back(fmt::format("the kept classifier was trained anew: {}", e.what()));
      net = Network(o, all.channels(), all.classes());
    }
  }
  engine::place(*net.encoder, net.head.get(), placement);
  if (!out.cached) {
    train_network(net, images, o, placement.device, progress);
    out.accuracy = accuracy_of(net, held);
    if (const auto why = write_cache(out.file, key, out.accuracy, net); !why.empty()) {
      out.notes.push_back(fmt::format("the classifier could not be kept for next time: {}", why));
      out.file.clear();
    }
  }
  if (out.accuracy < 2.0 / static_cast<double>(all.classes()))
    out.notes.push_back(
        fmt::format("the classifier is right on {:.1f} % of {} classes only: its features say little",
                    100 * out.accuracy, all.classes()));
  out.extractor = std::make_unique<Classifier>(
      net.encoder, all.name, std::vector<int64_t>{all.channels(), all.height(), all.width()},
      fmt::format("ResNet-18 of width {} trained on {} labelled images of {} for {} epochs, {:.1f} % right "
                  "on {} that it has not seen",
                  o.width, images->size(), all.name, o.epochs, 100 * out.accuracy, out.judged_on));
  return out;
}

}  // namespace ebclr::fid
