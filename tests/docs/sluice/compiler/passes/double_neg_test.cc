#include "sluice/compiler/passes/double_neg.h"

#include <gtest/gtest.h>

#include "sluice/compiler/test_bodies.h"

namespace sluice::compiler {
namespace {

TEST(DoubleNeg, TheNegativeOfANegativeIsAView) {
  TestProgram p(R"(
    body main entry
      param %0 f32(4)
      kernel Neg in %0 out %1 f32(4)
      kernel Neg in %1 out %2 f32(4)
      results %2
    end)");
  EXPECT_EQ(remove_double_neg(p.body()), 1);
  p.expect(R"(
    body main entry
      param %0 f32(4)
      kernel Neg in %0 out %1 f32(4)
      view in %0 out %2 f32(4)
      results %2
    end)");
}

TEST(DoubleNeg, ANumberThatHasBeenOverwrittenIsNotRead) {
  const char* const text = R"(
    body main entry
      param %0 f32(4) last %2
      kernel Neg in %0 out %1 f32(4)
      kernel AddLhsInplace in %0 %1 out %2 f32(4) tie 0 %0
      kernel Neg in %1 out %3 f32(4)
      results %3
    end)";
  TestProgram p(text);
  EXPECT_EQ(remove_double_neg(p.body()), 0);
  p.expect(text);
}

}  // namespace
}  // namespace sluice::compiler
