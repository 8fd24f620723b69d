#include "sluice/cpu/move/transpose_block.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "sluice/base/checked.h"
#include "sluice/cpu/simd/streaming.h"

namespace sluice::cpu {
namespace {

template <int kWidth>
struct VectorOf;
template <>
struct VectorOf<1> {
  using type [[gnu::vector_size(16)]] = uint8_t;
};
template <>
struct VectorOf<2> {
  using type [[gnu::vector_size(16)]] = uint16_t;
};
template <>
struct VectorOf<4> {
  using type [[gnu::vector_size(16)]] = uint32_t;
};
template <>
struct VectorOf<8> {
  using type [[gnu::vector_size(16)]] = uint64_t;
};

// Interleaves the low or the high halves of two vectors.
template <bool kHigh, typename V, size_t... I>
V interleave(V a, V b, std::index_sequence<I...>) {
  constexpr size_t kLanes = sizeof...(I);
  constexpr size_t kFirst = kHigh ? kLanes / 2 : 0;
  return __builtin_shufflevector(a, b, (kFirst + I / 2 + I % 2 * kLanes)...);
}

// Transposes n × n elements, one vector to a row. Each stage interleaves row i with row i + n/2;
// after log2(n) of these perfect shuffles, element (r, c) is at (c, r).
template <int kStages, typename V, int kLanes>
[[gnu::always_inline]] inline void transpose_tile(V (&rows)[kLanes]) {
  if constexpr (kStages > 1) {
    constexpr std::make_index_sequence<kLanes> kAll{};
    V next[kLanes];
#pragma GCC unroll 16
    for (int i = 0; i < kLanes / 2; ++i) {
      next[2 * i] = interleave<false>(rows[i], rows[i + kLanes / 2], kAll);
      next[2 * i + 1] = interleave<true>(rows[i], rows[i + kLanes / 2], kAll);
    }
    transpose_tile<kStages / 2>(next);
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) rows[i] = next[i];
  }
}

constexpr int kTiles = kBlockBytes / kVectorBytes;

// Transposes the tile of some rows and one vector of each into `rows`.
template <typename V, int kLanes>
[[gnu::always_inline]] inline void load_tile(const std::byte* from, int64_t from_step,
                                             V (&rows)[kLanes]) {
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) std::memcpy(&rows[i], from + i * from_step, sizeof(V));
  transpose_tile<kLanes>(rows);
}

// Transposes a block of lines: 64 bytes of each of 64 / kWidth rows.
template <int kWidth>
[[gnu::always_inline]] inline void transpose_lines(const std::byte* from, int64_t from_step,
                                                   std::byte* to, int64_t to_step) {
  using V = typename VectorOf<kWidth>::type;
  constexpr int kLanes = kVectorBytes / kWidth;
  if constexpr (kLanes == 4) {
    // Four tiles fit in registers and make whole lines of the result.
    for (int b = 0; b < kTiles; ++b) {
      V lines[kTiles][kLanes];
      for (int a = 0; a < kTiles; ++a)
        load_tile(from + a * kLanes * from_step + b * kVectorBytes, from_step, lines[a]);
      for (int i = 0; i < kLanes; ++i) {
        for (int a = 0; a < kTiles; ++a)
          std::memcpy(to + (b * kLanes + i) * to_step + a * kVectorBytes, &lines[a][i], sizeof(V));
      }
    }
  } else {
    constexpr int kSide = kBlockBytes / kWidth;
    alignas(kBlockBytes) std::byte block[kSide * kBlockBytes];
    for (int a = 0; a < kTiles; ++a) {
      for (int b = 0; b < kTiles; ++b) {
        V rows[kLanes];
        load_tile(from + a * kLanes * from_step + b * kVectorBytes, from_step, rows);
        for (int i = 0; i < kLanes; ++i)
          std::memcpy(block + (b * kLanes + i) * kBlockBytes + a * kVectorBytes, &rows[i],
                      sizeof(V));
      }
    }
    for (int i = 0; i < kSide; ++i)
      std::memcpy(to + i * to_step, block + i * kBlockBytes, kBlockBytes);
  }
}

// Copies at most a line.
[[gnu::always_inline]] inline void copy_short(const std::byte* from, std::byte* to, int64_t bytes) {
  const auto ends = [&](auto size) {
    std::memcpy(to, from, size);
    std::memcpy(to + bytes - static_cast<int64_t>(size), from + bytes - static_cast<int64_t>(size),
                size);
  };
  if (bytes >= 16) {
    for (int64_t at = 16; at < bytes - 16; at += 16) std::memcpy(to + at, from + at, 16);
    ends(std::integral_constant<size_t, 16>{});
  } else if (bytes >= 8) {
    ends(std::integral_constant<size_t, 8>{});
  } else if (bytes >= 4) {
    ends(std::integral_constant<size_t, 4>{});
  } else {
    for (int64_t at = 0; at < bytes; ++at) to[at] = from[at];
  }
}

template <int kWidth>
void transpose_matrix(const Matrix& m) {
  constexpr int64_t kSide = kBlockBytes / kWidth;
  // Lines of the result that are computed before the next lines of the source are read.
  constexpr int64_t kLinesAtOnce = 4;
  alignas(kBlockBytes) std::byte in[kSide * kBlockBytes] = {};
  alignas(kBlockBytes) std::byte out[kSide * kBlockBytes];
  const bool aligned = (reinterpret_cast<uintptr_t>(m.to) | static_cast<uintptr_t>(m.to_step)) %
                           static_cast<uintptr_t>(kBlockBytes) ==
                       0;
  const bool streams = m.streams && aligned;
  for (int64_t strip = 0; strip < m.rows; strip += kLinesAtOnce * kSide) {
    const int64_t strip_end = std::min(m.rows, strip + kLinesAtOnce * kSide);
    for (int64_t c = 0; c < m.cols; c += kSide) {
      const int64_t cols = std::min(kSide, m.cols - c);
      for (int64_t r = strip; r < strip_end; r += kSide) {
        const int64_t rows = std::min(kSide, strip_end - r);
        const std::byte* from = m.from + c * m.from_step + r * kWidth;
        std::byte* const to = m.to + r * m.to_step + c * kWidth;
        if (rows == kSide && cols == kSide) {
          if (!streams) {
            transpose_lines<kWidth>(from, m.from_step, to, m.to_step);
            continue;
          }
          transpose_lines<kWidth>(from, m.from_step, out, kBlockBytes);
          for (int64_t i = 0; i < kSide; ++i)
            stream(out + i * kBlockBytes, to + i * m.to_step, kBlockBytes);
          continue;
        }
        for (int64_t i = 0; i < cols; ++i)
          copy_short(from + i * m.from_step, in + i * kBlockBytes, rows * kWidth);
        transpose_lines<kWidth>(in, kBlockBytes, out, kBlockBytes);
        for (int64_t i = 0; i < rows; ++i)
          copy_short(out + i * kBlockBytes, to + i * m.to_step, cols * kWidth);
      }
    }
  }
}

}  // namespace

void transpose(const Matrix& m, int64_t width) {
  if (width == 1) transpose_matrix<1>(m);
  if (width == 2) transpose_matrix<2>(m);
  if (width == 4) transpose_matrix<4>(m);
  if (width == 8) transpose_matrix<8>(m);
}

}  // namespace sluice::cpu
