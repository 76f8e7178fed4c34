#pragma once
// A way of learning of your own: derive from Method and give it to Training. ebclr brings the encoder, the
// projection head, the views, the optimizer, the guard against divergence, checkpoints and the log.

#include <ebclr/api.h>
#include <torch/types.h>

#include <string>
#include <utility>
#include <vector>

namespace ebclr {

/// The networks that a configuration describes (encoder.*, head.*), in training.
class EBCLR_API Networks {
 public:
  virtual ~Networks();
  /// images [N, C, H, W] in [-1, 1] -> features [N, D]; joins autograd.
  virtual torch::Tensor encode(const torch::Tensor& images) = 0;
  /// features [N, D] -> projections [N, P]; joins autograd.
  virtual torch::Tensor project(const torch::Tensor& features) = 0;
};

/// One step's input.
struct Step {
  torch::Tensor view1, view2;  ///< [N, C, H, W] in [-1, 1], two views of the same images
  int64_t number = 0;          ///< from 0
  double progress = 0;         ///< part of the run that is done, in [0, 1)
};

/// One step's outcome.
struct StepResult {
  torch::Tensor loss;  ///< scalar with its graph
  /// For the log, without those that are not finite; names that ebclr uses itself (step, epoch, loss, lr,
  /// output_norm, ...) are refused.
  std::vector<std::pair<std::string, double>> metrics;
  torch::Tensor projections;  ///< [N, P], watched for collapse; may be left undefined
};

/// What is learnt. Calls come from the training thread, one at a time.
class EBCLR_API Method {
 public:
  virtual ~Method();

  /// The loss of one step; ebclr runs backward and the optimizer.
  virtual StepResult step(Networks& networks, const Step& step) = 0;
  /// After the optimizer moved the weights: targets, queues, ...
  virtual void after_update(Networks&, const Step&) {}
  /// Parameters of your own that the optimizer moves besides the networks'; saved with them. Asked once,
  /// before the first step.
  virtual std::vector<torch::Tensor> parameters() { return {}; }
  /// Every other tensor of your own that a checkpoint must hold, by name; written into on resume.
  virtual std::vector<std::pair<std::string, torch::Tensor>> state() { return {}; }
  /// After divergence: go on with other randomness.
  virtual void reseed(uint64_t) {}
  /// Cost of a step per image in forward passes of the encoder; two views forward and backward are 6.
  virtual double forward_units() const { return 6; }
};

}  // namespace ebclr
