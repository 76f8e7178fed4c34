#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "eval/judge.h"
#include "train/trainer.h"

namespace ebclr::cli {

/// Shows training as it goes: a bar on a terminal, plain lines elsewhere, nothing but warnings when quiet.
class TrainProgress : public train::Observer {
 public:
  explicit TrainProgress(bool quiet);
  void on_step(const train::StepReport& report) override;
  void on_note(const std::string& text) override;
  void on_warning(const std::string& text) override;
  void on_epoch(int64_t epoch, double knn) override;

 private:
  void clear_line();
  bool quiet_, terminal_;
  std::chrono::steady_clock::time_point last_{};
  double knn_;
  train::StepReport report_;
  size_t shown_ = 0;
};

/// A line on the terminal that says what is being done; silent where nobody watches.
class ProgressLine {
 public:
  explicit ProgressLine(bool quiet);
  ~ProgressLine() { clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void show(const std::string& what, double share);
  void clear();
  /// As the libraries take it; must not outlive the line.
  eval::Progress function();

 private:
  bool shown_, dirty_ = false;
  std::string what_;
  std::chrono::steady_clock::time_point last_{};
};

}  // namespace ebclr::cli
