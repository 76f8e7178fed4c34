#include "cpu/buffer.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

namespace ebclr::cpu {

Buffer::Buffer(std::size_t floats) : size_(floats) {
  // Winograd walks 36 places at once: with 4 KB pages that is 36 entries of the TLB.
  constexpr std::size_t kHugePage = std::size_t{1} << 21;
  const std::size_t bytes = std::max<std::size_t>(floats * sizeof(float), 64);
  const std::size_t align = bytes >= kHugePage ? kHugePage : 64;
  const std::size_t rounded = (bytes + align - 1) / align * align;
  void* memory = std::aligned_alloc(align, rounded);
  if (memory == nullptr) throw std::bad_alloc();
  if (align == kHugePage) madvise(memory, rounded, MADV_HUGEPAGE);
  std::memset(memory, 0, rounded);
  data_.reset(static_cast<float*>(memory));
}

void Buffer::Free::operator()(float* p) const {
  std::free(p);
}

Buffer BufferPool::take(std::size_t floats) {
  {
    const std::lock_guard lock(mutex_);
    // The smallest that fits, unless it would waste more than half of itself.
    auto best = free_.end();
    for (auto it = free_.begin(); it != free_.end(); ++it) {
      if (it->size() >= floats && it->size() / 2 <= floats &&
          (best == free_.end() || it->size() < best->size())) {
        best = it;
      }
    }
    if (best != free_.end()) {
      Buffer found = std::move(*best);
      free_.erase(best);
      return found;
    }
    // Sizes that nobody asks for any more would only pile up.
    if (free_.size() >= 64) free_.erase(free_.begin());
  }
  return Buffer(floats);
}

void BufferPool::give(Buffer buffer) {
  const std::lock_guard lock(mutex_);
  if (buffer.size() > 0) free_.push_back(std::move(buffer));
}

}  // namespace ebclr::cpu
