#include "cli/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

#include "cli/say.h"
#include "core/text.h"

namespace ebclr::cli {
namespace {

int terminal_width() {
  winsize size{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

// Eighths of a block make the bar move smoothly.
std::string bar(double fraction, int cells) {
  static constexpr const char* kParts[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const int eighths = static_cast<int>(std::lround(std::clamp(fraction, 0.0, 1.0) * cells * 8));
  std::string out;
  for (int i = 0; i < eighths / 8; ++i) out += "█";
  out += kParts[eighths % 8];
  const int used = eighths / 8 + (eighths % 8 ? 1 : 0);
  return out + std::string(static_cast<size_t>(cells - used), ' ');
}

double value_of(const train::StepReport& r, std::string_view name) {
  for (const auto& [key, value] : r.metrics)
    if (key == name) return value;
  return std::numeric_limits<double>::quiet_NaN();
}

std::string numbers(const train::StepReport& r, double knn) {
  std::string text = fmt::format("loss {:.3f}", r.loss);
  if (const double e = value_of(r, "energy_data"); std::isfinite(e))
    text += fmt::format("  E data {:.2f}  E samples {:.2f}", e, value_of(r, "energy_samples"));
  if (std::isfinite(knn)) text += fmt::format("  kNN {:.1f} %", 100 * knn);
  return text;
}

}  // namespace

TrainProgress::TrainProgress(bool quiet)
    : quiet_(quiet),
      terminal_(::isatty(STDERR_FILENO) != 0),
      knn_(std::numeric_limits<double>::quiet_NaN()) {}

void TrainProgress::clear_line() {
  if (terminal_ && shown_ > 0) std::fputs("\r\033[K", stderr);
  shown_ = 0;
}

void TrainProgress::on_step(const train::StepReport& r) {
  report_ = r;
  if (quiet_) return;
  const auto now = std::chrono::steady_clock::now();
  const bool end = r.position.step == r.total_steps;
  const double since = std::chrono::duration<double>(now - last_).count();
  if (!end && since < (terminal_ ? 0.15 : 30)) return;
  last_ = now;
  const double done = static_cast<double>(r.position.step) / static_cast<double>(r.total_steps);
  const std::string epoch = fmt::format(
      "epoch {:.2f}/{}", static_cast<double>(r.position.step) / static_cast<double>(r.steps_per_epoch),
      r.total_steps / r.steps_per_epoch);
  const std::string tail = fmt::format("{}  {:.0f} img/s  {} left", numbers(r, knn_), r.images_per_second,
                                       core::human_seconds(r.seconds_left));
  if (!terminal_) {
    say("{}  {}\n", epoch, tail);
    return;
  }
  // The bar comes first; a narrow terminal leaves out the energies, then the speed.
  const std::string left = core::human_seconds(r.seconds_left) + " left";
  const std::string shorter[] = {
      tail, fmt::format("loss {:.3f}  {:.0f} img/s  {}", r.loss, r.images_per_second, left), left};
  const int width = terminal_width();
  std::string line = fmt::format("{:3.0f} %", 100 * done);
  for (const auto& text : shorter) {
    const int room = width - static_cast<int>(epoch.size() + text.size()) - 12;
    if (room < 10) continue;
    line = fmt::format("{} ▕{}▏{:3.0f} %  {}", epoch, bar(done, std::min(room, 30)), 100 * done, text);
    break;
  }
  say("\r\033[K{}", line);
  shown_ = line.size();
}

void TrainProgress::on_note(const std::string& text) {
  if (quiet_) return;
  clear_line();
  say("{}\n", text);
}

void TrainProgress::on_warning(const std::string& text) {
  clear_line();
  say("warning: {}\n", text);
}

void TrainProgress::on_epoch(int64_t epoch, double knn) {
  knn_ = knn;
  if (quiet_) return;
  clear_line();
  say("epoch {} done after {}  {}\n", epoch, core::human_seconds(report_.position.seconds),
      numbers(report_, knn));
}

ProgressLine::ProgressLine(bool quiet) : shown_(!quiet && isatty(STDERR_FILENO)) {}

void ProgressLine::show(const std::string& what, double share) {
  if (!shown_) return;
  const auto now = std::chrono::steady_clock::now();
  if (what == what_ && share < 1 && now - last_ < std::chrono::milliseconds(200)) return;
  what_ = what;
  last_ = now;
  say("\r\033[K{} {:3.0f} %", what, 100 * share);
  dirty_ = true;
}

void ProgressLine::clear() {
  if (dirty_) say("\r\033[K");
  dirty_ = false;
}

eval::Progress ProgressLine::function() {
  return [this](const std::string& what, double share) { show(what, share); };
}

}  // namespace ebclr::cli
