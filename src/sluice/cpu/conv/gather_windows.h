#pragma once
#include <algorithm>
#include <array>
#include <cstdint>

#include "sluice/cpu/conv/conv.h"
#include "sluice/cpu/simd/unit.h"

/// Included by conv.isa.cc only.
namespace sluice::cpu::internal {

/// Copies the elements of a source under one tap of the windows, for consecutive positions of all
/// samples, into a packed row. Positions outside the source become zeros.
template <typename V>
class WindowGather {
 public:
  explicit WindowGather(const ConvWindows& w)
      : w_(w), sample_(w.groups * w.channels * w.plane()), inside_(all_inside(w)) {}

  /// Sets the positions [begin, begin + count), counted over all samples; count <= kConvDepth.
  void set_positions(int64_t begin, int64_t count) {
    pieces_ = 0;
    for (int64_t done = 0; done < count;) {
      const int64_t at = begin + done, p = at % w_.positions();
      const int64_t col = p % w_.grid[2], row = p / w_.grid[2];
      const int64_t n = std::min({w_.grid[2] - col, count - done, most()});
      Piece& piece = piece_[static_cast<size_t>(pieces_++)];
      piece.depth = row / w_.grid[1] * w_.step[0];
      piece.height = row % w_.grid[1] * w_.step[1];
      piece.width = col * w_.step[2];
      piece.from = at / w_.positions() * sample_ +
                   (piece.depth * w_.source[1] + piece.height) * w_.source[2] + piece.width;
      piece.to = done;
      piece.count = n;
      piece.lanes = V::Mask::first(n);
      piece.first = 0;
      piece.end = n;
      done += n;
    }
  }

  void set_tap(const ConvTap& tap) {
    tap_ = (tap.offset[0] * w_.source[1] + tap.offset[1]) * w_.source[2] + tap.offset[2];
    if (inside_) return;
    for (int64_t i = 0; i < pieces_; ++i) {
      Piece& piece = piece_[static_cast<size_t>(i)];
      const int64_t depth = piece.depth + tap.offset[0], height = piece.height + tap.offset[1];
      const bool row = depth >= 0 && depth < w_.source[0] && height >= 0 && height < w_.source[1];
      // Position j of the piece reads element width + j·step of a row of the source.
      const int64_t width = piece.width + tap.offset[2], step = w_.step[2];
      piece.first = width >= 0 ? 0 : std::min(piece.count, (step - 1 - width) / step);
      piece.end = width >= w_.source[2]
                      ? 0
                      : std::min(piece.count, (w_.source[2] - width + step - 1) / step);
      if (!row || piece.end < piece.first) piece.first = piece.end = 0;
      piece.lanes = V::Mask::first(piece.end) & !V::Mask::first(piece.first);
    }
  }

  /// Copies from the plane of a channel in the first sample. Whole vectors are stored: up to
  /// kConvSlack floats behind the positions are overwritten.
  void copy(const float* plane, float* to) const {
    const float* const from = plane + tap_;
    if (w_.step[2] != 1) return copy_strided(from, to);
    for (int64_t i = 0; i < pieces_; ++i) {
      const Piece& piece = piece_[static_cast<size_t>(i)];
      V::load_masked(from + piece.from, piece.lanes).store(to + piece.to);
    }
  }

 private:
  /// Consecutive positions in one row of the grid.
  struct Piece {
    int64_t from = 0;  ///< Floats from the tap's element in a channel's first plane.
    int64_t to = 0;
    typename V::Mask lanes{};    ///< Positions inside the source.
    int64_t first = 0, end = 0;  ///< These positions, as a range.
    int64_t count = 0;
    int64_t depth = 0, height = 0, width = 0;  ///< Position of the source for offset 0.
  };

  /// Returns the most positions of a piece: a vector, or many if vectors are not used.
  int64_t most() const { return w_.step[2] == 1 ? V::kLanes : kConvDepth; }

  static bool all_inside(const ConvWindows& w) {
    for (const ConvTap& tap : w.taps) {
      for (size_t a = 0; a < 3; ++a) {
        const int64_t last = (w.grid[a] - 1) * w.step[a] + tap.offset[a];
        if (tap.offset[a] < 0 || last >= w.source[a]) return false;
      }
    }
    return true;
  }

  void copy_strided(const float* from, float* to) const {
    const int64_t step = w_.step[2];
    for (int64_t i = 0; i < pieces_; ++i) {
      const Piece& piece = piece_[static_cast<size_t>(i)];
      float* const out = to + piece.to;
      const float* const in = from + piece.from;
      for (int64_t j = 0; j < piece.first; ++j) out[j] = 0.0f;
      for (int64_t j = piece.first; j < piece.end; ++j) out[j] = in[j * step];
      for (int64_t j = piece.end; j < piece.count; ++j) out[j] = 0.0f;
    }
  }

  const ConvWindows& w_;
  const int64_t sample_;  ///< Floats of a sample of the source.
  const bool inside_;     ///< No window reaches outside the source.
  int64_t tap_ = 0;       ///< Floats from the element for offset 0 to the tap's.
  int64_t pieces_ = 0;
  std::array<Piece, kConvDepth> piece_;
};

}  // namespace sluice::cpu::internal
