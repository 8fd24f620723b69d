#include "sluice/planner/problem.h"

#include <algorithm>
#include <limits>

#include "sluice/base/rng.h"
#include "sluice/planner/intervals.h"
#include "sluice/planner/test_instances.h"
#include "sluice/planner/test_util.h"

namespace sluice::planner {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

TEST(LiveSetBound, OfNothingIsZero) {
  EXPECT_EQ(live_set_bound({}), 0);
  Problem problem;
  problem.buffers = {make_buffer("no bytes", 0, 9, 0), make_buffer("no steps", 3, 3, 100),
                     make_buffer("reversed", 5, 3, 100)};
  EXPECT_EQ(live_set_bound(problem), 0);
}

TEST(LiveSetBound, IsTheLargestSumAtOneStep) {
  //  a a a . .    2
  //  . b b b .    3
  //  . . . c c    4
  Problem problem;
  problem.buffers = {make_buffer("a", 0, 3, 2), make_buffer("b", 1, 4, 3),
                     make_buffer("c", 3, 5, 4)};
  EXPECT_EQ(live_set_bound(problem), 7);
}

TEST(LiveSetBound, CountsABufferOnlyWhereItLives) {
  //  a a . . a a  5
  //  . . b b . .  6
  Problem problem;
  problem.buffers = {make_buffer("a", 0, 2, 5), make_buffer("b", 2, 4, 6)};
  problem.buffers[0].lifetime.push_back({4, 6});
  EXPECT_EQ(live_set_bound(problem), 6);
}

TEST(LiveSetBound, MergesIntervalsThatOverlapOrTouch) {
  Problem problem;
  problem.buffers = {make_buffer("a", 0, 4, 5)};
  problem.buffers[0].lifetime = {{6, 8}, {0, 4}, {2, 6}, {9, 9}};
  EXPECT_EQ(live_set_bound(problem), 5);
  EXPECT_EQ(normalized(problem.buffers[0].lifetime), (std::vector<Interval>{{0, 8}}));
}

TEST(LiveSetBound, RoundsAllButTheTopmostToTheCommonAlignment) {
  // At multiples of 64 bytes, the buffer of 60 bytes is at 0 and the one of 10 bytes at 64: the
  // height is 74.
  Problem problem;
  problem.buffers = {make_buffer("a", 0, 1, 10), make_buffer("b", 0, 1, 60)};
  problem.buffers[0].alignment = problem.buffers[1].alignment = 64;
  EXPECT_EQ(live_set_bound(problem), 74);
  problem.buffers[1].alignment = 16;  // Now b may be at 16.
  EXPECT_EQ(live_set_bound(problem), 16 + 64 - 6);
}

TEST(LiveSetBound, ReachesTheTopOfEveryFixedBuffer) {
  Problem problem;
  problem.buffers = {make_buffer("a", 0, 1, 10), make_buffer("b", 0, 1, 60)};
  problem.buffers[0].fixed_offset = 1000;
  EXPECT_EQ(live_set_bound(problem), 1010);
}

TEST(LiveSetBound, AgreesWithCountingStepByStep) {
  const Seed seed{7, 7};
  uint64_t next = 0;
  const auto draw = [&](uint32_t limit) { return int64_t{random_bits(seed, next++) % limit}; };
  for (int round = 0; round < 200; ++round) {
    Problem problem;
    const int64_t unit = 1 + draw(4);
    for (int64_t i = draw(12); i >= 0; --i) {
      Buffer buffer = make_buffer("b" + std::to_string(i), 0, 0, draw(30));
      for (int64_t k = draw(3); k >= 0; --k) {
        const int64_t begin = draw(20);
        buffer.lifetime.push_back({begin, begin + draw(6)});
      }
      buffer.alignment = unit;
      problem.buffers.push_back(buffer);
    }
    int64_t expected = 0;
    for (int64_t step = 0; step < 30; ++step) {
      int64_t sum = 0;
      int64_t slack = 0;
      for (const Buffer& buffer : problem.buffers) {
        const bool alive =
            std::any_of(buffer.lifetime.begin(), buffer.lifetime.end(),
                        [&](const Interval& i) { return i.begin <= step && step < i.end; });
        if (!alive || buffer.size == 0) continue;
        const int64_t rounded = (buffer.size + unit - 1) / unit * unit;
        sum += rounded;
        slack = std::max(slack, rounded - buffer.size);
      }
      expected = std::max(expected, sum - slack);
    }
    EXPECT_EQ(live_set_bound(problem), expected) << "round " << round;
  }
}

TEST(LiveSetBound, RefusesContradictions) {
  const auto with = [](auto&& change) {
    Problem problem;
    problem.buffers = {make_buffer("a", 0, 1, 8), make_buffer("b", 0, 1, 8)};
    change(problem.buffers[0]);
    return problem;
  };
  const auto expect = [&](const std::string& part, auto&& change) {
    expect_error(ErrorKind::kUsage, part, [&] { live_set_bound(with(change)); });
  };
  expect("size must be at least 0, got -1", [](Buffer& b) { b.size = -1; });
  expect("alignment must be at least 1, got 0", [](Buffer& b) { b.alignment = 0; });
  expect("fixed offset must be at least 0, got -8", [](Buffer& b) { b.fixed_offset = -8; });
  expect("must be a multiple of the alignment 4, got 6", [](Buffer& b) {
    b.alignment = 4;
    b.fixed_offset = 6;
  });
  expect("exceeds 63 bits", [](Buffer& b) { b.fixed_offset = kMax; });
  expect("exceeds 63 bits", [](Buffer& b) { b.size = kMax; });
}

TEST(MadeUpProblems, RefuseWhatCannotBeDrawn) {
  expect_error(ErrorKind::kUsage, "must be at least 0 and the mean above 1, got -1 and 4",
               [] { random_lifetimes(-1, 4, Sizes::kUniform, {}); });
  expect_error(ErrorKind::kUsage, "must be at least 0 and the mean above 1, got 9 and 1",
               [] { random_lifetimes(9, 1, Sizes::kUniform, {}); });
  expect_error(ErrorKind::kUsage, "must be at least 1, got 4, 0 and 2",
               [] { perfect_cuts(2, 4, 0, {}); });
}

}  // namespace
}  // namespace sluice::planner
