#include "density/proposals.h"

#include <ATen/Parallel.h>
#include <torch/torch.h>

#include <vector>

namespace ebclr::density {

ebm::ProposalSource data_proposals(std::shared_ptr<const data::ImageSet> images,
                                   const data::ViewOptions& views) {
  auto maker = std::make_shared<data::ViewMaker>(views, *images);
  return ebm::ProposalSource::Part([images, maker](int64_t n, core::Rng& rng, int64_t first, int64_t last) {
    struct Draw {
      int64_t image;
      uint64_t transform, noise;
    };
    // Draws in order first, pixels in parallel after: the result does not depend on threads.
    std::vector<Draw> draws;
    for (int64_t i = 0; i < n; ++i)
      draws.push_back({static_cast<int64_t>(rng.below(static_cast<uint64_t>(images->size()))), rng.next_u64(),
                       rng.next_u64()});
    auto out = torch::empty({last - first, images->channels(), images->height(), images->width()});
    const int64_t stride = images->channels() * images->height() * images->width();
    const auto& source = data::view_source(*images);
    const int64_t source_stride = images->channels() * source.size(2) * source.size(3);
    const uint8_t* pixels = source.data_ptr<uint8_t>();
    float* target = out.data_ptr<float>();
    at::parallel_for(0, last - first, 16, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const auto& d = draws[static_cast<size_t>(first + i)];
        maker->make(pixels + d.image * source_stride, core::Rng(d.transform), core::Rng(d.noise),
                    target + i * stride);
      }
    });
    return out;
  });
}

}  // namespace ebclr::density
