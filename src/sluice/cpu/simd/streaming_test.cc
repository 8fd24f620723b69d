#include "sluice/cpu/simd/streaming.h"

#include <gtest/gtest.h>

#include <vector>

namespace sluice::cpu {
namespace {

TEST(Stream, CopiesAnyStretchAndNothingElse) {
  constexpr size_t kBytes = 512;
  constexpr std::byte kUntouched{0xEE};
  std::vector<std::byte> from(kBytes);
  for (size_t i = 0; i < kBytes; ++i) from[i] = static_cast<std::byte>(i * 7 + 1);
  for (size_t first = 0; first < 70; ++first) {
    for (const size_t count : {0, 1, 15, 63, 64, 65, 128, 300}) {
      std::vector<std::byte> to(kBytes, kUntouched);
      stream(from.data() + first / 3, to.data() + first, static_cast<int64_t>(count));
      finish_streams();
      for (size_t i = 0; i < kBytes; ++i) {
        const bool inside = i >= first && i < first + count;
        ASSERT_EQ(to[i], inside ? from[first / 3 + i - first] : kUntouched)
            << first << " " << count << " " << i;
      }
    }
  }
}

}  // namespace
}  // namespace sluice::cpu
