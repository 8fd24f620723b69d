#include "sluice/data/text/synthetic_text.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "sluice/base/test_refusals.h"

namespace sluice::data {
namespace {

TEST(SyntheticText, IsAFunctionOfItsSeed) {
  const std::string text = synthetic_text(5000, 3);
  EXPECT_EQ(text.size(), 5000u);
  EXPECT_EQ(text.substr(0, 100), synthetic_text(100, 3));
  EXPECT_NE(text, synthetic_text(5000, 4));
  EXPECT_NE(text, synthetic_text(5000, 3 + (uint64_t{1} << 32)));
  EXPECT_TRUE(std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || c == ' ' || c == '.' || c == '\n';
  }));
  EXPECT_GT(std::count(text.begin(), text.end(), '\n'), 10);
}

TEST(SyntheticText, HasVerbsThatAgree) {
  const std::string text = synthetic_text(20000, 1);
  for (const char* wrong : {"cats sees", "dogs follows", "cat see ", "dog follow ", "walk withs"})
    EXPECT_EQ(text.find(wrong), text.npos) << wrong;
  for (const char* right : {"cats see ", "dog follows ", "walks with"})
    EXPECT_NE(text.find(right), text.npos) << right;
}

TEST(SyntheticText, RefusesAnEmptyText) {
  expect_refused(
      {{"bytes", [] { synthetic_text(0, 1); }, "synthetic_text: bytes must be at least 1, got 0"}});
}

}  // namespace
}  // namespace sluice::data
