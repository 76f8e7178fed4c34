#include "run/checkpoint.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "core/files.h"
#include "expect_error.h"
#include "temp_dir.h"

namespace ebclr::run {
namespace {

Snapshot snapshot(int64_t step, int64_t epoch, int64_t rollbacks = 0) {
  Snapshot s;
  s.position = {
      .step = step, .epoch = epoch, .batch = 0, .seconds = 1.5, .forward_units = 29, .rollbacks = rollbacks};
  s.small = {{"a", 1}, {"key", ~uint64_t{0}}};
  s.tensors.tensors["method/w"] = torch::full({3}, static_cast<float>(step));
  s.buffer.tensors["chains"] = torch::full({4, 1, 2, 2}, static_cast<float>(step));
  return s;
}

TEST(Checkpoint, RoundTrips) {
  testing::TempDir dir;
  write_checkpoint(dir.path(), snapshot(12, 3));
  const auto files = list_checkpoints(dir.path());
  ASSERT_EQ(files.size(), 1u);
  const auto s = read_checkpoint(files[0], true);
  EXPECT_EQ(s.position.step, 12);
  EXPECT_EQ(s.position.epoch, 3);
  EXPECT_EQ(s.position.seconds, 1.5);
  EXPECT_EQ(s.small["key"].get<uint64_t>(), ~uint64_t{0});
  EXPECT_TRUE(torch::equal(s.tensors.at("method/w", "x"), torch::full({3}, 12.f)));
  EXPECT_TRUE(torch::equal(s.buffer.at("chains", "x"), torch::full({4, 1, 2, 2}, 12.f)));
  EXPECT_EQ(read_position(files[0]).epoch, 3);
}

TEST(Checkpoint, NewestIsByRollBacksThenSteps) {
  testing::TempDir dir;
  write_checkpoint(dir.path(), snapshot(20, 2));
  write_checkpoint(dir.path(), snapshot(10, 1, 1));
  std::vector<std::string> notes;
  EXPECT_EQ(read_newest(dir.path(), notes)->position.step, 10);
}

TEST(Checkpoint, EveryTruncationAndBitIsNoticed) {
  testing::TempDir dir;
  write_checkpoint(dir.path(), snapshot(1, 1));
  const auto file = list_checkpoints(dir.path())[0];
  for (const auto& path : {file.path, file.buffer.at(0)}) {
    const auto good = core::read_text(path, "test");
    for (size_t n = 0; n < good.size(); n += 7) {
      core::write_atomically(path, std::string_view(good).substr(0, n), "test");
      EXPECT_THROW(read_checkpoint(file, true), core::Error) << path << " cut at " << n;
    }
    for (size_t back = 1; back <= 16; ++back) {  // within the tensors' bytes
      auto bad = good;
      bad[bad.size() - back] = static_cast<char>(bad[bad.size() - back] ^ 1);
      core::write_atomically(path, bad, "test");
      EXPECT_THROW(read_checkpoint(file, true), core::Error) << path << " bit at -" << back;
    }
    core::write_atomically(path, good, "test");
  }
  EXPECT_NO_THROW(read_checkpoint(file, true));
}

TEST(Checkpoint, PruneKeepsTheNewestAndTheMilestones) {
  testing::TempDir dir;
  for (int64_t e = 0; e <= 6; ++e) write_checkpoint(dir.path(), snapshot(10 * e, e));
  core::write_atomically(dir / "buffer-00000999-r0.safetensors", "orphan", "test");
  core::write_atomically(dir / "step-00000070-r0.safetensors.123.tmp", "half", "test");
  prune_checkpoints(dir.path(), {.newest = {0, 60}, .keep_last = 2, .keep_every = 3});
  std::vector<int64_t> steps;
  for (const auto& f : list_checkpoints(dir.path())) {
    steps.push_back(f.step);
    EXPECT_EQ(f.buffer.empty(), f.step < 50);
  }
  EXPECT_EQ(steps, (std::vector<int64_t>{30, 50, 60}));
  EXPECT_FALSE(std::filesystem::exists(dir / "buffer-00000999-r0.safetensors"));
  EXPECT_FALSE(std::filesystem::exists(dir / "step-00000070-r0.safetensors.123.tmp"));
}

// A run that fell back from damaged files writes older step numbers than theirs.
TEST(Checkpoint, DamagedNewerOnesDoNotCount) {
  testing::TempDir dir;
  for (int64_t step : {10, 20, 30, 40}) write_checkpoint(dir.path(), snapshot(step, 0));
  for (const char* name : {"step-00000030-r0.safetensors", "step-00000040-r0.safetensors"})
    core::write_atomically(dir / name, "damaged", "test");
  write_checkpoint(dir.path(), snapshot(25, 0));
  prune_checkpoints(dir.path(), {.newest = {0, 25}, .keep_last = 1});
  const auto files = list_checkpoints(dir.path());
  ASSERT_EQ(files.size(), 1u);
  EXPECT_EQ(files[0].step, 25) << "the new file must not be the one that goes";
  EXPECT_NO_THROW(read_checkpoint(files[0], true));
}

TEST(Checkpoint, ProtectedOnesStayWhole) {
  testing::TempDir dir;
  for (int64_t step : {0, 10, 20, 30}) write_checkpoint(dir.path(), snapshot(step, 0));
  prune_checkpoints(dir.path(), {.newest = {0, 30}, .keep_last = 1, .protect = {{0, 10}}});
  const auto files = list_checkpoints(dir.path());
  ASSERT_EQ(files.size(), 2u);
  EXPECT_EQ(files[0].step, 10);
  EXPECT_FALSE(files[0].buffer.empty());
}

TEST(Checkpoint, TheClockIsNoPartOfTheBytes) {
  testing::TempDir a, b;
  auto s = snapshot(12, 3);
  write_checkpoint(a.path(), s);
  s.position.seconds = 777;
  write_checkpoint(b.path(), s);
  for (const char* name : {"step-00000012-r0.safetensors", "buffer-00000012-r0.safetensors"})
    EXPECT_EQ(core::read_text(a / name, "test"), core::read_text(b / name, "test"));
  EXPECT_EQ(read_position(list_checkpoints(a.path())[0]).seconds, 1.5);
  EXPECT_EQ(read_position(list_checkpoints(b.path())[0]).seconds, 777);
  // A clock that was lost or damaged costs the clock alone.
  core::write_atomically(b / "clock.jsonl", "{\"step\":\"x\"}\nnonsense\n[1]\n", "test");
  EXPECT_EQ(read_position(list_checkpoints(b.path())[0]).seconds, 0);
}

TEST(Checkpoint, ForeignAndNewerFilesAreNamed) {
  testing::TempDir dir;
  core::SafeTensors other;
  other.tensors["x"] = torch::ones({1});
  core::write_safetensors(dir / "step-00000001-r0.safetensors", other);
  testing::expect_error(
      core::ExitCode::kUsage, [&] { read_checkpoint(list_checkpoints(dir.path())[0], true); },
      "not a checkpoint of ebclr");
  other.metadata["state"] = R"({"format": 99, "position": {}})";
  core::write_safetensors(dir / "step-00000001-r0.safetensors", other);
  testing::expect_error(
      core::ExitCode::kUsage, [&] { read_checkpoint(list_checkpoints(dir.path())[0], true); }, "format 99");
}

}  // namespace
}  // namespace ebclr::run
