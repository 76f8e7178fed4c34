#include <caffe2/serialize/inline_container.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "core/error.h"
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

std::string to_text(const Metadata& metadata) {
  // A path of a run need not be UTF-8.
  return nlohmann::json(metadata).dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string to_state_dict(const Network& network, const Metadata& metadata) {
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

  std::string out;
  // Records sit in a folder of this name inside the zip, as torch.save does it.
  caffe2::serialize::PyTorchStreamWriter zip([&](const void* data, size_t size) {
    out.append(static_cast<const char*>(data), size);
    return size;
  });
  zip.writeRecord("data.pkl", program.data(), program.size());
  key = 0;
  for (const auto& [name, t] : state)
    zip.writeRecord("data/" + std::to_string(key++), t.data_ptr(), t.nbytes());
  const auto json = to_text(metadata);
  zip.writeRecord("ebclr.json", json.data(), json.size());
  zip.writeEndOfFile();
  return out;
}

std::string to_safetensors(const Network& network, const Metadata& metadata) {
  core::SafeTensors content;
  content.metadata = metadata;
  content.metadata["format"] = "pt";  // what Python's readers ask for
  for (const auto& [name, tensor] : named_state(network)) content.tensors[name] = tensor;
  return core::to_bytes(content);
}

torch::Tensor run_state_dict(const Network& like, const std::string& bytes, const torch::Tensor& input) {
  const auto* first = reinterpret_cast<const std::byte*>(bytes.data());
  const auto file = run::parse_torch_file({first, first + bytes.size()}, "the written file");
  std::map<std::string, torch::Tensor> tensors;
  if (const auto* items = file.root().dict())
    for (const auto& [name, tensor] : *items)
      if (name.text() && tensor.tensor()) tensors[std::string(*name.text())] = *tensor.tensor();
  return run_weights(like, tensors, input);
}

torch::Tensor run_safetensors(const Network& like, const std::string& bytes, const torch::Tensor& input) {
  const auto content = core::parse_safetensors(std::as_bytes(std::span(bytes)), "the written file");
  return run_weights(like, content.tensors, input);
}

}  // namespace ebclr::exporting
