#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "sluice/base/rng.h"
#include "sluice/data/loader.h"
#include "sluice/data/pipeline/node.h"
#include "sluice/data/test_elements.h"

namespace sluice::data::test {

/// Whether two elements have the same names, specs and bytes.
inline bool same_elements(const Element& a, const Element& b) {
  return a.names == b.names &&
         std::equal(a.arrays.begin(), a.arrays.end(), b.arrays.begin(), b.arrays.end(),
                    [](const HostTensor& x, const HostTensor& y) { return x.same_bits(y); });
}

/// The numbers first, first + 1, …: n of them, from a stream without random access.
inline Dataset stream_of(int64_t first, int64_t n) {
  return from_generator([=] {
    return [=, k = int64_t{0}]() mutable -> std::optional<Element> {
      if (k == n) return std::nullopt;
      return HostTensor::scalar(static_cast<float>(first + k++));
    };
  });
}

/// The index that draw k of a pass chooses, by a search along the weights. The random bits of a
/// combinator have its name.
inline size_t searched_draw(std::string_view combinator, const std::vector<double>& weights,
                            uint32_t seed, uint64_t pass, int64_t k) {
  double sum = 0;
  for (const double w : weights) sum += w;
  const auto words = philox(fold(fold(Seed{0, seed}, combinator), pass), static_cast<uint64_t>(k));
  const double unit = std::ldexp(words[0], -32) + std::ldexp(words[1] >> 11, -53);
  size_t index = 0;
  double end = weights[0];
  while (end <= unit * sum) end += weights[++index];
  return index;
}

/// Sleeps up to 60 µs, for another time at each element.
inline Element slow(Element e) {
  const auto value = static_cast<uint64_t>(e.arrays.at(0).to_doubles().at(0));
  std::this_thread::sleep_for(std::chrono::microseconds(random_bits({}, value) % 60));
  return e;
}

/// Expects that at() and write_at() make the elements of each of `passes`, in any order.
inline void expect_indexed(const std::string& name, const Dataset& dataset,
                           const std::vector<uint64_t>& passes = {0}) {
  const internal::Node& node = *dataset.node();
  const std::optional<int64_t> n = node.indexed();
  ASSERT_TRUE(n) << name;
  for (const uint64_t pass : passes) {
    std::vector<Element> all;
    for (Iterator i = dataset.iterate(pass); std::optional<Element> e = i.next();)
      all.push_back(std::move(*e));
    ASSERT_EQ(static_cast<int64_t>(all.size()), *n) << name;
    for (int64_t k = *n; k-- > 0;) {
      const Element& expected = all[static_cast<size_t>(k)];
      EXPECT_TRUE(same_elements(node.at(k, pass), expected)) << name << " " << pass << " " << k;
      Element written = expected;
      std::vector<ArrayView> views;
      for (HostTensor& array : written.arrays) {
        std::fill(array.bytes().begin(), array.bytes().end(), std::byte{0xff});
        views.emplace_back(array);
      }
      EXPECT_EQ(node.write_at(k, pass, {views, written.names}), views.size()) << name;
      EXPECT_TRUE(same_elements(written, expected)) << name << " " << pass << " " << k;
    }
  }
}

/// Expects that loaders with workers read the first `max` values of each of `passes`, also from an
/// item within a pass.
inline void expect_loaded(const std::string& name, const Dataset& dataset, int64_t max,
                          const std::vector<uint64_t>& passes = {0}) {
  for (const int workers : {0, 1, 4}) {
    BatchLoader loader(dataset, {.batch = 1, .shuffle = Shuffle::kNo, .workers = workers});
    for (const uint64_t pass : passes) {
      const std::vector<float> all = values(dataset, max, pass);
      for (const size_t first : {size_t{0}, all.size() / 2}) {
        loader.start_epoch(static_cast<int64_t>(pass), static_cast<int64_t>(first));
        std::vector<float> read(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(first));
        while (static_cast<int64_t>(read.size()) < max) {
          const Element* item = loader.next();
          if (item == nullptr) break;
          read.push_back(static_cast<float>(item->arrays[0].to_doubles()[0]));
        }
        EXPECT_EQ(read, all) << name << " " << workers << " " << pass << " " << first;
      }
    }
  }
}

}  // namespace sluice::data::test
