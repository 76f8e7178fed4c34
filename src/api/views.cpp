#include "ebclr/views.h"

#include <torch/torch.h>

#include "api/configuration_impl.h"
#include "api/translate.h"
#include "data/views.h"

namespace ebclr {

struct Views::Impl {
  data::ViewOptions options;
};

Views::Views(const Configuration& configuration)
    : impl_(std::make_unique<Impl>(
          Impl{api::translated([&] { return configuration.impl().resolved().views; })})) {}
Views::~Views() = default;
Views::Views(Views&&) noexcept = default;
Views& Views::operator=(Views&&) noexcept = default;

torch::Tensor Views::make(const torch::Tensor& pixels, uint64_t seed, uint64_t view, uint64_t epoch) const {
  return api::translated([&] {
    Images images;
    images.pixels = pixels;
    const auto set = api::to_internal(images);
    const data::ViewMaker maker(impl_->options, set.channels(), set.height(), set.width());
    return data::make_views(maker, set, torch::arange(set.size()), seed, epoch, view, /*batch_number=*/0);
  });
}

}  // namespace ebclr
