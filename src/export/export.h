#pragma once
// A trained network for other programs: ONNX, TorchScript, safetensors, or a state_dict for Python's torch.

#include <filesystem>
#include <string>
#include <vector>

#include "export/formats.h"
#include "run/run.h"

namespace ebclr::exporting {

enum class Format { kOnnx, kTorchscript, kSafetensors, kStateDict };

/// "onnx", "torchscript", "safetensors" or "state_dict".
std::string name(Format format);
Format parse_format(const std::string& name);

/// What an export turned out to be.
struct Exported {
  double error = 0;                 ///< largest difference from ours, as a part of our largest value
  int64_t images = 0;               ///< that were compared
  int64_t bytes = 0;                ///< of the file
  std::vector<std::string> python;  ///< lines that use it
};

/// Largest difference that an export may show.
inline constexpr double kExportTolerance = 1e-5;

/// What every file says about its origin: run, checkpoint, version, configuration, input and normalisation.
Metadata describe_run(const run::Run& run, const run::Model& model, const Network& network,
                      const std::string& version);

/// Throws Error where the format cannot hold what is asked for.
void check_expressible(Format format, Part part, bool preprocess);

/// Makes the bytes of the file, reads them back, compares what they compute with ours on 64 images (one alone
/// and another size among them), and only then writes them. `image_shape`: {C, H, W} of the run.
Exported export_network(const Network& network, Format format, const Metadata& metadata,
                        const std::vector<int64_t>& image_shape, const std::filesystem::path& out);

}  // namespace ebclr::exporting
