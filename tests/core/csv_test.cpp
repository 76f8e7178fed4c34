#include "core/csv.h"

#include <gtest/gtest.h>

namespace ebclr::core {
namespace {

TEST(Csv, QuotesOnlyWhatNeedsIt) {
  EXPECT_EQ(csv_line({"plain", "", "a b"}), "plain,,a b\n");
  EXPECT_EQ(csv_line({"a,b", "say \"hi\"", "two\nlines", "cr\r"}),
            "\"a,b\",\"say \"\"hi\"\"\",\"two\nlines\",\"cr\r\"\n");
  EXPECT_EQ(csv_line({}), "\n");
}

}  // namespace
}  // namespace ebclr::core
