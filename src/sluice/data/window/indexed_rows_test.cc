#include "sluice/data/window/indexed_rows.h"

#include <gtest/gtest.h>

#include <vector>

#include "sluice/base/test_refusals.h"
#include "sluice/data/loader.h"
#include "sluice/data/test_elements.h"

namespace sluice::data {
namespace {

using test::values;

Dataset rows(int64_t n, float first = 0) {
  HostTensor x({{n, 2}, f32, {}}), y({{n}, i32, {}});
  for (int64_t k = 0; k < 2 * n; ++k) at(x.as<float>(), k) = first + static_cast<float>(k / 2);
  for (int64_t k = 0; k < n; ++k) at(y.as<int32_t>(), k) = static_cast<int32_t>(k);
  return from_tensors({{"x", x}, {"y", y}});
}

TEST(IndexedRows, AnOrderIsThatOfShuffle) {
  for (const int64_t n : {0, 1, 2, 10, 1000}) {
    for (const uint64_t seed : {uint64_t{0}, uint64_t{7}, uint64_t{1} << 40}) {
      const RowOrder rows = shuffled_rows(seed, n);
      std::vector<float> order;
      for (const uint32_t row : *rows) order.push_back(static_cast<float>(row));
      EXPECT_EQ(order, values(test::count_to(n).shuffle(seed, std::max<int64_t>(n, 1))));
    }
  }
  expect_refused({{"many", [] { shuffled_rows(0, int64_t{1} << 32); }, "at most 4294967295"}});
}

TEST(IndexedRows, ChosenJoinedAndRenamedRowsAreIndexed) {
  const Dataset all = join_rows({rows(3), rows(0), rows(2, 10)});
  EXPECT_EQ(values(all), (std::vector<float>{0, 1, 2, 10, 11}));
  const auto order =
      std::make_shared<const std::vector<uint32_t>>(std::vector<uint32_t>{4, 0, 3, 2, 1});
  const Dataset chosen = with_names(choose_rows(all, order, 1, 4), {"input", "labels"});
  EXPECT_EQ(values(chosen), (std::vector<float>{0, 10, 2}));
  EXPECT_EQ(chosen.element_specs()->names, (std::vector<std::string>{"input", "labels"}));
  EXPECT_EQ(values(hold_rows(chosen)), values(chosen));
  EXPECT_EQ(hold_rows(chosen).element_specs(), chosen.element_specs());
  BatchLoader loader(chosen, {.batch = 3, .shuffle = Shuffle::kNo});
  const Element& item = *loader.next();
  EXPECT_TRUE(item["input"].same_bits(HostTensor::of<float>({3, 2}, f32, {0, 0, 10, 10, 2, 2})));
  EXPECT_TRUE(item["labels"].same_bits(HostTensor::of<int32_t>({3}, i32, {0, 0, 2})));
}

}  // namespace
}  // namespace sluice::data
