#pragma once
#include <algorithm>
#include <array>
#include <cstdint>

#include "sluice/cpu/conv/conv.h"
#include "sluice/cpu/simd/unit.h"

/// Included by conv.isa.cc only.
namespace sluice::cpu::internal {

/// Copies the elements of a source under one tap of the windows, for consecutive positions, into a
/// packed row. Positions outside the source become zeros.
template <typename V>
class WindowGather {
 public:
  explicit WindowGather(const ConvWindows& w)
      : w_(w),
        sample_(w.groups * w.channels * w.plane()),
        dense_(w.step == Extent{1, 1, 1}),
        linear_(dense_ && w.source[2] == w.grid[2] && (w.grid[0] == 1 || w.source[1] == w.grid[1])),
        inside_(all_inside(w)) {}

  /// Floats of a sample of the source.
  int64_t sample() const { return sample_; }

  /// Sets the positions [begin, begin + count), counted over all samples; count <= kConvDepth.
  void set_positions(int64_t begin, int64_t count) {
    pieces_ = 0;
    Extent at;
    int64_t sample = begin / w_.positions(), p = begin % w_.positions();
    at[2] = p % w_.grid[2];
    at[1] = p / w_.grid[2] % w_.grid[1];
    at[0] = p / (w_.grid[2] * w_.grid[1]);
    const int64_t most = w_.step[2] == 1 ? V::kLanes : kConvDepth;
    for (int64_t done = 0; done < count;) {
      const int64_t room = linear_ ? w_.positions() - p : w_.grid[2] - at[2];
      const int64_t n = std::min({room, count - done, most});
      place_[static_cast<size_t>(pieces_)] = {at, n};
      piece_[static_cast<size_t>(pieces_++)] = {
          sample * sample_ +
              (at[0] * w_.step[0] * w_.source[1] + at[1] * w_.step[1]) * w_.source[2] +
              at[2] * w_.step[2],
          done};
      done += n;
      p += n;
      advance(n, at);
      if (p < w_.positions()) continue;
      p = 0;
      at = {0, 0, 0};
      ++sample;
    }
    for (int64_t i = 0; inside_ && i < pieces_; ++i) {
      const int64_t n = place_[static_cast<size_t>(i)].count;
      lanes_[static_cast<size_t>(i)] = {V::Mask::first(n), 0, n};
    }
  }

  /// Returns how many taps set_tap() can keep for the current positions.
  int64_t slots() const {
    return inside_ ? kConvDepth : kConvDepth / std::max<int64_t>(pieces_, 1);
  }

  /// Sets the tap of a slot.
  void set_tap(const ConvTap& tap, int64_t slot) {
    tap_[static_cast<size_t>(slot)] =
        (tap.offset[0] * w_.source[1] + tap.offset[1]) * w_.source[2] + tap.offset[2];
    if (inside_) return;
    Lanes* const lanes = lanes_.data() + slot * pieces_;
    for (int64_t i = 0; i < pieces_; ++i) lanes[i] = lanes_of(place_[static_cast<size_t>(i)], tap);
  }

  /// Copies from `channels` planes, one after the other, of the first sample into rows `stride`
  /// floats apart. Whole vectors are stored: up to kConvSlack floats behind the positions of a row
  /// are overwritten.
  void copy(const float* plane, int64_t channels, int64_t slot, float* to, int64_t stride) const {
    const float* const from = plane + tap_[static_cast<size_t>(slot)];
    const Lanes* const lanes = lanes_.data() + (inside_ ? 0 : slot * pieces_);
    if (w_.step[2] != 1) {
      for (int64_t i = 0; i < channels; ++i)
        copy_strided(from + i * w_.plane(), lanes, to + i * stride);
      return;
    }
    switch (pieces_) {
      case 1:
        return copy_pieces<1>(from, channels, lanes, to, stride);
      case 2:
        return copy_pieces<2>(from, channels, lanes, to, stride);
      case 3:
        return copy_pieces<3>(from, channels, lanes, to, stride);
      case 4:
        return copy_pieces<4>(from, channels, lanes, to, stride);
      default:
        copy_many(from, channels, lanes, to, stride);
    }
  }

  /// Whether copy_taps() may be called.
  bool copies_taps() const {
    return inside_ && w_.channels == 1 && w_.step[2] == 1 && pieces_ <= 4;
  }

  /// Copies from one plane under the taps of the first slots, like copy(): a row for each tap.
  [[gnu::noinline]] void copy_taps(const float* plane, int64_t taps, float* to,
                                   int64_t stride) const {
    // A piece that does not exist is stored over by the first one of the next row.
    typename V::Mask mask[4];
    int64_t source[4], target[4];
    for (size_t i = 0; i < 4; ++i) {
      const bool exists = i < static_cast<size_t>(pieces_);
      mask[i] = exists ? lanes_[i].mask : V::Mask::first(0);
      source[i] = exists ? piece_[i].from : 0;
      target[i] = exists ? piece_[i].to : stride;
    }
    for (int64_t t = 0; t < taps; ++t, to += stride) {
      const float* const from = plane + tap_[static_cast<size_t>(t)];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) V::load_masked(from + source[i], mask[i]).store(to + target[i]);
    }
  }

 private:
  /// Consecutive positions: of one row of the grid, or of several if their sources are adjacent.
  struct Piece {
    int64_t from = 0;  ///< Floats from a plane's first element for offset 0.
    int64_t to = 0;
  };
  struct Place {
    Extent at{};
    int64_t count = 0;
  };
  /// The positions of a piece that are inside the source under a tap.
  struct Lanes {
    typename V::Mask mask{};
    int64_t first = 0, end = 0;  ///< As a range, if the piece is in one row.
  };

  /// Moves a position by n, which does not reach the next sample's first one.
  void advance(int64_t n, Extent& at) const {
    at[2] += n;
    while (at[2] >= w_.grid[2]) {
      at[2] -= w_.grid[2];
      if (++at[1] == w_.grid[1]) {
        at[1] = 0;
        ++at[0];
      }
    }
  }

  /// Returns the positions [first, end) of `count` in a row from `at` on that are in the source.
  Lanes lanes_of_row(const Extent& at, int64_t count, const ConvTap& tap) const {
    const int64_t depth = at[0] * w_.step[0] + tap.offset[0];
    const int64_t height = at[1] * w_.step[1] + tap.offset[1];
    if (depth < 0 || depth >= w_.source[0] || height < 0 || height >= w_.source[1]) return {};
    // Position j of the row reads element width + j·step.
    const int64_t step = w_.step[2], width = at[2] * step + tap.offset[2];
    Lanes lanes;
    if (step == 1) {
      lanes.first = std::clamp<int64_t>(-width, 0, count);
      lanes.end = std::clamp<int64_t>(w_.source[2] - width, lanes.first, count);
    } else {
      lanes.first = width >= 0 ? 0 : std::min(count, (step - 1 - width) / step);
      const int64_t left = std::max<int64_t>(0, w_.source[2] - width);
      lanes.end = std::clamp((left + step - 1) / step, lanes.first, count);
    }
    return lanes;
  }

  Lanes lanes_of(const Place& place, const ConvTap& tap) const {
    Lanes lanes;
    if (!linear_) {
      lanes = lanes_of_row(place.at, place.count, tap);
      lanes.mask = V::Mask::first(lanes.end) & !V::Mask::first(lanes.first);
      return lanes;
    }
    lanes.mask = V::Mask::first(0);
    Extent at = place.at;
    for (int64_t done = 0; done < place.count;) {
      const int64_t n = std::min(place.count - done, w_.grid[2] - at[2]);
      const Lanes row = lanes_of_row(at, n, tap);
      lanes.mask =
          lanes.mask | (V::Mask::first(done + row.end) & !V::Mask::first(done + row.first));
      done += n;
      advance(n, at);
    }
    return lanes;
  }

  static bool all_inside(const ConvWindows& w) {
    for (const ConvTap& tap : w.taps) {
      for (size_t a = 0; a < 3; ++a) {
        const int64_t last = (w.grid[a] - 1) * w.step[a] + tap.offset[a];
        if (tap.offset[a] < 0 || last >= w.source[a]) return false;
      }
    }
    return true;
  }

  template <int kPieces>
  [[gnu::noinline]] void copy_pieces(const float* from, int64_t channels, const Lanes* lanes,
                                     float* to, int64_t stride) const {
    typename V::Mask mask[kPieces];
    int64_t source[kPieces], target[kPieces];
    for (int i = 0; i < kPieces; ++i) {
      mask[i] = lanes[i].mask;
      source[i] = piece_[static_cast<size_t>(i)].from;
      target[i] = piece_[static_cast<size_t>(i)].to;
    }
    const int64_t plane = w_.plane();
    for (int64_t channel = 0; channel < channels; ++channel) {
#pragma GCC unroll 4
      for (int i = 0; i < kPieces; ++i)
        V::load_masked(from + source[i], mask[i]).store(to + target[i]);
      from += plane;
      to += stride;
    }
  }

  [[gnu::noinline]] void copy_many(const float* from, int64_t channels, const Lanes* lanes,
                                   float* to, int64_t stride) const {
    const int64_t plane = w_.plane(), pieces = pieces_;
    for (int64_t channel = 0; channel < channels; ++channel) {
      for (int64_t i = 0; i < pieces; ++i) {
        const Piece& piece = piece_[static_cast<size_t>(i)];
        V::load_masked(from + piece.from, lanes[i].mask).store(to + piece.to);
      }
      from += plane;
      to += stride;
    }
  }

  void copy_strided(const float* from, const Lanes* lanes, float* to) const {
    const int64_t step = w_.step[2];
    for (int64_t i = 0; i < pieces_; ++i) {
      const Piece& piece = piece_[static_cast<size_t>(i)];
      float* const out = to + piece.to;
      const float* const in = from + piece.from;
      const int64_t count = place_[static_cast<size_t>(i)].count;
      for (int64_t j = 0; j < lanes[i].first; ++j) out[j] = 0.0f;
      for (int64_t j = lanes[i].first; j < lanes[i].end; ++j) out[j] = in[j * step];
      for (int64_t j = lanes[i].end; j < count; ++j) out[j] = 0.0f;
    }
  }

  const ConvWindows& w_;
  const int64_t sample_;
  const bool dense_;   ///< Positions read adjacent elements.
  const bool linear_;  ///< Also across rows.
  const bool inside_;  ///< No window reaches outside the source.
  int64_t pieces_ = 0;
  std::array<Piece, kConvDepth> piece_;
  std::array<Place, kConvDepth> place_;
  std::array<int64_t, kConvDepth> tap_;  ///< By slot: floats from the element for offset 0.
  std::array<Lanes, kConvDepth> lanes_;  ///< By slot and piece; one slot if all are inside.
};

}  // namespace sluice::cpu::internal
