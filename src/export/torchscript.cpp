#include <fmt/format.h>
#include <torch/script.h>
#include <torch/torch.h>

#include <sstream>

#include "core/error.h"
#include "export/formats.h"

namespace ebclr::exporting {
namespace {

using torch::jit::Module;

/// Modules nested as the names of the parameters say, and the text of `forward`.
class ScriptWriter : public GraphWriter {
 public:
  ScriptWriter() : unit_(std::make_shared<torch::jit::CompilationUnit>()), root_(make("Encoder")) {}

  Value preprocess(const Value& x) override {
    const auto y = line("{}.permute([0, 3, 1, 2])", x);
    // 6 is float32; a script from C++ does not know torch.float.
    return line("{}.to(6) * {} - 1.0", y, 2.0 / 255.0);
  }
  Value conv(const Value& x, const std::string& name, torch::nn::Conv2dImpl& conv) override {
    const int64_t stride = conv.options.stride()->at(0),
                  padding = get<torch::ExpandingArray<2>>(conv.options.padding())->at(0);
    return line("torch.conv2d({}, {}, {}, [{}, {}], [{}, {}])", x, tensor(name + ".weight", conv.weight),
                tensor(name + ".bias", conv.bias), stride, stride, padding, padding);
  }
  Value batch_norm(const Value& x, const std::string& name, const torch::nn::Module& norm,
                   double epsilon) override {
    const auto parameters = norm.named_parameters(false), buffers = norm.named_buffers(false);
    const auto* weight = parameters.find("weight");
    const auto* bias = parameters.find("bias");
    return line("torch.batch_norm({}, {}, {}, {}, {}, False, 0.0, {}, False)", x,
                tensor(name + ".weight", weight ? *weight : torch::Tensor()),
                tensor(name + ".bias", bias ? *bias : torch::Tensor()),
                tensor(name + ".running_mean", buffers["running_mean"], true),
                tensor(name + ".running_var", buffers["running_var"], true), epsilon);
  }
  Value activation(const Value& x, double slope) override {
    return slope > 0 ? line("torch.leaky_relu({}, {})", x, slope) : line("torch.relu({})", x);
  }
  Value max_pool(const Value& x, int64_t kernel, int64_t stride, int64_t padding) override {
    return line("torch.max_pool2d({}, [{}, {}], [{}, {}], [{}, {}])", x, kernel, kernel, stride, stride,
                padding, padding);
  }
  Value add(const Value& a, const Value& b) override { return line("{} + {}", a, b); }
  Value spatial_mean(const Value& x) override { return line("torch.mean({}, [2, 3])", x); }
  Value linear(const Value& x, const std::string& name, torch::nn::LinearImpl& linear) override {
    return line("torch.linear({}, {}, {})", x, tensor(name + ".weight", linear.weight),
                tensor(name + ".bias", linear.bias));
  }
  Value energy(const Value& f, const torch::Tensor& references, double tau) override {
    const auto z = line("{} / (torch.norm({}, 2, [1], True) + 1e-10)", f, f);
    const auto r = tensor("references", references, true);
    const auto logits = line("(torch.matmul({}, {}.t()) * 2.0 - 2.0) / {}", z, r, tau);
    return line("-torch.logsumexp({}, [1])", logits);
  }

  Module finish(const Value& result) {
    try {
      root_.define(fmt::format("def forward(self, images):\n{}  return {}\n", text_, result));
    } catch (const c10::Error& e) {
      core::run_error("export", "libtorch refuses the script: " + std::string(e.what_without_backtrace()));
    }
    return root_;
  }

 private:
  Module make(const std::string& kind) {
    Module m(c10::QualifiedName("__torch__.ebclr." + kind), unit_, /*shouldMangle=*/true);
    m.register_attribute("training", c10::BoolType::get(), false);  // Python's eval() looks at it
    return m;
  }
  template <class... Args>
  Value line(fmt::format_string<Args...> format, Args&&... args) {
    const auto name = fmt::format("v{}", count_++);
    text_ += fmt::format("  {} = {}\n", name, fmt::format(format, std::forward<Args>(args)...));
    return name;
  }
  /// Registers a tensor below the modules that its name goes through; how the script refers to it.
  Value tensor(const std::string& name, const torch::Tensor& t, bool buffer = false) {
    if (!t.defined()) return "None";
    Module at = root_;
    Value expression = "self";
    size_t from = 0;
    for (size_t dot; (dot = name.find('.', from)) != std::string::npos; from = dot + 1) {
      const auto part = name.substr(from, dot - from);
      if (!at.hasattr(part)) at.register_module(part, make("Layer"));
      at = at.attr(part).toModule();
      expression = fmt::format("getattr({}, \"{}\")", expression, part);
    }
    at.register_parameter(name.substr(from), t.detach().to(torch::kCPU).clone(), buffer);
    return fmt::format("{}.{}", expression, name.substr(from));
  }

  std::shared_ptr<torch::jit::CompilationUnit> unit_;
  Module root_;
  std::string text_;
  int count_ = 0;
};

}  // namespace

std::string to_torchscript(const Network& network, const Metadata& metadata) {
  ScriptWriter writer;
  const auto module = writer.finish(describe(network, "images", writer));
  std::ostringstream out;
  module.save(out, {{"ebclr.json", to_text(metadata)}});
  return std::move(out).str();
}

torch::Tensor run_torchscript(const std::string& bytes, const torch::Tensor& input) {
  torch::NoGradGuard no_grad;
  std::istringstream in(bytes);
  auto module = torch::jit::load(in, torch::kCPU);
  return module.forward({input}).toTensor();
}

}  // namespace ebclr::exporting
