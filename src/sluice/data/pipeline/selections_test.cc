// split() and weighted() choose the elements that lists in these tests choose.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "sluice/base/test_refusals.h"
#include "sluice/data/pipeline/test_indexed.h"

namespace sluice::data {
namespace {

using test::count_to;
using test::values;
using testing::ElementsAre;
using Values = std::vector<float>;

std::vector<int64_t> sizes_of(const std::vector<Dataset>& parts) {
  std::vector<int64_t> sizes;
  for (const Dataset& part : parts) sizes.push_back(*part.size());
  return sizes;
}

TEST(Split, PartsAreDisjointAndHoldAllElementsInOrder) {
  for (const int64_t n : {2, 10, 97, 1000}) {
    const std::vector<std::vector<double>> cases = {{1.0}, {0.5, 0.5}, {0.3, 0.7}};
    for (const std::vector<double>& fractions : cases) {
      const std::vector<Dataset> parts = count_to(n).split(fractions, 3);
      ASSERT_EQ(parts.size(), fractions.size());
      Values all;
      for (const Dataset& part : parts) {
        const Values here = values(part);
        EXPECT_TRUE(std::is_sorted(here.begin(), here.end()));
        EXPECT_EQ(values(part, kForever, 7), here) << "the same part in each pass";
        all.insert(all.end(), here.begin(), here.end());
      }
      std::sort(all.begin(), all.end());
      EXPECT_EQ(all, values(count_to(n)));
    }
  }
  // Runs that continue depend on these numbers.
  EXPECT_THAT(values(count_to(10).split({0.7, 0.3}, 5)[1]), ElementsAre(1, 3, 9));
  EXPECT_NE(values(count_to(10).split({0.7, 0.3}, 6)[1]),
            values(count_to(10).split({0.7, 0.3}, 5)[1]));
}

// The sizes equal sizes in rational numbers: no part gains or loses an element by a rounding of
// binary fractions.
TEST(Split, SizesAreRoundedExactly) {
  EXPECT_THAT(sizes_of(count_to(10).split({0.9, 0.1}, 1)), ElementsAre(9, 1));
  EXPECT_THAT(sizes_of(count_to(100).split({0.29, 0.71}, 1)), ElementsAre(29, 71));
  EXPECT_THAT(sizes_of(count_to(5).split({0.35, 0.15, 0.5}, 1)), ElementsAre(2, 1, 2));
  EXPECT_THAT(sizes_of(count_to(5).split({0.5, 0.5}, 1)), ElementsAre(3, 2));
  EXPECT_THAT(sizes_of(count_to(10).split({1.0 / 3, 1.0 / 3, 1.0 / 3}, 1)), ElementsAre(3, 4, 3));
  EXPECT_THAT(sizes_of(count_to(3000000).split({0.1, 0.2, 0.7}, 1)),
              ElementsAre(300000, 600000, 2100000));
  for (int64_t n = 20; n < 300; ++n) {
    for (int64_t percent = 5; percent <= 95; ++percent) {
      const double f = static_cast<double>(percent) / 100;
      const int64_t expected = (2 * n * percent + 100) / 200;
      EXPECT_THAT(sizes_of(count_to(n).split({f, 1 - f}, 1)), ElementsAre(expected, n - expected));
    }
  }
}

// Each element is as likely as any other one to be in a part, for a chi-square of 19 degrees of
// freedom (99.9 % below 43.8).
TEST(Split, EachElementIsEquallyLikely) {
  std::vector<int> counts(20);
  const int seeds = 2000;
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    for (const float v : values(count_to(20).split({0.25, 0.75}, seed)[0]))
      ++counts[static_cast<size_t>(v)];
  }
  const double expected = seeds * 5 / 20.0;
  double sum = 0;
  // The counts of one seed have n / (n - 1) times the variance p (1 - p) of independent draws.
  for (const int count : counts) sum += std::pow(count - expected, 2) / (seeds * 0.25 * 0.75);
  EXPECT_LT(sum * 19 / 20, 43.8);
  EXPECT_GT(sum * 19 / 20, 5.4);
}

TEST(Split, PartsAreIndexed) {
  const Dataset mapped = count_to(60).map(
      [](Element e, const ElementContext& c) {
        e[0].as<float>()[0] += 1000 * static_cast<float>(c.epoch);
        return test::slow(std::move(e));
      },
      {});
  const std::vector<Dataset> parts = mapped.split({0.2, 0.8}, 1);
  for (const Dataset& part : parts) {
    test::expect_indexed("part", part, {0, 1, 5});
    test::expect_loaded("part", part, kForever, {0, 1, 5});
  }
  EXPECT_EQ(values(parts[0], kForever, 2)[0], values(parts[0])[0] + 2000);
  test::expect_indexed("part of part", parts[1].split({0.5, 0.5}, 2)[1], {0, 2});
  test::expect_indexed("cached", test::stream_of(0, 9).cache().split({0.5, 0.5}, 2)[1], {0, 2});
}

TEST(Split, Refuses) {
  const Dataset d = count_to(10);
  const auto split = [](const Dataset& dataset, std::vector<double> fractions) {
    return [=] { dataset.split(fractions, 1); };
  };
  expect_refused({
      {"none", split(d, {}), "split: requires at least one fraction, got none"},
      {"zero", split(d, {0.0, 1.0}), "split: a fraction must be above 0 and at most 1, got 0"},
      {"negative", split(d, {1.5, -0.5}), "must be above 0 and at most 1, got 1.5"},
      {"nan", split(d, {std::nan(""), 0.5}), "must be above 0 and at most 1, got nan"},
      {"sum", split(d, {0.5, 0.4}), "split: the sum of the fractions must be 1, got 0.9"},
      {"large sum", split(d, {0.5, 0.51}), "split: the sum of the fractions must be 1, got 1.01"},
      {"small", split(d, {0.99, 0.01}),
       "split: each part must have elements, got none in part 1, which is 0.01 of 10 elements"},
      {"no elements", split(d.take(0), {1.0}), "which is 1 of 0 elements"},
      {"shuffled", split(d.shuffle(1, 10), {1.0}),
       "split: the dataset must be indexed, so that each element has a number, got one that is "
       "not; use cache(), and shuffle() after split"},
      {"endless", split(d.repeat(), {1.0}),
       "split: the dataset must have an end, got one without; use take(n)"},
      {"huge", split(count_to(int64_t{1} << 32), {1.0}), "at most 4294967295 elements"},
  });
}

/// The draws of weighted(), by a search along the weights.
Values weighted_list(const std::vector<double>& weights, uint32_t seed, uint64_t pass, int64_t n) {
  Values drawn;
  for (int64_t k = 0; k < n; ++k)
    drawn.push_back(static_cast<float>(test::searched_draw("weighted", weights, seed, pass, k)));
  return drawn;
}

TEST(Weighted, DrawsWithTheProbabilitiesOfTheWeights) {
  const std::vector<double> weights = {1, 0, 2.5, 4, 0, 0.5};
  const Dataset drawn = count_to(6).weighted(weights, 3, 40000);
  EXPECT_EQ(drawn.size(), 40000);
  for (const uint64_t pass : {0, 4})
    EXPECT_EQ(values(drawn, 2000, pass), weighted_list(weights, 3, pass, 2000));
  EXPECT_NE(values(drawn, 2000, 1), values(drawn, 2000));
  EXPECT_NE(values(count_to(6).weighted(weights, 4, 2000)), values(drawn, 2000));
  std::map<float, int> counts;
  for (const float v : values(drawn)) ++counts[v];
  EXPECT_EQ(counts.count(1) + counts.count(4), 0u);
  double chi_square = 0;
  for (const size_t k : {0, 2, 3, 5}) {
    const double expected = 40000 * weights[k] / 8;
    chi_square += std::pow(counts[static_cast<float>(k)] - expected, 2) / expected;
  }
  EXPECT_LT(chi_square, 16.27);  // 99.9 % of draws with three degrees of freedom.
  // Pairs of consecutive draws are independent: 15 degrees of freedom.
  std::map<std::pair<float, float>, int> pairs;
  const Values all = values(drawn);
  for (size_t i = 0; i + 1 < all.size(); i += 2) ++pairs[{all[i], all[i + 1]}];
  chi_square = 0;
  for (const size_t a : {0, 2, 3, 5}) {
    for (const size_t b : {0, 2, 3, 5}) {
      const double expected = 20000 * weights[a] * weights[b] / 64;
      const int found = pairs[{static_cast<float>(a), static_cast<float>(b)}];
      chi_square += std::pow(found - expected, 2) / expected;
    }
  }
  EXPECT_LT(chi_square, 37.7);
}

TEST(Weighted, IsIndexed) {
  const Dataset slow = count_to(5).map(test::slow);
  const Dataset drawn = slow.weighted({1, 2, 3, 4, 5}, 1);
  EXPECT_EQ(drawn.size(), 5);
  test::expect_indexed("weighted", drawn, {0, 1, 6});
  test::expect_indexed("more", slow.weighted({1, 2, 3, 4, 5}, 1, 70), {0, 1, 6});
  test::expect_loaded("more", slow.weighted({1, 2, 3, 4, 5}, 1, 70), kForever, {0, 1, 6});
  const Dataset endless = slow.weighted({1, 2, 3, 4, 5}, 1, kForever);
  EXPECT_EQ(endless.node()->indexed(), kForever);
  test::expect_loaded("endless", endless, 50, {0, 3});
  EXPECT_EQ(values(drawn.take(0)), Values{});
}

// Draws of one element differ by an augmentation after weighted() only.
TEST(Weighted, AMapBeforeItHasTheIndexOfTheElement) {
  const auto with_index = [](Element e, const ElementContext& c) {
    e[0].as<float>()[0] += 1000 * static_cast<float>(c.index) + 100 * static_cast<float>(c.epoch);
    return e;
  };
  const std::vector<double> weights = {1, 0, 2.5, 4, 0, 0.5};
  const Values drawn = weighted_list(weights, 3, 2, 90);
  Values before, after;
  for (size_t k = 0; k < drawn.size(); ++k) {
    before.push_back(drawn[k] + 1000 * drawn[k] + 200);
    after.push_back(drawn[k] + 1000 * static_cast<float>(k) + 200);
  }
  const Dataset d = count_to(6);
  EXPECT_EQ(values(d.map(with_index).weighted(weights, 3, 90), kForever, 2), before);
  EXPECT_EQ(values(d.weighted(weights, 3, 90).map(with_index), kForever, 2), after);
}

TEST(Weighted, Refuses) {
  const Dataset d = count_to(3);
  const auto weighted = [](const Dataset& dataset, std::vector<double> weights) {
    return [=] { dataset.weighted(weights, 1); };
  };
  const double infinite = std::numeric_limits<double>::infinity();
  const double large = std::numeric_limits<double>::max();
  expect_refused({
      {"count", weighted(d, {1, 2}),
       "weighted: must have one weight for each of 3 elements, got 2"},
      {"negative", weighted(d, {1, -1, 2}),
       "weighted: weight 1 must be a finite number of at least 0, got -1"},
      {"infinite", weighted(d, {1, 2, infinite}), "weight 2 must be a finite number"},
      {"nan", weighted(d, {std::nan(""), 2, 1}), "weight 0 must be a finite number"},
      {"zeros", weighted(d, {0, 0, 0}),
       "weighted: the sum of the weights must be finite and above 0, got 0"},
      {"overflow", weighted(d, {large, large, 1}), "must be finite and above 0, got inf"},
      {"n",
       [&] {
         d.weighted({1, 2, 3}, 1, -1);
       },
       "must be at least 0, got -1"},
      {"stream", weighted(test::stream_of(0, 3), {1, 2, 3}),
       "weighted: the dataset must be indexed"},
      {"endless", weighted(d.repeat(), {1, 2, 3}), "weighted: the dataset must have an end"},
  });
}

}  // namespace
}  // namespace sluice::data
