#pragma once
// The table of one instruction set; instantiated once per target, in that target's own source file.

#include "cpu/norm.h"
#include "cpu/peak.h"
#include "cpu/pool.h"
#include "cpu/stem.h"
#include "cpu/weights.h"
#include "cpu/winograd.h"

namespace ebclr::cpu {
namespace {

template <class V>
void transform_any_weights(const WeightJob& job, const Team& team) {
  if (job.stride == 1) {
    transform_weights<V, F43Filter>(job, team);
  } else {
    transform_weights<V, PolyFilter>(job, team);
  }
}

template <class V>
constexpr Kernels kernel_table(const char* name) {
  return {.name = name,
          .lanes = V::kLanes,
          .by_name_only = false,
          .sums_follow_threads = false,
          .forward_taps = true,
          .gradient_taps = true,
          .weight_floats = winograd_weight_floats,
          .cut = winograd_cut<V>,
          .space = winograd_space<V>,
          .grad_cut = winograd_grad_cut,
          .grad_space = winograd_grad_space,
          .transform_weights = transform_any_weights<V>,
          .conv = conv<V>,
          .conv_grad = conv<V>,
          .down = down<V>,
          .down_grad = down_grad<V>,
          .weight_grad = weight_grad<V>,
          .pack = pack<V>,
          .pack_rows = pack<V>,
          .stem_weights = stem_weights<V>,
          .stem = stem<V>,
          .max_pool = max_pool<V>,
          .max_pool_grad = max_pool_grad<V>,
          .stem_data_grad = stem_data_grad<V>,
          .stem_weight_grad = stem_weight_grad<V>,
          .multiply = multiply<V>,
          .pool = pool<V>,
          .pool_grad = pool_grad<V>,
          .derive = derive<V>,
          .batch_stats = batch_stats<V>,
          .batch_apply = batch_apply<V>,
          .batch_grad_sums = batch_grad_sums<V>,
          .batch_grad_apply = batch_grad_apply<V>,
          .fma_chain = fma_chain<V>};
}

}  // namespace
}  // namespace ebclr::cpu
