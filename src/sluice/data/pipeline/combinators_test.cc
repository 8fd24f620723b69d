#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>

#include "sluice/base/test_refusals.h"
#include "sluice/data/test_elements.h"

namespace sluice::data {
namespace {

using test::count_to;
using test::filled;
using test::values;
using Values = std::vector<float>;

Element doubled(Element e) {
  for (float& x : e[0].as<float>()) x *= 2;
  return e;
}

TEST(Combinators, MapTakeSkipAndRepeat) {
  EXPECT_EQ(values(count_to(4).map(doubled)), (Values{0, 2, 4, 6}));
  EXPECT_EQ(values(count_to(4).take(2)), (Values{0, 1}));
  EXPECT_EQ(values(count_to(4).take(9)), (Values{0, 1, 2, 3}));
  EXPECT_EQ(values(count_to(4).skip(3)), (Values{3}));
  EXPECT_EQ(values(count_to(4).skip(9)), Values{});
  EXPECT_EQ(values(count_to(2).repeat(3)), (Values{0, 1, 0, 1, 0, 1}));
  EXPECT_EQ(values(count_to(2).repeat(0)), Values{});
  EXPECT_EQ(values(count_to(2).repeat(), 5), (Values{0, 1, 0, 1, 0}));
  EXPECT_EQ(values(count_to(3).repeat().skip(2).take(4).map(doubled)), (Values{4, 0, 2, 4}));
}

TEST(Combinators, SizesAreKnownWhereTheyCanBe) {
  const Dataset ten = count_to(10);
  const Dataset unknown = from_generator([] { return [] { return std::optional<Element>(); }; });
  EXPECT_EQ(ten.take(3).size(), 3);
  EXPECT_EQ(ten.skip(3).size(), 7);
  EXPECT_EQ(ten.skip(30).size(), 0);
  EXPECT_EQ(ten.repeat().size(), kForever);
  EXPECT_EQ(ten.repeat(3).size(), 30);
  EXPECT_EQ(ten.repeat(kForever - 1).size(), kForever);
  EXPECT_EQ(ten.repeat().skip(3).size(), kForever);
  EXPECT_EQ(ten.repeat().take(7).size(), 7);
  EXPECT_EQ(ten.batch(4).size(), 2);
  EXPECT_EQ(ten.batch(4, Remainder::kKeep).size(), 3);
  EXPECT_EQ(zip({ten, ten.take(2)}).size(), 2);
  EXPECT_EQ(unknown.take(3).size(), std::nullopt);
  EXPECT_EQ(unknown.repeat().size(), kForever);
  EXPECT_EQ(ten.shuffle(1, 3).cache().prefetch(2).parallel_map(doubled, 2).size(), 10);
}

TEST(Combinators, ZipJoinsArraysAndNames) {
  const Dataset x = from_tensors({{"x", HostTensor::of<float>({3}, f32, {1, 2, 3})}});
  const Dataset y = from_tensors({{"y", HostTensor::of<float>({2}, f32, {4, 5})}});
  const Dataset both = zip({x, y});
  EXPECT_EQ(to_string(*both.element_specs()), "x () float32, y () float32");
  int n = 0;
  for (const Element& e : both) {
    EXPECT_EQ(e["x"].as<float>()[0] + 3, e["y"].as<float>()[0]);
    ++n;
  }
  EXPECT_EQ(n, 2);
  const auto same = [](Element e) { return e; };
  expect_refused({
      {"none", [] { zip({}); }, "at least one dataset"},
      {"mixed",
       [&] {
         zip({x, from_tensors(filled({3}, 1))});
       },
       "or none; got both"},
      {"twice",
       [&] {
         zip({x, x});
       },
       "different names, got 'x' twice"},
      {"late mixed",
       [&] {
         values(zip({x, count_to(3)}));
       },
       "or none; got both"},
      {"late twice",
       [&] {
         values(zip({x.map(same), x}));
       },
       "different names, got 'x' twice"},
  });
}

TEST(Combinators, BatchStacksAndKeepsOrDropsTheRemainder) {
  const Dataset dropped = count_to(7).batch(3);
  EXPECT_EQ(values(dropped), (Values{0, 3}));
  EXPECT_TRUE((*dropped.iterate().next())[0].same_bits(HostTensor::of<float>({3}, f32, {0, 1, 2})));
  std::vector<Shape> shapes;
  for (const Element& e : count_to(7).batch(3, Remainder::kKeep)) shapes.push_back(e[0].shape());
  EXPECT_EQ(shapes, (std::vector<Shape>{{3}, {3}, {1}}));
  EXPECT_EQ((*count_to(8).batch(2).batch(2).iterate().next())[0].shape(), (Shape{2, 2}));
  // A batch larger than the data allocates only the data.
  EXPECT_EQ(values(count_to(7).batch(kForever)), Values{});
  EXPECT_EQ(values(count_to(7).batch(kForever, Remainder::kKeep)), Values{0});
  const Dataset ragged =
      from_function(9, [](int64_t k) { return filled({k == 5 ? 3 : 2}, 0); }).batch(2);
  expect_refused({{"specs", [&] { values(ragged); },
                   "batch: element 5 must be (2,) float32 like element 4, got (3,) float32"}});
}

TEST(Combinators, RepeatIsLazyAndRefusesToRepeatNothingForever) {
  int64_t calls = 0;
  const Dataset counted = from_function(kForever, [&](int64_t k) {
    ++calls;
    return HostTensor::scalar(static_cast<float>(k));
  });
  const Dataset d = counted.take(3).repeat().map(doubled).batch(2).skip(1).take(1000000).repeat();
  EXPECT_EQ(calls, 0);
  Iterator iterator = d.iterate();
  EXPECT_EQ(calls, 0);
  iterator.next();
  EXPECT_EQ(calls, 4);
  EXPECT_EQ(values(count_to(0).repeat(kForever - 1)), Values{});
  expect_refused({{"empty", [] { values(count_to(0).repeat()); }, "must have elements, got none"}});
}

TEST(Shuffle, IsAPureFunctionOfSeedAndPass) {
  const Dataset d = count_to(20).shuffle(7, 20);
  const Values first = values(d);
  EXPECT_EQ(values(d), first);
  EXPECT_NE(values(d, kForever, 1), first);
  EXPECT_NE(values(count_to(20).shuffle(8, 20)), first);
  Values expected = first;
  for (const uint64_t pass : {1, 2}) {
    const Values more = values(d, kForever, pass);
    expected.insert(expected.end(), more.begin(), more.end());
  }
  EXPECT_EQ(values(d.repeat(3)), expected);
  EXPECT_EQ(values(d.repeat(), 60), expected);
  // Pass p of a repetition continues where pass p - 1 ended.
  EXPECT_EQ(values(d.repeat(1), kForever, 2), values(d, kForever, 2));
  EXPECT_EQ(values(d.repeat(), 20, 2), values(d, kForever, 2));
  Values sorted = first;
  std::sort(sorted.begin(), sorted.end());
  EXPECT_EQ(sorted, values(count_to(20)));
}

TEST(Shuffle, ABufferLimitsHowFarElementsMoveForward) {
  EXPECT_EQ(values(count_to(20).shuffle(7, 1)), values(count_to(20)));
  const Values moved = values(count_to(100).shuffle(7, 5));
  for (size_t i = 0; i < moved.size(); ++i) EXPECT_LT(moved[i], static_cast<float>(i) + 5);
  EXPECT_EQ(std::set<float>(moved.begin(), moved.end()).size(), 100U);
  // Each of 3! orders appears in about a sixth of the passes.
  std::map<Values, int> orders;
  for (uint64_t pass = 0; pass < 600; ++pass)
    ++orders[values(count_to(3).shuffle(1, 3), kForever, pass)];
  EXPECT_EQ(orders.size(), 6U);
  for (const auto& [order, count] : orders) EXPECT_NEAR(count, 100, 40);
}

TEST(Cache, ReadsItsInputOnce) {
  std::atomic<int> calls = 0;
  const Dataset d = from_function(4, [&](int64_t k) {
                      ++calls;
                      return HostTensor::scalar(static_cast<float>(k));
                    }).cache();
  values(d, 2);  // A pass that does not reach its end does not store elements.
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(values(d), (Values{0, 1, 2, 3}));
  EXPECT_EQ(calls, 6);
  EXPECT_EQ(values(d.map(doubled)), (Values{0, 2, 4, 6}));
  EXPECT_EQ(values(d), (Values{0, 1, 2, 3}));  // Users change copies.
  EXPECT_EQ(values(d.repeat(3)).size(), 12U);
  EXPECT_EQ(calls, 6);
  // The order does not depend on which pass filled the cache.
  const Dataset fresh = count_to(9).shuffle(3, 9).cache();
  EXPECT_EQ(values(fresh, kForever, 5), values(count_to(9).shuffle(3, 9)));
}

TEST(Combinators, RefuseArgumentsOutOfRange) {
  const Dataset d = count_to(3);
  const auto same = [](Element e) { return e; };
  expect_refused({
      {"take", [&] { d.take(-1); }, "take: the number of elements must be at least 0, got -1"},
      {"skip", [&] { d.skip(-1); }, "skip: the number of elements must be at least 0, got -1"},
      {"repeat", [&] { d.repeat(-2); }, "repeat: the number of passes must be at least 0, got -2"},
      {"batch", [&] { d.batch(0); }, "batch: must join at least 1 element, got 0"},
      {"shuffle", [&] { d.shuffle(1, 0); }, "shuffle: the buffer must hold 1 to"},
      {"prefetch", [&] { d.prefetch(0); }, "prefetch: depth must be in [1, 65536] elements, got 0"},
      {"workers", [&] { d.parallel_map(same, -1); }, "workers must be in [0, 256], got -1"},
      {"many workers", [&] { d.parallel_map(same, 257); }, "workers must be in [0, 256], got 257"},
      {"map", [&] { d.map(Dataset::Map()); }, "must be callable"},
      {"parallel", [&] { d.parallel_map(Dataset::Map(), 2); }, "must be callable"},
      {"function", [&] { from_function(2, nullptr); }, "must be callable"},
      {"negative", [&] { count_to(-1); }, "must be at least 0, got -1"},
      {"generator", [&] { from_generator(nullptr); }, "must be callable"},
      {"stream", [&] { values(from_generator([] { return Generator(); })); }, "must be callable"},
      {"names",
       [&] {
         values(d.map([](Element e) {
           e.names = {"a", "b"};
           return e;
         }));
       },
       "must have one name for each of 1 arrays or no names, got 2"},
      {"no arrays", [&] { values(d.map([](Element) { return Element(); })); },
       "must have at least one array, got none"},
      {"specs", [&] { d.map(same, ElementSpecs{}); }, "at least one array"},
  });
}

}  // namespace
}  // namespace sluice::data
