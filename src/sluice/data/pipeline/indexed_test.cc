// Elements of indexed datasets have the bytes of a pass, in any order.

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "sluice/base/test_refusals.h"
#include "sluice/data/pipeline/test_indexed.h"

namespace sluice::data {
namespace {

Dataset rows(int64_t n) {
  HostTensor x({{n, 2}, f32, {}});
  for (int64_t i = 0; i < 2 * n; ++i) x.as<float>()[static_cast<size_t>(i)] = static_cast<float>(i);
  HostTensor y({{n}, i32, {}});
  for (int64_t i = 0; i < n; ++i) y.as<int32_t>()[static_cast<size_t>(i)] = static_cast<int32_t>(i);
  return from_tensors({{"x", x}, {"y", y}});
}

Element doubled_element(Element e) {
  for (float& v : e.arrays[0].as<float>()) v *= 2;
  return e;
}

Dataset generated_elements(int64_t n) {
  return from_generator([n] {
    return [n, k = int64_t{0}]() mutable -> std::optional<Element> {
      if (k == n) return std::nullopt;
      return HostTensor::scalar(static_cast<float>(k++));
    };
  });
}

TEST(Indexed, ElementsAreThoseOfAPass) {
  const Dataset named = zip({rows(9).map([](Element e) {
                               return Element{{"z", e["y"]}};
                             }),
                             rows(12)});
  const std::pair<const char*, Dataset> datasets[] = {
      {"tensors", rows(7)},
      {"function", test::count_to(7)},
      {"map", rows(7).map(doubled_element)},
      {"parallel_map", rows(7).parallel_map(doubled_element, 3)},
      {"zip", named},
      {"take", rows(7).take(4)},
      {"skip", rows(7).skip(4)},
      {"skip all", rows(7).skip(9)},
      {"both", rows(20).skip(3).take(9).skip(2)},
      {"batch", rows(7).batch(3)},
      {"smaller batch", rows(7).batch(3, Remainder::kKeep)},
      {"repeat", rows(3).repeat(4)},
      {"take of endless", rows(3).repeat().take(10)},
      {"prefetch", rows(7).prefetch(2)},
      {"cache", rows(7).map(doubled_element).cache()},
      {"cache of shuffle", rows(7).shuffle(1, 7).cache()},
      {"cache of generator", generated_elements(7).cache()},
  };
  for (const auto& [name, dataset] : datasets) test::expect_indexed(name, dataset);
}

TEST(Indexed, OthersAreNot) {
  EXPECT_FALSE(generated_elements(3).node()->indexed());
  EXPECT_FALSE(generated_elements(3).take(2).node()->indexed());
  EXPECT_FALSE(rows(3).shuffle(1, 3).node()->indexed());
  EXPECT_FALSE(zip({rows(3), generated_elements(3).map([](Element e) {
                      return Element{{"g", e.arrays[0]}};
                    })})
                   .node()
                   ->indexed());
  EXPECT_FALSE(rows(3).repeat().cache().node()->indexed());
  EXPECT_EQ(rows(3).repeat().node()->indexed(), kForever);
  EXPECT_EQ(rows(0).repeat(5).node()->indexed(), 0);
}

TEST(Indexed, CacheMakesEachElementOnce) {
  std::atomic<int> calls = 0;
  const auto count = [&](Element e) {
    ++calls;
    return e;
  };
  for (const bool parallel : {false, true}) {
    calls = 0;
    const Dataset cached = rows(50).map(count).cache();
    const auto read = [&](int64_t first) {
      for (int64_t k = first; k < 50; k += parallel ? 2 : 1) {
        EXPECT_EQ(cached.node()->at(k, 0)["y"].as<int32_t>()[0], k);
      }
    };
    for (int pass = 0; pass < 2; ++pass) {
      std::thread other([&] { parallel ? read(1) : void(); });
      read(0);
      other.join();
    }
    EXPECT_EQ(calls, 50);
    EXPECT_EQ(test::read_all(cached).first, 50);
    EXPECT_EQ(calls, 50);
  }
  calls = 0;
  const Dataset loaded = generated_elements(5).map(count).cache();
  std::thread other([&] { loaded.node()->at(3, 0); });
  EXPECT_EQ(loaded.node()->indexed(), 5);
  other.join();
  EXPECT_EQ(calls, 5);
}

TEST(Indexed, ErrorsNameTheElement) {
  const Dataset failing = rows(9).skip(2).map([](Element e) {
    if (e["y"].as<int32_t>()[0] == 5) throw std::runtime_error("five");
    return e;
  });
  const Dataset ragged = from_function(9, [](int64_t k) {
    return HostTensor({{k == 4 ? 2 : 1}, f32, {}});
  });
  const auto write = [](const Dataset& dataset, int64_t k, Element to) {
    std::vector<ArrayView> views;
    for (HostTensor& array : to.arrays) views.emplace_back(array);
    dataset.node()->write_at(k, 0, {views, to.names});
  };
  const Element one = HostTensor({{1}, f32, {}});
  const Element row = rows(1).node()->at(0, 0);
  const Dataset more = zip({rows(3), rows(3).map([](Element e) {
                              return Element{{"z", e["y"]}};
                            })});
  Element renamed = row;
  renamed.names = {"x", "z"};
  expect_refused({
      {"user", [&] { failing.node()->at(3, 0); }, "map: the function for element 3 must not throw"},
      {"shape", [&] { write(ragged, 4, one); },
       "element 4: must be (1,) float32 like the first one, got (2,) float32"},
      {"tuple", [&] { write(rows(3), 1, one); },
       "element 1: must be (1,) float32 like the first one, got x (2,) float32, y () int32"},
      {"names", [&] { write(rows(3).map([](Element e) { return e; }), 2, renamed); },
       "element 2: must be x (2,) float32, z () int32 like the first one"},
      {"zip", [&] { write(more, 2, row); }, "element 2: must be no arrays"},
  });
}

}  // namespace
}  // namespace sluice::data
