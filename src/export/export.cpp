#include "export/export.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include "core/error.h"
#include "core/files.h"
#include "core/rng.h"

namespace ebclr::exporting {
namespace fs = std::filesystem;
namespace {

constexpr std::pair<Format, const char*> kFormats[] = {{Format::kOnnx, "onnx"},
                                                       {Format::kTorchscript, "torchscript"},
                                                       {Format::kSafetensors, "safetensors"},
                                                       {Format::kStateDict, "state_dict"}};
constexpr int64_t kCompared = 64;

// Images as the file takes them; smooth enough to be like photographs, whatever the size.
torch::Tensor test_images(const Network& n, int64_t count, int64_t height, int64_t width, uint64_t seed) {
  core::Rng rng(seed, core::Stream::kEval, {14});
  const int64_t c = n.encoder.options().channels;
  auto coarse = torch::empty({count, c, 6, 6});
  for (float *p = coarse.data_ptr<float>(), *end = p + coarse.numel(); p != end; ++p) *p = rng.uniform();
  auto images = torch::upsample_bicubic2d(coarse, {height, width}, false, c10::nullopt, c10::nullopt)
                    .mul(255)
                    .round()
                    .clamp(0, 255);
  if (n.preprocess) return images.permute({0, 2, 3, 1}).to(torch::kUInt8).contiguous();
  return images.mul(2.0 / 255.0).sub(1.0).contiguous();
}

std::string to_bytes(const Network& n, Format format, const Metadata& metadata) {
  switch (format) {
    case Format::kOnnx:
      return to_onnx(n, metadata);
    case Format::kTorchscript:
      return to_torchscript(n, metadata);
    case Format::kSafetensors:
      return to_safetensors(n, metadata);
    case Format::kStateDict:
      break;
  }
  return to_state_dict(n, metadata);
}

torch::Tensor run_bytes(const Network& n, Format format, const std::string& bytes,
                        const torch::Tensor& input) {
  switch (format) {
    case Format::kOnnx:
      return run_onnx(bytes, input);
    case Format::kTorchscript:
      return run_torchscript(bytes, input);
    case Format::kSafetensors:
      return run_safetensors(n, bytes, input);
    case Format::kStateDict:
      break;
  }
  return run_state_dict(n, bytes, input);
}

// Standardised weights have no place in other formats: the same function with plain ones, else null.
std::shared_ptr<nn::Encoder> written_out(nn::Encoder& encoder) {
  return encoder.options().norm == nn::Norm::kSws ? encoder.folded() : nullptr;
}

// Can torchvision build this network? Then its loader can take the file.
bool is_torchvision(const nn::EncoderOptions& o) {
  return o.stem == nn::Stem::kImagenet && o.width == 64 && o.channels == 3 && o.norm == nn::Norm::kBatch &&
         o.activation == nn::Activation::kRelu;
}

std::vector<std::string> python_lines(const Network& n, Format format, const std::vector<int64_t>& shape,
                                      const std::string& file) {
  const int64_t c = n.encoder.options().channels, h = shape.size() == 3 ? shape[1] : 32,
                w = shape.size() == 3 ? shape[2] : 32;
  const auto result = name(n.part);
  const auto dims = n.preprocess ? fmt::format("{}, {}, {}", h, w, c) : fmt::format("{}, {}, {}", c, h, w);
  const auto input = n.preprocess ? fmt::format("uint8 [N, {}] as read", dims)
                                  : fmt::format("float32 [N, {}] in [-1, 1]: pixels / 127.5 - 1", dims);
  switch (format) {
    case Format::kOnnx:
      return {"import numpy as np, onnxruntime",
              fmt::format("session = onnxruntime.InferenceSession(\"{}\")", file),
              fmt::format("{} = session.run(None, {{\"images\": np.zeros((1, {}), np.{})}})[0]  # images: {}",
                          result, dims, n.preprocess ? "uint8" : "float32", input)};
    case Format::kTorchscript:
      return {"import torch", fmt::format("model = torch.jit.load(\"{}\")", file),
              fmt::format("{} = model(torch.zeros(1, {}{}))  # images: {}", result, dims,
                          n.preprocess ? ", dtype=torch.uint8" : "", input)};
    case Format::kSafetensors:
      return {"from safetensors.torch import load_file", fmt::format("weights = load_file(\"{}\")", file),
              "print(weights[\"conv1.weight\"].shape)"};
    case Format::kStateDict:
      break;
  }
  if (is_torchvision(n.encoder.options()) && n.part == Part::kFeatures)
    return {"import torch, torchvision",
            fmt::format("model = torchvision.models.{}(); model.fc = torch.nn.Identity(); model.eval()",
                        n.encoder.options().arch),
            fmt::format("model.load_state_dict(torch.load(\"{}\"))  # model(images): {}", file, input)};
  return {"import torch", fmt::format("weights = torch.load(\"{}\", map_location=\"cpu\")", file),
          "print(weights[\"conv1.weight\"].shape)"};
}

}  // namespace

std::string name(Format format) {
  for (const auto& [f, text] : kFormats)
    if (f == format) return text;
  return {};
}

Format parse_format(const std::string& text) {
  for (const auto& [f, known] : kFormats)
    if (text == known) return f;
  core::usage_error("export",
                    fmt::format("format '{}'; choose onnx, torchscript, safetensors or state_dict", text));
}

Metadata describe_run(const run::Run& run, const run::Model& model, const Network& network,
                      const std::string& version) {
  const auto& shape = model.image_shape;
  return {{"producer", "ebclr"},
          {"version", version},
          {"run", fs::absolute(run.folder().root).lexically_normal().filename().string()},
          {"epoch", std::to_string(model.position.epoch)},
          {"step", std::to_string(model.position.step)},
          {"method", run.config().method.name},
          {"part", name(network.part)},
          {"input", network.preprocess ? "uint8 [N, H, W, C], RGB" : "float32 [N, C, H, W], RGB"},
          {"normalisation", network.preprocess ? "inside the graph" : "pixels / 127.5 - 1, in [-1, 1]"},
          {"image_size", shape.size() == 3 ? fmt::format("{}x{}x{}", shape[0], shape[1], shape[2]) : ""},
          {"configuration", run::to_yaml(run.config())}};
}

void check_expressible(Format format, Part part, bool preprocess) {
  const bool weights_only = format == Format::kSafetensors || format == Format::kStateDict;
  if (weights_only && preprocess)
    core::usage_error("export",
                      fmt::format("{} holds weights and no computation, so --preprocess has no place "
                                  "in it; use --format onnx or torchscript",
                                  name(format)));
  if (weights_only && part == Part::kEnergy)
    core::usage_error("export", fmt::format("{} holds weights and no computation, which the energy is; use "
                                            "--format onnx or torchscript, or --part projection",
                                            name(format)));
  if (format == Format::kOnnx && !has_onnx())
    core::usage_error(
        "export", "this build has no ONNX; install libonnx-dev and build again, or use --format torchscript");
}

Exported export_network(const Network& network, Format format, const Metadata& metadata,
                        const std::vector<int64_t>& image_shape, const fs::path& out) {
  check_expressible(format, network.part, network.preprocess);
  if (network.part == Part::kEnergy && !network.references.defined())
    core::usage_error("export", "the energy needs reference outputs");
  if (fs::is_directory(out))
    core::usage_error("export", fmt::format("{}: is a folder; name a file", out.string()));
  const bool encoder_training = network.encoder.is_training(), head_training = network.head.is_training();
  network.encoder.eval();
  network.head.eval();
  const auto plain = written_out(network.encoder);
  const Network written{plain ? *plain : network.encoder,
                        network.head,
                        network.part,
                        network.preprocess,
                        network.references,
                        network.tau};
  // Compared before anything is on the disk: a file that is there is a good one.
  const std::string bytes = to_bytes(written, format, metadata);
  Exported result;
  const int64_t h = image_shape.size() == 3 ? image_shape[1] : 32,
                w = image_shape.size() == 3 ? image_shape[2] : 32;
  // Most at the run's own size, one alone, and some of another size.
  const struct {
    int64_t count, height, width;
  } batches[] = {{kCompared - 5, h, w}, {1, h, w}, {4, h + 8, w + 16}};
  uint64_t seed = 0;
  for (const auto& b : batches) {
    const auto images = test_images(network, b.count, b.height, b.width, seed++);
    const auto ours = expected(network, images), theirs = run_bytes(written, format, bytes, images);
    if (!ours.isfinite().all().item<bool>())
      core::usage_error("export", "the network computes values that are not finite; nothing to export");
    if (ours.sizes() != theirs.sizes()) core::run_error("export", "the written file computes another shape");
    const double scale = ours.abs().max().item<double>();
    const double error = (ours - theirs).abs().max().item<double>() / std::max(scale, 1e-30);
    result.error = std::max(result.error, std::isfinite(error) ? error : 1e30);
    result.images += b.count;
  }
  network.encoder.train(encoder_training);
  network.head.train(head_training);
  if (result.error > kExportTolerance)
    core::run_error("export",
                    fmt::format("the written file differs from the network by {:.1e} of its largest "
                                "value (allowed: {:.0e}); nothing was kept",
                                result.error, kExportTolerance));
  core::write_atomically(out, bytes, "export");
  result.bytes = static_cast<int64_t>(bytes.size());
  result.python = python_lines(network, format, image_shape, out.string());
  return result;
}

}  // namespace ebclr::exporting
