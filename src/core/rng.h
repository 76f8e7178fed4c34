#pragma once
// Counter-based randomness: a number depends on a key and a counter alone, never on threads, batch size
// or what was drawn elsewhere. A stream's whole state is two integers, so checkpoints stay small.

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>

namespace ebclr::core {

/// splitmix64's finaliser: a bijective mix of 64 bits.
constexpr uint64_t mix64(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

/// Key of an independent stream named by several integers, e.g. {seed, kViews, epoch, image, view}.
constexpr uint64_t make_key(std::initializer_list<uint64_t> parts) {
  uint64_t h = 0x243F6A8885A308D3ull;
  for (uint64_t p : parts) h = mix64(h + 0x9E3779B97F4A7C15ull + mix64(p + 0xD1B54A32D192ED03ull));
  return h;
}

/// Names of the project's streams; the second part of a key after the seed.
enum class Stream : uint64_t {
  kInit = 1,      ///< weights
  kShuffle = 2,   ///< order of an epoch
  kViews = 3,     ///< augmentation
  kChains = 4,    ///< picking and re-initialising chains
  kLangevin = 5,  ///< SGLD noise
  kSubset = 6,    ///< class-balanced subsets and splits
  kShapes = 7,    ///< the procedural data set
  kEval = 8,      ///< probes and label draws
};

/// Philox4x32-10: four 32-bit words from a 64-bit key and a 128-bit counter.
std::array<uint32_t, 4> philox4x32(uint64_t key, uint64_t counter_low, uint64_t counter_high = 0);

/// A sequential reader of one stream; copying it copies its position.
class Rng {
 public:
  Rng() = default;
  explicit Rng(uint64_t key, uint64_t counter = 0) : key_(key), counter_(counter) {}
  Rng(uint64_t seed, Stream stream, std::initializer_list<uint64_t> parts = {});

  /// Next 32 random bits.
  uint32_t next_u32();
  /// Next 64 random bits.
  uint64_t next_u64() { return (uint64_t{next_u32()} << 32) | next_u32(); }
  /// Uniform in [0, 1) with 24 bits.
  float uniform() { return static_cast<float>(next_u32() >> 8) * 0x1p-24f; }
  /// Uniform in [0, 1) with 53 bits.
  double uniform64() { return static_cast<double>(next_u64() >> 11) * 0x1p-53; }
  /// Uniform in [low, high).
  float uniform(float low, float high) { return low + (high - low) * uniform(); }
  /// Uniform integer in [0, bound), without modulo bias.
  uint64_t below(uint64_t bound);
  /// True with probability p.
  bool bernoulli(double p) { return uniform64() < p; }
  /// Standard normal (Box-Muller, the second of a pair is discarded to keep the state small).
  float normal();

  uint64_t key() const { return key_; }
  uint64_t counter() const { return counter_; }

 private:
  uint64_t key_ = 0;
  uint64_t counter_ = 0;  // in 32-bit words
  std::array<uint32_t, 4> block_{};
  uint64_t block_index_ = ~uint64_t{0};
};

/// Fills out with standard normals; element i depends on (key, first + i) alone, so any partition of a
/// range over threads gives the same bytes.
void fill_normal(uint64_t key, uint64_t first, std::span<float> out);

}  // namespace ebclr::core
