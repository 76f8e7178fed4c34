#pragma once
// What the site keeps of its answers. Each has a lock of its own: searching copies takes minutes, and the
// thumbnails must not wait for it.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

namespace ebclr::browse {

/// An answer that is made when it is first asked for. Who asks for the same meanwhile waits.
class LateAnswer {
 public:
  /// What `make` gives the first time; when it throws, the next one tries again.
  template <class F>
  std::string get(F&& make) {
    const std::lock_guard guard(lock_);
    if (!text_) text_ = make();
    return *text_;
  }

 private:
  std::mutex lock_;
  std::optional<std::string> text_;
};

/// The pictures that were made last, by number.
class Pictures {
 public:
  explicit Pictures(size_t most) : most_(most) {}

  std::optional<std::string> find(int64_t n) const {
    const std::lock_guard guard(lock_);
    const auto it = kept_.find(n);
    return it == kept_.end() ? std::nullopt : std::optional(it->second);
  }
  /// Keeps one unless it is there: two requests may have made it at once. The oldest goes for it.
  void keep(int64_t n, std::string picture) {
    const std::lock_guard guard(lock_);
    if (!kept_.emplace(n, std::move(picture)).second) return;
    order_.push_back(n);
    if (order_.size() <= most_) return;
    kept_.erase(order_.front());
    order_.pop_front();
  }

 private:
  size_t most_;
  mutable std::mutex lock_;
  std::map<int64_t, std::string> kept_;
  std::deque<int64_t> order_;  // oldest first
};

}  // namespace ebclr::browse
