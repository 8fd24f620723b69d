#include "sluice/cpu/layout/layouts.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <vector>

#include "sluice/base/error.h"

namespace sluice::cpu {
namespace {

TensorSpec matrix(int64_t rows, int64_t cols, DType dtype = f32) {
  return {{rows, cols}, dtype, {}};
}

TEST(PanelLayout, HasItsWidthInItsText) {
  for (const int64_t width : {1, 16, 32, 1000}) {
    EXPECT_EQ(panel_width(in_panels(width)), width);
    EXPECT_EQ(parse_layout(to_string(in_panels(width))), in_panels(width));
  }
  EXPECT_EQ(to_string(in_panels(16)), "panels16");
  EXPECT_EQ(panel_width({}), 0);
}

TEST(PanelLayout, RefusesOtherLayouts) {
  for (const char* text : {"panels", "panels0", "panels16x2", "panel16", "rows", "tiles16x8"}) {
    try {
      panel_width(parse_layout(text));
      ADD_FAILURE() << "'" << text << "' is taken";
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::kUsage);
      EXPECT_EQ(e.what(), "layout: must be row, taps or panels with a width, got '" +
                              std::string(text) + "'");
    }
  }
  EXPECT_THROW(buffer_elements(TensorSpec{Shape{4}, f32, {}}, in_panels(16)), Error);
  EXPECT_FALSE(may_be_in_panels(TensorSpec{Shape{4}, f32, {}}));
  EXPECT_FALSE(may_be_in_panels(matrix(4, 4, f16)));
  EXPECT_FALSE(may_be_in_panels(matrix(0, 4)));
  EXPECT_TRUE(may_be_in_panels(matrix(4, 1)));
}

TEST(PanelLayout, CountsPadding) {
  EXPECT_EQ(buffer_elements(matrix(3, 33), {}), 99);
  EXPECT_EQ(buffer_elements(matrix(3, 33), in_panels(32)), 3 * 64);
  EXPECT_EQ(buffer_elements(matrix(3, 33), in_panels(16)), 3 * 48);
  EXPECT_EQ(buffer_elements(matrix(3, 32), in_panels(32)), 3 * 32);
  EXPECT_EQ(buffer_bytes(matrix(3, 33), in_panels(16)), 3 * 48 * 4);
  EXPECT_EQ(buffer_bytes(matrix(3, 33, f16), in_panels(16)), 3 * 48 * 2);
  EXPECT_EQ(buffer_bytes(matrix(0, 33), in_panels(16)), 0);
  EXPECT_EQ(buffer_bytes(matrix(3, 0), in_panels(16)), 0);
  EXPECT_EQ(buffer_bytes({{}, f32, {}}, {}), 4);
  EXPECT_THROW(buffer_elements(matrix(int64_t{1} << 40, int64_t{1} << 30), in_panels(32)), Error);
}

// Element (r, c) must be stored where panels.h defines it.
TEST(PanelLayout, ElementsAreWhereTheDefinitionSays) {
  for (const int64_t rows : {1, 2, 7}) {
    for (const int64_t cols : {1, 15, 16, 17, 32, 33, 70}) {
      for (const int64_t panel : {1, 5, 16, 32}) {
        const TensorSpec spec = matrix(rows, cols);
        std::vector<float> values(static_cast<size_t>(rows * cols));
        std::iota(values.begin(), values.end(), 1.0f);
        std::vector<float> buffer(static_cast<size_t>(buffer_elements(spec, in_panels(panel))),
                                  -1.0f);
        write_elements(spec, in_panels(panel), reinterpret_cast<std::byte*>(buffer.data()), 0,
                       std::as_bytes(std::span(values)));
        for (int64_t r = 0; r < rows; ++r) {
          for (int64_t c = 0; c < cols; ++c) {
            float& there =
                buffer[static_cast<size_t>(c / panel * rows * panel + r * panel + c % panel)];
            EXPECT_EQ(there, values[static_cast<size_t>(r * cols + c)]);
            there = -1.0f;
          }
        }
        // No other element was written.
        EXPECT_EQ(std::count(buffer.begin(), buffer.end(), -1.0f),
                  static_cast<int64_t>(buffer.size()));
      }
    }
  }
}

TEST(PanelLayout, ChunksGoThereAndBack) {
  for (const Layout& layout : {Layout{}, in_panels(16), in_panels(32)}) {
    for (const DType dtype : {f32, f16}) {
      const TensorSpec spec = matrix(5, 37, dtype);
      const auto width = static_cast<size_t>(size_of(dtype));
      std::vector<std::byte> values(5 * 37 * width);
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = static_cast<std::byte>(i * 7 + i / 251);
      for (const size_t chunk :
           {size_t{1}, size_t{3}, size_t{16}, size_t{37}, size_t{50}, size_t{185}}) {
        std::vector<std::byte> buffer(static_cast<size_t>(buffer_bytes(spec, layout)));
        std::vector<std::byte> back(values.size());
        for (size_t begin = 0; begin < 185; begin += chunk) {
          const size_t bytes = std::min(chunk, 185 - begin) * width;
          write_elements(spec, layout, buffer.data(), static_cast<int64_t>(begin),
                         std::span(values).subspan(begin * width, bytes));
        }
        for (size_t begin = 0; begin < 185; begin += chunk) {
          const size_t bytes = std::min(chunk, 185 - begin) * width;
          read_elements(spec, layout, buffer.data(), static_cast<int64_t>(begin),
                        std::span(back).subspan(begin * width, bytes));
        }
        EXPECT_EQ(back, values) << to_string(layout) << " in chunks of " << chunk;
      }
    }
  }
}

TEST(PanelLayout, NothingIsCopiedOfEmptyTensors) {
  for (const Layout& layout : {Layout{}, in_panels(16)}) {
    read_elements(matrix(0, 4), layout, nullptr, 0, {});
    write_elements(matrix(4, 0), layout, nullptr, 0, {});
  }
}

// Element (out, in, tap) must be at (tap, in, out).
TEST(Taps, StoresTheOutputChannelsLast) {
  const TensorSpec spec{{3, 2, 2, 5}, f32, {}};
  EXPECT_EQ(to_string(in_taps()), "taps");
  EXPECT_EQ(panel_width(in_taps()), 0);
  EXPECT_EQ(buffer_bytes(spec, in_taps()), 4 * 60);
  std::vector<float> rows(60), buffer(60), back(60);
  std::iota(rows.begin(), rows.end(), 0.0f);
  auto* const bytes = reinterpret_cast<std::byte*>(buffer.data());
  write_elements(spec, in_taps(), bytes, 0, std::as_bytes(std::span(rows)));
  for (size_t out = 0; out < 3; ++out) {
    for (size_t in = 0; in < 2; ++in) {
      for (size_t tap = 0; tap < 10; ++tap)
        EXPECT_EQ(buffer[(tap * 2 + in) * 3 + out], rows[(out * 2 + in) * 10 + tap]);
    }
  }
  for (int64_t begin = 0; begin < 60; begin += 7) {
    const auto part = std::span(back).subspan(static_cast<size_t>(begin));
    read_elements(spec, in_taps(), bytes, begin,
                  std::as_writable_bytes(part.first(std::min<size_t>(7, part.size()))));
  }
  EXPECT_EQ(back, rows);
}

TEST(Taps, IsForWeightsOfConvolutions) {
  EXPECT_TRUE(may_be_in_taps({{4, 3, 2}, f32, {}}));
  EXPECT_TRUE(may_be_in_taps({{4, 3, 2, 2, 2}, f32, {}}));
  EXPECT_FALSE(may_be_in_taps({{4, 3}, f32, {}}));
  EXPECT_FALSE(may_be_in_taps({{4, 3, 2}, f16, {}}));
  EXPECT_FALSE(may_be_in_taps({{4, 0, 2}, f32, {}}));
  EXPECT_FALSE(may_be_in_taps({{1, 1, 1, 1, 1, 1}, f32, {}}));
  EXPECT_THROW(buffer_bytes({{4, 3}, f32, {}}, in_taps()), Error);
}

}  // namespace
}  // namespace sluice::cpu
