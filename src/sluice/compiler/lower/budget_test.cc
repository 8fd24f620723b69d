#include "sluice/compiler/lower/budget.h"

#include <gtest/gtest.h>

#include "sluice/base/test_refusals.h"
#include "sluice/compiler/lower/test_lowering.h"

namespace sluice::compiler {
namespace {

std::function<void()> check(int64_t memory) {
  return [=] {
    TestProgram p(R"(
    body main entry
      variable 0 %0 f32(1000) name "weight" 0
    end)");
    p.options.devices[0].memory = memory;
    check_budgets(lower(p));
  };
}

TEST(Budget, ABudgetThatIsMetIsAccepted) {
  EXPECT_NO_THROW(check(-1)());
  EXPECT_NO_THROW(check(4000)());
}

TEST(Budget, ARefusalNamesNeedsAndHolders) {
  expect_refused({
      {"short", check(3999), "needs 4000 bytes, its budget is 3999 (1 short)",
       ErrorKind::kDoesNotFit},
      {"holder", check(0), "4000 B  variable ", ErrorKind::kDoesNotFit},
  });
}

}  // namespace
}  // namespace sluice::compiler
