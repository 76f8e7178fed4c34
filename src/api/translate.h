#pragma once
// The border between the rooms and the public interface: errors, images and plug-ins in both directions.

#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "core/error.h"
#include "data/image_set.h"
#include "ebclr/error.h"
#include "ebclr/images.h"
#include "ebclr/model.h"
#include "ebclr/sampling.h"
#include "ebm/sampler.h"
#include "engine/engine.h"

namespace ebclr::api {

/// Calls f; the rooms' errors leave as the public Error.
template <class F>
decltype(auto) translated(F&& f) {
  try {
    return std::forward<F>(f)();
  } catch (const core::Error& e) {
    throw Error(e.code() == core::ExitCode::kUsage ? Error::Kind::kInput : Error::Kind::kRun, e.what());
  } catch (const std::filesystem::filesystem_error& e) {
    throw Error(Error::Kind::kRun, e.what());
  }
}

/// The caller's fault, found here.
[[noreturn]] void input_error(const std::string& message);

Images to_public(data::ImageSet set);
/// Checks types and shapes; throws Error.
data::ImageSet to_internal(const Images& images);

engine::Placement placement(torch::Device device, Engine engine);

/// A room's energy as the public one; `energy` must outlive it.
class PublicEnergy : public Energy {
 public:
  explicit PublicEnergy(ebm::Energy& energy) : energy_(energy) {}
  Value evaluate(const torch::Tensor& v) override;

 private:
  ebm::Energy& energy_;
};

/// One run of a sampler from outside; throws Error unless its chains are shaped like `start`. They come back
/// without a graph, in the type and on the device of `start`.
SamplerResult run_checked(Sampler& sampler, Energy& energy, const torch::Tensor& start,
                          const torch::Tensor& visits, Noise& noise);
/// A sampler from outside for the rooms.
std::unique_ptr<ebm::Sampler> to_internal(std::shared_ptr<Sampler> sampler);

}  // namespace ebclr::api
