#pragma once
// The formats, a pair of functions each: the bytes of a file, and what these compute when they are read back.

#include <map>
#include <string>

#include "export/network.h"

namespace ebclr::exporting {

using Metadata = std::map<std::string, std::string>;

/// As JSON, for formats that hold one text.
std::string to_text(const Metadata& metadata);

/// True when this build can write ONNX.
bool has_onnx();
/// An ONNX model, opset 17, checked by libonnx; sizes that may vary are symbolic.
std::string to_onnx(const Network& network, const Metadata& metadata);
/// Reads a model back and runs it node by node on `input`; knows the operations that to_onnx uses.
torch::Tensor run_onnx(const std::string& bytes, const torch::Tensor& input);

/// A TorchScript archive; the metadata lies in it as ebclr.json.
std::string to_torchscript(const Network& network, const Metadata& metadata);
/// Loads an archive and calls it.
torch::Tensor run_torchscript(const std::string& bytes, const torch::Tensor& input);

/// A zip file of torch.save that holds one OrderedDict of tensors and nothing that weights_only=True refuses;
/// the metadata lies in it as ebclr.json.
std::string to_state_dict(const Network& network, const Metadata& metadata);
/// A safetensors file.
std::string to_safetensors(const Network& network, const Metadata& metadata);
/// Loads the weights of a file into a network of the same kind and calls that.
torch::Tensor run_state_dict(const Network& like, const std::string& bytes, const torch::Tensor& input);
torch::Tensor run_safetensors(const Network& like, const std::string& bytes, const torch::Tensor& input);

}  // namespace ebclr::exporting
