#include "eval/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "core/error.h"
#include "core/text.h"
#include "eval/run_curve.h"

namespace ebclr::eval {
namespace fs = std::filesystem;

namespace {

Curve curve_of(const fs::path& run, const std::string& judge, const std::string& protocol) {
  if (!fs::is_directory(run))
    core::usage_error("compare", fmt::format("{}: no such run folder", run.string()));
  const auto file = curve_file(run, judge, protocol);
  if (!fs::exists(file))
    core::usage_error(
        "compare",
        fmt::format("{} has no {} curve ({}); make it: ebclr eval curve {} --judge {} --protocol {}",
                    run.string(), judge, protocol, run.string(), judge, protocol));
  return read_curve(file);
}

// A run that was trained on after its curve was made has another end than the curve.
std::string note_of_end(const fs::path& folder, const Curve& curve) {
  std::optional<Reached> end;
  try {
    end = reached(run::Run::open(folder));
  } catch (const core::Error&) {  // the curve is there without the rest of the run
  }
  double last = 0;
  for (const auto& p : curve.points) last = std::max(last, p.epoch);
  if (!end || end->epochs <= last) return "";
  return fmt::format(
      "the curve of {0} ends at epoch {1:g}, the run at {2:g}: its final accuracy is that of epoch {1:g}; "
      "make the curve again: ebclr eval curve {3} --judge {4} --protocol {5}",
      folder.string(), last, std::round(100 * end->epochs) / 100, core::shell_word(folder.string()),
      curve.judge, curve.protocol);
}

size_t find_reference(const CompareOptions& o, const std::vector<Curve>& curves, bool& is_ebclr) {
  for (size_t i = 0; i < curves.size(); ++i) {
    const bool found = o.reference.empty() ? curves[i].method == "ebclr" : o.runs[i] == o.reference;
    if (!found) continue;
    is_ebclr = curves[i].method == "ebclr";
    return i;
  }
  if (!o.reference.empty())
    core::usage_error("compare", fmt::format("the reference {} is not among the runs; give it there too",
                                             o.reference.string()));
  is_ebclr = false;
  return 0;
}

}  // namespace

Comparison compare(const CompareOptions& o) {
  if (o.runs.size() < 2)
    core::usage_error("compare", fmt::format("compare was given {} run; give two or more", o.runs.size()));
  Comparison out;
  out.judge = o.judge;
  out.protocol = !o.protocol.empty() ? o.protocol : o.judge == "knn" ? "paper" : "honest";
  for (const auto& run : o.runs) {
    out.curves.push_back(curve_of(run, o.judge, out.protocol));
    check_comparable(out.curves.front(), out.curves.back());
  }
  out.data = out.curves.front().data;
  out.reference = find_reference(o, out.curves, out.reference_is_ebclr);
  const auto& reference = out.curves[out.reference];
  for (const auto& curve : out.curves)
    out.results.push_back(relative_efficiency(reference.points, curve.points));
  for (size_t i = 0; i < o.runs.size(); ++i)
    if (auto note = note_of_end(o.runs[i], out.curves[i]); !note.empty())
      out.notes.push_back(std::move(note));
  if (!out.reference_is_ebclr && o.reference.empty())
    out.notes.emplace_back("no EBCLR run among them; the first one is the reference");
  if (reference.schedule == "cosine")
    out.notes.emplace_back(
        "the reference's learning rate falls along a cosine until its last epoch: where it reached the "
        "others' "
        "final accuracy its rate was still high, while theirs had come to an end");
  return out;
}

}  // namespace ebclr::eval
