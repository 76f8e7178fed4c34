#include "calls.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "core/error.h"
#include "core/threads.h"

namespace ebclr::python {
namespace py = pybind11;
namespace {

py::object checked(PyObject* made) {
  if (!made) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(made);
}

/// torch's number of threads, inside of calls and outside. A thread that torch has not met takes over the
/// number that was set last; while another thread is in a call, that is the call's.
class ThreadNumbers {
 public:
  /// Gives a thread that is here for the first time the number of outside of calls, where torch gave it
  /// another.
  void meet_thread() {
    const std::lock_guard guard(mutex_);
    meet();
  }
  /// A call with so many begins; the thread's number before.
  int enter(int count) {
    const std::lock_guard guard(mutex_);
    meet();
    const int before = at::get_num_threads();
    if (calls_++ == 0) outside_ = before;
    set(count);
    return before;
  }
  void leave(int before) {
    const std::lock_guard guard(mutex_);
    set(before);
    --calls_;
  }

 private:
  void meet() {
    static thread_local bool met = false;
    if (!met && calls_ > 0 && at::get_num_threads() == last_) set(outside_);
    met = true;
  }
  void set(int count) {
    if (at::get_num_threads() == count) return;
    at::set_num_threads(count);
    last_ = count;
  }

  std::mutex mutex_;
  int calls_ = 0, outside_ = 0, last_ = 0;
};
ThreadNumbers numbers;

}  // namespace

py::str name_text(std::string_view name) {
  return checked(PyUnicode_DecodeFSDefaultAndSize(name.data(), static_cast<py::ssize_t>(name.size())));
}

py::str message_text(std::string_view message) {
  return checked(
      PyUnicode_DecodeUTF8(message.data(), static_cast<py::ssize_t>(message.size()), "backslashreplace"));
}

std::string bytes_of(const py::handle& value) {
  const auto bytes = checked(PyUnicode_EncodeFSDefault(py::str(value).ptr()));
  return {PyBytes_AS_STRING(bytes.ptr()), static_cast<size_t>(PyBytes_GET_SIZE(bytes.ptr()))};
}

std::string type_of(const py::handle& value) {
  return Py_TYPE(value.ptr())->tp_name;
}

bool is_path(const py::handle& value) {
  return py::isinstance<py::str>(value) || py::hasattr(value, "__fspath__");
}

std::filesystem::path as_path(const py::handle& value, std::string_view what) {
  if (!is_path(value))
    core::usage_error("python",
                      fmt::format("{} of type {}; a path is a str or an os.PathLike", what, type_of(value)));
  PyObject* made = nullptr;
  if (PyUnicode_FSConverter(value.ptr(), &made) != 0) {
    const auto bytes = py::reinterpret_steal<py::object>(made);
    return std::string(PyBytes_AS_STRING(made), static_cast<size_t>(PyBytes_GET_SIZE(made)));
  }
  const py::error_already_set error;
  if (!error.matches(PyExc_TypeError) && !error.matches(PyExc_ValueError)) throw error;  // of its __fspath__
  core::usage_error("python", fmt::format("{} is no path: {}", what, bytes_of(error.value())));
}

std::vector<std::filesystem::path> as_paths(const py::handle& value, std::string_view what) {
  if (is_path(value)) return {as_path(value, what)};
  if (py::isinstance<py::bytes>(value) || !py::hasattr(value, "__iter__"))
    core::usage_error("python", fmt::format("{} of type {}; give a path or paths", what, type_of(value)));
  std::vector<std::filesystem::path> out;
  for (const auto& item : value) out.push_back(as_path(item, what));
  return out;
}

void warn(const std::string& text) {
  const py::gil_scoped_acquire gil;
  // (PyErr_WarnEx takes nothing but UTF-8.)
  if (PyErr_WarnFormat(PyExc_UserWarning, 1, "%U", message_text(text).ptr()) != 0)
    throw py::error_already_set();
}

void check_signals() {
  const py::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

Turns::Turn::Turn(Turns& turns) : turns_(turns) {
  if (turns_.owner_ == std::this_thread::get_id())
    core::usage_error("python", "this encoder is at work in the call that was interrupted; load another");
  while (!turns_.mutex_.try_lock_for(std::chrono::milliseconds(100))) check_signals();
  turns_.owner_ = std::this_thread::get_id();
}

Turns::Turn::~Turn() {
  turns_.owner_ = std::thread::id();
  turns_.mutex_.unlock();
}

int thread_count(int asked) {
  if (asked < 0) core::usage_error("python", fmt::format("threads {}; 0 is as many as torch uses", asked));
  numbers.meet_thread();
  return asked > 0 ? asked : std::min(at::get_num_threads(), core::available_cores());
}

Threads::Threads(int count) {
  // OpenMP's team belongs to the process that first used it. After a fork its threads are gone, and a child
  // that calls them waits for ever.
  static std::atomic<pid_t> team{0};
  pid_t owner = 0;
  if (count > 1 && !team.compare_exchange_strong(owner, ::getpid()) && owner != ::getpid())
    core::usage_error("python",
                      "this process was forked from one where ebclr had used several threads, which do not "
                      "come along; start it with multiprocessing.get_context('spawn'), or use encoders that "
                      "it loads itself with threads=1");
  before_ = numbers.enter(count);
}

Threads::~Threads() {
  numbers.leave(before_);
}

}  // namespace ebclr::python
