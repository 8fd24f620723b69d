#include "sluice/data/dataset.h"

#include <gtest/gtest.h>

#include <array>

#include "sluice/base/test_refusals.h"
#include "sluice/data/samples.h"
#include "sluice/data/test_elements.h"

namespace sluice::data {
namespace {

using test::count_to;
using test::filled;
using test::values;
using Values = std::vector<float>;

TEST(Element, HasAnArrayATupleOrFields) {
  const HostTensor a = HostTensor::scalar(1);
  const HostTensor b = HostTensor::scalar(2);
  EXPECT_EQ(specs_of(Element(a)), (ElementSpecs{{a.spec()}, {}}));
  EXPECT_EQ(specs_of(Element(a, b)), (ElementSpecs{{a.spec(), b.spec()}, {}}));
  Element fields{{"x", a}, {"y", b}};
  EXPECT_TRUE(fields["y"].same_bits(b));
  EXPECT_TRUE(fields[0].same_bits(a));
  EXPECT_EQ(fields.bytes(), 8);
  EXPECT_EQ(to_string(specs_of(fields)), "x () float32, y () float32");
  expect_refused({{"name", [&] { fields["z"]; }, "must be one of [x, y], got 'z'"},
                  {"place", [&] { fields[2]; }, "must be in [0, 2), got 2"}});
}

TEST(Sources, TensorsAreCutAlongTheirFirstAxis) {
  const Dataset d = from_tensors({{"x", HostTensor::of<float>({3, 2}, f32, {0, 1, 2, 3, 4, 5})},
                                  {"y", HostTensor::of<int32_t>({3}, i32, {7, 8, 9})}});
  EXPECT_EQ(d.size(), 3);
  ASSERT_TRUE(d.element_specs());
  EXPECT_EQ(to_string(*d.element_specs()), "x (2,) float32, y () int32");
  int32_t row = 0;
  for (const Element& e : d) {
    const auto first = static_cast<float>(2 * row);
    EXPECT_TRUE(e["x"].same_bits(HostTensor::of<float>({2}, f32, {first, first + 1})));
    EXPECT_TRUE(e["y"].same_bits(HostTensor::of<int32_t>({}, i32, {7 + row++})));
  }
  EXPECT_EQ(row, 3);
  EXPECT_EQ(values(from_tensors(HostTensor({{0, 2}, f32, {}}))), Values{});
  const Samples samples{filled({2, 3}, 1), HostTensor({{2}, i32, {}}), "a test"};
  EXPECT_EQ(to_string(*from_samples(samples).element_specs()),
            "input (3,) float32, labels () int32");
  expect_refused({
      {"scalar", [] { from_tensors(HostTensor::scalar(1)); }, "must have a first axis"},
      {"none", [] { from_tensors(Element()); }, "at least one array"},
      {"axes",
       [] {
         from_tensors({filled({2}, 1), filled({3, 2}, 1)});
       },
       "must be 2 like that of the first array, got (3, 2)"},
      {"twice",
       [] {
         from_tensors({{"x", filled({2}, 1)}, {"x", filled({2}, 1)}});
       },
       "'x' twice"},
  });
}

TEST(Sources, AGeneratorMakesAFreshStreamForEachPass) {
  const auto make = [] {
    return [k = 0]() mutable -> std::optional<Element> {
      if (k == 3) return std::nullopt;
      return HostTensor::scalar(static_cast<float>(k++));
    };
  };
  EXPECT_EQ(values(from_generator(make).repeat(2)), (Values{0, 1, 2, 0, 1, 2}));
  EXPECT_FALSE(from_generator(make).element_specs());
  EXPECT_FALSE(from_generator(make).size());
  EXPECT_EQ(values(from_function(kForever, [](int64_t) { return HostTensor::scalar(4); }), 3),
            (Values{4, 4, 4}));
}

TEST(Sources, StatedSpecsAreChecked) {
  const ElementSpecs specs{{{{2}, f32, {}}}, {}};
  const auto f = [](int64_t k) { return filled({k == 2 ? 3 : 2}, 0); };
  const auto [read, message] = test::read_all(from_function(5, f, specs));
  EXPECT_EQ(read, 2);
  EXPECT_EQ(
      message,
      "element: must be (2,) float32, got (3,) float32\n  while from_function computed element 2");
  EXPECT_EQ(from_function(5, f, specs).element_specs(), specs);
}

TEST(Iterators, MayBeMovedAndOutliveTheirDataset) {
  std::optional<Iterator> iterator;
  {
    const Dataset d = count_to(5).parallel_map([](Element e) { return e; }, 2).prefetch(2);
    iterator = d.iterate();
  }
  EXPECT_TRUE(iterator->next());
  Iterator other = count_to(9).prefetch(3).iterate();
  other.next();
  other = std::move(*iterator);  // Ends the threads of the old pass.
  EXPECT_EQ(other.position(), 1);
  while (other.next()) {
  }
  EXPECT_EQ(other.position(), 5);
  EXPECT_FALSE(other.next());
  Dataset moved = count_to(2);
  const Dataset target = std::move(moved);
  EXPECT_EQ(values(moved), values(target));  // A move is a copy.
}

/// The sums of the spec's loops, which add `n` elements to `start`.
float sum(Iterator& iterator, int n, float start) {
  for (int i = 0; i < n; ++i) {
    const std::optional<Element> element = iterator.next();
    if (!element) return -1;
    for (const HostTensor& array : element->arrays) start += array.as<float>()[0];
  }
  return start;
}

Dataset inc(int64_t k) {
  return from_function(k, [](int64_t i) { return filled({4, 4}, static_cast<float>(i)); }).repeat();
}

TEST(Iterators, LoopsOverIncHaveTheirDocumentedSums) {
  Iterator ten = inc(10).iterate();
  EXPECT_EQ(sum(ten, 20, 1), 91);
  Iterator once = inc(10).take(10).iterate();
  EXPECT_EQ(sum(once, 10, 1), 46);
  EXPECT_FALSE(once.next());
  Iterator pairs = inc(3)
                       .map([](Element e) {
                         HostTensor half = filled({4, 4}, (e[0].as<float>()[0] + 10) / 2);
                         return Element(std::move(e[0]), std::move(half));
                       })
                       .iterate();
  EXPECT_EQ(sum(pairs, 5, 0), 31);
  Iterator two = inc(2).iterate();
  EXPECT_EQ(sum(two, 5, sum(two, 5, 0)), 5);
  Iterator again = inc(10).iterate();
  for (const auto& [n, expected] : {std::pair{0, 0.0f}, {2, 1.0f}, {2, 5.0f}, {2, 9.0f}}) {
    EXPECT_EQ(sum(again, n, 0), expected);
  }
  Iterator a = inc(20).iterate();
  Iterator b = inc(3).iterate();
  EXPECT_EQ((std::array{sum(a, 5, 0), sum(b, 5, 0), sum(a, 5, 0), sum(b, 5, 0)}),
            (std::array{10.0f, 4.0f, 35.0f, 5.0f}));
}

TEST(Iterators, FieldsAreFoundByName) {
  Iterator fields = inc(3)
                        .map([](Element e) {
                          HostTensor half = filled({4, 4}, (e[0].as<float>()[0] + 10) / 2);
                          return Element{{"a", e[0]}, {"b", half}};
                        })
                        .iterate();
  float a = 0;
  float b = 0;
  for (int i = 0; i < 5; ++i) {
    const Element e = *fields.next();
    b += e["b"].as<float>()[0];
    a += e["a"].as<float>()[0];
  }
  EXPECT_EQ(a, 4);
  EXPECT_EQ(b, 27);
}

TEST(CheckStatic, ReturnsTheSpecsOrSaysWhy) {
  const Dataset d = from_tensors({{"x", filled({10, 2}, 1)}, {"y", HostTensor({{10}, i64, {}})}});
  const Dataset x = from_tensors(filled({10, 2}, 1));
  const auto same = [](Element e) { return e; };
  EXPECT_EQ(to_string(check_static(x.batch(4))), "(4, 2) float32");
  EXPECT_EQ(to_string(check_static(x.map(same).batch(4))), "(4, 2) float32");
  EXPECT_EQ(to_string(check_static(x.batch(5, Remainder::kKeep))), "(5, 2) float32");
  EXPECT_EQ(to_string(check_static(x.batch(20, Remainder::kKeep))), "(10, 2) float32");
  EXPECT_EQ(to_string(check_static(x.repeat().batch(4, Remainder::kKeep))), "(4, 2) float32");
  const auto keep = [](const Dataset& set) { return set.batch(4, Remainder::kKeep); };
  const std::string hint = "drop the remainder with batch(n, Remainder::kDrop)";
  const ElementSpecs four{{{{4, 2}, f32, {}}}, {}};
  EXPECT_EQ(check_static(keep(x).map(same, four)), four);
  expect_refused({
      {"kept", [&] { check_static(keep(x), "feed 'x'"); }, "feed 'x': all elements must have"},
      {"hint", [&] { check_static(keep(x)); }, hint},
      {"unknown", [&] { check_static(keep(x.map(same))); }, hint},
      {"map", [&] { check_static(keep(x).map(same).prefetch(1).repeat()); }, hint},
      {"zip",
       [&] {
         check_static(zip({x, keep(x)}));
       },
       hint},
      {"i64", [&] { check_static(d); }, "field 'y' must have a dtype that devices have"},
      {"zero",
       [&] {
         check_static(from_tensors(HostTensor({{4, 0}, f32, {}})));
       },
       "array 0: dimensions must be at least 1, got (0,) float32"},
      {"empty", [&] { check_static(x.take(0)); }, "must have elements, got none"},
      {"empty map", [&] { check_static(x.take(0).map(same)); }, "must have elements, got none"},
  });
}

}  // namespace
}  // namespace sluice::data
