#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "sluice/base/shape.h"

namespace sluice::cpu {

/// An axis of a copy: its size, and the bytes from one index to the next in both arrays.
struct CopyAxis {
  int64_t size = 1;
  int64_t from = 0;  ///< May be 0 or negative.
  int64_t to = 0;
};

/// Copies elements between two arrays of any strides: transposes, slices, broadcasts, flips. It
/// writes each element of the result once.
///
/// The work consists of units in row-major order. A unit is an element, or all elements of some
/// last axes if blocks are transposed. Separate ranges of units may run in parallel.
class StridedCopy {
 public:
  StridedCopy() = default;
  /// `axes` are in the order of the result, the last varies fastest. `width` is the size of an
  /// element in bytes: 1, 2, 4 or 8.
  StridedCopy(std::vector<CopyAxis> axes, int64_t width);

  int64_t units() const { return units_; }
  /// Bytes of the elements of a unit.
  int64_t unit_bytes() const { return unit_bytes_; }
  /// A range of units is fastest if it begins and ends at a multiple of this.
  int64_t grain() const { return grain_; }
  int64_t bytes() const { return units_ * unit_bytes_; }

  /// Copies the units [begin, end). The arrays must not overlap. `streams` bypasses the caches
  /// where possible; the caller then calls finish_streams() (streaming.h).
  void run(const std::byte* from, std::byte* to, int64_t begin, int64_t end,
           bool streams = false) const;

 private:
  void merge(std::vector<CopyAxis> axes);
  void widen();
  void run_rows(const std::byte* from, std::byte* to, int64_t begin, int64_t end,
                bool streams) const;
  void run_blocks(const std::byte* from, std::byte* to, int64_t begin, int64_t end,
                  bool streams) const;

  std::vector<CopyAxis> axes_;  // At least two; neighbours cannot be merged.
  int64_t width_ = 1;
  // If blocks are transposed, the last axis is contiguous in the result and this one in the source.
  std::optional<size_t> block_axis_;
  int64_t units_ = 0;
  int64_t unit_bytes_ = 0;
  int64_t grain_ = 1;
};

/// Returns the strides of a row-major array in bytes.
std::vector<int64_t> byte_strides(const Shape& shape, int64_t width);

}  // namespace sluice::cpu
