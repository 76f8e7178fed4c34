#include "run/checkpoint.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstring>
#include <fstream>

#include "core/files.h"
#include "expect_error.h"
#include "newest.h"
#include "run/run.h"
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
  EXPECT_EQ(testing::read_newest(dir.path(), notes)->position.step, 10);
}

// Epochs and roll-backs of these, oldest first.
std::vector<std::pair<int64_t, int64_t>> ids(const std::vector<CheckpointInfo>& list) {
  std::vector<std::pair<int64_t, int64_t>> out;
  for (const auto& c : list) out.emplace_back(c.position.epoch, c.position.rollbacks);
  return out;
}

TEST(Checkpoint, TheLineageHasNothingThatARollBackGaveUp) {
  using Ids = std::vector<std::pair<int64_t, int64_t>>;
  testing::TempDir dir;
  core::write_atomically(dir / "config.yaml", to_yaml(resolve({})), "test");
  const auto folder = RunFolder{dir.path()}.checkpoints();
  const auto run = Run::open(dir.path());
  EXPECT_TRUE(run.lineage().empty());
  for (int64_t e = 1; e <= 4; ++e) write_checkpoint(folder, snapshot(10 * e, e));
  EXPECT_EQ(ids(run.lineage()), (Ids{{1, 0}, {2, 0}, {3, 0}, {4, 0}}));
  write_checkpoint(folder, snapshot(20, 2, 1));  // back to epoch 2
  EXPECT_EQ(ids(run.lineage()), (Ids{{1, 0}, {2, 1}}));
  for (int64_t e = 3; e <= 5; ++e) write_checkpoint(folder, snapshot(10 * e, e, 1));
  write_checkpoint(folder, snapshot(40, 4, 2));  // and from epoch 5 back to 4
  EXPECT_EQ(ids(run.lineage()), (Ids{{1, 0}, {2, 1}, {3, 1}, {4, 2}}));
  // Where it went on from need not be kept: what it passed again is.
  for (const char* name : {"step-00000020-r1.safetensors", "step-00000040-r2.safetensors"})
    std::filesystem::remove(folder / name);
  write_checkpoint(folder, snapshot(50, 5, 2));
  EXPECT_EQ(ids(run.lineage()), (Ids{{1, 0}, {2, 0}, {3, 1}, {4, 1}, {5, 2}}));
  // One that cannot be read does not hide others.
  for (const char* name : {"step-00000030-r1.safetensors", "step-00000040-r1.safetensors",
                           "step-00000050-r1.safetensors", "step-00000050-r2.safetensors"})
    core::write_atomically(folder / name, "damaged", "test");
  EXPECT_EQ(ids(run.lineage()), (Ids{{1, 0}, {2, 0}, {3, 0}, {4, 0}}));
}

TEST(Checkpoint, EveryTruncationAndBitIsNoticed) {
  testing::TempDir dir;
  write_checkpoint(dir.path(), snapshot(1, 1));
  const auto file = list_checkpoints(dir.path())[0];
  for (const auto& path : {file.path, file.buffer.at(0)}) {
    const auto good = core::read_text(path, "test");
    // Thousands of times: nothing needs to survive a power cut here.
    const auto put = [&](std::string_view bytes) {
      std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    };
    for (size_t n = 0; n < good.size(); ++n) {
      put(std::string_view(good).substr(0, n));
      EXPECT_THROW(read_checkpoint(file, true), core::Error) << path << " cut at " << n;
    }
    // Of the checkpoint every bit. The head of a buffer repeats what the checkpoint says of it; there its
    // tensors count.
    uint64_t head = 0;
    std::memcpy(&head, good.data(), sizeof head);
    for (size_t at = path == file.path ? 0 : sizeof head + head; at < good.size(); ++at)
      for (int bit = 0; bit < 8; ++bit) {
        auto bad = good;
        bad[at] = static_cast<char>(bad[at] ^ (1 << bit));
        put(bad);
        EXPECT_THROW(read_checkpoint(file, true), core::Error) << path << " bit " << bit << " of byte " << at;
      }
    put(good);
  }
  EXPECT_NO_THROW(read_checkpoint(file, true));
}

// Brackets that are closed are parsed without recursion, but copying or printing them takes stack for each.
TEST(Checkpoint, DeepNestingIsRefused) {
  testing::TempDir dir;
  const std::string deep = std::string(200'000, '[') + std::string(200'000, ']');
  for (const auto& state : {R"({"position":{},"format":)" + deep + "}",
                            R"({"position":{},"format":1,"buffer":{"shards":[)" + deep + "]}}",
                            R"({"position":{},"format":1,"small":)" + deep + "}"}) {
    core::SafeTensors content;
    content.metadata["state"] = state;
    core::write_safetensors(dir / "step-00000001-r0.safetensors", content);
    const auto file = list_checkpoints(dir.path()).at(0);
    testing::expect_error(
        core::ExitCode::kUsage, [&] { read_position(file); }, "its state cannot be read");
    testing::expect_error(
        core::ExitCode::kUsage, [&] { read_checkpoint(file, true); }, "its state cannot be read");
    testing::expect_error(
        core::ExitCode::kUsage, [&] { read_buffer(file); }, "its state cannot be read");
  }
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

// Each position used to read all of the clock: a long run's list took minutes.
TEST(Checkpoint, TheClockIsReadOncePerList) {
  testing::TempDir dir;
  for (int64_t e = 1; e <= 3; ++e) {
    auto s = snapshot(10 * e, e);
    s.position.seconds = 100.0 * static_cast<double>(e);
    write_checkpoint(dir.path(), s);
  }
  auto again = snapshot(20, 2);
  again.position.seconds = 250;
  write_checkpoint(dir.path(), again);
  const auto files = list_checkpoints(dir.path());
  std::filesystem::remove(dir / "clock.jsonl");
  ASSERT_EQ(files.size(), 3u);
  const double seconds[] = {100, 250, 300};  // the last line about a checkpoint counts
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(read_position(files[i]).seconds, seconds[i]);
    EXPECT_EQ(read_checkpoint(files[i], true).position.seconds, seconds[i]);
  }
}

TEST(Checkpoint, FilesThatAreFromNoListHaveAClockToo) {
  testing::TempDir dir;
  write_checkpoint(dir.path(), snapshot(12, 3));
  CheckpointFile file{.path = list_checkpoints(dir.path())[0].path, .step = 12};
  EXPECT_EQ(read_position(file).seconds, 1.5);
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
  // So does one that cannot be read at all.
  std::filesystem::remove(b / "clock.jsonl");
  ASSERT_EQ(::mkfifo((b / "clock.jsonl").c_str(), 0600), 0);
  std::vector<std::string> notes;
  const auto read = testing::read_newest(b.path(), notes);
  ASSERT_TRUE(read.has_value()) << notes.at(0);
  EXPECT_EQ(read->position.seconds, 0);
}

// Slots 0..11 as three ranks write them; the value of a chain is its slot.
Snapshot write_in_parts(const std::filesystem::path& folder, int64_t step) {
  auto s = snapshot(step, 1);
  s.shards = nlohmann::json::array();
  for (int rank = 0; rank < 3; ++rank) {
    const int64_t first = 12 * rank / 3;
    s.buffer.tensors["chains"] = torch::arange(first, first + 4).to(torch::kFloat32).view({4, 1});
    s.buffer.tensors["counts"] = torch::arange(first, first + 4);
    s.shards.push_back(write_shard(folder, s, rank, 3));
  }
  s.buffer = {};
  write_checkpoint(folder, s);
  return s;
}

TEST(Checkpoint, PartsOfABufferAreReadBySlots) {
  testing::TempDir dir;
  write_in_parts(dir.path(), 12);
  const auto file = list_checkpoints(dir.path()).at(0);
  EXPECT_EQ(file.buffer.size(), 3u);
  const std::pair<int64_t, int64_t> ranges[] = {{0, 12}, {0, 6}, {6, 12}, {3, 9}, {4, 8}, {11, 12}};
  for (const auto& [first, end] : ranges) {
    const auto s = read_checkpoint(file, true, {first, end});
    EXPECT_EQ(s.slots, 12);
    EXPECT_TRUE(torch::equal(s.buffer.at("counts", "x"), torch::arange(first, end))) << first;
    EXPECT_EQ(s.buffer.at("chains", "x").sizes(), (std::vector<int64_t>{end - first, 1}));
  }
  EXPECT_TRUE(torch::equal(read_buffer(file).at("counts", "x"), torch::arange(12)));
  // One process's buffer, too, is read by slots.
  write_checkpoint(dir.path(), snapshot(20, 2));
  const auto s = read_checkpoint(list_checkpoints(dir.path()).at(1), true, {1, 3});
  EXPECT_EQ(s.slots, 4);
  EXPECT_EQ(s.buffer.at("chains", "x").size(0), 2);
}

TEST(Checkpoint, PartsAreValidTogetherOrNotAtAll) {
  testing::TempDir dir;
  write_in_parts(dir.path(), 12);
  write_in_parts(dir.path(), 24);
  // A kill before the checkpoint itself: parts of step 36 that nothing refers to.
  write_in_parts(dir.path(), 36);
  std::filesystem::remove(dir / "step-00000036-r0.safetensors");
  // A damaged part spoils its checkpoint, whoever reads it, and the one before it is taken.
  const auto part = dir / "buffer-00000024-r0-2of3.safetensors";
  auto bytes = core::read_text(part, "test");
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  core::write_atomically(part, bytes, "test");
  std::vector<std::string> notes;
  EXPECT_EQ(testing::read_newest(dir.path(), notes)->position.step, 12);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("2of3"), std::string::npos) << notes[0];
  // A rank that needs other slots does not see the damage; that is why ranks agree.
  EXPECT_NO_THROW(read_checkpoint(list_checkpoints(dir.path()).at(1), true, {0, 4}));
  // A part that is gone takes the others with it, and pruning removes parts with their checkpoint.
  std::filesystem::remove(part);
  EXPECT_TRUE(list_checkpoints(dir.path()).at(1).buffer.empty());
  write_in_parts(dir.path(), 48);
  prune_checkpoints(dir.path(), {.newest = {0, 48}, .keep_last = 2});
  std::vector<std::string> left;
  for (const auto& entry : std::filesystem::directory_iterator(dir.path()))
    left.push_back(entry.path().filename().string());
  std::sort(left.begin(), left.end());
  EXPECT_EQ(left, (std::vector<std::string>{"buffer-00000048-r0-1of3.safetensors",
                                            "buffer-00000048-r0-2of3.safetensors",
                                            "buffer-00000048-r0-3of3.safetensors", "clock.jsonl",
                                            "step-00000024-r0.safetensors", "step-00000048-r0.safetensors"}));
}

TEST(Checkpoint, PartsThatDoNotFitEachOtherAreRefused) {
  testing::TempDir dir;
  auto s = write_in_parts(dir.path(), 12);
  const auto refused = [&](const std::string& fragment) {
    write_checkpoint(dir.path(), s);
    testing::expect_error(
        core::ExitCode::kUsage, [&] { read_checkpoint(list_checkpoints(dir.path()).at(0), true); }, fragment);
  };
  const auto shards = s.shards;
  s.shards[1] = s.shards[0];
  refused("twice");
  s.shards = shards;
  s.buffer.tensors = {{"chains", torch::zeros({4, 2})}, {"counts", torch::arange(4)}};
  s.shards[1] = write_shard(dir.path(), s, 1, 3);
  s.buffer = {};
  refused("do not fit each other");
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
