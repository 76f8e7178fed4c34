#pragma once
// Memory for kernels: aligned to cache lines, zero at first, on huge pages where large.

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

namespace ebclr::cpu {

/// A block of floats, aligned to 64 bytes and zero when created.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::size_t floats);

  float* data() { return data_.get(); }
  const float* data() const { return data_.get(); }
  /// Floats that it holds.
  std::size_t size() const { return size_; }
  /// Makes it hold at least `floats`; what it held is lost if it has to grow.
  void reserve(std::size_t floats) {
    if (floats > size_) *this = Buffer(floats);
  }

 private:
  struct Free {
    void operator()(float* p) const;
  };
  std::unique_ptr<float[], Free> data_;
  std::size_t size_ = 0;
};

/// Keeps returned buffers for the next taker. Training steps ask for the same sizes again and again, and
/// fresh memory costs a page fault per 4 KB. Safe to use from several threads.
class BufferPool {
 public:
  /// A buffer of at least `floats`; its contents are whatever the last user left.
  Buffer take(std::size_t floats);
  /// Gives a buffer back.
  void give(Buffer buffer);

 private:
  std::mutex mutex_;
  std::vector<Buffer> free_;
};

}  // namespace ebclr::cpu
