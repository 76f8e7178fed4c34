#pragma once

#include "ebm/sampler.h"
#include "nn/encoder.h"

namespace ebclr::methods {

/// The marginal energy of a network: E(v) against fixed reference outputs [M, D]. The network's weights get
/// no gradient while it is asked.
class ContrastiveEnergy : public ebm::CutEnergy {
 public:
  /// `cut` says where YOPO splits the network: 0 after the stem, 1 after the first stage.
  ContrastiveEnergy(nn::Encoder& encoder, nn::Head& head, torch::Tensor references, double tau, int cut = 0);

  ebm::EnergyGrad evaluate(const torch::Tensor& v) override;
  /// In one call, where the encoder's backend takes whole chains.
  std::optional<ebm::SampleResult> run_langevin(const torch::Tensor& v, const ebm::LangevinPlan& plan,
                                                ebm::NoiseSource& noise) override;
  ebm::EnergyGrad costate(const torch::Tensor& v) override;
  torch::Tensor pull_back(const torch::Tensor& v, const torch::Tensor& p) override;
  /// Energies alone, [N]; no gradient.
  torch::Tensor value(const torch::Tensor& v);

 private:
  nn::Encoder& encoder_;
  nn::Head& head_;
  torch::Tensor references_;
  double tau_;
  int cut_;
};

}  // namespace ebclr::methods
