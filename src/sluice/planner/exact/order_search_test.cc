#include "sluice/planner/exact/order_search.h"

#include "sluice/base/rng.h"
#include "sluice/planner/solve.h"
#include "sluice/planner/test_instances.h"
#include "sluice/planner/test_util.h"
#include "sluice/planner/validate.h"

namespace sluice::planner {
namespace {

constexpr int64_t kManyNodes = 1'000'000'000;

// Searches for a plan of `units` units. A plan that is found must pass validate().
Outcome search(const Problem& problem, const Instance& instance, int64_t units,
               int64_t max_nodes = kManyNodes) {
  const Conflicts conflicts = make_conflicts(instance);
  EXPECT_TRUE(OrderGraph::takes(instance, conflicts));
  OrderSearch search(instance, conflicts, units);
  const Outcome outcome = search.run(max_nodes);
  if (outcome != Outcome::kFound) return outcome;
  const Places places = search.places();
  Solution solution;
  solution.bound = live_set_bound(problem);
  for (int32_t i = 0; i < instance.count(); ++i) {
    solution.offsets.push_back(places[i] * instance.unit);
    solution.height = std::max(solution.height, solution.offsets[i] + problem.buffers[i].size);
  }
  const Verdict verdict = validate(problem, solution);
  EXPECT_TRUE(verdict) << verdict.message;
  EXPECT_LE(solution.height, units * instance.unit);
  return outcome;
}

struct OrderFeatures {
  int buffers;
  uint32_t sizes;       // Largest size; the least is 1.
  uint32_t alignments;  // Largest alignment; the least is 1.
  uint32_t steps;       // Births are in [0, steps), lifetimes are 1 to steps / 2 long.
  bool fixed;           // Whether some buffers have a fixed offset.
};

class Drawing {
 public:
  explicit Drawing(uint32_t seed) : seed_{23, seed} {}
  int64_t operator()(uint32_t limit) { return int64_t{random_bits(seed_, next_++) % limit}; }

 private:
  Seed seed_;
  uint64_t next_ = 0;
};

Problem random_problem(const OrderFeatures& features, Drawing& draw) {
  Problem problem;
  for (int i = 0; i < features.buffers; ++i) {
    const int64_t begin = draw(features.steps);
    const int64_t end = begin + 1 + draw(features.steps / 2);
    problem.buffers.push_back(
        make_buffer("b" + std::to_string(i), begin, end, 1 + draw(features.sizes)));
    problem.buffers.back().alignment = 1 + draw(features.alignments);
  }
  if (!features.fixed) return problem;
  // Fix some buffers at their offsets in a plan with a hole at the bottom, so that a plan exists.
  Problem raised = problem;
  raised.buffers.push_back(make_buffer("hole", 0, 20, 1 + draw(3)));
  raised.buffers.back().fixed_offset = 0;
  const Solution plan = solve(raised);
  for (int i = 0; i < features.buffers; i += 3) {
    problem.buffers[i].fixed_offset = plan.offsets[i];
  }
  return problem;
}

class OrderSearchAgainstAllOrders : public ::testing::TestWithParam<OrderFeatures> {};

TEST_P(OrderSearchAgainstAllOrders, FindsTheLowestHeightAndRefutesTheNext) {
  Drawing draw(1);
  int above_bound = 0;
  for (int round = 0; round < 100; ++round) {
    const Problem problem = random_problem(GetParam(), draw);
    const Instance instance = make_instance(problem);
    const int64_t height = brute_force(problem);
    above_bound += height > live_set_bound(problem);
    const int64_t units = (height + instance.unit - 1) / instance.unit;
    EXPECT_EQ(search(problem, instance, units), Outcome::kFound) << "round " << round;
    EXPECT_EQ(search(problem, instance, units - 1), Outcome::kRefuted) << "round " << round;
  }
  EXPECT_GE(above_bound, 5) << "too few problems that need a search";
}

INSTANTIATE_TEST_SUITE_P(All, OrderSearchAgainstAllOrders,
                         ::testing::Values(OrderFeatures{7, 9, 4, 8, false},
                                           OrderFeatures{7, 5, 3, 8, true}));

// Compares both searches at each height from the bound to the lowest plan. Returns the number of
// heights without a plan.
int compare_searches(const Problem& problem) {
  const Instance instance = make_instance(problem);
  const Conflicts conflicts = make_conflicts(instance);
  for (int64_t units = instance.bound;; ++units) {
    Places places;
    int64_t nodes = 0;
    // With so few nodes, exact_search() never starts the order search.
    const Outcome outcome = exact_search(instance, conflicts, units, 40'000'000, places, nodes);
    if (outcome != Outcome::kGaveUp) {
      EXPECT_EQ(search(problem, instance, units), outcome);
    }
    if (outcome != Outcome::kRefuted) return static_cast<int>(units - instance.bound);
  }
}

class OrderSearchAgainstStackSearch : public ::testing::TestWithParam<OrderFeatures> {};

TEST_P(OrderSearchAgainstStackSearch, AgreesAtEachHeight) {
  Drawing draw(2);
  int refuted = 0;
  for (int round = 0; round < 60; ++round) {
    refuted += compare_searches(random_problem(GetParam(), draw));
    ASSERT_FALSE(HasFailure()) << "round " << round;
  }
  EXPECT_GE(refuted, 20) << "too few heights without a plan";
}

INSTANTIATE_TEST_SUITE_P(All, OrderSearchAgainstStackSearch,
                         ::testing::Values(OrderFeatures{14, 20, 4, 10, false},
                                           OrderFeatures{16, 12, 3, 14, true}));

// Draws a problem in which the live sizes sum to `bytes` at every step. A plan of that height
// wastes no byte.
Problem full_problem(int64_t steps, int64_t bytes, Drawing& draw) {
  Problem problem;
  std::vector<size_t> alive;
  int64_t missing = bytes;
  for (int64_t step = 0; step < steps; ++step) {
    std::erase_if(alive, [&](size_t i) {
      const bool dies = draw(3) == 0;
      if (dies) missing += problem.buffers[i].size;
      return dies;
    });
    while (missing > 0) {
      const int64_t size = std::min(missing, 1 + draw(10));
      missing -= size;
      alive.push_back(problem.buffers.size());
      problem.buffers.push_back(
          make_buffer("b" + std::to_string(problem.buffers.size()), step, step + 1, size));
    }
    for (const size_t i : alive) problem.buffers[i].lifetime[0].end = step + 1;
  }
  return problem;
}

TEST(OrderSearch, AgreesWithTheStackSearchWhereNoByteMayBeWasted) {
  Drawing draw(3);
  int refuted = 0;
  for (int round = 0; round < 150; ++round) {
    refuted += compare_searches(full_problem(12, 30, draw));
    ASSERT_FALSE(::testing::Test::HasFailure()) << "round " << round;
  }
  EXPECT_GE(refuted, 20) << "too few heights without a plan";
}

TEST(OrderSearch, FillsPackingsWithoutAGap) {
  for (uint32_t i = 0; i < 4; ++i) {
    const Problem problem = cut_rectangle(
        {.count = 150, .steps = 100, .bytes = 512, .pinwheels = i % 2 == 0 ? 0 : 50}, {3, i});
    EXPECT_EQ(search(problem, make_instance(problem), 512), Outcome::kFound) << "cut " << i;
  }
}

TEST(OrderSearch, ContinuesWhereItStopped) {
  const Problem problem = cut_rectangle({.count = 200, .steps = 100, .bytes = 512}, {3, 1});
  const Instance instance = make_instance(problem);
  const Conflicts conflicts = make_conflicts(instance);
  OrderSearch whole(instance, conflicts, 512);
  ASSERT_EQ(whole.run(kManyNodes), Outcome::kFound);
  OrderSearch parts(instance, conflicts, 512);
  int runs = 0;
  for (; parts.run(whole.nodes() / 10 + 1) == Outcome::kGaveUp; ++runs) ASSERT_LT(runs, 20);
  EXPECT_GE(runs, 5);
  EXPECT_EQ(parts.nodes(), whole.nodes());
  EXPECT_EQ(parts.places(), whole.places());
}

TEST(OrderSearch, TakesLivesWithoutGaps) {
  Problem problem;
  problem.buffers = {make_buffer("a", 0, 2, 1), make_buffer("b", 1, 3, 1)};
  Instance instance = make_instance(problem);
  EXPECT_TRUE(OrderGraph::takes(instance, make_conflicts(instance)));
  problem.buffers[0].lifetime = {{0, 2}, {4, 5}};
  problem.buffers.push_back(make_buffer("c", 2, 5, 1));
  instance = make_instance(problem);
  EXPECT_FALSE(OrderGraph::takes(instance, make_conflicts(instance)));
}

TEST(Clauses, DiscardTheLongerHalfButNotTheReasons) {
  Clauses clauses(20);
  std::vector<int32_t> numbers;
  for (Literal l = 0; l < 4; ++l) {
    numbers.push_back(clauses.add(std::vector<Literal>{l, l + 4, l + 8, l + 12}, 3 + l));
  }
  clauses.discard_half([&](int32_t clause) { return clause == numbers[3]; });
  EXPECT_EQ(clauses.count(), 3u);
  EXPECT_EQ(clauses.literals(), 12u);
  EXPECT_TRUE(clauses.watches(2).empty());
  EXPECT_EQ(clauses.watches(7).size(), 1u);
  const auto literals = clauses.of(numbers[3]);
  EXPECT_EQ(std::vector<Literal>(literals.begin(), literals.end()),
            (std::vector<Literal>{3, 7, 11, 15}));
  EXPECT_EQ(clauses.add(std::vector<Literal>{16, 17}, 2), numbers[2]);
}

}  // namespace
}  // namespace sluice::planner
