#pragma once
// What calls from Python have in common: paths and text in both directions, warnings, Ctrl-C, threads.

#include <pybind11/pybind11.h>

#include <atomic>
#include <filesystem>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace ebclr::python {

/// A file's name as os.listdir gives it: bytes that are no UTF-8 come back as the file that they name.
pybind11::str name_text(std::string_view name);
/// A message for people: bytes that are no UTF-8 as \xff, so that it can be printed.
pybind11::str message_text(std::string_view message);
/// str(value) in the bytes of file names.
std::string bytes_of(const pybind11::handle& value);
/// The name of an object's type, for messages.
std::string type_of(const pybind11::handle& value);

/// str or os.PathLike?
bool is_path(const pybind11::handle& value);
/// A path; what is none is a UsageError that calls it `what`.
std::filesystem::path as_path(const pybind11::handle& value, std::string_view what);
/// A path, or paths in anything that can be iterated.
std::vector<std::filesystem::path> as_paths(const pybind11::handle& value, std::string_view what);

/// A UserWarning. Throws where Python's filters make errors of warnings. With the GIL or without.
void warn(const std::string& text);
/// Throws what a signal's handler raised (Ctrl-C). With the GIL or without.
void check_signals();

/// Who may use an object: one call at a time, from any thread. Without the GIL.
class Turns {
 public:
  /// The right to use it while this lives. Waits for other threads; throws what a signal's handler raised
  /// meanwhile, and UsageError in a handler that was called during a call of the same thread: that call
  /// cannot end first.
  class Turn {
   public:
    explicit Turn(Turns& turns);
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    Turns& turns_;
  };

 private:
  std::timed_mutex mutex_;
  std::atomic<std::thread::id> owner_{};
};

/// The threads that a call may use: `asked`, or for 0 as many as torch uses, at most the cores that there
/// are.
int thread_count(int asked);

/// torch's number of threads during a call; it is what it was afterwards.
class Threads {
 public:
  /// Throws UsageError in a forked process for more than one.
  explicit Threads(int count);
  ~Threads();
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_;
};

}  // namespace ebclr::python
