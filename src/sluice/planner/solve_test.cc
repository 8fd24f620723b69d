#include "sluice/planner/solve.h"

#include <algorithm>
#include <limits>

#include "sluice/base/rng.h"
#include "sluice/base/sys.h"
#include "sluice/planner/csv.h"
#include "sluice/planner/test_instances.h"
#include "sluice/planner/test_util.h"
#include "sluice/planner/validate.h"

namespace sluice::planner {
namespace {

Solution solve_and_check(const Problem& problem, const SolveOptions& options = {}) {
  const Solution solution = solve(problem, options);
  const Verdict verdict = validate(problem, solution);
  EXPECT_TRUE(verdict) << verdict.message;
  return solution;
}

double ratio(const Solution& solution) {
  return static_cast<double>(solution.height) / static_cast<double>(solution.bound);
}

TEST(Solve, OfNothingIsNothing) {
  const Solution solution = solve_and_check({});
  EXPECT_EQ(solution.height, 0);
  EXPECT_TRUE(solution.optimal);
}

TEST(Solve, BuffersThatTakeNoRoom) {
  Problem problem;
  problem.buffers = {make_buffer("no bytes", 0, 9, 0), make_buffer("no steps", 3, 3, 100)};
  problem.buffers[1].fixed_offset = 7;
  const Solution solution = solve_and_check(problem);
  EXPECT_EQ(solution.offsets, (std::vector<int64_t>{0, 7}));
  EXPECT_EQ(solution.height, 0);
}

//  12 |
//   8 | 1 1 1 2 2 2 2 2 2 . . .     input.12 of MiniMalloc: b3 and b4 share their bytes,
//   4 | 3 3 3 3 3 3 3 3 3 4 4 4     so do b1 and b2
//   0 | 5 5 5 5 5 5 5 5 5 5 5 5
TEST(Solve, MiniMallocsInput12) {
  const Problem problem = parse_csv(
      "id,lower,upper,size\nb1,0,3,4\nb2,3,9,4\nb3,0,9,4\nb4,9,21,4\nb5,0,21,4\n", "input.12.csv");
  const Solution solution = solve_and_check(problem);
  EXPECT_EQ(solution.height, 12);
  EXPECT_EQ(solution.bound, 12);
  EXPECT_TRUE(solution.optimal);
}

//   3 | . b b .       a lives at both ends, b in between at the same offset
//   0 | a b b a
TEST(Solve, ALifetimeWithAGapIsReused) {
  Problem problem;
  problem.buffers = {make_buffer("a", 0, 1, 3), make_buffer("b", 1, 3, 4)};
  problem.buffers[0].lifetime.push_back({3, 4});
  EXPECT_EQ(solve_and_check(problem).height, 4);
}

//  16 | h h h h
//   8 | f f f f      f is fixed: l is below it, h above it
//   0 | l l l l
TEST(Solve, KeepsFixedBuffersAndFillsAroundThem) {
  Problem problem;
  problem.buffers = {make_buffer("low", 0, 4, 8), make_buffer("fixed", 0, 4, 8),
                     make_buffer("high", 0, 4, 8)};
  problem.buffers[1].fixed_offset = 8;
  const Solution solution = solve_and_check(problem);
  EXPECT_EQ(solution.height, 24);
  EXPECT_EQ(solution.offsets[1], 8);
}

TEST(Solve, RefusesFixedBuffersOverEachOther) {
  Problem problem;
  problem.buffers = {make_buffer("a", 0, 4, 8), make_buffer("b", 3, 5, 8)};
  problem.buffers[0].fixed_offset = 8;
  problem.buffers[1].fixed_offset = 15;
  expect_error(ErrorKind::kUsage, "'a' and 'b': must not overlap at their fixed offsets",
               [&] { solve(problem); });
  problem.buffers[1].fixed_offset = 16;
  EXPECT_EQ(solve_and_check(problem).height, 24);
}

TEST(Solve, TakesHintsThatCostNothing) {
  Problem problem;
  problem.buffers = {make_buffer("a", 0, 4, 8), make_buffer("b", 0, 4, 8),
                     make_buffer("c", 0, 4, 8)};
  problem.buffers[0].hint = 16;
  problem.buffers[1].hint = 0;
  problem.buffers[2].hint = 8;
  const Solution solution = solve_and_check(problem);
  EXPECT_EQ(solution.offsets, (std::vector<int64_t>{16, 0, 8}));
  problem.buffers[2].hint = 1000;  // A plan that follows it is higher.
  EXPECT_EQ(solve_and_check(problem).height, 24);
}

TEST(Solve, SaysWhatACapacityLacks) {
  Problem problem;
  problem.buffers = {make_buffer("a", 0, 4, 8), make_buffer("b", 3, 5, 9)};
  problem.capacity = 17;
  EXPECT_EQ(solve_and_check(problem).height, 17);
  problem.capacity = 16;
  expect_error(ErrorKind::kDoesNotFit,
               "2 buffers need 17 bytes, the capacity is 16; the live-set bound is 17",
               [&] { solve(problem); });
}

TEST(Solve, SaysWhatTheSearchShowedOfACapacity) {
  // The fixed buffer a leaves 2 bytes below it: too few for c (3 bytes).
  Problem problem;
  problem.buffers = {make_buffer("a", 0, 2, 2), make_buffer("b", 1, 3, 2),
                     make_buffer("c", 0, 1, 3), make_buffer("d", 2, 3, 3)};
  problem.buffers[0].fixed_offset = 2;
  problem.capacity = 5;
  expect_error(ErrorKind::kDoesNotFit, "the live-set bound is 5, and no plan is lower",
               [&] { solve(problem); });

  Problem packing = perfect_cuts(400, 200, 1024, {14, 2});
  packing.capacity = 1024;
  expect_error(ErrorKind::kDoesNotFit, "bound is 1024; the exact search gave up after 100",
               [&] { solve(packing, {.exact_nodes = 1'000'000}); });
  expect_error(ErrorKind::kDoesNotFit, "the exact search requires at least 160000 nodes, got 9",
               [&] { solve(packing, {.exact_nodes = 9}); });
}

TEST(Solve, FillsACapacityWithinManyNodes) {
  constexpr int64_t kCapacity = 1 << 20;
  Problem problem = perfect_cuts(300, 4000, kCapacity, {14, 0});
  problem.capacity = kCapacity;
  const Solution solution = solve_and_check(
      problem, {.exact_nodes = kLongSearchNodes, .exact_looks_per_pair = kLongSearchNodes});
  EXPECT_EQ(solution.height, kCapacity);
  EXPECT_EQ(solution.lower_bound, kCapacity);
  EXPECT_TRUE(solution.optimal);
  EXPECT_GT(solution.exact_nodes, 1'000'000);
  EXPECT_LT(solution.exact_nodes, kLongSearchNodes);
}

TEST(Solve, RefusesASearchThatMayNotLook) {
  expect_error(ErrorKind::kUsage, "looks_per_pair: must be at least 1, got 0",
               [] { solve(Problem(), {.looks_per_pair = 0}); });
  expect_error(ErrorKind::kUsage, "exact_looks_per_pair: must be at least 1, got 0",
               [] { solve(Problem(), {.exact_looks_per_pair = 0}); });
}

TEST(Solve, RefusesSizesBeyondInt64) {
  Problem problem;
  const int64_t huge = std::numeric_limits<int64_t>::max() - 2;
  problem.buffers = {make_buffer("a", 0, 4, huge), make_buffer("b", 5, 6, huge)};
  expect_error(ErrorKind::kUsage, "exceeds 63 bits", [&] { solve(problem); });
  problem.buffers = {make_buffer("a", 0, 4, huge)};
  EXPECT_EQ(solve_and_check(problem).height, huge);
  problem.buffers = {make_buffer("a", std::numeric_limits<int64_t>::min(), huge, 4)};
  expect_error(ErrorKind::kUsage, "exceeds 63 bits", [&] { solve(problem); });
}

// Each two of these three buffers of 2 bytes live at one time, so no two can share bytes. No step
// has all three.
//   1: x x . . x      2: . x x x .     3: . . . x x     bound 4, height 6
TEST(Solve, ProvesThatNoPlanReachesTheBound) {
  Problem problem;
  problem.buffers = {make_buffer("1", 0, 2, 2), make_buffer("2", 1, 4, 2),
                     make_buffer("3", 3, 5, 2)};
  problem.buffers[0].lifetime.push_back({4, 5});
  const Solution solution = solve_and_check(problem);
  EXPECT_EQ(solution.bound, 4);
  EXPECT_EQ(solution.height, 6);
  EXPECT_TRUE(solution.optimal);
}

TEST(Solve, SmallProblemsAreOptimal) {
  const Seed seed{11, 1};
  uint64_t next = 0;
  const auto draw = [&](uint32_t limit) { return int64_t{random_bits(seed, next++) % limit}; };
  for (int round = 0; round < 150; ++round) {
    Problem problem;
    for (int i = 0; i < 7; ++i) {
      Buffer buffer = make_buffer("b" + std::to_string(i), 0, 0, 1 + draw(9));
      for (int64_t k = draw(2); k >= 0; --k) {
        const int64_t begin = draw(9);
        buffer.lifetime.push_back({begin, begin + 1 + draw(4)});
      }
      buffer.alignment = 1 + draw(3);
      problem.buffers.push_back(buffer);
    }
    const Solution solution = solve_and_check(problem);
    EXPECT_EQ(solution.height, brute_force(problem)) << "round " << round;
    EXPECT_TRUE(solution.optimal);
  }
}

TEST(Solve, AHeightThatWorkedIsFoundAroundFixedBuffers) {
  const Seed seed{13, 1};
  uint64_t next = 0;
  const auto draw = [&](uint32_t limit) { return int64_t{random_bits(seed, next++) % limit}; };
  for (int round = 0; round < 100; ++round) {
    Problem problem;
    for (int i = 0; i < 10; ++i) {
      const int64_t begin = draw(9);
      problem.buffers.push_back(
          make_buffer("b" + std::to_string(i), begin, begin + 1 + draw(5), 1 + draw(9)));
    }
    const Solution free = solve_and_check(problem);
    ASSERT_TRUE(free.optimal);
    for (int i = 0; i < 10; i += 3) problem.buffers[i].fixed_offset = free.offsets[i];
    EXPECT_EQ(solve_and_check(problem).height, free.height) << "round " << round;
  }
}

// Random problems with every feature get valid plans, and equal plans each time.
TEST(Solve, RandomProblemsGetValidPlansDeterministically) {
  const Seed seed{17, 1};
  uint64_t next = 0;
  const auto draw = [&](uint32_t limit) { return int64_t{random_bits(seed, next++) % limit}; };
  for (int round = 0; round < 100; ++round) {
    Problem problem;
    const int64_t count = draw(200);
    for (int64_t i = 0; i < count; ++i) {
      Buffer buffer = make_buffer("b" + std::to_string(i), 0, 0, draw(1000));
      for (int64_t k = draw(4); k > 0; --k) {
        const int64_t begin = draw(300) - 100;
        buffer.lifetime.push_back({begin, begin + draw(20)});
      }
      buffer.alignment = int64_t{1} << draw(7);
      if (draw(20) == 0) buffer.hint = draw(5000);
      // Each fixed buffer has 1024 bytes of its own, so that fixed buffers never overlap.
      if (draw(20) == 0) buffer.fixed_offset = (i + 1) * 1024;
      problem.buffers.push_back(buffer);
    }
    // Without nodes, only the plans that do not examine pairs are made.
    const SolveOptions options{.max_nodes = round % 4 == 0 ? 0 : 300'000};
    const Solution solution = solve_and_check(problem, options);
    EXPECT_EQ(solve(problem, options).offsets, solution.offsets) << "round " << round;
  }
}

TEST(Solve, ManyNodesNeverHurt) {
  const Problem problem = random_lifetimes(300, 30, Sizes::kUniform, {1, 9});
  const int64_t few = solve_and_check(problem, {.max_nodes = 0}).height;
  const int64_t some = solve_and_check(problem, {.max_nodes = 200'000}).height;
  const int64_t many = solve_and_check(problem, {.max_nodes = 5'000'000}).height;
  EXPECT_LE(some, few);
  EXPECT_LE(many, some);
}

TEST(Solve, TheExactSearchLowersPlans) {
  const Problem problem = random_lifetimes(300, 150, Sizes::kUniform, {1, 0});
  const Solution heuristic = solve_and_check(problem, {.max_nodes = 1'000'000, .exact_nodes = 0});
  EXPECT_GT(heuristic.height, heuristic.bound);
  EXPECT_FALSE(heuristic.optimal);
  const Solution exact = solve_and_check(problem, {.max_nodes = 1'000'000});
  EXPECT_EQ(exact.height, exact.bound);
  EXPECT_TRUE(exact.optimal);
}

TEST(Solve, LogUniformSizesWithinOnePercent) {
  for (const double mean : {10.0, 100.0}) {
    const Problem problem = random_lifetimes(10'000, mean, Sizes::kLogUniform, {2, 1});
    EXPECT_LE(ratio(solve_and_check(problem)), 1.01) << "mean life " << mean;
  }
}

TEST(Solve, NestedLifetimesReachTheBound) {
  for (const int64_t layers : {1, 2, 3, 10, 100, 300}) {
    const Solution solution = solve_and_check(nested_lifetimes(layers, {2, 2}));
    EXPECT_TRUE(solution.optimal) << layers << " layers: " << ratio(solution);
  }
}

TEST(Solve, PerfectCutsOfAFewPieces) {
  for (uint32_t i = 0; i < 20; ++i) {
    const Solution solution = solve_and_check(perfect_cuts(15, 100, 1 << 20, {2, i}));
    EXPECT_EQ(solution.height, 1 << 20);
  }
}

// Plans that do not examine pairs are valid too, and the one of the sweep is fair.
TEST(Solve, WithoutNodesIsStillFair) {
  const Problem problem = random_lifetimes(10'000, 1000, Sizes::kUniform, {2, 4});
  EXPECT_LE(ratio(solve_and_check(problem, {.max_nodes = 0})), 1.2);
}

// 25,000 nested layers have more than 10^8 pairs. Planning them must not examine each pair.
TEST(Solve, DeepNestingIsNotQuadratic) {
  EXPECT_LE(ratio(solve_and_check(nested_lifetimes(25'000, {2, 3}))), 1.001);
}

}  // namespace
}  // namespace sluice::planner
