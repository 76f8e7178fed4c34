#include "run/provenance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "core/threads.h"
#include "temp_dir.h"

namespace ebclr::run {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Provenance, SessionsAreAppendedWhenARunIsResumed) {
  testing::TempDir dir;
  const RunFolder folder{dir.path()};
  EXPECT_THAT(read_sessions(folder), IsEmpty());
  record_session(folder, {.engine = "native", .instructions = "avx512", .device = "cpu", .threads = 2},
                 false);
  record_session(folder, {.engine = "torch", .device = "cuda:0", .threads = 1, .from_step = 70}, true);
  const auto sessions = read_sessions(folder);
  ASSERT_EQ(sessions.size(), 2u);
  EXPECT_EQ(sessions[0].version, this_version());
  EXPECT_EQ(sessions[0].code, this_code());
  EXPECT_EQ(sessions[0].text(), this_version() + " (code " + this_code() + "), native avx512, 2 threads on " +
                                    core::processor_name());
  EXPECT_EQ(sessions[1].from_step, 70);
  EXPECT_THAT(sessions[1].text(), HasSubstr("torch on cuda:0, 1 thread"));
  EXPECT_FALSE(sessions[0].same_arithmetic(sessions[1]));
  // A fresh start forgets what was there.
  record_session(folder, {.engine = "torch"}, false);
  EXPECT_EQ(read_sessions(folder).size(), 1u);
  std::ofstream(folder.provenance()) << "{\"sessions\": [3, {\"threads\": \"two\"}";
  EXPECT_THAT(read_sessions(folder), IsEmpty()) << "damaged: nothing is known";
}

TEST(Provenance, WhatAReaderMustKnow) {
  const Session now{
      .version = "1", .code = this_code(), .engine = "native", .instructions = "avx2", .threads = 2};
  Session other = now, old = now;
  other.instructions = "avx512";
  other.from_step = 40;
  old.code = "0ld";
  EXPECT_THAT(provenance_warnings({{"a", {now}}, {"b", {now}}}), IsEmpty());
  EXPECT_THAT(provenance_warnings({{"a", {now}}, {"b", {other}}}),
              ::testing::ElementsAre(HasSubstr("not all were trained alike")));
  EXPECT_THAT(provenance_warnings({{"a", {now, other}}}),
              ::testing::ElementsAre(HasSubstr("a was begun by")));
  EXPECT_THAT(provenance_warnings({{"a", {old}}}),
              ::testing::ElementsAre(HasSubstr("the training code has changed since a")));
  EXPECT_THAT(provenance_warnings({{"a", {}}}), ::testing::ElementsAre(HasSubstr("no record")));
}

}  // namespace
}  // namespace ebclr::run
