#include "train/rehearsal.h"

#include <gtest/gtest.h>

#include "methods/method.h"

namespace ebclr::train {
namespace {

TEST(Rehearsal, EveryMethodAndNumberOfChainsHasAPrice) {
  for (const auto& name : methods::method_names())
    for (const char* chains : {"0", "0.5", "3", "24"}) {
      const auto config = run::resolve({{"test",
                                         {{"method.name", name},
                                          {"encoder.width", "8"},
                                          {"sampler.chains", chains},
                                          {"sampler.steps", "1"},
                                          {"train.batch_size", "8"}}}});
      const auto r = rehearse(config, {1, 16, 16}, {});
      EXPECT_GT(r.seconds, 0) << name << " " << chains;
      EXPECT_LT(r.seconds, 60) << name << " " << chains;
      EXPECT_DOUBLE_EQ(r.units_per_image, methods::forward_units(config.method, 8)) << name << " " << chains;
    }
}

}  // namespace
}  // namespace ebclr::train
