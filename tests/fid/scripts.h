#pragma once
// TorchScript files that stand in for an Inception network.

#include <torch/script.h>

#include <filesystem>
#include <string>

namespace ebclr::testing {

/// Writes a module with this source, e.g. "def forward(self, x): return x".
inline std::filesystem::path write_script(const std::filesystem::path& file, const std::string& source) {
  torch::jit::Module module("stand_in");
  module.define(source + "\n");
  module.save(file.string());
  return file;
}

/// Four by four means of each channel, repeated to 2048 features.
inline constexpr const char* kMeans = R"(
def forward(self, x):
    a = torch.adaptive_avg_pool2d(x, [4, 4]).flatten(1)
    return torch.cat([a.repeat([1, 42]), a[:, :32]], 1)
)";

/// The same in the convention of networks that resize by themselves and read 0 .. 255.
inline constexpr const char* kMeansOnRequest = R"(
def forward(self, img, return_features: bool = False):
    a = torch.adaptive_avg_pool2d(img, [4, 4]).flatten(1)
    if return_features:
        return torch.cat([a.repeat([1, 42]), a[:, :32]], 1)
    return a[:, :10]
)";

}  // namespace ebclr::testing
