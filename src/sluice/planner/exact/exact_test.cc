#include "sluice/planner/exact/exact.h"

#include <limits>

#include "sluice/base/rng.h"
#include "sluice/base/sys.h"
#include "sluice/planner/csv.h"
#include "sluice/planner/solve.h"
#include "sluice/planner/test_instances.h"
#include "sluice/planner/test_util.h"
#include "sluice/planner/validate.h"

namespace sluice::planner {
namespace {

struct Result {
  Outcome outcome;
  Offsets offsets;
  int64_t nodes = 0;
};

// Searches for a plan of `height` bytes. A plan that is found must pass validate().
Result search(const Problem& problem, int64_t height, int64_t max_nodes = 100'000'000) {
  const Instance instance = make_instance(problem);
  const int64_t units = (height + instance.unit - 1) / instance.unit;
  Result result;
  result.outcome = exact_search(instance, make_conflicts(instance), units, max_nodes,
                                result.offsets, result.nodes);
  EXPECT_EQ(result.outcome == Outcome::kFound, !result.offsets.empty());
  if (result.outcome != Outcome::kFound) return result;
  Solution solution;
  solution.bound = live_set_bound(problem);
  for (int32_t i = 0; i < instance.count(); ++i) {
    EXPECT_EQ(instance.buffer[i], static_cast<size_t>(i));
    solution.offsets.push_back(result.offsets[i] * instance.unit);
    solution.height = std::max(solution.height, solution.offsets[i] + problem.buffers[i].size);
  }
  const Verdict verdict = validate(problem, solution);
  EXPECT_TRUE(verdict) << verdict.message;
  EXPECT_LE(solution.height, units * instance.unit);
  return result;
}

struct Features {
  uint32_t sizes;       // Maximum size; the minimum is 1.
  uint32_t ranges;      // Maximum number of ranges.
  uint32_t alignments;  // Maximum alignment; the minimum is 1.
  bool fixed;           // Whether some buffers have a fixed offset.
};

class ExactSearchAgainstAllOrders : public ::testing::TestWithParam<Features> {};

TEST_P(ExactSearchAgainstAllOrders, FindsTheLowestHeightAndRefutesTheNext) {
  const Features features = GetParam();
  const Seed seed{19, 1};
  uint64_t next = 0;
  const auto draw = [&](uint32_t limit) { return int64_t{random_bits(seed, next++) % limit}; };
  int above_bound = 0;
  for (int round = 0; round < 150; ++round) {
    Problem problem;
    for (int i = 0; i < 7; ++i) {
      Buffer buffer = make_buffer("b" + std::to_string(i), 0, 0, 1 + draw(features.sizes));
      for (int64_t k = draw(features.ranges); k >= 0; --k) {
        const int64_t begin = draw(8);
        buffer.lifetime.push_back({begin, begin + 1 + draw(4)});
      }
      buffer.alignment = 1 + draw(features.alignments);
      problem.buffers.push_back(buffer);
    }
    if (features.fixed) {
      // Fix some buffers at their offsets in a plan with a hole at the bottom, so that a plan
      // exists.
      Problem raised = problem;
      raised.buffers.push_back(make_buffer("hole", 0, 20, 1 + draw(3)));
      raised.buffers.back().fixed_offset = 0;
      const Solution plan = solve(raised);
      for (int i = 0; i < 7; i += 3) problem.buffers[i].fixed_offset = plan.offsets[i];
    }
    const int64_t height = brute_force(problem);
    above_bound += height > live_set_bound(problem);
    EXPECT_EQ(search(problem, height).outcome, Outcome::kFound) << "round " << round;
    const int64_t unit = make_instance(problem).unit;
    EXPECT_EQ(search(problem, height - unit).outcome, Outcome::kRefuted) << "round " << round;
  }
  EXPECT_GE(above_bound, 10) << "too few problems that need a search";
}

INSTANTIATE_TEST_SUITE_P(All, ExactSearchAgainstAllOrders,
                         ::testing::Values(Features{9, 3, 1, false}, Features{2, 3, 1, false},
                                           Features{9, 1, 4, false}, Features{5, 3, 3, true}));

// The refutation of a sub-problem may depend on earlier failures. With equal offsets but without
// those failures, the sub-problem may have a plan. Both cases occur with these ten buffers. Another
// search computed their height.
TEST(ExactSearch, RemembersWhatARefutationRestsOn) {
  Problem problem;
  problem.buffers = {make_buffer("a", 0, 5, 6),   make_buffer("b", 9, 11, 11),
                     make_buffer("c", 4, 6, 6),   make_buffer("d", 6, 11, 2),
                     make_buffer("e", 1, 5, 6),   make_buffer("f", 5, 9, 9),
                     make_buffer("g", 5, 8, 12),  make_buffer("h", 0, 4, 1),
                     make_buffer("i", 9, 14, 10), make_buffer("j", 9, 13, 1)};
  problem.buffers[2].alignment = 4;
  problem.buffers[4].fixed_offset = 12;
  problem.buffers[5].alignment = 4;
  EXPECT_EQ(search(problem, 29).outcome, Outcome::kFound);
  EXPECT_EQ(search(problem, 28).outcome, Outcome::kRefuted);
}

TEST(ExactSearch, ReachesTheBoundOfPerfectCuts) {
  for (uint32_t i = 0; i < 5; ++i) {
    const Problem problem = perfect_cuts(100, 1000, 1 << 20, {3, i});
    const Result result = search(problem, 1 << 20);
    EXPECT_EQ(result.outcome, Outcome::kFound) << "cut " << i;
    EXPECT_EQ(search(problem, 1 << 20).offsets, result.offsets) << "cut " << i;
  }
}

TEST(ExactSearch, StopsAtItsNodes) {
  const Problem problem = random_lifetimes(300, 30, Sizes::kUniform, {3, 1});
  const int64_t too_low = live_set_bound(problem) - 64;
  EXPECT_EQ(search(problem, too_low).outcome, Outcome::kRefuted);
  const Problem hard = perfect_cuts(1000, 10'000, 1 << 20, {3, 1});
  const Result result = search(hard, 1 << 20, 3'000'000);
  EXPECT_EQ(result.outcome, Outcome::kGaveUp);
  EXPECT_GE(result.nodes, 3'000'000);
  EXPECT_LE(result.nodes, 3'100'000);
  EXPECT_EQ(search(hard, 1 << 20, 999'999).nodes, 0);
}

TEST(ExactSearch, GivesUpOnNumbersNearTheEndOfInt64) {
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max() / 3;
  Problem problem;
  problem.buffers = {make_buffer("a", 0, 2, kHuge), make_buffer("b", 1, 3, 1)};
  EXPECT_EQ(search(problem, kHuge + 1).outcome, Outcome::kGaveUp);
}

class MiniMalloc : public ::testing::TestWithParam<const char*> {};

TEST_P(MiniMalloc, IsSolvedAtItsCapacity) {
  const std::string folder = "../shared/data/minimalloc";
  if (!sys::exists(folder))
    GTEST_SKIP() << "requires MiniMalloc's problems in " << folder << "; the project ships none";
  const std::string path = folder + "/" + GetParam() + ".1048576.csv";
  const auto bytes = sys::read_file(path);
  Problem problem = parse_csv({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path);
  EXPECT_EQ(search(problem, 1048576).outcome, Outcome::kFound);
  EXPECT_EQ(search(problem, live_set_bound(problem) - 1).outcome, Outcome::kRefuted);
  problem.capacity = 1048576;
  const Solution solution = solve(problem);
  const Verdict verdict = validate(problem, solution);
  EXPECT_TRUE(verdict) << verdict.message;
}

INSTANTIATE_TEST_SUITE_P(Files, MiniMalloc, ::testing::Values("A", "B", "C", "D", "E", "F"));

}  // namespace
}  // namespace sluice::planner
