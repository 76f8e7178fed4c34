#include <fmt/format.h>
#include <torch/torch.h>

#include <cstring>

#include "core/error.h"
#include "export/formats.h"

#ifdef EBCLR_ONNX
#define ONNX_NAMESPACE onnx
#define ONNX_ML 1
#include <onnx/checker.h>
#include <onnx/onnx_pb.h>
#include <onnx/shape_inference/implementation.h>
#endif

namespace ebclr::exporting {

#ifndef EBCLR_ONNX
bool has_onnx() {
  return false;
}
std::string to_onnx(const Network&, const Metadata&) {
  core::usage_error("export",
                    "this build has no ONNX; install libonnx-dev and build again, or use "
                    "--format torchscript");
}
torch::Tensor run_onnx(const std::string&, const torch::Tensor&) {
  core::usage_error("export", "this build has no ONNX; install libonnx-dev and build again");
}
#else

namespace {

constexpr int kOpset = 17;
// protobuf cannot write more into one message.
constexpr size_t kLargestOnnx = (size_t{1} << 31) - (size_t{1} << 20);

int onnx_type(torch::Dtype type) {
  return type == torch::kInt64   ? onnx::TensorProto::INT64
         : type == torch::kUInt8 ? onnx::TensorProto::UINT8
                                 : onnx::TensorProto::FLOAT;
}

class OnnxWriter : public GraphWriter {
 public:
  explicit OnnxWriter(onnx::GraphProto& graph) : graph_(graph) {}

  Value preprocess(const Value& x) override {
    auto y = node("Transpose", {x});
    ints("perm", {0, 3, 1, 2});
    y = node("Cast", {y});
    integer("to", onnx::TensorProto::FLOAT);
    y = node("Mul", {y, constant("preprocess.scale", torch::tensor(2.0f / 255.0f))});
    return node("Sub", {y, constant("preprocess.shift", torch::tensor(1.0f))});
  }
  Value conv(const Value& x, const std::string& name, torch::nn::Conv2dImpl& conv) override {
    std::vector<Value> in = {x, constant(name + ".weight", conv.weight)};
    if (conv.bias.defined()) in.push_back(constant(name + ".bias", conv.bias));
    const auto y = node("Conv", in);
    const int64_t kernel = conv.weight.size(2), stride = conv.options.stride()->at(0),
                  padding = get<torch::ExpandingArray<2>>(conv.options.padding())->at(0);
    window(kernel, stride, padding);
    return y;
  }
  Value batch_norm(const Value& x, const std::string& name, const torch::nn::Module& norm,
                   double epsilon) override {
    const auto parameters = norm.named_parameters(false), buffers = norm.named_buffers(false);
    const auto& mean = buffers["running_mean"];
    const auto* weight = parameters.find("weight");
    const auto* bias = parameters.find("bias");
    const auto y =
        node("BatchNormalization", {x, constant(name + ".weight", weight ? *weight : torch::ones_like(mean)),
                                    constant(name + ".bias", bias ? *bias : torch::zeros_like(mean)),
                                    constant(name + ".running_mean", mean),
                                    constant(name + ".running_var", buffers["running_var"])});
    real("epsilon", epsilon);
    return y;
  }
  Value activation(const Value& x, double slope) override {
    const auto y = node(slope > 0 ? "LeakyRelu" : "Relu", {x});
    if (slope > 0) real("alpha", slope);
    return y;
  }
  Value max_pool(const Value& x, int64_t kernel, int64_t stride, int64_t padding) override {
    const auto y = node("MaxPool", {x});
    window(kernel, stride, padding);
    return y;
  }
  Value add(const Value& a, const Value& b) override { return node("Add", {a, b}); }
  Value spatial_mean(const Value& x) override {
    const auto y = node("Flatten", {node("GlobalAveragePool", {x})});
    integer("axis", 1);
    return y;
  }
  Value linear(const Value& x, const std::string& name, torch::nn::LinearImpl& linear) override {
    const auto y =
        node("Gemm", {x, constant(name + ".weight", linear.weight), constant(name + ".bias", linear.bias)});
    integer("transB", 1);
    return y;
  }
  Value energy(const Value& f, const torch::Tensor& references, double tau) override {
    auto norm = node("ReduceL2", {f});
    ints("axes", {1});
    integer("keepdims", 1);
    norm = node("Add", {norm, constant("energy.epsilon", torch::tensor(1e-10f))});
    auto y = node("MatMul", {node("Div", {f, norm}), constant("energy.references", references.t())});
    y = node("Mul", {y, constant("energy.scale", torch::tensor(static_cast<float>(2 / tau)))});
    y = node("Sub", {y, constant("energy.shift", torch::tensor(static_cast<float>(2 / tau)))});
    y = node("ReduceLogSumExp", {y});
    ints("axes", {1});
    integer("keepdims", 0);
    return node("Neg", {y});
  }

  /// The last node's result gets this name.
  void rename_result(const std::string& name) { last_->set_output(0, name); }

 private:
  Value node(const std::string& type, const std::vector<Value>& inputs) {
    last_ = graph_.add_node();
    const auto name = fmt::format("{}_{}", type, count_++);
    last_->set_op_type(type);
    last_->set_name(name);
    for (const auto& in : inputs) last_->add_input(in);
    last_->add_output(name);
    return name;
  }
  Value constant(const std::string& name, const torch::Tensor& tensor) {
    const auto t = tensor.detach().to(torch::kCPU).contiguous();
    auto* out = graph_.add_initializer();
    out->set_name(name);
    for (const int64_t d : t.sizes()) out->add_dims(d);
    out->set_data_type(onnx_type(t.scalar_type()));
    out->set_raw_data(t.data_ptr(), t.nbytes());
    return name;
  }
  void ints(const std::string& name, std::initializer_list<int64_t> values) {
    auto* a = attribute(name, onnx::AttributeProto::INTS);
    for (const int64_t v : values) a->add_ints(v);
  }
  void integer(const std::string& name, int64_t value) {
    attribute(name, onnx::AttributeProto::INT)->set_i(value);
  }
  void real(const std::string& name, double value) {
    attribute(name, onnx::AttributeProto::FLOAT)->set_f(static_cast<float>(value));
  }
  void window(int64_t kernel, int64_t stride, int64_t padding) {
    ints("kernel_shape", {kernel, kernel});
    ints("strides", {stride, stride});
    ints("pads", {padding, padding, padding, padding});
  }
  onnx::AttributeProto* attribute(const std::string& name, onnx::AttributeProto::AttributeType type) {
    auto* a = last_->add_attribute();
    a->set_name(name);
    a->set_type(type);
    return a;
  }

  onnx::GraphProto& graph_;
  onnx::NodeProto* last_ = nullptr;
  int count_ = 0;
};

void declare(onnx::ValueInfoProto& value, const std::string& name, int type,
             const std::vector<std::string>& sizes) {
  value.set_name(name);
  auto* tensor = value.mutable_type()->mutable_tensor_type();
  tensor->set_elem_type(type);
  for (const auto& size : sizes) {
    auto* d = tensor->mutable_shape()->add_dim();
    if (std::isdigit(static_cast<unsigned char>(size[0]))) {
      d->set_dim_value(std::stoll(size));
    } else {
      d->set_dim_param(size);
    }
  }
}

torch::Tensor to_tensor(const onnx::TensorProto& t) {
  const auto type = t.data_type() == onnx::TensorProto::INT64 ? torch::kInt64 : torch::kFloat32;
  auto out = torch::empty(std::vector<int64_t>(t.dims().begin(), t.dims().end()), type);
  if (t.raw_data().size() != out.nbytes())
    core::run_error("export", fmt::format("the ONNX file's tensor '{}' has the wrong size", t.name()));
  std::memcpy(out.data_ptr(), t.raw_data().data(), out.nbytes());
  return out;
}

}  // namespace

bool has_onnx() {
  return true;
}

std::string to_onnx(const Network& network, const Metadata& metadata) {
  size_t bytes = 0;
  for (const auto& [name, tensor] : named_state(network)) bytes += tensor.nbytes();
  if (bytes > kLargestOnnx)
    core::usage_error("export",
                      fmt::format("{} bytes of weights do not fit an ONNX file (2 GB); use --format "
                                  "torchscript or safetensors",
                                  bytes));
  onnx::ModelProto model;
  model.set_ir_version(8);
  model.set_producer_name("ebclr");
  if (const auto it = metadata.find("version"); it != metadata.end()) model.set_producer_version(it->second);
  auto* opset = model.add_opset_import();
  opset->set_domain("");
  opset->set_version(kOpset);
  for (const auto& [key, value] : metadata) {
    auto* entry = model.add_metadata_props();
    entry->set_key(key);
    entry->set_value(value);
  }
  auto& graph = *model.mutable_graph();
  graph.set_name("ebclr");
  const auto channels = std::to_string(network.encoder.options().channels);
  declare(*graph.add_input(), "images",
          network.preprocess ? onnx::TensorProto::UINT8 : onnx::TensorProto::FLOAT,
          network.preprocess ? std::vector<std::string>{"batch", "height", "width", channels}
                             : std::vector<std::string>{"batch", channels, "height", "width"});
  OnnxWriter writer(graph);
  describe(network, "images", writer);
  const auto result = name(network.part);
  writer.rename_result(result);
  std::vector<std::string> sizes = {"batch"};
  if (network.part == Part::kFeatures) sizes.push_back(std::to_string(network.encoder.feature_dim()));
  if (network.part == Part::kProjection) sizes.push_back(std::to_string(network.head.options().out));
  declare(*graph.add_output(), result, onnx::TensorProto::FLOAT, sizes);
  try {
    onnx::checker::check_model(model);
    // A shape that does not follow from the graph, or contradicts what is declared, throws.
    onnx::shape_inference::InferShapes(model, onnx::OpSchemaRegistry::Instance(),
                                       onnx::ShapeInferenceOptions(true, 1, true));
  } catch (const std::exception& e) {
    const std::string what = e.what();
    core::run_error("export", fmt::format("libonnx refuses the model: {}", what.substr(0, what.find('\n'))));
  }
  return model.SerializeAsString();
}

torch::Tensor run_onnx(const std::string& bytes, const torch::Tensor& input) {
  torch::NoGradGuard no_grad;
  onnx::ModelProto model;
  if (!model.ParseFromString(bytes)) core::run_error("export", "the ONNX file cannot be read back");
  const auto& graph = model.graph();
  std::map<std::string, torch::Tensor> values;
  for (const auto& t : graph.initializer()) values[t.name()] = to_tensor(t);
  values[graph.input(0).name()] = input;
  for (const auto& n : graph.node()) {
    std::map<std::string, const onnx::AttributeProto*> attributes;
    for (const auto& a : n.attribute()) attributes[a.name()] = &a;
    const auto in = [&](int i) { return values.at(n.input(i)); };
    const auto ints = [&](const char* key) {
      const auto& v = attributes.at(key)->ints();
      return std::vector<int64_t>(v.begin(), v.end());
    };
    const auto& op = n.op_type();
    torch::Tensor y;
    if (op == "Conv") {
      const auto pads = ints("pads");
      y = torch::conv2d(in(0), in(1), n.input_size() > 2 ? in(2) : torch::Tensor(), ints("strides"),
                        {pads[0], pads[1]});
    } else if (op == "BatchNormalization") {
      y = torch::batch_norm(in(0), in(1), in(2), in(3), in(4), false, 0.0, attributes.at("epsilon")->f(),
                            false);
    } else if (op == "LeakyRelu") {
      y = torch::leaky_relu(in(0), attributes.at("alpha")->f());
    } else if (op == "Relu") {
      y = torch::relu(in(0));
    } else if (op == "MaxPool") {
      const auto pads = ints("pads");
      y = torch::max_pool2d(in(0), ints("kernel_shape"), ints("strides"), {pads[0], pads[1]});
    } else if (op == "Add") {
      y = in(0) + in(1);
    } else if (op == "Sub") {
      y = in(0) - in(1);
    } else if (op == "Mul") {
      y = in(0) * in(1);
    } else if (op == "Div") {
      y = in(0) / in(1);
    } else if (op == "Neg") {
      y = -in(0);
    } else if (op == "MatMul") {
      y = in(0).matmul(in(1));
    } else if (op == "Gemm") {
      y = torch::addmm(in(2), in(0), in(1).t());
    } else if (op == "GlobalAveragePool") {
      y = in(0).mean({2, 3}, true);
    } else if (op == "Flatten") {
      y = in(0).flatten(1);
    } else if (op == "Transpose") {
      y = in(0).permute(ints("perm"));
    } else if (op == "Cast") {
      y = in(0).to(torch::kFloat32);
    } else if (op == "ReduceL2") {
      y = in(0).norm(2, ints("axes"), attributes.at("keepdims")->i() != 0);
    } else if (op == "ReduceLogSumExp") {
      y = torch::logsumexp(in(0), ints("axes"), attributes.at("keepdims")->i() != 0);
    } else {
      core::run_error("export", fmt::format("the ONNX file asks for '{}', which was not written", op));
    }
    values[n.output(0)] = y;
  }
  return values.at(graph.output(0).name());
}
#endif

}  // namespace ebclr::exporting
