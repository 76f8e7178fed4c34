// The table of configuration keys: one row per key, nothing else knows a key's name.

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <stdexcept>

#include "core/text.h"
#include "run/config.h"

namespace ebclr::run {
namespace {

template <class T>
T parse_number(const std::string& text) {
  T value{};
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (ec != std::errc() || end != text.data() + text.size())
    throw std::invalid_argument(std::is_integral_v<T> ? "a whole number" : "a number");
  return value;
}

void parse(const std::string& text, int64_t& out) {
  out = parse_number<int64_t>(text);
}
void parse(const std::string& text, uint64_t& out) {
  out = parse_number<uint64_t>(text);
}
void parse(const std::string& text, int& out) {
  out = parse_number<int>(text);
}
void parse(const std::string& text, double& out) {
  const auto value = parse_number<double>(text);
  if (!std::isfinite(value)) throw std::invalid_argument("a finite number");
  out = value;
}
void parse(const std::string& text, std::string& out) {
  out = text;
}
void parse(const std::string& text, std::filesystem::path& out) {
  out = text;
}
void parse(const std::string& text, bool& out) {
  if (text == "true" || text == "yes" || text == "on")
    out = true;
  else if (text == "false" || text == "no" || text == "off")
    out = false;
  else
    throw std::invalid_argument("true or false");
}

std::string show(bool v) {
  return v ? "true" : "false";
}
std::string show(const std::string& v) {
  return v;
}
std::string show(const std::filesystem::path& v) {
  return v.string();
}
template <class T>
std::string show(const T& v) {
  return fmt::format("{}", v);
}

// Bounds of a number, both inclusive.
struct Range {
  double low = -1e300, high = 1e300;
};
constexpr Range kPositive{1e-300, 1e300}, kNotNegative{0, 1e300}, kProbability{0, 1}, kAtLeastOne{1, 1e300};
constexpr Range kBelowOne{0, 1 - 0x1p-53};  // libtorch refuses a decay of 1

template <class Access>
Field field(const char* key, Access access, const char* doc, Range range = {}) {
  return {key, doc, "", [access](const Config& c) { return show(access(const_cast<Config&>(c))); },
          [access, range](Config& c, const std::string& text) {
            auto& target = access(c);
            auto value = target;
            parse(text, value);
            if constexpr (std::is_arithmetic_v<decltype(value)> && !std::is_same_v<decltype(value), bool>) {
              const auto v = static_cast<double>(value);
              if (v < range.low || v > range.high) {
                if (range.high >= 1e300)
                  throw std::invalid_argument(range.low == 1e-300
                                                  ? "a number above 0"
                                                  : fmt::format("a number of at least {}", range.low));
                if (range.high == kBelowOne.high) throw std::invalid_argument("a number in [0, 1)");
                throw std::invalid_argument(fmt::format("a number in [{}, {}]", range.low, range.high));
              }
            }
            target = value;
          }};
}

template <class E>
using Names = std::vector<std::pair<std::string, E>>;

template <class E, class Access>
Field choice(const char* key, Access access, Names<E> names, const char* doc) {
  std::vector<std::string> words;
  for (const auto& [name, value] : names) words.push_back(name);
  const std::string all = core::join(words, " | ");
  return {key, doc, all,
          [access, names](const Config& c) {
            for (const auto& [name, value] : names)
              if (value == access(const_cast<Config&>(c))) return name;
            return std::string("?");
          },
          [access, names, all](Config& c, const std::string& text) {
            for (const auto& [name, value] : names)
              if (name == text) {
                access(c) = value;
                return;
              }
            throw std::invalid_argument(all);
          }};
}

// `name` is an expression on a Config; it saves writing the same lambda a hundred times.
#define MEMBER(name)        \
  [](Config & c) -> auto& { \
    return c.name;          \
  }

std::vector<Field> make_fields() {
  using nn::Activation, nn::Norm, nn::Init, nn::Stem;
  std::vector<Field> f;
  const auto add = [&](Field field) { f.push_back(std::move(field)); };
  Names<std::string> method_names;
  for (const auto& n : methods::method_names()) method_names.emplace_back(n, n);
  method_names.emplace_back(methods::kCustomMethod, methods::kCustomMethod);
  Names<std::string> archs = {{"resnet18", "resnet18"}, {"resnet34", "resnet34"}, {"resnet50", "resnet50"}};

  add(choice<std::string>("method.name", MEMBER(method.name), method_names, "what is learned"));
  add(field("method.tau", MEMBER(method.ebclr.objective.tau), "ebclr: temperature on squared distances",
            kPositive));
  add(field("method.lambda", MEMBER(method.ebclr.objective.lambda),
            "ebclr, supervised: weight of the generative term; 0 switches it and the sampler off",
            kNotNegative));
  add(field("method.gamma", MEMBER(method.ebclr.objective.gamma),
            "ebclr: weight of the discriminative term (generative use: lambda 1, gamma 0.1)", kNotNegative));
  add(field("method.output_l2", MEMBER(method.ebclr.objective.output_l2),
            "ebclr: weight of the squared output norms, inside the generative term; supervised: of the "
            "squared energies",
            kNotNegative));
  add(field("method.view_l2", MEMBER(method.ebclr.objective.view_l2),
            "ebclr: the same for view 1 alone and outside of it, so that lambda 0 can have it too",
            kNotNegative));
  add(choice<ebm::Discriminative>(
      "method.discriminative", MEMBER(method.ebclr.objective.discriminative),
      {{"symmetric", ebm::Discriminative::kSymmetric}, {"one_way", ebm::Discriminative::kOneWay}},
      "ebclr: anchors of the discriminative term"));
  add(choice<ebm::Marginal>("method.marginal", MEMBER(method.ebclr.objective.marginal),
                            {{"approx1", ebm::Marginal::kApprox1}, {"approx2", ebm::Marginal::kApprox2}},
                            "ebclr: views that approximate the marginal: N or 2N - 1"));

  add(choice<ebm::SamplerKind>("sampler.kind", MEMBER(method.ebclr.sampler.kind),
                               {{"msgld", ebm::SamplerKind::kMsgld},
                                {"sgld", ebm::SamplerKind::kSgld},
                                {"yopo", ebm::SamplerKind::kYopo}},
                               "how chains move"));
  add(field("sampler.chains", MEMBER(method.ebclr.chains),
            "chains per update; 0: one per image (the paper), below 1: that share of the batch",
            kNotNegative));
  add(field("sampler.steps", MEMBER(method.ebclr.sampler.steps), "T: steps per update of the weights",
            kAtLeastOne));
  add(field("sampler.step_size", MEMBER(method.ebclr.sampler.step_size), "alpha", kPositive));
  add(field("sampler.clamp", MEMBER(method.ebclr.sampler.clamp),
            "delta: bound of each gradient entry; 0 switches the proximal form off", kNotNegative));
  add(field("sampler.decay", MEMBER(method.ebclr.sampler.decay),
            "K: visits after which the noise is at sigma_min", kPositive));
  add(field("sampler.sigma_min", MEMBER(method.ebclr.sampler.sigma_min), "least noise", kNotNegative));
  add(field("sampler.sigma_max", MEMBER(method.ebclr.sampler.sigma_max), "noise of fresh chains",
            kNotNegative));
  add(field("sampler.outer", MEMBER(method.ebclr.sampler.outer), "yopo: full gradients (M)", kAtLeastOne));
  add(field("sampler.inner", MEMBER(method.ebclr.sampler.inner), "yopo: steps per full gradient (N)",
            kAtLeastOne));
  add(field("sampler.cut", MEMBER(method.ebclr.cut), "yopo: 0 cuts after the stem, 1 after the first stage",
            {0, 1}));
  add(choice<ebm::Precision>(
      "sampler.precision", MEMBER(method.ebclr.sampler.precision),
      {{"float", ebm::Precision::kFloat}, {"bfloat16", ebm::Precision::kBfloat16}},
      "products along chains: float, or bfloat16, coarser and quicker (native engine with "
      "avx512_bf16)"));
  add(field("adaptive.on", MEMBER(method.ebclr.adaptive.on),
            "raise sampler.steps when chains stay above the energy of data (long runs)"));
  add(field("adaptive.window", MEMBER(method.ebclr.adaptive.window), "steps over which the mean gap is taken",
            kAtLeastOne));
  add(field("adaptive.threshold", MEMBER(method.ebclr.adaptive.threshold),
            "mean gap above which steps are added"));
  add(field("adaptive.increment", MEMBER(method.ebclr.adaptive.increment), "steps added at once",
            kAtLeastOne));
  add(field("adaptive.limit", MEMBER(method.ebclr.adaptive.limit), "most steps", kAtLeastOne));
  add(choice<ebm::BalanceKind>(
      "balance.kind", MEMBER(method.ebclr.balance.kind),
      {{"none", ebm::BalanceKind::kNone},
       {"step_size", ebm::BalanceKind::kStepSize},
       {"steps", ebm::BalanceKind::kSteps},
       {"lambda", ebm::BalanceKind::kLambda}},
      "setting that follows the gap E(samples) - E(data), so that sampler and energy "
      "keep step"));
  add(field("balance.target", MEMBER(method.ebclr.balance.target), "wanted mean gap"));
  add(field("balance.width", MEMBER(method.ebclr.balance.width),
            "distance from the target at which a correction is at its largest", kPositive));
  add(field("balance.rate", MEMBER(method.ebclr.balance.rate),
            "largest correction: a factor of exp(rate) or its inverse", kPositive));
  add(field("balance.window", MEMBER(method.ebclr.balance.window),
            "steps between corrections, over which the mean gap is taken", kAtLeastOne));
  add(field("balance.low", MEMBER(method.ebclr.balance.low),
            "least value of the setting; 0: a tenth of the configured one", kNotNegative));
  add(field("balance.high", MEMBER(method.ebclr.balance.high),
            "largest value; 0: ten times the configured one (steps: four times)", kNotNegative));
  add(field("balance.increment", MEMBER(method.ebclr.balance.increment),
            "above 0: add this where the gap is above the target (lambda: take it off) and never go back "
            "(adaptive.* is this rule)",
            kNotNegative));
  add(field("buffer.size", MEMBER(method.ebclr.buffer.size),
            "|B|: chains kept, with one chain per image; with fewer it shrinks in proportion", kAtLeastOne));
  add(field("buffer.rho", MEMBER(method.ebclr.buffer.rho), "probability that a picked chain starts anew",
            kProbability));
  add(choice<methods::Proposal>(
      "buffer.proposal", MEMBER(method.ebclr.proposal),
      {{"data", methods::Proposal::kData}, {"uniform", methods::Proposal::kUniform}},
      "q0: where new chains start"));
  add(choice<bool>("buffer.dtype", MEMBER(method.ebclr.buffer.half), {{"float32", false}, {"float16", true}},
                   "storage of chains"));

  add(choice<std::string>("encoder.arch", MEMBER(method.encoder.arch), archs, "depth"));
  add(field("encoder.width", MEMBER(method.encoder.width), "channels of the stem (64 in the paper)",
            {1, 1024}));
  add(choice<Norm>("encoder.norm", MEMBER(method.encoder.norm),
                   {{"none", Norm::kNone}, {"batch", Norm::kBatch}, {"sws", Norm::kSws}},
                   "normalisation: none, BatchNorm, or scaled weight standardisation"));
  add(field("encoder.skip", MEMBER(method.encoder.skip),
            "sws: first factor of each residual branch (SkipInit)", kNotNegative));
  add(choice<Activation>("encoder.activation", MEMBER(method.encoder.activation),
                         {{"leaky_relu", Activation::kLeakyRelu}, {"relu", Activation::kRelu}},
                         "non-linearity (leaky slope 0.2)"));
  add(choice<Init>("encoder.init", MEMBER(method.encoder.init),
                   {{"torch", Init::kTorch}, {"residual", Init::kResidual}},
                   "first weights: libtorch's, or scaled for a norm-free net"));
  add(choice<Stem>(
      "encoder.stem", MEMBER(method.encoder.stem),
      {{"cifar", Stem::kCifar}, {"imagenet", Stem::kImagenet}, {"patch", Stem::kPatch}},
      "what stands before the first stage: 3x3 at full resolution, 7x7 with stride 2 and max pooling "
      "(from about 96 pixels), or 4x4 with stride 4"));
  add(field("head.out", MEMBER(method.head.out), "output dimension of the projection", kAtLeastOne));
  add(field("head.hidden", MEMBER(method.head.hidden),
            "hidden width of the projection; 0: as wide as the features", kNotNegative));
  add(field("head.layers", MEMBER(method.head.layers), "layers of the projection", {1, 3}));
  add(field("head.hidden_norm", MEMBER(method.head.hidden_norm), "BatchNorm after hidden layers"));
  add(field("head.output_norm", MEMBER(method.head.output_norm), "BatchNorm after the last layer"));
  add(field("head.output_affine", MEMBER(method.head.output_affine),
            "BatchNorm after the last layer: with weight and bias"));
  add(choice<Activation>("head.activation", MEMBER(method.head.activation),
                         {{"leaky_relu", Activation::kLeakyRelu}, {"relu", Activation::kRelu}},
                         "non-linearity of the heads"));

  add(field("simclr.temperature", MEMBER(method.simclr.temperature), "of the cosine", kPositive));
  add(field("moco.temperature", MEMBER(method.moco.temperature), "of the cosine", kPositive));
  add(field("moco.momentum", MEMBER(method.moco.momentum), "of the key network", kProbability));
  add(field("moco.queue", MEMBER(method.moco.queue), "keys kept", kAtLeastOne));
  add(field("moco.symmetric", MEMBER(method.moco.symmetric), "each view once as query, once as key"));
  add(field("simsiam.predictor_hidden", MEMBER(method.simsiam.predictor_hidden),
            "bottleneck of the predictor", kAtLeastOne));
  add(field("simsiam.fixed_predictor_lr", MEMBER(method.simsiam.fixed_predictor_lr),
            "the schedule does not touch the predictor"));
  add(field("simsiam.stop_gradient", MEMBER(method.simsiam.stop_gradient), "off only to see the collapse"));
  add(field("byol.momentum", MEMBER(method.byol.momentum), "of the target at the start", kProbability));
  add(field("byol.momentum_end", MEMBER(method.byol.momentum_end), "of the target at the end of the cosine",
            kProbability));
  add(field("byol.predictor_hidden", MEMBER(method.byol.predictor_hidden), "hidden width of the predictor",
            kAtLeastOne));

  add(field("data.source", MEMBER(data.source), "name of a set, or a folder of images"));
  add(field("data.root", MEMBER(data.data_root),
            "where named sets are kept; empty: $EBCLR_DATA or the user's cache"));
  add(field("data.limit", MEMBER(data.limit), "train images, class-balanced; 0: all", kNotNegative));
  add(field("data.limit_test", MEMBER(data.limit_test), "test images; 0: all", kNotNegative));
  add(field("data.validation", MEMBER(data.validation),
            "train images held out to take the place of the test images, to choose settings on; 0: none",
            kNotNegative));
  add(choice<data::CacheKind>(
      "data.cache", MEMBER(data.cache),
      {{"auto", data::CacheKind::kAuto},
       {"memory", data::CacheKind::kMemory},
       {"disk", data::CacheKind::kDisk},
       {"none", data::CacheKind::kNone}},
      "folders: decoded images are kept in a file and mapped; auto does so from 64 MB on, memory "
      "copies them to memory, none decodes at every start"));
  add(field("data.image_size", MEMBER(data.image_size), "folders: short side after resizing; 0: 32",
            kNotNegative));
  add(field("data.grayscale", MEMBER(data.grayscale), "folders: read as one channel"));
  add(field("data.labels_csv", MEMBER(data.labels_csv), "folders: CSV of path,label"));
  add(field("data.labelled", MEMBER(data.labelled), "only images that have a label"));
  add(field("data.test_fraction", MEMBER(data.test_fraction), "folders: part held out for testing",
            kProbability));

  add(choice<data::Scope>(
      "augment.scope", MEMBER(views.scope), {{"image", data::Scope::kImage}, {"batch", data::Scope::kBatch}},
      "a random draw per image, or one for a whole batch (as the paper's released code)"));
  add(field("augment.crop_min", MEMBER(views.crop_min), "least area of the crop", kProbability));
  add(field("augment.crop_max", MEMBER(views.crop_max), "largest area of the crop", kProbability));
  add(field("augment.ratio_min", MEMBER(views.ratio_min), "least width over height of the crop", kPositive));
  add(field("augment.ratio_max", MEMBER(views.ratio_max), "largest width over height of the crop",
            kPositive));
  add(field("augment.flip", MEMBER(views.flip), "probability of a horizontal flip", kProbability));
  add(field("augment.jitter", MEMBER(views.jitter), "probability of colour jitter", kProbability));
  add(field("augment.brightness", MEMBER(views.brightness), "strength of the jitter", kNotNegative));
  add(field("augment.contrast", MEMBER(views.contrast), "strength of the jitter", kNotNegative));
  add(field("augment.saturation", MEMBER(views.saturation), "strength of the jitter", kNotNegative));
  add(field("augment.hue", MEMBER(views.hue), "strength of the jitter", {0, 0.5}));
  add(field("augment.grayscale", MEMBER(views.grayscale), "probability of losing colour", kProbability));
  add(field("augment.blur", MEMBER(views.blur), "probability of a Gaussian blur", kProbability));
  add(field("augment.blur_kernel", MEMBER(views.blur_kernel), "odd size of the blur's kernel", {1, 31}));
  add(field("augment.blur_sigma_min", MEMBER(views.blur_sigma_min), "least width of the blur", kPositive));
  add(field("augment.blur_sigma_max", MEMBER(views.blur_sigma_max), "largest width of the blur", kPositive));
  add(field("augment.noise", MEMBER(views.noise), "standard deviation of added noise, in [0,1] scale",
            kNotNegative));
  add(field("augment.gray_full", MEMBER(views.gray_full), "grey images: also flip and blur"));

  add(choice<OptimizerKind>("optimizer.kind", MEMBER(optimizer.kind),
                            {{"adam", OptimizerKind::kAdam}, {"sgd", OptimizerKind::kSgd}},
                            "libtorch's optimizer"));
  add(field(
      "optimizer.lr", MEMBER(optimizer.lr),
      "learning rate; 0: the paper's rule by method and batch size, for the method's own optimizer.kind",
      kNotNegative));
  add(field("optimizer.weight_decay", MEMBER(optimizer.weight_decay), "L2 decay", kNotNegative));
  add(field("optimizer.momentum", MEMBER(optimizer.momentum), "sgd: momentum", kProbability));
  add(field("optimizer.beta1", MEMBER(optimizer.beta1), "adam", kBelowOne));
  add(field("optimizer.beta2", MEMBER(optimizer.beta2), "adam", kBelowOne));
  add(choice<ScheduleKind>("optimizer.schedule", MEMBER(optimizer.schedule),
                           {{"constant", ScheduleKind::kConstant}, {"cosine", ScheduleKind::kCosine}},
                           "learning rate over the run"));
  add(field("optimizer.warmup_epochs", MEMBER(optimizer.warmup_epochs), "linear warm-up", kNotNegative));
  add(field("optimizer.clip_norm", MEMBER(optimizer.clip_norm), "global bound of the gradient norm; 0: off",
            kNotNegative));

  add(field("train.epochs", MEMBER(train.epochs), "passes over the train images", kAtLeastOne));
  add(field("train.batch_size", MEMBER(train.batch_size), "images per step", kAtLeastOne));
  add(field("train.seed", MEMBER(train.seed), "decides every random draw"));
  add(field("train.from", MEMBER(train.from),
            "run whose encoder training starts from; empty: first weights drawn from the seed"));
  add(field("guard.tries", MEMBER(guard.tries), "roll-backs after divergence before giving up",
            kNotNegative));
  add(field("guard.lr_factor", MEMBER(guard.lr_factor), "learning rate factor after each of them",
            {1e-6, 1}));
  add(field("guard.healthy", MEMBER(guard.healthy),
            "healthy steps beyond a checkpoint before it is one to go back to; at most an epoch",
            kAtLeastOne));
  add(field("guard.recover", MEMBER(guard.recover),
            "healthy steps beyond the last fault after which the tries are counted anew", kAtLeastOne));
  add(field("guard.max_gap", MEMBER(guard.max_gap),
            "ebclr: |E(samples) - E(data)| that counts as divergence; 0: nine tenths of what tau allows",
            kNotNegative));
  add(field("guard.max_output_norm", MEMBER(guard.max_output_norm),
            "mean output norm that counts as divergence", kPositive));
  add(field("guard.max_grad_norm", MEMBER(guard.max_grad_norm), "gradient norm that counts as divergence",
            kPositive));
  add(field("guard.collapse", MEMBER(guard.collapse),
            "the projections count as collapsed when their spread falls below this part of 1/sqrt(D)",
            kNotNegative));
  add(field("guard.collapse_epochs", MEMBER(guard.collapse_epochs),
            "a collapse within so many epochs is a fault: back, with a lower rate; later it is a warning",
            kNotNegative));
  add(field("checkpoint.every_epochs", MEMBER(checkpoint.every_epochs), "epochs between checkpoints",
            kAtLeastOne));
  add(field("checkpoint.minutes", MEMBER(checkpoint.minutes), "also a checkpoint after so many minutes",
            kPositive));
  add(field("checkpoint.keep_every", MEMBER(checkpoint.keep_every),
            "epochs between checkpoints that are kept for good; 0: none", kNotNegative));
  add(field("checkpoint.keep_last", MEMBER(checkpoint.keep_last), "newest checkpoints kept", kAtLeastOne));
  add(field("log.every", MEMBER(log.every), "steps between lines of metrics.jsonl", kAtLeastOne));
  add(field("log.samples_every", MEMBER(log.samples_every), "epochs between pictures of chains; 0: never",
            kNotNegative));
  add(field("log.tensorboard", MEMBER(log.tensorboard),
            "write event files for TensorBoard beside metrics.jsonl"));
  add(field("monitor.knn_every", MEMBER(monitor.knn_every),
            "epochs between kNN checks while training; 0: off", kNotNegative));
  add(field("monitor.train", MEMBER(monitor.train), "train images of that check", kAtLeastOne));
  add(field("monitor.test", MEMBER(monitor.test), "test images of that check", kAtLeastOne));
  add(field("monitor.probe", MEMBER(monitor.probe),
            "labelled folder or CSV of path,label to watch by, apart from the train images"));
  return f;
}

#undef MEMBER

}  // namespace

const std::vector<Field>& fields() {
  static const std::vector<Field> table = make_fields();
  return table;
}

}  // namespace ebclr::run
