#pragma once
// A run folder: config.yaml, metrics.jsonl, train.log, checkpoints/, samples/, summary.json.

#include <filesystem>
#include <string>
#include <vector>

#include "nn/encoder.h"
#include "run/checkpoint.h"
#include "run/config.h"

namespace ebclr::run {

/// A checkpoint and where the run stood.
struct CheckpointInfo {
  CheckpointFile file;
  Position position;
};

/// Networks of one checkpoint, in inference mode.
struct Model {
  std::shared_ptr<nn::Encoder> encoder;
  std::shared_ptr<nn::Head> head;
  Position position;
  std::vector<int64_t> image_shape;  ///< {C, H, W} that it was trained on; empty for imported ones
  int64_t side = 32;                 ///< to read pictures at: of image_shape, else as configured
  double balance = 0;                ///< what a balance had made of its setting; 0: there is none
};

/// Paths inside a run folder.
struct RunFolder {
  std::filesystem::path root;
  std::filesystem::path config() const { return root / "config.yaml"; }
  std::filesystem::path metrics() const { return root / "metrics.jsonl"; }
  std::filesystem::path log() const { return root / "train.log"; }
  std::filesystem::path summary() const { return root / "summary.json"; }
  std::filesystem::path provenance() const { return root / "provenance.json"; }
  std::filesystem::path checkpoints() const { return root / "checkpoints"; }
  std::filesystem::path samples() const { return root / "samples"; }
  std::filesystem::path images() const { return root / "images.csv"; }
  std::filesystem::path classes() const { return root / "classes.json"; }
  std::filesystem::path lock() const { return root / ".lock"; }
};

/// A run that exists on disk, for reading.
class Run {
 public:
  /// Opens; throws Error when the folder is not a run.
  static Run open(const std::filesystem::path& folder);

  const RunFolder& folder() const { return folder_; }
  const Config& config() const { return config_; }
  /// All readable checkpoints by position, oldest first; of what a roll-back gave up too.
  std::vector<CheckpointInfo> checkpoints() const;
  /// Those of them that lead to where the run stands.
  std::vector<CheckpointInfo> lineage() const;
  /// "last", or an epoch number of the lineage; throws Error naming what there is.
  Model load(const std::string& which = "last") const;
  /// The model of one checkpoint.
  Model load(const CheckpointFile& file) const;
  /// The encoder as it was before training, from the run's seed; channels from the images.
  Model untrained(const std::vector<int64_t>& image_shape) const;
  /// The newest readable replay buffer ("chains", "counts"); empty when there is none.
  core::SafeTensors newest_buffer() const;

 private:
  RunFolder folder_;
  Config config_;
};

/// Names of tensors inside a checkpoint.
inline constexpr const char* kMethodPrefix = "method/";

/// A weight of a network by name ("encoder.conv1.weight") and shape.
struct WeightShape {
  std::string name;
  std::vector<int64_t> shape;
};
/// The weights that make an encoder and its head large. Where a file holds them, building both takes a small
/// multiple of the file; where it does not, a few numbers in it could ask for gigabytes.
std::vector<WeightShape> large_weights(const nn::EncoderOptions& encoder, nn::HeadOptions head);

/// Copies the checkpoint's tensors of a prefix into a module; throws Error naming what does not fit.
void load_module(torch::nn::Module& module, const core::SafeTensors& tensors, const std::string& prefix,
                 const std::string& where);

/// Makes a run folder from a checkpoint of the released code (torch.save with enc_state_dict and
/// proj_state_dict) and its configuration. Returns notes for the user.
std::vector<std::string> import_released(const std::filesystem::path& checkpoint, const std::string& config,
                                         const std::filesystem::path& out);

/// Makes a run folder from the state dict of a torchvision ResNet (18, 34, 50), whose shapes and names
/// encoder.stem imagenet has; its input normalisation goes into the first layer. Returns notes for the user.
std::vector<std::string> import_torchvision(const std::filesystem::path& state_dict,
                                            const std::filesystem::path& out);

}  // namespace ebclr::run
