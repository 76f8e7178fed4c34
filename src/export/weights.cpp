#include <caffe2/serialize/inline_container.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/files.h"
#include "core/safetensors.h"
#include "export/formats.h"
#include "run/torch_file.h"

namespace ebclr::exporting {
namespace {

/// Pickle protocol 2 of what a state_dict needs: torch.load runs it, so it must be to the letter.
class Pickler {
 public:
  Pickler() { raw("\x80\x02"); }
  void global(std::string_view module, std::string_view name) {
    raw("c"), raw(module), raw("\n"), raw(name), raw("\n");
  }
  void text(std::string_view s) { raw("X"), number(static_cast<uint32_t>(s.size())), raw(s); }
  void integer(int64_t v) {
    if (v >= INT32_MIN && v <= INT32_MAX) {
      raw("J"), number(static_cast<int32_t>(v));
    } else {
      raw("\x8a\x08"), number(v);
    }
  }
  void integers(c10::IntArrayRef values) {
    raw("(");
    for (const int64_t v : values) integer(v);
    raw("t");
  }
  void raw(std::string_view s) { out_.append(s); }
  std::string take() { return raw("."), std::move(out_); }

 private:
  template <class T>
  void number(T v) {
    char bytes[sizeof v];
    std::memcpy(bytes, &v, sizeof v);
    out_.append(bytes, sizeof v);
  }
  std::string out_;
};

// The weights of a file in a fresh network of the same kind, called on the input.
torch::Tensor run_weights(const Network& like, const std::map<std::string, torch::Tensor>& tensors,
                          const torch::Tensor& input) {
  nn::Encoder encoder(like.encoder.options(), 1);
  nn::Head head(like.head.options(), 1);
  const Network copy{encoder, head, like.part};
  torch::NoGradGuard no_grad;
  size_t used = 0;
  for (auto& [name, ours] : named_state(copy)) {
    const auto it = tensors.find(name);
    if (it == tensors.end() || it->second.sizes() != ours.sizes() ||
        it->second.scalar_type() != ours.scalar_type())
      core::run_error("export", fmt::format("the written file lacks '{}'", name));
    auto target = ours;  // shares its memory with the network: a CPU tensor is not copied
    target.copy_(it->second);
    ++used;
  }
  if (used != tensors.size()) core::run_error("export", "the written file holds tensors of no network");
  encoder.eval();
  head.eval();
  return expected(copy, input);
}

}  // namespace

void write_state_dict(const Network& network, const Metadata& metadata, const std::filesystem::path& path) {
  const auto state = named_state(network);
  Pickler p;
  p.global("collections", "OrderedDict");
  p.raw(")R(");
  int64_t key = 0;
  for (const auto& [name, t] : state) {
    p.text(name);
    p.global("torch._utils", "_rebuild_tensor_v2");
    p.raw("((");
    p.text("storage");
    p.global("torch", t.scalar_type() == torch::kInt64 ? "LongStorage" : "FloatStorage");
    p.text(std::to_string(key++));
    p.text("cpu");
    p.integer(t.numel());
    p.raw("tQ");
    p.integer(0);
    p.integers(t.sizes());
    p.integers(t.strides());
    p.raw("\x89");
    p.global("collections", "OrderedDict");
    p.raw(")RtR");
  }
  p.raw("u");
  const auto program = p.take();

  core::AtomicFile file(path, "export");
  // Records sit in a folder of this name inside the zip, as torch.save does it.
  caffe2::serialize::PyTorchStreamWriter zip([&](const void* data, size_t size) {
    file.write(std::span(static_cast<const std::byte*>(data), size));
    return size;
  });
  zip.writeRecord("data.pkl", program.data(), program.size());
  key = 0;
  for (const auto& [name, t] : state)
    zip.writeRecord("data/" + std::to_string(key++), t.data_ptr(), t.nbytes());
  const auto json = nlohmann::json(metadata).dump(2);
  zip.writeRecord("ebclr.json", json.data(), json.size());
  zip.writeEndOfFile();
  file.commit();
}

void write_safetensors(const Network& network, const Metadata& metadata, const std::filesystem::path& path) {
  core::SafeTensors content;
  content.metadata = metadata;
  content.metadata["format"] = "pt";  // what Python's readers ask for
  for (const auto& [name, tensor] : named_state(network)) content.tensors[name] = tensor;
  core::write_safetensors(path, content);
}

torch::Tensor run_state_dict(const Network& like, const std::filesystem::path& path,
                             const torch::Tensor& input) {
  const auto file = run::read_torch_file(path);
  std::map<std::string, torch::Tensor> tensors;
  if (const auto* items = file.root().dict())
    for (const auto& [name, tensor] : *items)
      if (name.text() && tensor.tensor()) tensors[std::string(*name.text())] = *tensor.tensor();
  return run_weights(like, tensors, input);
}

torch::Tensor run_safetensors(const Network& like, const std::filesystem::path& path,
                              const torch::Tensor& input) {
  return run_weights(like, core::read_safetensors(path).tensors, input);
}

}  // namespace ebclr::exporting
