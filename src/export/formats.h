#pragma once
// The writers of the formats, one pair each: a file, and what that file computes when it is read back.

#include <filesystem>
#include <map>
#include <string>

#include "export/network.h"

namespace ebclr::exporting {

using Metadata = std::map<std::string, std::string>;

/// True when this build can write ONNX.
bool has_onnx();
/// An ONNX model, opset 17, checked by libonnx; sizes that may vary are symbolic.
void write_onnx(const Network& network, const Metadata& metadata, const std::filesystem::path& path);
/// Reads a model back and runs it node by node on `input`; knows the operations that write_onnx uses.
torch::Tensor run_onnx(const std::filesystem::path& path, const torch::Tensor& input);

/// A TorchScript archive; the metadata lies in it as ebclr.json.
void write_torchscript(const Network& network, const Metadata& metadata, const std::filesystem::path& path);
/// Loads an archive and calls it.
torch::Tensor run_torchscript(const std::filesystem::path& path, const torch::Tensor& input);

/// A zip file of torch.save that holds one OrderedDict of tensors and nothing that weights_only=True refuses;
/// the metadata lies in it as ebclr.json.
void write_state_dict(const Network& network, const Metadata& metadata, const std::filesystem::path& path);
/// A safetensors file.
void write_safetensors(const Network& network, const Metadata& metadata, const std::filesystem::path& path);
/// Loads the weights of a file into a network of the same kind and calls that.
torch::Tensor run_state_dict(const Network& like, const std::filesystem::path& path,
                             const torch::Tensor& input);
torch::Tensor run_safetensors(const Network& like, const std::filesystem::path& path,
                              const torch::Tensor& input);

}  // namespace ebclr::exporting
