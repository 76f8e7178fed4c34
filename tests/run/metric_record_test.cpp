#include "run/metric_record.h"

#include <gtest/gtest.h>

#include <cmath>

namespace ebclr::run {
namespace {

TEST(MetricRecord, ReadsALine) {
  MetricRecord r;
  ASSERT_TRUE(parse_record(
      R"({"step":20,"rollbacks":1,"epoch":0.5,"loss":-1.5e2,"gap":null,"seconds":3,"forward_units":580,"deep":{"step":7,"x":[1,{"step":8}]},"on":true})",
      r));
  EXPECT_EQ(r.step, 20);
  EXPECT_EQ(r.rollbacks, 1);
  EXPECT_EQ(r.epoch, 0.5);
  EXPECT_EQ(r.seconds, 3);
  EXPECT_EQ(r.forward_units, 580);
  EXPECT_TRUE(r.event.empty());
  ASSERT_EQ(r.values.size(), 2u);
  EXPECT_EQ(r.values[0], (std::pair<std::string, double>("loss", -150)));
  EXPECT_EQ(r.values[1].first, "gap");
  EXPECT_TRUE(std::isnan(r.values[1].second));
  // The same memory again.
  ASSERT_TRUE(parse_record(R"({"event":"rollback","reason":"a \"b\"","step":3,"lr":0.5})", r));
  EXPECT_EQ(r.event, "rollback");
  EXPECT_EQ(r.reason, "a \"b\"");
  EXPECT_TRUE(std::isnan(r.epoch));
  ASSERT_EQ(r.values.size(), 1u);
  EXPECT_EQ(r.values[0].first, "lr");
}

TEST(MetricRecord, ThousandsOfNumbersAreNotKept) {
  std::string text = R"({"loss":1)";
  for (int i = 0; i < 5000; ++i) text += ",\"m" + std::to_string(i) + "\":2";
  MetricRecord r;
  ASSERT_TRUE(parse_record(text + R"(,"step":3})", r));
  EXPECT_EQ(r.step, 3) << "its place is read wherever it stands";
  EXPECT_EQ(r.values.size(), kMostMetrics);
  EXPECT_EQ(r.values[0].first, "loss");
  EXPECT_TRUE(r.more);
  ASSERT_TRUE(parse_record(R"({"step":4,"loss":1})", r));
  EXPECT_FALSE(r.more);
}

TEST(MetricRecord, RefusesWhatIsNone) {
  MetricRecord r;
  for (const char* text : {"", "{", "{}", "[]", "1", "null", "\"step\"", "{\"loss\":1}", "{\"step\":null}",
                           "{\"step\":\"1\"}", "{\"step\":1", "{\"step\":1}}", "{\"step\":1}{\"step\":2}",
                           "{\"a\":{\"step\":1}}", "[{\"step\":1}]", "{\"step\":1e999}"})
    EXPECT_FALSE(parse_record(text, r)) << text;
  const std::string line = R"({"step":1,"loss":2})";
  for (size_t n = 0; n < line.size(); ++n) EXPECT_FALSE(parse_record(line.substr(0, n), r)) << n;
  EXPECT_FALSE(parse_record(std::string(100000, '['), r));
  std::string deep = "{\"step\":1,\"a\":";
  for (int i = 0; i < 100000; ++i) deep += "{\"a\":";
  EXPECT_FALSE(parse_record(deep, r));
}

}  // namespace
}  // namespace ebclr::run
