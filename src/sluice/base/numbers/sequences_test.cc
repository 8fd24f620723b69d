// Views and containers whose elements have signed 64-bit numbers.
#include <gtest/gtest.h>

#include <vector>

#include "sluice/base/numbers/ring.h"
#include "sluice/base/numbers/slices.h"

namespace sluice {
namespace {

TEST(Slices, AreEqualPartsOfASequence) {
  std::vector<int> all{0, 1, 2, 3, 4, 5};
  const Slices rows(std::span<int>(all), 3);
  EXPECT_EQ(rows.size(), 2);
  EXPECT_EQ(rows[2].front(), 4);
  EXPECT_EQ(rows.range(1, 2).size(), 4u);
  EXPECT_EQ(rows.range(1, 2).front(), 2);
  rows[0][1] = 7;
  EXPECT_EQ(all[1], 7);
}

TEST(Slices, OfNothingAreEmpty) {
  std::vector<int> none;
  EXPECT_EQ(Slices(std::span<int>(none), 0).size(), 0);
  EXPECT_TRUE(Slices(std::span<int>(none), 4)[3].empty());
}

TEST(Ring, KeepsTheLastElements) {
  Ring<int64_t> ring(3);
  EXPECT_EQ(ring.size(), 3);
  for (int64_t k = 0; k < 7; ++k) ring[k] = k;
  for (int64_t k = 4; k < 7; ++k) EXPECT_EQ(ring[k], k);
  EXPECT_EQ(ring[1], 4);
}

}  // namespace
}  // namespace sluice
