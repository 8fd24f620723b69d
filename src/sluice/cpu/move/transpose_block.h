#pragma once
#include <cstddef>
#include <cstdint>

namespace sluice::cpu {

inline constexpr int64_t kVectorBytes = 16;
inline constexpr int64_t kBlockBytes = 64;  ///< A cache line: rows and columns of a block.

/// A matrix and its transpose: element (r, c) of the result is at to + r·to_step + c·width. It is
/// read at from + c·from_step + r·width.
struct Matrix {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  int64_t from_step = 0;
  int64_t to_step = 0;
  int64_t rows = 0;
  int64_t cols = 0;
  bool streams = false;  ///< Whole lines of the result bypass the caches.
};

/// Transposes elements of `width` bytes (1, 2, 4 or 8), in blocks of whole cache lines.
void transpose(const Matrix& m, int64_t width);

}  // namespace sluice::cpu
