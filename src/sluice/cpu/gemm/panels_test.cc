#include "sluice/cpu/gemm/panels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

namespace sluice::cpu {
namespace {

TEST(Panels, NarrowMatricesGetNarrowPanels) {
  EXPECT_EQ(Panels::width_for(1), 16);
  EXPECT_EQ(Panels::width_for(16), 16);
  EXPECT_EQ(Panels::width_for(17), 32);
  EXPECT_EQ(Panels::of(512, 10).floats(), 512 * 16);
  EXPECT_EQ(Panels::of(784, 512).floats(), 784 * 512);
  EXPECT_EQ(Panels::of(3, 33).floats(), 2 * 3 * 32);
  EXPECT_EQ(Panels::of(3, 0).floats(), 0);
}

TEST(Panels, ConversionsAreInverseAndWriteThePadding) {
  for (const int64_t cols : {1, 10, 16, 17, 32, 33, 64, 100}) {
    const int64_t rows = 7, stride = cols + 3;
    const Panels layout = Panels::of(rows, cols);
    std::vector<float> matrix(static_cast<size_t>(rows * stride));
    std::iota(matrix.begin(), matrix.end(), 1.0f);
    std::vector<float> panels(static_cast<size_t>(layout.floats()), NAN);
    to_panels(matrix.data(), stride, layout, everything(layout), panels.data());
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < layout.count() * layout.width; ++c) {
        EXPECT_EQ(panels[static_cast<size_t>(layout.offset(r, c))],
                  c < cols ? matrix[static_cast<size_t>(r * stride + c)] : 0.0f);
      }
    }
    std::vector<float> back(matrix.size(), -1.0f);
    from_panels(panels.data(), layout, everything(layout), back.data(), stride);
    for (int64_t i = 0; i < rows * stride; ++i) {
      const auto at = static_cast<size_t>(i);
      EXPECT_EQ(back[at], i % stride < cols ? matrix[at] : -1.0f);
    }
  }
}

TEST(Panels, RangesTouchNothingElse) {
  const Panels layout = Panels::of(5, 70);
  std::vector<float> matrix(5 * 70, 1.0f);
  std::vector<float> panels(static_cast<size_t>(layout.floats()), -1.0f);
  to_panels(matrix.data(), 70, layout, {1, 3, 2, 3}, panels.data());
  for (int64_t r = 0; r < 5; ++r) {
    for (int64_t c = 0; c < 96; ++c) {
      const bool inside = r >= 1 && r < 3 && c >= 64;
      EXPECT_EQ(panels[static_cast<size_t>(layout.offset(r, c))], !inside  ? -1.0f
                                                                  : c < 70 ? 1.0f
                                                                           : 0.0f);
    }
  }
  std::vector<float> back(5 * 70, 0.0f);
  from_panels(panels.data(), layout, {1, 3, 2, 3}, back.data(), 70);
  EXPECT_EQ(std::accumulate(back.begin(), back.end(), 0.0f), 2 * 6);
}

}  // namespace
}  // namespace sluice::cpu
