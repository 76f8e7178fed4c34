// Every call that writes fails in turn; afterwards nothing is lost and nothing is left over.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <stdexcept>

#include "core/error.h"
#include "core/files.h"
#include "core/npy.h"
#include "data/catalog.h"
#include "faulty_disk.h"
#include "index/build.h"
#include "newest.h"
#include "report/run_report.h"
#include "temp_dir.h"
#include "train/trainer.h"

namespace ebclr::testing {
namespace {
namespace fs = std::filesystem;

constexpr Fault kFaults[] = {Fault::kNoSpace,     Fault::kInputOutput, Fault::kShortWrite,
                             Fault::kCrashBefore, Fault::kCrashAfter,  Fault::kPowerCut};

bool whole_campaign() {
  const char* word = std::getenv("EBCLR_CAMPAIGN");
  return word && std::string(word) == "all";
}

/// What a process ended with.
struct End {
  int code = -1;
  int64_t calls = 0;
  bool struck = false;
  std::string call, followed, error;
};

/// Runs `work` in a process of its own with a failing disk. This process must not have started threads.
template <class Work>
End in_a_process(const fs::path& folder, Fault fault, int64_t n, Work work) {
  int pipe_ends[2];
  if (::pipe(pipe_ends) != 0) std::abort();
  const pid_t child = ::fork();
  if (child == 0) {
    arm(folder, fault, n);
    int code = 0;
    std::string error;
    try {
      work();
    } catch (const core::Error& e) {
      code = static_cast<int>(e.code());
      error = e.what();
    } catch (const std::exception& e) {
      code = 77;
      error = e.what();
    }
    const std::string text = std::to_string(calls()) + "\n" + (struck() ? "1" : "0") + "\n" + struck_call() +
                             "\n" + followed() + "\n" + error;
    if (::write(pipe_ends[1], text.data(), text.size()) < 0) code = 78;
    ::_exit(code);
  }
  ::close(pipe_ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t got; (got = ::read(pipe_ends[0], buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<size_t>(got));
  ::close(pipe_ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  End end;
  end.code = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  std::istringstream in(text);
  std::string line;
  if (std::getline(in, line)) end.calls = std::stoll(line);
  if (std::getline(in, line)) end.struck = line == "1";
  std::getline(in, end.call);
  std::getline(in, end.followed);
  std::getline(in, end.error);
  end.struck |= end.code == kCrashed;
  return end;
}

run::Config small() {
  return run::resolve({{"test",
                        {{"method.name", "ebclr"},
                         {"data.source", "shapes"},
                         {"data.limit", "16"},
                         {"data.limit_test", "4"},
                         {"encoder.width", "8"},
                         {"head.out", "8"},
                         {"head.hidden", "8"},
                         {"buffer.size", "12"},
                         {"sampler.steps", "1"},
                         {"train.batch_size", "8"},
                         {"train.epochs", "2"},
                         {"checkpoint.keep_last", "1"},
                         {"checkpoint.keep_every", "0"},
                         {"log.every", "1"},
                         {"log.samples_every", "1"}}}});
}

// As the program does it: what has begun is resumed, anything else begins.
void train(const fs::path& folder) {
  at::set_num_threads(1);
  static const auto images =
      std::make_shared<const data::ImageSet>(data::load({.source = "shapes", .limit = 16}).train);
  train::Observer nobody;
  const std::atomic<bool> go_on{false};
  const bool resume = fs::exists(run::RunFolder{folder}.config());
  train::Trainer trainer(
      {.folder = {folder}, .config = small(), .list = {{{"a.png", "train", 1, "digest"}}}, .resume = resume},
      images, nobody);
  if (!trainer.run(go_on).finished) throw std::logic_error("not finished");
}

/// Digests of everything that must be the same after any fault, by name.
std::map<std::string, std::string> result_of(const fs::path& folder) {
  std::map<std::string, std::string> out;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    const auto name = fs::relative(entry.path(), folder).string();
    if (!entry.is_regular_file() || name == "checkpoints/clock.jsonl" || name == "summary.json" ||
        name == "provenance.json" || name == "train.log" || name == "metrics.jsonl" || name == ".lock")
      continue;
    out[name] = core::sha256_file(entry.path(), "test");
  }
  return out;
}

std::vector<int64_t> steps_of(const fs::path& folder) {
  std::vector<int64_t> steps;
  std::ifstream in(run::RunFolder{folder}.metrics());
  for (std::string line; std::getline(in, line);)
    steps.push_back(nlohmann::json::parse(line)["step"].get<int64_t>());
  return steps;
}

TEST(FaultyDisk, TrainingSurvivesEveryFault) {
  TempDir dir;
  const auto whole = in_a_process(dir / "whole", Fault::kNone, 0, [&] { train(dir / "whole"); });
  ASSERT_EQ(whole.code, 0) << whole.error;
  ASSERT_GT(whole.calls, 60);
  EXPECT_EQ(whole.followed, "") << "opened so that a link would be followed";
  const auto want = result_of(dir / "whole");
  const auto want_steps = steps_of(dir / "whole");
  ASSERT_EQ(want_steps, (std::vector<int64_t>{1, 2, 3, 4}));
  ASSERT_EQ(want.size(), 8u)
      << "configuration, list, two checkpoints of two files (the last and the good one), pictures";
  int64_t tried = 0, stopped = 0, begun = 0;
  for (int64_t n = 1; n <= whole.calls; ++n)
    for (size_t k = 0; k < std::size(kFaults); ++k) {
      if (!whole_campaign() && k != static_cast<size_t>(n) % std::size(kFaults)) continue;
      const fs::path folder = dir / "run";
      SCOPED_TRACE(::testing::Message() << "call " << n << ", " << name_of(kFaults[k]));
      const auto first = in_a_process(folder, kFaults[k], n, [&] { train(folder); });
      ASSERT_TRUE(first.struck) << "the fault must happen: " << first.error;
      ASSERT_TRUE(first.code == 0 || first.code == 1 || first.code == kCrashed)
          << first.code << ": " << first.error << " at " << first.call;
      ++tried;
      stopped += first.code != 0;
      // Before the first step there was a checkpoint, and what has been saved is never lost again: resuming
      // must not begin anew, though that would give the same bytes too.
      if (!steps_of(folder).empty()) {
        const auto looked = in_a_process(folder, Fault::kNone, 0, [&] {
          std::vector<std::string> notes;
          if (!testing::read_newest(run::RunFolder{folder}.checkpoints(), notes))
            throw std::logic_error(notes.empty() ? "no checkpoint" : notes[0]);
        });
        ASSERT_EQ(looked.code, 0) << looked.error << " after " << first.call << " " << first.error;
        ++begun;
      }
      const auto second = in_a_process(folder, Fault::kNone, 0, [&] { train(folder); });
      ASSERT_EQ(second.code, 0) << second.error << " after " << first.call << " " << first.error;
      ASSERT_EQ(second.followed, "");
      ASSERT_EQ(result_of(folder), want) << "after " << first.call << " " << first.error;
      ASSERT_EQ(steps_of(folder), want_steps) << "after " << first.call;
      fs::remove_all(folder);
      for (const auto& entry : fs::directory_iterator(dir.path()))
        if (entry.path().filename().string().find(".lost-") != std::string::npos) fs::remove(entry.path());
    }
  EXPECT_GT(begun, tried / 3) << "most faults come after the first step";
  std::printf("  %ld faults in %ld calls, %ld ended the run; all resumed to the same bytes\n",
              static_cast<long>(tried), static_cast<long>(whole.calls), static_cast<long>(stopped));
}

TEST(FaultyDisk, AFileIsOldOrNewNeverHalf) {
  TempDir dir;
  fs::create_directory(dir / "out");
  const auto path = dir / "out" / "page.html";
  const std::string before(200'000, 'a'), after(300'000, 'b');
  const auto work = [&] { core::write_atomically(path, after, "test"); };
  core::write_atomically(path, before, "test");
  const auto whole = in_a_process(dir / "out", Fault::kNone, 0, work);
  ASSERT_EQ(whole.code, 0);
  ASSERT_GE(whole.calls, 5) << "create, write, sync, rename, sync of the folder";
  int64_t tried = 0;
  for (int64_t n = 1; n <= whole.calls; ++n)
    for (const Fault fault : kFaults) {
      SCOPED_TRACE(::testing::Message() << "call " << n << ", " << name_of(fault));
      core::write_atomically(path, before, "test");
      const auto end = in_a_process(dir / "out", fault, n, work);
      const auto now = core::read_text(path, "test");
      ASSERT_TRUE(now == before || now == after) << now.size() << " bytes after " << end.call;
      if (end.code == 0) {
        ASSERT_EQ(now, after) << "success was claimed";
      }
      ++tried;
      // The next writer sweeps what is left.
      core::write_atomically(path, after, "test");
      std::set<std::string> names;
      for (const auto& entry : fs::directory_iterator(dir / "out"))
        names.insert(entry.path().filename().string());
      ASSERT_EQ(names, std::set<std::string>{"page.html"});
    }
  std::printf("  %ld faults in %ld calls\n", static_cast<long>(tried), static_cast<long>(whole.calls));
}

// The pages and indices that are made of a run: each fault leaves the old file or the new one, and the next
// try makes what an undisturbed one makes.
TEST(FaultyDisk, IndexAndReportAreOldOrNew) {
  TempDir dir;
  ASSERT_EQ(in_a_process(dir / "run", Fault::kNone, 0, [&] { train(dir / "run"); }).code, 0);
  const auto pictures = dir / "pictures", out = dir / "out", features = out / "x.index",
             page = out / "page.html";
  fs::create_directory(pictures);
  fs::create_directory(out);
  const auto picture = [&](const std::string& name, char grey) {
    std::ofstream(pictures / name, std::ios::binary) << "P5\n16 16\n255\n" << std::string(256, grey);
  };
  const auto work = [&] {
    at::set_num_threads(1);
    std::vector<std::string> notes;
    const auto looker = index::load_looker(run::Run::open(dir / "run"), {.references = 4}, notes);
    index::build_index(looker, pictures, features, {});
    core::write_atomically(page, report::run_report({dir / "run"}, {.evaluate = false}), "test");
  };
  picture("a.pgm", 'a');
  picture("b.pgm", 'b');
  const auto first = in_a_process(out, Fault::kNone, 0, work);
  ASSERT_EQ(first.code, 0) << first.error;
  EXPECT_EQ(first.followed, "") << "opened so that a link would be followed";
  const auto old_index = core::read_bytes(features, "test");
  core::write_atomically(page, "an old page", "test");
  picture("c.pgm", 'c');
  const auto restore = [&] {
    fs::remove_all(out);
    fs::create_directory(out);
    const auto* p = reinterpret_cast<const char*>(old_index.data());
    core::write_atomically(features, {p, old_index.size()}, "test");
    core::write_atomically(page, "an old page", "test");
  };
  restore();
  const auto whole = in_a_process(out, Fault::kNone, 0, work);
  ASSERT_EQ(whole.code, 0) << whole.error;
  ASSERT_GE(whole.calls, 10);
  const auto new_index = core::read_bytes(features, "test");
  ASSERT_EQ(index::Index::open(features).size(), 3);
  ASSERT_NE(new_index, old_index);
  const auto new_page = core::read_text(page, "test");
  int64_t tried = 0, stopped = 0;
  for (int64_t n = 1; n <= whole.calls; ++n)
    for (size_t k = 0; k < std::size(kFaults); ++k) {
      if (!whole_campaign() && k != static_cast<size_t>(n) % std::size(kFaults)) continue;
      SCOPED_TRACE(::testing::Message() << "call " << n << ", " << name_of(kFaults[k]));
      restore();
      const auto end = in_a_process(out, kFaults[k], n, work);
      ASSERT_TRUE(end.code == 0 || end.code == 1 || end.code == kCrashed) << end.code << ": " << end.error;
      const auto now = core::read_bytes(features, "test");
      ASSERT_TRUE(now == old_index || now == new_index) << now.size() << " bytes after " << end.call;
      const auto text = core::read_text(page, "test");
      ASSERT_TRUE(text == "an old page" || text == new_page) << text.size() << " bytes after " << end.call;
      ++tried;
      stopped += end.code != 0;
      const auto again = in_a_process(out, Fault::kNone, 0, work);
      ASSERT_EQ(again.code, 0) << again.error << " after " << end.call;
      ASSERT_EQ(core::read_bytes(features, "test"), new_index);
      ASSERT_EQ(core::read_text(page, "test"), new_page);
      std::set<std::string> names;
      for (const auto& entry : fs::directory_iterator(out)) names.insert(entry.path().filename().string());
      ASSERT_EQ(names, (std::set<std::string>{"page.html", "x.index"})) << "after " << end.call;
      for (const auto& entry : fs::directory_iterator(dir.path()))
        if (entry.path().filename().string().find(".lost-") != std::string::npos) fs::remove(entry.path());
    }
  std::printf("  %ld faults in %ld calls of an index and a report, %ld ended them\n",
              static_cast<long>(tried), static_cast<long>(whole.calls), static_cast<long>(stopped));
}

TEST(FaultyDisk, FoldersThatWereMissingComeWithTheirFileOrNotAtAll) {
  TempDir dir;
  const auto out = dir / "out", file = out / "a" / "b" / "file";
  const auto work = [&] { core::write_atomically(file, "whole", "test"); };
  fs::create_directory(out);
  const auto whole = in_a_process(out, Fault::kNone, 0, work);
  ASSERT_EQ(whole.code, 0) << whole.error;
  ASSERT_GE(whole.calls, 5);
  for (int64_t n = 1; n <= whole.calls; ++n)
    for (const auto fault : kFaults) {
      SCOPED_TRACE(::testing::Message() << "call " << n << ", " << name_of(fault));
      fs::remove_all(out);
      fs::create_directory(out);
      const auto end = in_a_process(out, fault, n, work);
      ASSERT_TRUE(end.code == 0 || end.code == 1 || end.code == kCrashed) << end.code << ": " << end.error;
      EXPECT_TRUE(end.code != 0 || fs::exists(file)) << end.call;
      if (fs::exists(file)) {
        EXPECT_EQ(core::read_text(file, "test"), "whole") << end.call;
      } else if (end.code == 1) {
        EXPECT_TRUE(fs::is_empty(out)) << "after " << end.call;
      }
      const auto again = in_a_process(out, Fault::kNone, 0, work);
      ASSERT_EQ(again.code, 0) << again.error << " after " << end.call;
      EXPECT_EQ(std::distance(fs::directory_iterator(file.parent_path()), fs::directory_iterator{}), 1);
    }
}

TEST(FaultyDisk, ARecordIsWholeOrAbsent) {
  TempDir dir;
  fs::create_directory(dir / "out");
  const auto path = dir / "out" / "metrics.jsonl";
  const auto line = [](int64_t i) { return "{\"step\":" + std::to_string(i) + "}\n"; };
  const auto work = [&] {
    core::AppendFile file(path, "test");
    std::string trouble;
    for (int i = 0; i < 3; ++i) {
      try {
        file.append(line(i));
      } catch (const core::Error& e) {
        trouble += e.what();
        free_space();  // and goes on
      }
    }
    if (!trouble.empty()) throw std::logic_error(trouble);
  };
  const auto whole = in_a_process(dir / "out", Fault::kNone, 0, work);
  ASSERT_EQ(whole.code, 0) << whole.error;
  ASSERT_EQ(whole.calls, 4) << "create, three writes";
  for (int64_t n = 1; n <= whole.calls; ++n)
    for (const Fault fault : {Fault::kNoSpace, Fault::kInputOutput, Fault::kShortWrite}) {
      SCOPED_TRACE(::testing::Message() << "call " << n << ", " << name_of(fault));
      fs::remove(path);
      const auto end = in_a_process(dir / "out", fault, n, work);
      ASSERT_TRUE(end.struck);
      EXPECT_NE(end.error.find(fault == Fault::kInputOutput ? "Input/output error" : "the disk is full"),
                std::string::npos)
          << end.error;
      if (n == 1) {
        EXPECT_FALSE(fs::exists(path));
        continue;
      }
      // The record that could not be written is absent, the others are whole.
      std::string want;
      for (int64_t i = 0; i < 3; ++i)
        if (i != n - 2) want += line(i);
      EXPECT_EQ(core::read_text(path, "test"), want);
    }
}

}  // namespace
}  // namespace ebclr::testing
