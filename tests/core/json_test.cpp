#include "core/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace ebclr::core {
namespace {

std::string nested(int depth) {
  return std::string(static_cast<size_t>(depth), '[') + std::string(static_cast<size_t>(depth), ']');
}

TEST(Json, NestingHasABound) {
  EXPECT_FALSE(parse_json(nested(kMaxJsonDepth)).is_discarded());
  EXPECT_TRUE(parse_json(nested(kMaxJsonDepth + 1)).is_discarded());
  EXPECT_TRUE(parse_json(R"({"finished": )" + nested(200000) + "}").is_discarded());
}

TEST(Json, BracketsInsideStringsAreText) {
  const std::string text = std::string(1000, '[') + R"(\"]\\)";
  EXPECT_EQ(parse_json("{\"a\": \"" + text + "\", \"b\": [1, {}]}").at("b").size(), 2u);
  // A quote that is escaped does not end the string.
  EXPECT_FALSE(parse_json(R"(["\"[[", "\\", []])").is_discarded());
}

TEST(Json, CountsAreWhole) {
  const auto j = parse_json(
      R"([7, -3, 0.5, 1e300, 99999999999999999999, 9223372036854775808, 18446744073709551615, "7", null])");
  EXPECT_EQ(whole_number(j[0]), 7);
  EXPECT_EQ(whole_number(j[1]), -3);
  for (size_t i = 2; i < j.size(); ++i) EXPECT_THROW(whole_number(j[i]), nlohmann::json::type_error) << j[i];
}

TEST(Json, KeysThatMayBeMissing) {
  const auto j = parse_json(R"({"text": "a", "number": 0.5, "count": 3, "none": null})");
  EXPECT_EQ(text_of(j, "text"), "a");
  EXPECT_EQ(number_of(j, "number"), 0.5);
  EXPECT_EQ(number_of(j, "count"), 3);
  for (const char* key : {"none", "absent", "number"}) EXPECT_EQ(text_of(j, key), "") << key;
  for (const char* key : {"none", "absent", "text"}) {
    EXPECT_TRUE(std::isnan(number_of(j, key))) << key;
    EXPECT_EQ(number_of(j, key, 0), 0) << key;
  }
  EXPECT_EQ(text_of(parse_json("[1]"), "text"), "") << "of what is no object";
  EXPECT_EQ(number_of(parse_json("7"), "number", 1), 1);
}

TEST(Json, WhatIsNoJsonIsDiscarded) {
  EXPECT_TRUE(parse_json(std::string_view("{}\0}", 4)).is_discarded());
  for (const char* text : {"", "{", "[1,]", "nul", "\"a", "]", "\\"})
    EXPECT_TRUE(parse_json(text).is_discarded()) << text;
}

}  // namespace
}  // namespace ebclr::core
