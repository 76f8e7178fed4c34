#include "cli/reproduce_command.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/answer.h"
#include "cli/commit.h"
#include "cli/plan_board.h"
#include "cli/runtime.h"
#include "cli/say.h"
#include "cli/watch_command.h"
#include "core/error.h"
#include "core/files.h"
#include "core/json.h"
#include "core/text.h"
#include "data/catalog.h"
#include "data/fetch.h"
#include "report/run_report.h"
#include "study/perform.h"
#include "study/plan.h"
#include "study/tuning.h"
#include "study/workers.h"
#include "study/write.h"

namespace ebclr::cli {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr const char* kReproduce = "reproduce";

struct ReproduceArgs {
  std::vector<std::string> studies, only, runs;
  std::string scale = "small", out = "reproduction", data_root;
  int seeds = 0, first_seed = 0, jobs = 1;
  bool plan_only = false, report_only = false, no_fetch = false, json = false;
  RuntimeOptions runtime;
  WatchOptions watch;
};

std::string today() {
  const std::time_t now = std::time(nullptr);
  char text[32];
  std::tm tm{};
  ::gmtime_r(&now, &tm);
  std::strftime(text, sizeof text, "%Y-%m-%d", &tm);
  return text;
}

std::string command_of(const ReproduceArgs& a, const std::vector<std::string>& studies) {
  using core::shell_word;
  std::string text = "ebclr reproduce";
  for (const auto& s : studies) text += " " + shell_word(s);
  text += " --scale " + shell_word(a.scale);
  if (a.seeds > 0) text += fmt::format(" --seeds {}", a.seeds);
  if (a.first_seed > 0) text += fmt::format(" --first-seed {}", a.first_seed);
  for (const auto& o : a.only) text += " --only " + shell_word(o);
  return text;
}

// All that was asked for, to go on in the same way.
std::string whole_command(const ReproduceArgs& a) {
  using core::shell_word;
  std::string text = command_of(a, a.studies);
  for (const auto& r : a.runs) text += " --run " + shell_word(r);
  if (a.out != ReproduceArgs{}.out) text += " --out " + shell_word(a.out);
  if (!a.data_root.empty()) text += " --data-root " + shell_word(a.data_root);
  if (a.jobs > 1) text += fmt::format(" --jobs {}", a.jobs);
  if (a.no_fetch) text += " --no-fetch";
  if (a.json) text += " --json";
  const RuntimeOptions usual;
  if (a.runtime.threads != usual.threads) text += fmt::format(" --threads {}", a.runtime.threads);
  if (a.runtime.device != usual.device) text += " --device " + shell_word(a.runtime.device);
  if (a.runtime.engine != usual.engine) text += " --engine " + shell_word(a.runtime.engine);
  return text;
}

// One run of a plan by its name, for schedulers that want a command each.
std::string command_of_run(const ReproduceArgs& a, const std::string& study, const study::RunSpec& spec) {
  using core::shell_word;
  std::string text = command_of(a, {study});
  if (!a.data_root.empty()) text += " --data-root " + shell_word(a.data_root);
  return text +
         fmt::format(" --out {} --run {}", shell_word(a.out), shell_word(spec.folder.filename().string()));
}

study::Facts facts_of(const ReproduceArgs& a, const std::string& study) {
  return {{"command", command_of(a, {study})},
          {"version", fmt::format("ebclr {}, commit {}", EBCLR_VERSION, kCommit)},
          {"reported on", report::describe_machine()},
          {"date", today()}};
}

void list_studies(bool json) {
  auto out = nlohmann::ordered_json::array();
  for (const auto& name : study::study_names()) {
    const auto s = study::load_study(name);
    if (json)
      out.push_back({{"name", name},
                     {"source", s.source},
                     {"title", s.title},
                     {"rows", s.rows.size()},
                     {"columns", s.columns.size()},
                     {"judges", s.judges},
                     {"claims", s.claims.size()}});
    else
      fmt::print("{:<14} {:<26} {}\n", name, s.source, s.title);
  }
  if (json) {
    print_answer(out);
    return;
  }
  const auto scales = study::load_scales();
  fmt::print("\nscales:\n");
  for (size_t i = 0; i < scales.names.size(); ++i)
    fmt::print(
        "  {:<8} {} ({} by default)\n", scales.names[i], scales.about[i],
        scales.seeds[i] == 1 ? "1 seed, which decides nothing," : fmt::format("{} seeds", scales.seeds[i]));
  fmt::print("\nebclr reproduce table1 --scale tiny writes reproduction/table1/report.html\n");
}

// Sets that are absent are fetched; what cannot be had is told, and its runs are left out.
study::Missing obtain(const std::vector<std::string>& sets, const std::string& data_root, bool fetch) {
  study::Missing missing;
  std::map<std::string, bool> present;
  for (const auto& e : data::catalog(data_root.empty() ? data::default_data_root() : fs::path(data_root)))
    present[e.name] = e.present;
  for (const auto& name : sets) {
    const auto it = present.find(name);
    if (it == present.end() || it->second) continue;
    const auto advice = fmt::format("{} is not here (ebclr data get {})", name, name);
    if (!fetch) {
      missing[name] = advice;
      continue;
    }
    say("fetching {} ...\n", name);
    try {
      data::FetchOptions options;
      options.data_root = data_root;
      options.attempts = 1;
      data::fetch(name, options);
    } catch (const core::Error&) {
      missing[name] = advice;
      say("{} cannot be had here; its runs are left out and say so in the report\n", name);
    }
  }
  return missing;
}

std::string units(double n) {
  return n >= 1e9 ? fmt::format("{:.2f} G", n / 1e9) : fmt::format("{:.2f} M", n / 1e6);
}

// What a run takes on this machine, from a few steps of its kind on noise.
class TimeEstimate {
 public:
  explicit TimeEstimate(const engine::EngineOptions& engine) : engine_(engine) {}
  double seconds(const study::RunSpec& spec) {
    const auto kind = study::unit_kind(spec.config);
    auto it = unit_.find(kind);
    if (it == unit_.end()) it = unit_.emplace(kind, study::measure_unit(spec.config, engine_)).first;
    return it->second * (spec.forward_units + spec.judging_units);
  }

 private:
  engine::EngineOptions engine_;
  std::map<std::string, double> unit_;
};

bool is_done(const study::RunSpec& run) {
  return study::complete(run, study::read_findings(run));
}

void print_plan(const study::Plan& plan, TimeEstimate& estimate, int jobs) {
  double all_units = 0, seconds = 0;
  size_t done = 0, blocked = 0;
  say_out("{}: {} at scale {}, {}, {} runs\n\n", plan.study.name, plan.study.title, plan.scale,
          describe_seeds(plan), plan.runs.size());
  say_out("  {:<38} {:>7} {:>7} {:>6} {:>14}  {}\n", "run", "images", "epochs", "batch", "forward-units", "");
  for (const auto& r : plan.runs) {
    std::string state;
    if (is_done(r)) {
      state = "done";
      ++done;
    } else if (!r.blocked.empty()) {
      state = r.blocked;
      ++blocked;
    } else {
      const double s = estimate.seconds(r);
      seconds += s;
      all_units += r.forward_units;
      state = "about " + core::human_seconds(s);
    }
    say_out("  {:<38} {:>7} {:>7} {:>6} {:>14}  {}\n", r.title, r.images, r.config.train.epochs,
            r.config.train.batch_size, units(r.forward_units), state);
  }
  say_out("\n  {} to do ({} done, {} cannot run): {} forward-units, about {}\n\n",
          plan.runs.size() - done - blocked, done, blocked, units(all_units),
          core::human_seconds(seconds / std::max(1, jobs)));
  if (plan.seeds < 2) say_out("  note: one seed decides no claim; ask for three with --seeds 3\n\n");
}

/// One line for the whole plan on a terminal; a line per finished run elsewhere.
class PlanProgress {
 public:
  explicit PlanProgress(const study::Plan& plan)
      : plan_(plan), terminal_(::isatty(STDERR_FILENO) == 1), told_(plan.runs.size(), false) {
    for (const auto& r : plan.runs)
      if (r.blocked.empty() || is_done(r)) total_ += r.forward_units + r.judging_units;
  }
  ~PlanProgress() { clear(); }

  /// Negative while it is not known.
  double seconds_left() const { return seconds_left_; }

  void operator()(const std::vector<study::RunStatus>& status) {
    double done = 0;
    size_t finished = 0, all = 0, elsewhere = 0;
    std::string doing;
    for (size_t i = 0; i < status.size(); ++i) {
      const auto& s = status[i];
      if (s.state == study::RunState::kBlocked) {
        told_[i] = true;
        continue;
      }
      ++all;
      done += std::min(s.units, plan_.runs[i].forward_units + plan_.runs[i].judging_units);
      if (s.state == study::RunState::kDone || s.state == study::RunState::kFailed) {
        ++finished;
        if (!told_[i] && !first_) tell(i, s);
        told_[i] = true;
      } else if (s.state == study::RunState::kRunning && doing.empty()) {
        doing = plan_.runs[i].title + (s.doing.empty() ? "" : ", " + s.doing);
      } else if (s.state == study::RunState::kElsewhere) {
        ++elsewhere;
      }
    }
    if (first_) {
      start_units_ = done;
      first_ = false;
    }
    const double elapsed = std::chrono::duration<double>(Clock::now() - start_).count();
    const double gained = done - start_units_;
    const auto left = gained > 0 && elapsed > 3
                          ? core::human_seconds(elapsed * (total_ - done) / gained) + " left"
                          : std::string("estimating");
    seconds_left_ = gained > 0 && elapsed > 3 ? elapsed * (total_ - done) / gained : -1;
    if (elsewhere > 0 && doing.empty())
      doing = fmt::format("waiting for {} runs of other processes", elsewhere);
    if (!terminal_) return;
    winsize size{};
    const size_t width =
        ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 20 ? size.ws_col : 80;
    auto line = fmt::format("{}/{} runs  {:.0f} %  {}  {}", finished, all, 100 * done / std::max(total_, 1.0),
                            left, doing);
    if (line.size() >= width) line.resize(width - 1);
    say("\r\033[K{}", line);
    dirty_ = true;
  }

 private:
  void tell(size_t i, const study::RunStatus& s) {
    clear();
    const auto& spec = plan_.runs[i];
    if (s.state == study::RunState::kFailed) {
      say("failed  {}: {}{}\n", spec.title, s.failure, whose(s));
      return;
    }
    const auto f = study::read_findings(spec);
    std::vector<std::string> scores;
    for (const auto& [name, curve] : f.curves)
      scores.push_back(fmt::format("{} on {} {:.1f} % (untrained {:.1f})", name.judge, name.set,
                                   100 * curve.back().accuracy, 100 * curve.front().accuracy));
    for (const auto& [name, d] : f.distances) scores.push_back(fmt::format("{} {:.2f}", name, d.distance));
    say("done    {}: {} in {}{}\n", spec.title, core::join(scores, ", "), core::human_seconds(f.seconds),
        whose(s));
  }
  static const char* whose(const study::RunStatus& s) { return s.foreign ? " (by another process)" : ""; }
  void clear() {
    if (dirty_) say("\r\033[K");
    dirty_ = false;
  }

  const study::Plan& plan_;
  bool terminal_, first_ = true, dirty_ = false;
  double seconds_left_ = -1;
  std::vector<bool> told_;
  double total_ = 0, start_units_ = 0;
  Clock::time_point start_ = Clock::now();
};

/// One call of the command: what was asked for, and what the machine gives.
class Reproduction {
 public:
  Reproduction(const ReproduceArgs& args, const Runtime& runtime)
      : a_(args),
        threads_(std::max(1, runtime.threads / std::max(1, args.jobs))),
        estimate_(engine_of(runtime)),
        page_(args.plan_only || args.report_only ? WatchOptions{} : args.watch, {fs::path(args.out) / "runs"},
              core::join(args.studies, ", ")) {
    at::set_num_threads(threads_);  // the estimate is for what a worker will have
  }

  /// Tunes, runs and reports one study.
  void perform(const std::string& name, const study::Scales& scales, int seeds) {
    auto s = study::load_study(name);
    asked_ = name;
    untuned_ = false;
    study::Selection selection;
    for (const auto& o : a_.only) study::add_only(selection, o, s);
    const auto [tuned, note] = tune(s, scales);
    auto plan = study::make_plan(study::with_settings(s, tuned), a_.scale, scales, seeds, selection, a_.out,
                                 a_.data_root, a_.first_seed);
    plan.trials = tuned.trials;
    plan.tuning_note = note;
    block_missing(plan);
    if (!a_.runs.empty()) {
      if (!untuned_) run_named(plan);
      return;
    }
    const bool stopped = carry_out(plan);
    if (!a_.plan_only) report(plan);
    if (stopped) interrupt();
  }

  /// After all studies: the JSON, and the exit code of failed runs.
  void finish() const {
    for (const auto& name : a_.runs)
      if (!named_.count(name))
        core::usage_error(kReproduce, fmt::format("no run '{}' in this plan (or not yet, before its study is "
                                                  "tuned); --plan --json lists them",
                                                  name));
    if (a_.json && a_.runs.empty()) print_answer(json_);
    if (failed_ > 0)
      core::run_error(kReproduce,
                      fmt::format("{} runs failed; the reports name them, and the same command tries "
                                  "them again",
                                  failed_));
  }

 private:
  engine::EngineOptions engine_of(const Runtime& runtime) const {
    auto engine = runtime.engine;
    engine.threads = threads_;
    return engine;
  }

  // Sets that are not here are fetched, where that is wanted and possible.
  void block_missing(study::Plan& plan) {
    missing_.merge(
        obtain(study::sets_of(plan), a_.data_root, !a_.no_fetch && !a_.plan_only && !a_.report_only));
    study::mark_missing(plan, missing_);
  }

  std::pair<study::Tuned, std::string> tune(const study::Study& s, const study::Scales& scales) {
    auto trials = study::tuning_plan(s, a_.scale, scales, a_.out, a_.data_root);
    if (!trials) return {};
    block_missing(*trials);
    if (!a_.runs.empty()) run_named(*trials);
    const bool stopped = a_.runs.empty() && carry_out(*trials);
    auto tuned = study::choose(*trials, failures_of(*trials));
    if (stopped) interrupt();
    if (!tuned.unfinished.empty()) {
      untuned_ = true;
      return {{.trials = tuned.trials}, "not tuned: " + tuned.unfinished};
    }
    return {tuned,
            fmt::format(
                "Settings were chosen by trials, as many for each row, with a seed of their own "
                "({}), judged by {} on {} train images of {} that no trial learnt from; no test image was "
                "seen",
                trials->runs.front().config.train.seed, trials->study.judges.front(),
                trials->runs.front().config.data.validation, trials->runs.front().config.data.source)};
  }

  // Those runs of a plan that were asked for by name; the report is left to whoever does the whole.
  void run_named(const study::Plan& plan) {
    auto part = plan;
    part.cells.clear();
    std::erase_if(part.runs, [&](const study::RunSpec& r) {
      return std::find(a_.runs.begin(), a_.runs.end(), r.folder.filename().string()) == a_.runs.end();
    });
    if (part.runs.empty()) return;
    for (const auto& r : part.runs) {
      named_.insert(r.folder.filename().string());
      if (!r.blocked.empty() && !is_done(r))
        core::usage_error(kReproduce, fmt::format("{}: {}", r.title, r.blocked));
    }
    if (carry_out(part)) interrupt();
    for (const auto& f : failures_of(part)) failed_ += !f.empty();
  }

  // The plan as data: what there is to do, and a command for each.
  void list_runs(const study::Plan& plan) {
    for (const auto& r : plan.runs)
      json_.push_back({{"study", plan.study.name},
                       {"run", r.folder.filename().string()},
                       {"title", r.title},
                       {"folder", r.folder.string()},
                       {"state", is_done(r)           ? "done"
                                 : !r.blocked.empty() ? "blocked"
                                 : study::is_taken(r) ? "running"
                                                      : "to do"},
                       {"blocked", r.blocked},
                       {"images", r.images},
                       {"epochs", r.config.train.epochs},
                       {"batch", r.config.train.batch_size},
                       {"forward_units", r.forward_units},
                       {"command", command_of_run(a_, asked_, r)}});
  }

  // Prints the plan and runs it; true when it was interrupted.
  bool carry_out(const study::Plan& plan) {
    if (a_.plan_only && a_.json) {
      // Before the trials are done nobody knows the runs that follow from them.
      if (!untuned_) list_runs(plan);
      return false;
    }
    if (!a_.runs.empty()) return work_off(plan);
    if (!a_.report_only && !a_.json) print_plan(plan, estimate_, a_.jobs);
    if (a_.plan_only || a_.report_only) return false;
    return work_off(plan);
  }

  // True when it was interrupted.
  bool work_off(const study::Plan& plan) {
    PlanProgress progress(plan);
    study::WorkerOptions options;
    options.jobs = a_.jobs;
    options.scratch = fs::path(a_.out) / "workers";
    options.command = [&](const fs::path& spec) {
      return std::vector<std::string>{
          "/proc/self/exe",  // this program, also when its file was replaced meanwhile
          "reproduce-worker", spec.string(),     "--threads", std::to_string(threads_),
          "--device",         a_.runtime.device, "--engine",  a_.runtime.engine};
    };
    PlanBoard board(plan);
    options.watch = [&](const auto& status) {
      progress(status);
      if (page_.site()) page_.site()->show(board.update(status, progress.seconds_left()));
    };
    bool stopped = false;
    const auto status = study::run_plan(plan, options, interrupted());
    for (size_t i = 0; i < status.size(); ++i) {
      stopped |= status[i].state == study::RunState::kStopped;
      if (status[i].state == study::RunState::kFailed)
        failures_[plan.runs[i].folder] = status[i].failure;
      else
        failures_.erase(plan.runs[i].folder);
    }
    return stopped;
  }

  // Of each run of a plan: what is remembered on disk, or what this call saw and could not write there.
  std::vector<std::string> failures_of(const study::Plan& plan) const {
    auto out = study::remembered_failures(plan);
    for (size_t i = 0; i < out.size(); ++i)
      if (const auto seen = failures_.find(plan.runs[i].folder); out[i].empty() && seen != failures_.end())
        out[i] = seen->second;
    return out;
  }

  void report(const study::Plan& plan) {
    const auto failures = failures_of(plan);
    for (const auto& f : failures) failed_ += !f.empty();
    const auto results = study::collect(plan, failures);
    const auto written =
        study::write_results(results, facts_of(a_, plan.study.name), fs::path(a_.out) / plan.study.name);
    const auto verdicts = study::judge_claims(results);
    if (!a_.json) {
      for (const auto& v : verdicts) say_out("{}\n  {}: {}\n", v.claim.says, study::name(v.ruling), v.reason);
      say_out("\nwrote {}, {} and {}\n", written.html.string(), written.markdown.string(),
              written.csv.string());
      return;
    }
    nlohmann::ordered_json j = {{"study", plan.study.name},      {"scale", plan.scale},
                                {"html", written.html.string()}, {"markdown", written.markdown.string()},
                                {"csv", written.csv.string()},   {"claims", nlohmann::ordered_json::array()}};
    for (const auto& v : verdicts)
      j["claims"].push_back({{"claim", v.claim.says},
                             {"verdict", study::name(v.ruling)},
                             {"comparisons", v.comparisons},
                             {"reason", v.reason}});
    json_.push_back(std::move(j));
  }

  [[noreturn]] void interrupt() const {
    say("\ninterrupted; everything is saved. Continue with the same command:\n  {}\n",
        core::one_line(whole_command(a_)));
    throw core::Error(core::ExitCode::kInterrupted, "", "");
  }

  const ReproduceArgs& a_;
  int threads_;
  TimeEstimate estimate_;
  LivePage page_;
  study::Missing missing_;
  std::map<fs::path, std::string> failures_;  // that this call saw, by run folder
  nlohmann::ordered_json json_ = nlohmann::ordered_json::array();
  size_t failed_ = 0;
  std::string asked_;            // the study at hand, as it was named
  bool untuned_ = false;         // it waits for its trials
  std::set<std::string> named_;  // runs of --run that were found
};

void reproduce(const ReproduceArgs& a) {
  if (a.studies.size() == 1 && a.studies[0] == "list") {
    list_studies(a.json);
    return;
  }
  const auto runtime = apply(a.runtime);
  const auto scales = study::load_scales();
  const int seeds = a.seeds > 0 ? a.seeds : scales.seeds[scales.index(a.scale)];
  auto names = a.studies;
  if (names.size() == 1 && names[0] == "all") names = study::study_names();
  for (const auto& name : names) {  // mistakes are found before anything runs
    const auto s = study::load_study(name);
    study::Selection selection;
    for (const auto& o : a.only) study::add_only(selection, o, s);
    study::make_plan(s, a.scale, scales, seeds, selection, a.out, a.data_root, a.first_seed);
  }
  const auto runs = fs::path(a.out) / "runs";
  std::error_code ec;
  if (a.report_only && (!fs::is_directory(runs, ec) || fs::is_empty(runs, ec)))
    core::usage_error(kReproduce,
                      fmt::format("{}: holds no runs to report on; leave out --report-only, or say "
                                  "where they are: --out",
                                  a.out));
  a.plan_only ? catch_interrupts() : protect_work();
  Reproduction reproduction(a, runtime);
  for (const auto& name : names) reproduction.perform(name, scales, seeds);
  reproduction.finish();
}

void work(const std::string& file, const RuntimeOptions& options) {
  const auto runtime = apply(options);
  study::RunSpec spec;
  try {
    spec = study::spec_from_json(core::parse_json(core::read_text(file, kReproduce)));
  } catch (const nlohmann::json::exception& e) {
    core::usage_error(kReproduce, fmt::format("{}: not the description of a run ({})", file, e.what()));
  }
  protect_work();
  auto last = Clock::now() - std::chrono::seconds(1);
  const auto report = [&](double done, const std::string& doing) {
    if (Clock::now() - last < std::chrono::milliseconds(300)) return;
    last = Clock::now();
    say_to(stdout, study::progress_line(done, doing));  // a parent that has gone also sends SIGTERM
  };
  switch (study::perform(spec, runtime.placement(), interrupted(), report, /*wait=*/false)) {
    case study::Outcome::kDone:
      return;
    case study::Outcome::kElsewhere:
      throw core::Error(static_cast<core::ExitCode>(study::kElsewhereExit), kReproduce,
                        "another process is at this run");
    case study::Outcome::kStopped:
      throw core::Error(core::ExitCode::kInterrupted, "", "");
  }
}

}  // namespace

void add_reproduce_commands(CLI::App& app) {
  auto a = std::make_shared<ReproduceArgs>();
  auto* command =
      app.add_subcommand("reproduce", "Tables and figures of the paper, from runs to a report with verdicts");
  command->add_option("STUDY", a->studies, "Names from `reproduce list`, files, `all`, or `list`")
      ->required();
  command->add_option("--scale", a->scale, "tiny (minutes), small (hours), medium (a day) or paper")
      ->capture_default_str();
  command->add_option("--seeds", a->seeds, "Seeds per cell (default: the scale's)")
      ->check(CLI::Range(1, 100));
  command->add_option("--first-seed", a->first_seed, "The first of them: fresh ones test what others chose")
      ->check(CLI::Range(0, 800));  // trials of a tuning stage begin at 1000
  command->add_option("--only", a->only, "Only a part, e.g. data=fmnist,cifar10 (repeatable)");
  command->add_option("--run", a->runs,
                      "Only this run of the plan, without a report (names: --plan --json; repeatable)");
  command->add_option("--out", a->out, "Folder for runs and reports; processes of several hosts may share it")
      ->capture_default_str();
  command->add_option("--jobs", a->jobs, "Runs at once; they share --threads")->check(CLI::Range(1, 1024));
  command->add_option("--data-root", a->data_root, "Where named sets are kept");
  command->add_flag("--plan", a->plan_only, "Print the plan and stop (--json: with a command for each run)");
  command->add_flag("--report-only", a->report_only, "Write the report from what is there");
  command->add_flag("--no-fetch", a->no_fetch, "Do not fetch data sets that are absent");
  command->add_flag("--json", a->json, "Print where the reports are and the verdicts as JSON");
  add_watch_options(*command, a->watch);
  add_runtime_options(*command, a->runtime);
  command->callback([a] { reproduce(*a); });

  struct WorkArgs {
    std::string spec;
    RuntimeOptions runtime;
  };
  auto w = std::make_shared<WorkArgs>();
  auto* worker = app.add_subcommand("reproduce-worker", "One run of a plan (used by reproduce)")->group("");
  worker->add_option("SPEC", w->spec, "Description of the run")->required();
  add_runtime_options(*worker, w->runtime);
  worker->callback([w] { work(w->spec, w->runtime); });
}

}  // namespace ebclr::cli
