#include "sluice/planner/validate.h"

#include <limits>

#include "sluice/planner/solve.h"
#include "sluice/planner/test_instances.h"
#include "sluice/planner/test_util.h"

namespace sluice::planner {
namespace {

//  offset
//   7 |     . . c c c
//   5 |     . . c c c
//   4 |     a a a . .     a [0, 3)  size 2 at 3, alignment 3
//   3 |     a a a . .     b [0, 5)  size 3 at 0, fixed
//   2 |     b b b b b     c [2, 5)  size 3 at 5
//   0 |     b b b b b
class Validate : public testing::Test {
 protected:
  Validate() {
    problem_.buffers = {make_buffer("a", 0, 3, 2), make_buffer("b", 0, 5, 3),
                        make_buffer("c", 2, 5, 3)};
    problem_.buffers[0].alignment = 3;
    problem_.buffers[1].fixed_offset = 0;
    problem_.capacity = 8;
    solution_.offsets = {3, 0, 5};
    solution_.height = 8;
    solution_.bound = 8;
  }

  void expect(Rule rule, const std::string& part) {
    const Verdict verdict = validate(problem_, solution_);
    EXPECT_EQ(to_string(verdict.rule), std::string(to_string(rule)));
    EXPECT_NE(verdict.message.find(part), std::string::npos) << verdict.message;
    EXPECT_EQ(static_cast<bool>(verdict), rule == Rule::kOk);
  }

  Problem problem_;
  Solution solution_;
};

TEST_F(Validate, AcceptsARightPlan) { expect(Rule::kOk, ""); }

TEST_F(Validate, CountsOffsets) {
  solution_.offsets.pop_back();
  expect(Rule::kBadCount, "2 offsets for 3 buffers");
}

TEST_F(Validate, RefusesNegativeOffsets) {
  solution_.offsets[2] = -1;
  expect(Rule::kBadOffset, "'c' of 3 bytes is at -1");
}

TEST_F(Validate, RefusesEndsBeyondInt64) {
  solution_.offsets[2] = std::numeric_limits<int64_t>::max() - 2;
  expect(Rule::kBadOffset, "'c'");
}

TEST_F(Validate, RefusesMisalignment) {
  solution_.offsets[0] = 4;
  expect(Rule::kBadAlignment, "'a' is at 4, not a multiple of 3");
}

TEST_F(Validate, RefusesAMovedFixedBuffer) {
  solution_.offsets[1] = 1;
  expect(Rule::kBadFixedOffset, "'b' is at 1 instead of 0");
}

TEST_F(Validate, RefusesOverlapInBytesAndTime) {
  solution_.offsets[2] = 4;
  expect(Rule::kBadOverlap, "at step 2 'a' is at [3, 5) and 'c' at [4, 7)");
}

TEST_F(Validate, RefusesOverlapWithABufferFarBelow) {
  // b is the neighbour below a and ends above the begin of a. The check must not examine the
  // neighbour above only.
  problem_.buffers[1].size = 6;
  solution_.offsets[2] = 6;
  expect(Rule::kBadOverlap, "'b' at [0, 6)");
}

TEST_F(Validate, AllowsOverlapInBytesAlone) {
  problem_.buffers[2].lifetime = {{3, 5}};
  solution_.offsets[2] = 3;
  solution_.height = solution_.bound = 6;
  expect(Rule::kOk, "");
}

TEST_F(Validate, LooksAtEveryIntervalOfALifetime) {
  //  a a . c a        c fits into the gap of a, but not into its last step
  problem_.buffers[0].lifetime = {{0, 2}, {4, 5}};
  problem_.buffers[2].lifetime = {{3, 4}};
  solution_.offsets[2] = 3;
  solution_.height = solution_.bound = 6;
  expect(Rule::kOk, "");
  problem_.buffers[2].lifetime = {{3, 5}};
  expect(Rule::kBadOverlap, "at step 4");
}

TEST_F(Validate, ChecksTheHeight) {
  solution_.height = 9;
  expect(Rule::kBadHeight, "the height is 9, the topmost buffer ends at 8");
  solution_.height = 7;
  expect(Rule::kBadHeight, "7");
}

TEST_F(Validate, ChecksTheBound) {
  solution_.bound = 7;
  expect(Rule::kBadBound, "7 instead of 8");
}

TEST_F(Validate, ChecksTheCapacity) {
  problem_.capacity = 7;
  expect(Rule::kBadCapacity, "the height 8 exceeds the capacity 7");
}

TEST_F(Validate, IgnoresBuffersThatTakeNoRoom) {
  problem_.buffers.push_back(make_buffer("no bytes", 0, 5, 0));
  problem_.buffers.push_back(make_buffer("no steps", 1, 1, 100));
  solution_.offsets.insert(solution_.offsets.end(), {1, 0});
  expect(Rule::kOk, "");
}

// In a plan without gaps, each move of one buffer overlaps another buffer or changes the height.
TEST(ValidateMutants, EveryMoveInAFullPlanIsRejected) {
  const Problem problem = perfect_cuts(12, 100, 1000, {3, 1});
  const Solution solution = solve(problem);
  ASSERT_TRUE(validate(problem, solution)) << validate(problem, solution).message;
  ASSERT_EQ(solution.height, solution.bound);
  for (size_t i = 0; i < problem.buffers.size(); ++i) {
    for (const int64_t move : {-1, 1, -50, 50}) {
      Solution mutant = solution;
      mutant.offsets[i] += move;
      const Rule rule = validate(problem, mutant).rule;
      const int64_t end = mutant.offsets[i] + problem.buffers[i].size;
      if (mutant.offsets[i] < 0) {
        EXPECT_EQ(rule, Rule::kBadOffset);
      } else if (end <= solution.height) {
        EXPECT_EQ(rule, Rule::kBadOverlap);
      } else {
        EXPECT_TRUE(rule == Rule::kBadHeight || rule == Rule::kBadOverlap);
      }
    }
  }
}

}  // namespace
}  // namespace sluice::planner
