#pragma once
// Langevin chains along the marginal energy of a head's output: what Network::chains is told, and the head
// with its energy as one pass there and back. Same numbers as ebm/sampler.h and ebm/objective.h with torch.

#include <functional>
#include <vector>

#include "cpu/buffer.h"
#include "cpu/kernels.h"

namespace ebclr::cpu {

/// One linear layer of the head; pointers are read during a call only.
struct HeadLayer {
  int in = 0, out = 0;
  const float* weight = nullptr;  // [out][in]
  const float* bias = nullptr;    // [out]
};

/// E(f) = -log sum_m exp(-|z - r_m|^2 / tau), z the unit vector of what the head makes of features f.
struct EnergyHead {
  std::vector<HeadLayer> layers = {};  // with the activation between them
  float slope = 0.2f;                  // of that activation
  const float* references = nullptr;   // [count][out], of any length
  int count = 0;
  double tau = 0.1;
};

/// v <- v - step_size * clamp(dE/dv) + sigma * noise, `steps` times. With `inner` steps (YOPO) for each of
/// them the gradient at a cut layer is computed once and pulled back through the layers before it `inner`
/// times.
struct ChainPlan {
  int steps = 10;
  int inner = 0;  // 0: the whole gradient at every step
  int cut = 0;    // 0 after the stem, 1 after the first stage
  float step_size = 0.05f;
  float clamp = 1;               // 0 switches it off
  const float* sigma = nullptr;  // [images]
  /// Fills `out` with numbers [first, first + count) of the run's noise [steps * max(inner,
  /// 1)][images][values]; called by several threads at once.
  std::function<void(long first, float* out, long count)> noise;
};

/// The head and its energy for `rows` images, with all that it needs allocated once. Calls are by a whole
/// team.
class HeadPass {
 public:
  HeadPass(const EnergyHead& head, const Kernels& kernels, int rows);

  /// Packs the weights; before the first run. Ends with a sync.
  void load(const Team& team);
  /// features [rows][in] -> energies [rows] and dfeatures [rows][in]. Ends with a sync.
  void run(const float* features, float* energies, float* dfeatures, const Team& team);

 private:
  struct Linear {
    HeadLayer plain;
    int in, out;               // padded
    Buffer there, back, bias;  // packed weights, packed transposed weights
  };
  void apply(const Linear& linear, bool back, const float* a, float* c, const Team& team) const;
  void energy_row(int row, float* energies) const;
  void unit_row(int row) const;
  void unit_row_gradient(int row) const;

  const Kernels& kernels_;
  int rows_, features_, dimensions_, count_;
  float slope_;
  double tau_;
  std::vector<Linear> linears_;
  std::vector<float> unit_references_;  // [count][dimensions]
  Linear references_;                   // these as one more linear layer
  std::vector<Buffer> values_;          // input of each layer, then f; [columns/lanes][rows][lanes] each
  // z, its similarities (then their gradients) and two gradients on their way back.
  mutable Buffer unit_, logits_, gradient_, other_;
  mutable std::vector<float> norms_;
};

}  // namespace ebclr::cpu
