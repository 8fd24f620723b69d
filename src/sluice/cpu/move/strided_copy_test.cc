// Compares copies between arrays of random strides with a copy of one element at a time. The arrays
// lie between guard pages, and bytes that do not belong to the result must keep their values.

#include "sluice/cpu/move/strided_copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "sluice/cpu/simd/guarded_buffer.h"
#include "sluice/cpu/simd/streaming.h"

namespace sluice::cpu {
namespace {

using Bytes = GuardedBuffer<std::byte>;

// A random copy: source strides of any order, sign and padding, with repeated axes.
struct RandomCopy {
  explicit RandomCopy(std::mt19937& random) {
    const auto below = [&](uint32_t n) { return static_cast<int64_t>(random() % n); };
    width = int64_t{1} << below(4);
    std::vector<size_t> order(static_cast<size_t>(below(5)));
    for (size_t a = 0; a < order.size(); ++a) {
      const int64_t size = below(6) == 0 ? below(90) : 1 + below(9);
      axes.push_back({elements * size > 40000 ? 1 : size, 0, 0});
      elements *= axes.back().size;
      order[a] = a;
    }
    to_bytes = width;
    for (size_t a = axes.size(); a-- > 0;) {
      axes[a].to = to_bytes;
      to_bytes = to_bytes * axes[a].size + (below(6) == 0 ? width * below(4) : 0);
    }
    std::shuffle(order.begin(), order.end(), random);
    from_bytes = width;
    for (const size_t a : order) {
      if (below(6) == 0) continue;  // Repeated: the step stays 0.
      axes[a].from = from_bytes;
      from_bytes = from_bytes * axes[a].size + (below(4) == 0 ? width * below(5) : 0);
      if (below(5) > 0 || axes[a].size == 0) continue;
      first += axes[a].from * (axes[a].size - 1);
      axes[a].from = -axes[a].from;
    }
  }

  void copy_elements(const std::byte* from, std::byte* to) const {
    for (int64_t e = 0; e < elements; ++e) {
      int64_t rest = e, at_from = first, at_to = 0;
      for (size_t a = axes.size(); a-- > 0; rest /= axes[a].size) {
        at_from += rest % axes[a].size * axes[a].from;
        at_to += rest % axes[a].size * axes[a].to;
      }
      std::memcpy(to + at_to, from + at_from, static_cast<size_t>(width));
    }
  }

  int64_t width = 1;
  std::vector<CopyAxis> axes;  // The last varies fastest.
  int64_t elements = 1;
  int64_t from_bytes = 0, to_bytes = 0;
  int64_t first = 0;  // Offset of the first element in the source.
};

TEST(StridedCopy, HasTheBytesOfACopyOfOneElementAtATime) {
  std::mt19937 random(5);
  for (int i = 0; i < 4000; ++i) {
    const RandomCopy r(random);
    const auto side = random() % 2 == 0 ? Bytes::Against::kBegin : Bytes::Against::kEnd;
    Bytes from(r.from_bytes, side), to(r.to_bytes, side);
    for (std::byte& b : from) b = static_cast<std::byte>(random());
    std::fill(to.begin(), to.end(), std::byte{7});
    std::vector<std::byte> expected(to.begin(), to.end());
    r.copy_elements(from.data(), expected.data());

    const StridedCopy copy(r.axes, r.width);
    ASSERT_EQ(copy.bytes(), r.elements * r.width);
    const auto units = static_cast<uint32_t>(copy.units());
    const int64_t a = random() % (units + 1), b = random() % (units + 1);
    const bool streams = random() % 2 == 0;
    const std::byte* const begin = from.data() + r.first;
    copy.run(begin, to.data(), std::max(a, b), units, streams);
    copy.run(begin, to.data(), 0, std::min(a, b), streams);
    copy.run(begin, to.data(), std::min(a, b), std::max(a, b), streams);
    finish_streams();
    ASSERT_TRUE(std::equal(to.begin(), to.end(), expected.begin())) << "copy " << i;
  }
}

TEST(StridedCopy, UnitsAreConsecutiveInADenseResult) {
  // A transpose of 40 × 30 × 50 elements of 4 bytes to 50 × 30 × 40: a unit is 30 × 40 elements.
  const StridedCopy copy({{50, 4, 4800}, {30, 200, 160}, {40, 6000, 4}}, 4);
  EXPECT_EQ(copy.units(), 50);
  EXPECT_EQ(copy.unit_bytes(), 4800);
  EXPECT_EQ(copy.grain(), 16);
}

}  // namespace
}  // namespace sluice::cpu
