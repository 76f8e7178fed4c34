#include "run/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace ebclr::run {
namespace {

using ::testing::ElementsAre;

TEST(Metrics, ReadsSeriesMonitorAndPosition) {
  const auto m = parse_metrics(
      R"({"step":2,"rollbacks":0,"epoch":0.5,"loss":4.0,"gap":0.1,"seconds":3.5,"forward_units":100})"
      "\n"
      R"({"event":"knn","step":4,"rollbacks":0,"epoch":1,"knn":0.5,"seconds":7,"forward_units":200})"
      "\n"
      R"({"step":6,"rollbacks":0,"epoch":1.5,"loss":3.0,"seconds":9,"forward_units":300})"
      "\n");
  EXPECT_THAT(m.series.at("loss").epoch, ElementsAre(0.5, 1.5));
  EXPECT_THAT(m.series.at("loss").value, ElementsAre(4.0, 3.0));
  EXPECT_THAT(m.series.at("gap").value, ElementsAre(0.1));
  EXPECT_EQ(m.series.count("step"), 0u);
  ASSERT_EQ(m.monitor.size(), 1u);
  EXPECT_EQ(m.monitor[0].accuracy, 0.5);
  EXPECT_EQ(m.step, 6);
  EXPECT_EQ(m.epoch, 1.5);
  EXPECT_EQ(m.seconds, 9);
  EXPECT_EQ(m.forward_units, 300);
  EXPECT_EQ(m.last("loss"), 3.0);
  EXPECT_TRUE(std::isnan(m.last("nothing")));
  EXPECT_EQ(m.damaged, 0);
  EXPECT_FALSE(m.cut);
}

TEST(Metrics, DamagedLinesAreCountedAndTheRestIsRead) {
  const auto m = parse_metrics(
      "{\"step\":1,\"epoch\":1,\"loss\":1}\n"
      "not json\n"
      "[1,2]\n"
      "{\"step\":\"three\",\"epoch\":3,\"loss\":3}\n"
      "\n"
      "{\"step\":4,\"loss\":4}\n"
      "\xff\xfe garbage\n"
      "{\"step\":5,\"epoch\":5,\"loss\":5}\n"
      "{\"step\":6,\"epoch\":6,\"lo");
  EXPECT_THAT(m.series.at("loss").value, ElementsAre(1, 5));
  EXPECT_EQ(m.damaged, 5);
  EXPECT_TRUE(m.cut) << "half a line at the end is one being written, not damage";
}

TEST(Metrics, NullIsNotFiniteAndInterruptsTheLine) {
  const auto m = parse_metrics(
      "{\"step\":1,\"epoch\":1,\"loss\":1}\n{\"step\":2,\"epoch\":2,\"loss\":null}\n{\"step\":3,\"epoch\":3,"
      "\"loss\":3}\n");
  ASSERT_EQ(m.series.at("loss").value.size(), 3u);
  EXPECT_TRUE(std::isnan(m.series.at("loss").value[1]));
  EXPECT_EQ(m.last("loss"), 3);
}

TEST(Metrics, RollBackInterruptsEverySeriesAndIsTold) {
  const auto m = parse_metrics(
      "{\"step\":10,\"epoch\":1,\"loss\":1}\n"
      "{\"event\":\"rollback\",\"step\":5,\"rollbacks\":1,\"failed_step\":11,\"reason\":\"it ran away\"}\n"
      "{\"step\":6,\"epoch\":0.6,\"loss\":2}\n");
  ASSERT_EQ(m.events.size(), 1u);
  EXPECT_EQ(m.events[0].kind, "rollback");
  EXPECT_EQ(m.events[0].step, 11);
  EXPECT_EQ(m.events[0].reason, "it ran away");
  ASSERT_EQ(m.series.at("loss").value.size(), 3u);
  EXPECT_TRUE(std::isnan(m.series.at("loss").value[1]));
}

TEST(Metrics, EmptyTextIsEmpty) {
  EXPECT_TRUE(parse_metrics("").series.empty());
  EXPECT_FALSE(parse_metrics("").cut);
}

}  // namespace
}  // namespace ebclr::run
