#pragma once
// Independent chains of fused multiply-adds, nothing else: what the processor can do at most.

namespace ebclr::cpu {
namespace {

/// Runs `steps` steps and returns the operations of one step.
template <class V>
double fma_chain(long steps) {
  constexpr int kChains = 10;  // latency 4 on two units needs 8
  typename V::Reg chain[kChains];
  const auto factor = V::set1(0.999f), term = V::set1(1e-4f);
#pragma GCC unroll 16
  for (int i = 0; i < kChains; ++i) chain[i] = V::set1(static_cast<float>(i));
  for (long step = 0; step < steps; ++step) {
#pragma GCC unroll 16
    for (int i = 0; i < kChains; ++i) chain[i] = V::fma(chain[i], factor, term);
  }
  auto sum = V::zero();
#pragma GCC unroll 16
  for (int i = 0; i < kChains; ++i) sum = V::add(sum, chain[i]);
  const volatile auto used = V::positive(sum);  // or the loop would be dropped
  (void)used;
  return 2.0 * V::kLanes * kChains;
}

}  // namespace
}  // namespace ebclr::cpu
