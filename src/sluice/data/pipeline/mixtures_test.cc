// concat(), interleave() and sample_from() have the elements that loops over lists have.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "sluice/base/test_refusals.h"
#include "sluice/data/pipeline/test_indexed.h"

namespace sluice::data {
namespace {

using test::count_to;
using test::stream_of;
using test::values;
using testing::ElementsAre;
using Values = std::vector<float>;

/// The numbers first, first + 1, …: n of them. Each takes another time.
Dataset range_of(int64_t first, int64_t n) {
  return from_function(n, [first](int64_t k) {
    return test::slow(HostTensor::scalar(static_cast<float>(first + k)));
  });
}

/// Adds 100,000 for each epoch.
Element with_epoch(Element e, const ElementContext& c) {
  e[0].as<float>()[0] += 100000 * static_cast<float>(c.epoch);
  return e;
}

std::vector<Dataset> datasets_of(const std::vector<int64_t>& sizes, bool are_streams = false) {
  std::vector<Dataset> datasets;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const auto first = static_cast<int64_t>(1000 * i);
    datasets.push_back(are_streams ? stream_of(first, sizes[i]) : range_of(first, sizes[i]));
  }
  return datasets;
}

/// The elements of interleave(), from lists.
Values interleaved_list(const std::vector<int64_t>& sizes, int64_t block) {
  std::vector<std::vector<float>> left(sizes.size());
  for (size_t i = 0; i < sizes.size(); ++i) {
    for (int64_t k = sizes[i]; k-- > 0;) left[i].push_back(static_cast<float>(1000 * i) + float(k));
  }
  Values all;
  for (bool some = true; some;) {
    some = false;
    for (std::vector<float>& list : left) {
      for (int64_t k = 0; k < block && !list.empty(); ++k) {
        all.push_back(list.back());
        list.pop_back();
        some = true;
      }
    }
  }
  return all;
}

TEST(Concat, ReadsTheDatasetsOneAfterTheOther) {
  const std::vector<std::vector<int64_t>> cases = {{4}, {3, 2}, {0, 3, 0, 1}, {0}, {5, 0}};
  for (const std::vector<int64_t>& sizes : cases) {
    Values expected;
    for (size_t i = 0; i < sizes.size(); ++i) {
      for (int64_t k = 0; k < sizes[i]; ++k)
        expected.push_back(static_cast<float>(1000 * i) + static_cast<float>(k));
    }
    EXPECT_EQ(values(concat(datasets_of(sizes))), expected);
    EXPECT_EQ(values(concat(datasets_of(sizes, true))), expected);
    EXPECT_EQ(concat(datasets_of(sizes)).size(), std::ssize(expected));
    EXPECT_EQ(concat(datasets_of(sizes, true)).size(), std::nullopt);
    test::expect_indexed("concat", concat(datasets_of(sizes)), {0, 2});
  }
  const Dataset endless = concat({count_to(2), range_of(5, 2).map(with_epoch).repeat()});
  EXPECT_EQ(endless.size(), kForever);
  EXPECT_THAT(values(endless, 6), ElementsAre(0, 1, 5, 6, 100005, 100006));
  test::expect_loaded("endless", endless, 30, {0, 2});
  EXPECT_FALSE(concat({count_to(2), stream_of(0, 2)}).node()->indexed());
  test::expect_indexed("cached", concat({stream_of(0, 3).cache(), count_to(2)}));
  EXPECT_TRUE(concat({count_to(2), count_to(1).map(with_epoch)}).node()->varies_by_epoch());
}

TEST(Interleave, ReadsABlockOfEachDatasetInTurn) {
  EXPECT_THAT(values(interleave({range_of(0, 5), range_of(10, 3)}, 2)),
              ElementsAre(0, 1, 10, 11, 2, 3, 12, 4));
  const std::vector<std::vector<int64_t>> cases = {{4},       {3, 2},    {0, 3, 0, 1},  {0, 0},
                                                   {1, 9, 4}, {7, 7, 7}, {20, 1, 1, 6}, {6, 13}};
  for (const std::vector<int64_t>& sizes : cases) {
    for (const int64_t block : {int64_t{1}, int64_t{2}, int64_t{3}, int64_t{8}, kForever}) {
      const Values expected = interleaved_list(sizes, block);
      const Dataset mixed = interleave(datasets_of(sizes), block);
      EXPECT_EQ(values(mixed), expected) << block;
      EXPECT_EQ(values(interleave(datasets_of(sizes, true), block)), expected) << block;
      EXPECT_EQ(mixed.size(), std::ssize(expected));
      test::expect_indexed("interleave", mixed, {0, 3});
    }
  }
  const Dataset endless = interleave({range_of(0, 3).map(with_epoch).repeat(), range_of(50, 4)}, 2);
  EXPECT_EQ(endless.node()->indexed(), kForever);
  EXPECT_THAT(values(endless, 9, 1),
              ElementsAre(100000, 100001, 50, 51, 100002, 200000, 52, 53, 200001));
  test::expect_loaded("endless", endless, 40, {0, 1});
  EXPECT_EQ(interleave({count_to(2), stream_of(0, 2)}).size(), std::nullopt);
}

/// The elements of sample_from() of endless numbers, from counts.
Values sampled_list(const std::vector<double>& weights, uint32_t seed, uint64_t pass, int64_t n) {
  std::vector<int64_t> counts(weights.size());
  Values all;
  for (int64_t k = 0; k < n; ++k) {
    const size_t index = test::searched_draw("sample_from", weights, seed, pass, k);
    all.push_back(static_cast<float>(100000 * index) + static_cast<float>(counts[index]++));
  }
  return all;
}

TEST(SampleFrom, DrawsDatasetsByTheirWeights) {
  const std::vector<double> weights = {0.6, 0.3, 0, 0.1};
  const auto numbers = [](int64_t i) {
    return from_function(kForever, [i](int64_t k) {
      return HostTensor::scalar(static_cast<float>(100000 * i + k));
    });
  };
  const Dataset mixed = sample_from({numbers(0), numbers(1), count_to(1), numbers(3)}, weights, 9);
  EXPECT_EQ(mixed.size(), kForever);
  for (const uint64_t pass : {0, 1, 8})
    EXPECT_EQ(values(mixed, 3000, pass), sampled_list(weights, 9, pass, 3000));
  EXPECT_NE(values(mixed, 100, 1), values(mixed, 100));
  double chi_square = 0;
  std::vector<int> counts(4);
  for (const float v : values(mixed, 20000)) ++counts[static_cast<size_t>(v) / 100000];
  for (const size_t i : {0, 1, 3}) {
    const double expected = 20000 * weights[i];
    chi_square += std::pow(counts[i] - expected, 2) / expected;
  }
  EXPECT_LT(chi_square, 13.8);  // 99.9 % of draws with two degrees of freedom.
  EXPECT_EQ(counts[2], 0);
  // Any element is found by its number, whatever elements and passes were asked for before.
  for (const uint64_t pass : {0, 1, 2, 3, 4, 5, 0, 5}) {
    const Values expected = sampled_list(weights, 9, pass, 6000);
    for (const int64_t k : {5999, 0, 511, 512, 513, 1024, 4095})
      EXPECT_EQ(mixed.node()->at(k, pass)[0].as<float>()[0], expected[static_cast<size_t>(k)]) << k;
  }
}

TEST(SampleFrom, EndsWithTheFirstDatasetThatEnds) {
  const Dataset few = sample_from({count_to(3), range_of(10, 100)}, {1, 1}, 4);
  EXPECT_EQ(few.size(), std::nullopt);
  EXPECT_FALSE(few.node()->indexed());
  const Values all = values(few);
  EXPECT_EQ(std::count_if(all.begin(), all.end(), [](float v) { return v < 3; }), 3);
  EXPECT_LT(all.size(), 30U);
  Values endless = values(
      sample_from({count_to(3).repeat(), range_of(10, 100).repeat()}, {1, 1}, 4), std::ssize(all));
  EXPECT_EQ(all, endless);
  const Dataset streams = sample_from({stream_of(0, 3).repeat(), stream_of(10, 100)}, {1, 1}, 4);
  EXPECT_EQ(values(streams, std::ssize(all)), all);
}

TEST(SampleFrom, OfEndlessDatasetsIsIndexed) {
  const Dataset mixed =
      sample_from({range_of(0, 7).map(with_epoch).repeat(), range_of(50, 3).repeat()}, {3, 1}, 2);
  const Dataset some = mixed.take(700);
  EXPECT_EQ(some.size(), 700);
  test::expect_indexed("sample_from", some, {0, 1});
  test::expect_loaded("sample_from", some, kForever, {0, 1, 2, 0});
  BatchLoader shuffled(some, {.batch = 10, .workers = 2});
  EXPECT_EQ(shuffled.items(), 70);
}

TEST(Mixtures, SpecsAreThoseThatAllDatasetsShare) {
  const auto sized = [](int64_t width) {
    return from_tensors({{"x", HostTensor({{4, width}, f32, {}})}});
  };
  EXPECT_EQ(concat({sized(2), sized(2)}).element_specs(), sized(2).element_specs());
  EXPECT_EQ(concat({sized(2), sized(3)}).element_specs(), std::nullopt);
  EXPECT_EQ(interleave({sized(2), sized(2).map([](Element e) { return e; })}).element_specs(),
            std::nullopt);
  const Dataset batches = sized(2).batch(3, Remainder::kKeep);
  EXPECT_EQ(concat({sized(2).batch(3), batches}).node()->variation(),
            internal::ShapeVariation::kLastBatch);
  const Dataset other = from_tensors({{"y", HostTensor({{4, 2}, f32, {}})}});
  const Dataset integers = from_tensors({{"x", HostTensor({{4, 2}, i32, {}})}});
  const Dataset d = count_to(3);
  expect_refused({
      {"names",
       [&] {
         concat({sized(2), other});
       },
       "concat: dataset 1 must have the fields and dtypes of dataset 0, x (2,) float32, got y (2,) "
       "float32"},
      {"dtypes",
       [&] {
         interleave({sized(2), integers});
       },
       "interleave: dataset 1 must have"},
      {"count",
       [&] {
         sample_from({sized(2), zip({sized(2), other})}, {1, 1}, 1);
       },
       "sample_from: dataset 1 must have"},
      {"shapes",
       [&] {
         BatchLoader loader(concat({sized(2), sized(3)}), {.batch = 8});
         loader.next();
       },
       "must be x (2,) float32 like the first one, got x (3,) float32"},
      {"remainder",
       [&] {
         check_static(concat({batches, batches}));
       },
       "all elements must have one shape"},
      {"none", [] { concat({}); }, "concat: requires at least one dataset, got none"},
      {"none", [] { interleave({}); }, "interleave: requires at least one dataset, got none"},
      {"none", [] { sample_from({}, {1}, 1); }, "sample_from: requires at least one dataset"},
      {"endless",
       [&] {
         concat({d, d.repeat(), d});
       },
       "concat: only the last dataset may have no end, got dataset 1 without one; use take(n)"},
      {"block", [&] { interleave({d}, 0); },
       "interleave: a block must have at least 1 element, got 0"},
      {"weights",
       [&] {
         sample_from({d, d}, {1}, 1);
       },
       "sample_from: must have one weight for each of 2 datasets, got 1"},
      {"negative",
       [&] {
         sample_from({d, d}, {1, -1}, 1);
       },
       "sample_from: weight 1 must be"},
      {"zeros",
       [&] {
         sample_from({d, d}, {0, 0}, 1);
       },
       "sample_from: the sum of the weights"},
  });
}

}  // namespace
}  // namespace sluice::data
