#include "fid/inception.h"

#include <fmt/format.h>
#include <torch/script.h>
#include <torch/torch.h>

#include <algorithm>

#include "core/error.h"

namespace ebclr::fid {
namespace {
namespace fs = std::filesystem;
constexpr std::string_view kInceptionComponent = "fid.inception";
constexpr int64_t kSide = 299, kBatch = 32;
constexpr const char* kHowTo = "; docs/fid.md says how to make one";

std::string shape_of(const torch::Tensor& t) {
  return fmt::format("[{}]", fmt::join(t.sizes().vec(), ", "));
}

// The last line of libtorch's message that says something; the ones before are a trace of the script.
std::string reason(const std::exception& e) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&e);
  std::string text = torch_error ? torch_error->what_without_backtrace() : e.what(), last;
  for (size_t from = 0; from <= text.size();) {
    const size_t to = std::min(text.find('\n', from), text.size());
    const std::string line = text.substr(from, to - from);
    if (line.find_first_not_of(" \t") != std::string::npos) last = line.substr(line.find_first_not_of(" \t"));
    from = to + 1;
  }
  return last;
}

class Inception : public FeatureExtractor {
 public:
  explicit Inception(const InceptionOptions& options) : o_(options), name_(options.file.string()) {
    load();
    const auto& schema = module_.get_method("forward").function().getSchema();
    for (const auto& argument : schema.arguments()) asks_features_ |= argument.name() == "return_features";
    if (o_.range == "auto") o_.range = asks_features_ ? "0,255" : "0,1";
    if (o_.range != "0,1" && o_.range != "-1,1" && o_.range != "0,255")
      core::usage_error(kInceptionComponent,
                        fmt::format("pixel range '{}'; choose auto, 0,1 or -1,1 or 0,255", o_.range));
    try_out();
  }

  torch::Tensor features(const torch::Tensor& images) override {
    torch::NoGradGuard no_grad;
    std::vector<torch::Tensor> parts;
    for (int64_t i = 0; i < images.size(0); i += kBatch)
      parts.push_back(run(images.narrow(0, i, std::min(kBatch, images.size(0) - i))));
    return torch::cat(parts);
  }
  int64_t dimensions() const override { return o_.dimensions; }
  std::string label() const override { return fmt::format("FID (Inception, {}-d)", o_.dimensions); }
  std::string description() const override {
    return fmt::format("network of {}, which {} with pixels in [{}]", name_,
                       asks_features_ ? "resizes by itself" : "reads 299 x 299 (bilinear)", o_.range);
  }

 private:
  void load() {
    std::error_code ec;
    if (!fs::exists(o_.file, ec))
      core::usage_error(kInceptionComponent, fmt::format("{}: no such file", name_));
    if (fs::is_directory(o_.file, ec))
      core::usage_error(kInceptionComponent,
                        fmt::format("{}: is a folder; expected a TorchScript file{}", name_, kHowTo));
    if (!fs::is_regular_file(o_.file, ec))  // libtorch would wait for its writer
      core::usage_error(kInceptionComponent,
                        fmt::format("{}: is a pipe or device; expected a TorchScript file{}", name_, kHowTo));
    try {
      module_ = torch::jit::load(name_, o_.device);
      module_.eval();
    } catch (const std::exception& e) {
      const std::string text = e.what();
      if (text.find("constants.pkl") != std::string::npos)
        core::usage_error(kInceptionComponent,
                          fmt::format("{}: holds weights without their code (torch.save); expected a "
                                      "TorchScript file{}",
                                      name_, kHowTo));
      core::usage_error(
          kInceptionComponent,
          fmt::format("{}: not a TorchScript file, or a damaged one ({}){}", name_, reason(e), kHowTo));
    }
    if (!module_.find_method("forward"))
      core::usage_error(kInceptionComponent,
                        fmt::format("{}: its module has no forward(images){}", name_, kHowTo));
  }

  // images [n, C, H, W], n <= kBatch -> [n, D]
  torch::Tensor run(const torch::Tensor& images) {
    auto x = images.to(o_.device, torch::kFloat32);
    if (x.size(1) == 1) x = x.expand({-1, 3, -1, -1});
    if (!asks_features_)
      x = torch::nn::functional::interpolate(x, torch::nn::functional::InterpolateFuncOptions()
                                                    .size(std::vector<int64_t>{kSide, kSide})
                                                    .mode(torch::kBilinear)
                                                    .align_corners(false));
    if (o_.range == "0,1") x = (x + 1) * 0.5;
    if (o_.range == "0,255") x = (x + 1) * 127.5;
    c10::IValue out;
    try {
      out = asks_features_ ? module_.get_method("forward")({x}, {{"return_features", true}})
                           : module_.get_method("forward")({x});
    } catch (const std::exception& e) {
      core::usage_error(kInceptionComponent, fmt::format("{}: fails on float images {}: {}{}", name_,
                                                         shape_of(x), reason(e), kHowTo));
    }
    // Some wrap the features in a list or tuple of one.
    if (out.isTuple() && out.toTupleRef().elements().size() == 1) out = out.toTupleRef().elements()[0];
    if (out.isTensorList() && out.toTensorVector().size() == 1) out = out.toTensorVector()[0];
    if (!out.isTensor())
      core::usage_error(kInceptionComponent, fmt::format("{}: returns {} instead of one tensor of features{}",
                                                         name_, out.tagKind(), kHowTo));
    auto f = out.toTensor();
    const bool fits = (f.dim() == 2 || (f.dim() == 4 && f.size(2) == 1 && f.size(3) == 1)) &&
                      f.size(0) == x.size(0) && f.size(1) == o_.dimensions;
    if (!fits)
      core::usage_error(kInceptionComponent,
                        fmt::format("{}: gives {} for {} images; expected [{}, {}], the features before "
                                    "the last layer{}",
                                    name_, shape_of(f), x.size(0), x.size(0), o_.dimensions, kHowTo));
    return f.flatten(1).to(torch::kFloat32);
  }

  void try_out() {
    torch::NoGradGuard no_grad;
    // A ramp and its paler mirror image, which any network of use tells apart.
    const auto ramp = torch::linspace(-1, 1, 32).view({1, 1, 1, 32}).expand({1, 3, 32, 32});
    const auto f = run(torch::cat({ramp, ramp.flip(3).mul(0.5).add(0.25)}));
    if (!torch::isfinite(f).all().item<bool>())
      core::usage_error(kInceptionComponent,
                        fmt::format("{}: gives features that are not finite{}", name_, kHowTo));
    if (f[0].equal(f[1]))
      core::usage_error(kInceptionComponent,
                        fmt::format("{}: gives the same features for different images{}", name_, kHowTo));
  }

  InceptionOptions o_;
  std::string name_;
  torch::jit::Module module_;
  bool asks_features_ = false;
};

}  // namespace

std::unique_ptr<FeatureExtractor> make_inception(const InceptionOptions& options) {
  return std::make_unique<Inception>(options);
}

}  // namespace ebclr::fid
