#include "sluice/compiler/passes/split_sub.h"

#include <gtest/gtest.h>

#include "sluice/compiler/test_bodies.h"

namespace sluice::compiler {
namespace {

TEST(SplitSub, ADifferenceIsTheSumOfANegative) {
  TestProgram p(R"(
    body main entry
      param %0 f32(4)
      param %1 f32(4)
      kernel Sub in %0 %1 out %2 f32(4)
      results %2
    end)");
  EXPECT_EQ(split_sub(p.body()), 1);
  p.body().value(ValueIndex(3)).tensor.clear();  // The text need not name the new value.
  p.expect(R"(
    body main entry
      param %0 f32(4)
      param %1 f32(4)
      kernel Neg in %1 out %3 f32(4)
      kernel Add in %0 %3 out %2 f32(4)
      results %2
    end)");
}

TEST(SplitSub, OtherNodesStay) {
  const char* const text = R"(
    body main entry
      param %0 f32(4)
      kernel Neg in %0 out %1 f32(4)
      results %1
    end)";
  TestProgram p(text);
  EXPECT_EQ(split_sub(p.body()), 0);
  p.expect(text);
}

}  // namespace
}  // namespace sluice::compiler
