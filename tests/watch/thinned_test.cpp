#include "watch/thinned.h"

#include <gtest/gtest.h>

#include <cmath>

namespace ebclr::watch {
namespace {

run::MetricRecord record(double step, double loss) {
  run::MetricRecord r;
  r.step = step, r.epoch = step / 100, r.seconds = 2 * step, r.forward_units = 29 * step, r.rollbacks = 0;
  r.values = {{"loss", loss}, {"lr", 0.1}};
  return r;
}

Column column(const Thinned& t, const std::string& name) {
  for (const auto& c : t.columns())
    if (c.name == name) return c;
  throw std::runtime_error("no column " + name);
}

TEST(Thinned, KeepsFewRecordsAsTheyAre) {
  Thinned t(8);
  for (int i = 1; i <= 8; ++i) t.add(record(i, i * i), static_cast<uint64_t>(10 * i));
  EXPECT_EQ(t.per_bucket(), 1);
  ASSERT_EQ(t.size(), 8u);
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(t.step()[i], static_cast<double>(i + 1));
    EXPECT_EQ(column(t, "loss").mean[i], static_cast<float>((i + 1) * (i + 1)));
    EXPECT_EQ(t.offset()[i], 10 * (i + 1));
  }
}

// Against the plain way: all records kept, buckets made at the end.
TEST(Thinned, MeansLowestAndHighestAreThoseOfTheRecords) {
  Thinned t(64);
  std::vector<double> values;
  for (int i = 0; i < 1000; ++i) {
    values.push_back(std::sin(0.05 * i) + (i == 777 ? 100 : 0));
    t.add(record(i + 1, values.back()), static_cast<uint64_t>(i));
  }
  EXPECT_EQ(t.per_bucket(), 16);
  EXPECT_LE(t.size(), 64u);
  const auto& c = column(t, "loss");
  bool spike = false;
  for (size_t b = 0; b < t.size(); ++b) {
    const size_t begin = 16 * b, end = std::min<size_t>(1000, begin + 16);
    double sum = 0, low = INFINITY, high = -INFINITY;
    for (size_t i = begin; i < end; ++i) {
      sum += values[i];
      low = std::min(low, values[i]), high = std::max(high, values[i]);
    }
    EXPECT_NEAR(c.mean[b], sum / static_cast<double>(end - begin), 1e-4);
    EXPECT_FLOAT_EQ(c.low[b], static_cast<float>(low));
    EXPECT_FLOAT_EQ(c.high[b], static_cast<float>(high));
    EXPECT_EQ(t.offset()[b], begin);
    EXPECT_EQ(t.step()[b], static_cast<double>(end));
    spike |= c.high[b] > 99;
  }
  EXPECT_TRUE(spike) << "a single high value got lost";
}

TEST(Thinned, MemoryDoesNotGrow) {
  Thinned t;
  for (int i = 0; i < 5000; ++i) t.add(record(i, i), 0);
  const auto before = t.bytes();
  for (int i = 5000; i < 200000; ++i) t.add(record(i, i), 0);
  EXPECT_EQ(t.bytes(), before);
  EXPECT_LE(t.size(), 1024u);
}

TEST(Thinned, ThousandsOfMetricsAreNotKept) {
  Thinned t;
  t.add(record(1, 1), 0);
  EXPECT_FALSE(t.more());
  run::MetricRecord r = record(2, 2);
  for (int i = 0; i < 5000; ++i) r.values.emplace_back("m" + std::to_string(i), i);
  for (int i = 0; i < 2000; ++i) t.add(r, 0);
  EXPECT_TRUE(t.more());
  EXPECT_EQ(t.columns().size(), run::kMostMetrics);
  EXPECT_LT(t.bytes(), 2 * 16 * 1024 * run::kMostMetrics);
  EXPECT_EQ(column(t, "loss").mean.back(), 2) << "those that came first go on";
}

TEST(Thinned, NotANumberLeavesAGap) {
  Thinned t(8);
  t.add(record(1, 1), 0);
  t.add(record(2, NAN), 0);
  t.add(record(3, 3), 0);
  const auto& c = column(t, "loss");
  EXPECT_TRUE(std::isnan(c.mean[1]));
  for (int i = 4; i <= 9; ++i) t.add(record(i, i), 0);  // pairs are merged now
  EXPECT_EQ(t.per_bucket(), 2);
  EXPECT_EQ(column(t, "loss").mean[0], 1);
  EXPECT_EQ(column(t, "loss").mean[1], 3.5);
}

TEST(Thinned, ForgetsWhatWasRolledBack) {
  Thinned t(8);
  for (int i = 1; i <= 6; ++i) t.add(record(i, i), 0);
  const auto generation = t.generation();
  t.forget_after(4);
  ASSERT_EQ(t.size(), 4u);
  EXPECT_NE(t.generation(), generation);
  t.add(record(5, 50), 0);
  EXPECT_EQ(column(t, "loss").mean.back(), 50);
  t.forget_after(100);
  EXPECT_EQ(t.size(), 5u);
  t.clear();
  EXPECT_EQ(t.size(), 0u);
  EXPECT_GT(t.generation(), generation);
}

TEST(Thinned, AMetricMayComeLateOrInAnotherOrder) {
  Thinned t(8);
  t.add(record(1, 1), 0);
  auto r = record(2, 2);
  r.values = {{"lr", 0.2}, {"late", 7}, {"loss", 2}};
  t.add(r, 0);
  EXPECT_TRUE(std::isnan(column(t, "late").mean[0]));
  EXPECT_EQ(column(t, "late").mean[1], 7);
  EXPECT_FLOAT_EQ(column(t, "lr").mean[1], 0.2F);
  EXPECT_EQ(column(t, "loss").mean[1], 2);
}

}  // namespace
}  // namespace ebclr::watch
