#pragma once
// Bias, residual, activation and sign masks, fused into the store of a result.

#include <cstdint>
#include <cstring>

#include "cpu/kernels.h"

namespace ebclr::cpu {
namespace {

enum EpilogueFlag { kBias = 1, kResidual = 2, kActivate = 4, kSignsOut = 8, kSignsIn = 16 };

/// The flags that an epilogue's fields ask for.
template <class V>
int epilogue_flags(const Epilogue& e) {
  return (e.bias != nullptr ? kBias : 0) | (e.residual != nullptr ? kResidual : 0) |
         (e.activate ? kActivate : 0) | (e.activate && e.signs_out != nullptr ? kSignsOut : 0) |
         (e.signs_in != nullptr ? kSignsIn : 0);
}

/// Stores results of one tensor. kFlags fixes at compile time what is to be done.
template <class V, int kFlags>
class Finish {
 public:
  using Reg = typename V::Reg;
  using Bits = typename V::Bits;

  Finish(const Epilogue& e, float* y)
      : e_(e),
        y_(y),
        slope_(V::set1(e.slope)),
        one_(V::set1(1)),
        signs_out_(static_cast<Bits*>(e.signs_out)),
        signs_in_(static_cast<const Bits*>(e.signs_in)) {}

  /// The bias of the channels from c on.
  Reg channel(int c) const { return (kFlags & kBias) ? V::load(e_.bias + c) : V::zero(); }

  /// Stores vector number `at` of the tensor.
  [[gnu::always_inline]] void store(Reg value, Reg bias, long at) const { store_row<1>(&value, bias, at); }

  /// Stores vectors [at, at + kCount) of the tensor. Their signs go out in one piece: a store of two bytes
  /// per vector made the output transform 60 cycles longer per tile.
  template <int kCount>
  [[gnu::always_inline]] void store_row(const Reg* values, Reg bias, long at) const {
    Bits signs[kCount];
#pragma GCC unroll 8
    for (int i = 0; i < kCount; ++i) {
      Reg value = values[i];
      if constexpr ((kFlags & kBias) != 0) value = V::add(value, bias);
      if constexpr ((kFlags & kResidual) != 0) {
        value = V::add(value, V::load(e_.residual + (at + i) * V::kLanes));
      }
      if constexpr ((kFlags & kSignsOut) != 0) signs[i] = V::positive(value);
      if constexpr ((kFlags & kActivate) != 0) value = V::max(V::mul(value, slope_), value);
      if constexpr ((kFlags & kSignsIn) != 0) {
        value = V::mul(value, V::select(signs_in_[at + i], one_, slope_));
      }
      V::store(y_ + (at + i) * V::kLanes, value);
    }
    if constexpr ((kFlags & kSignsOut) != 0) store_signs<kCount>(signs, at);
  }

 private:
  template <int kCount>
  [[gnu::always_inline]] void store_signs(const Bits* signs, long at) const {
    if constexpr (kCount == 4) {
      constexpr int kBits = 8 * sizeof(Bits);
      std::uint64_t all = 0;
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) all |= std::uint64_t{signs[i]} << (i * kBits);
      std::memcpy(signs_out_ + at, &all, 4 * sizeof(Bits));
    } else {
      for (int i = 0; i < kCount; ++i) signs_out_[at + i] = signs[i];
    }
  }

  Epilogue e_;
  float* y_;
  Reg slope_, one_;
  Bits* signs_out_;
  const Bits* signs_in_;
};

/// Calls body.template operator()<flags>() with the flags of `e` as a constant.
template <class V, class Body>
void with_flags(const Epilogue& e, const Body& body) {
  switch (epilogue_flags<V>(e)) {
    case 0:
      return body.template operator()<0>();
    case kBias:
      return body.template operator()<kBias>();
    case kResidual:
      return body.template operator()<kResidual>();
    case kBias | kResidual:
      return body.template operator()<kBias | kResidual>();
    case kActivate:
      return body.template operator()<kActivate>();
    case kActivate | kSignsOut:
      return body.template operator()<kActivate | kSignsOut>();
    case kBias | kActivate:
      return body.template operator()<kBias | kActivate>();
    case kBias | kResidual | kActivate:
      return body.template operator()<kBias | kResidual | kActivate>();
    case kBias | kActivate | kSignsOut:
      return body.template operator()<kBias | kActivate | kSignsOut>();
    case kBias | kResidual | kActivate | kSignsOut:
      return body.template operator()<kBias | kResidual | kActivate | kSignsOut>();
    case kSignsIn:
      return body.template operator()<kSignsIn>();
    case kResidual | kSignsIn:
      return body.template operator()<kResidual | kSignsIn>();
    default:
      __builtin_trap();  // a combination that no layer of the encoder has
  }
}

}  // namespace
}  // namespace ebclr::cpu
