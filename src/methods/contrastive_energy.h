#pragma once
// Energies of a network's outputs, for samplers. The network's weights get no gradient while they are asked.

#include "ebm/sampler.h"
#include "nn/encoder.h"

namespace ebclr::methods {

/// E(v) = e(head(encoder(v))) for some function e of the outputs.
class NetworkEnergy : public ebm::CutEnergy {
 public:
  ebm::EnergyGrad evaluate(const torch::Tensor& v) override;
  ebm::EnergyGrad costate(const torch::Tensor& v) override;
  torch::Tensor pull_back(const torch::Tensor& v, const torch::Tensor& p) override;
  /// Energies alone, [N]; no gradient.
  torch::Tensor value(const torch::Tensor& v);

 protected:
  /// `cut` says where YOPO splits the network: 0 after the stem, 1 after the first stage.
  NetworkEnergy(nn::Encoder& encoder, nn::Head& head, int cut) : encoder_(encoder), head_(head), cut_(cut) {}
  /// e(f): outputs [N, D] -> [N].
  virtual torch::Tensor of_outputs(const torch::Tensor& f) const = 0;

  nn::Encoder& encoder_;
  nn::Head& head_;
  int cut_;
};

/// The marginal energy of a contrastive network: E(v) against fixed reference outputs [M, D].
class ContrastiveEnergy : public NetworkEnergy {
 public:
  ContrastiveEnergy(nn::Encoder& encoder, nn::Head& head, torch::Tensor references, double tau, int cut = 0);

  /// In one call, where the encoder's backend takes whole chains.
  std::optional<ebm::SampleResult> run_langevin(const torch::Tensor& v, const ebm::LangevinPlan& plan,
                                                ebm::NoiseSource& noise) override;

 protected:
  torch::Tensor of_outputs(const torch::Tensor& f) const override;

 private:
  torch::Tensor references_;
  double tau_;
};

/// JEM's energy of a classifier: E(v) = -logsumexp of the logits that its head gives.
class ClassEnergy : public NetworkEnergy {
 public:
  ClassEnergy(nn::Encoder& encoder, nn::Head& head, int cut = 0) : NetworkEnergy(encoder, head, cut) {}

 protected:
  torch::Tensor of_outputs(const torch::Tensor& f) const override;
};

}  // namespace ebclr::methods
