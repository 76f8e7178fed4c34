#pragma once
// What the site keeps of its answers. Each has a lock of its own: searching copies takes minutes, and the
// thumbnails must not wait for it.

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

namespace ebclr::browse {

/// An answer that is made when it is first asked for. Who asks for the same meanwhile waits, and leaves when
/// nobody waits for him any more. The work ends when nobody at all has waited for it for a while: a page that
/// is loaded again finds it going on.
class LateAnswer {
 public:
  using Clock = std::chrono::steady_clock;
  using Stop = std::function<bool()>;

  explicit LateAnswer(Clock::duration patience = std::chrono::seconds(10)) : patience_(patience) {}

  /// What `make` gives the first time; when it throws, the next one tries again. It gets a function that says
  /// when to throw because the work is not wanted any more; threads of its own may ask it too. Nothing when
  /// `given_up` or end() came first.
  std::optional<std::string> get(const std::function<std::string(const Stop&)>& make, const Stop& given_up) {
    std::unique_lock lock(lock_);
    ++waiting_;
    const std::shared_ptr<void> leaving(nullptr, [this](void*) { --waiting_; });  // before the lock is freed
    while (making_ && !ended_ && !given_up()) changed_.wait_for(lock, kLook);
    if (text_) return text_;
    if (making_ || ended_ || given_up()) return std::nullopt;
    return made_here(lock, make, given_up);
  }

  /// Nobody will ask again: work and waiting end at once.
  void end() {
    const std::lock_guard guard(lock_);
    ended_ = true;
    changed_.notify_all();
  }

 private:
  static constexpr auto kLook = std::chrono::milliseconds(100);  // between looks whether a client is there

  std::optional<std::string> made_here(std::unique_lock<std::mutex>& lock,
                                       const std::function<std::string(const Stop&)>& make,
                                       const Stop& given_up) {
    making_ = true;
    wanted_ = Clock::now();
    const Stop unwanted = [&] {
      const bool here = !given_up();
      const std::lock_guard guard(lock_);
      if (here || waiting_ > 1) wanted_ = Clock::now();
      return ended_ || Clock::now() - wanted_ > patience_;
    };
    lock.unlock();
    std::optional<std::string> text;
    std::exception_ptr failure;
    try {
      text = make(unwanted);
    } catch (...) {
      if (!unwanted()) failure = std::current_exception();
    }
    lock.lock();
    making_ = false;
    text_ = std::move(text);
    changed_.notify_all();
    if (failure) std::rethrow_exception(failure);
    return text_;
  }

  Clock::duration patience_;
  std::mutex lock_;
  std::condition_variable changed_;
  std::optional<std::string> text_;
  bool making_ = false, ended_ = false;
  int waiting_ = 0;           // who asked and is there, the one that makes it too
  Clock::time_point wanted_;  // when somebody was last seen waiting
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
