#pragma once
#include <algorithm>
#include <cstdint>

#include "sluice/cpu/conv/conv.h"
#include "sluice/cpu/simd/pairs.h"

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

  /// Sets the positions [begin, begin + count), counted over all samples, and after those of each
  /// sample `below` more. These are positions of rows below, also of rows below the grid, which
  /// must have one plane then. At most kConvGathered positions are set.
  void set_positions(int64_t begin, int64_t count, int64_t below = 0) {
    pieces_ = vectors_ = 0;
    int64_t sample = begin / w_.positions(), p = begin % w_.positions();
    for (int64_t to = 0; count > 0; ++sample, p = 0) {
      const int64_t n = std::min(w_.positions() - p, count);
      add_positions(sample, p, n + below, to);
      count -= n;
      to += n + below;
    }
    first_piece_[vectors_] = pieces_;
    for (int64_t i = 0; inside_ && i < pieces_; ++i) {
      const Piece& piece = piece_[i];
      lanes_[i] = lanes_in(piece, {0, piece.count});
    }
  }

  /// Returns how many taps set_tap() can keep for the current positions.
  int64_t slots() const {
    return inside_ ? kConvGathered : kConvGathered / std::max<int64_t>(pieces_, 1);
  }

  /// Sets the tap of a slot.
  void set_tap(const ConvTap& tap, int64_t slot) {
    tap_[slot] = (tap.offset[0] * w_.source[1] + tap.offset[1]) * w_.source[2] + tap.offset[2];
    if (inside_) return;
    Lanes* const lanes = lanes_ + slot * pieces_;
    for (int64_t i = 0; i < pieces_; ++i) lanes[i] = lanes_of(piece_[i], tap);
  }

  /// Copies from `channels` planes, one after the other, of the first sample into rows `stride`
  /// floats apart. Whole vectors are stored.
  void copy(const float* plane, int64_t channels, int64_t slot, float* to, int64_t stride) const {
    const float* const from = plane + tap_[slot];
    const Lanes* const lanes = lanes_ + (inside_ ? 0 : slot * pieces_);
    if (w_.step[2] == 2) return copy_pairs(from, channels, lanes, to, stride);
    if (w_.step[2] != 1) return copy_strided(from, channels, lanes, to, stride);
    const int64_t a = vectors_ > 0 ? pieces_of(0) : 0, b = vectors_ > 1 ? pieces_of(1) : 0;
    switch (vectors_ <= 2 && a <= 2 && b <= 2 ? 4 * a + b : 0) {
      case 4:
        return copy_strip<1, 0>(from, w_.plane(), channels, lanes, to, stride);
      case 5:
        return copy_strip<1, 1>(from, w_.plane(), channels, lanes, to, stride);
      case 6:
        return copy_strip<1, 2>(from, w_.plane(), channels, lanes, to, stride);
      case 8:
        return copy_strip<2, 0>(from, w_.plane(), channels, lanes, to, stride);
      case 9:
        return copy_strip<2, 1>(from, w_.plane(), channels, lanes, to, stride);
      case 10:
        return copy_strip<2, 2>(from, w_.plane(), channels, lanes, to, stride);
      default:
        copy_vectors(from, channels, lanes, to, stride);
    }
  }

  /// Whether copy_taps() may be called.
  bool copies_taps() const {
    return inside_ && w_.channels == 1 && w_.step[2] == 1 && vectors_ == 2 && pieces_of(0) <= 2 &&
           pieces_of(1) <= 2;
  }

  /// Copies from one plane under the taps of the first slots, like copy(): a row for each tap.
  [[gnu::noinline]] void copy_taps(const float* plane, int64_t taps, float* to,
                                   int64_t stride) const {
    const Pair a(*this, lanes_, 0), b(*this, lanes_, 1);
    for (int64_t t = 0; t < taps; ++t, to += stride) {
      const float* const from = plane + tap_[t];
      a.template load<2>(from).store(to);
      b.template load<2>(from).store(to + V::kLanes);
    }
  }

 private:
  /// A piece: consecutive positions of one row of the grid, or of several if their sources are
  /// adjacent. A piece is in one vector.
  struct Piece {
    Extent at{};
    int64_t lane = 0;  ///< Lane of the first position.
    int64_t count = 0;
    int64_t to = 0;  ///< First position, from the first one of all pieces.
  };
  /// Positions [first, end) of a piece.
  struct Range {
    int64_t first = 0, end = 0;
  };
  /// The positions of a piece that are inside the source under a tap.
  struct Lanes {
    /// The lanes to load: from the vector at the piece's first position, and with a stride of 2
    /// from the vector after it too.
    typename V::Mask mask, next;
    Range row;  ///< As a range, if the piece is in one row.
  };

  /// The two pieces of a vector; the second may have no lanes.
  struct Pair {
    Pair(const WindowGather& g, const Lanes* lanes, int64_t vector) {
      const int64_t first = g.first_piece_[vector];
      for (int64_t i = 0; i < 2; ++i) {
        const bool exists = i < g.pieces_of(vector);
        from[i] = exists ? g.from_[first + i] : 0;
        mask[i] = exists ? lanes[first + i].mask : V::Mask::first(0);
      }
    }
    template <int kPieces>
    V load(const float* p) const {
      const V first = V::load_masked(p + from[0], mask[0]);
      if constexpr (kPieces == 1) return first;
      return either(first, V::load_masked(p + from[1], mask[1]));
    }
    int64_t from[2];
    typename V::Mask mask[2];
  };

  /// Appends the pieces of `count` positions of a sample; `to` positions precede them.
  void add_positions(int64_t sample, int64_t p, int64_t count, int64_t to) {
    Extent at{p / (w_.grid[2] * w_.grid[1]), p / w_.grid[2] % w_.grid[1], p % w_.grid[2]};
    for (const int64_t end = to + count; to < end;) {
      // With strides, each piece is a vector of its own.
      const int64_t lane = w_.step[2] == 1 ? to % V::kLanes : 0;
      const int64_t max = V::kLanes - lane;
      const int64_t n = std::min({linear_ ? end - to : w_.grid[2] - at[2], end - to, max});
      const int64_t from = sample * sample_ +
                           (at[0] * w_.step[0] * w_.source[1] + at[1] * w_.step[1]) * w_.source[2] +
                           at[2] * w_.step[2];
      if (lane == 0) first_piece_[vectors_++] = pieces_;
      piece_[pieces_] = {at, lane, n, to};
      from_[pieces_++] = from - lane;
      to += n;
      advance(n, at);
    }
  }

  /// Returns the lanes of both; a lane that one of them lacks is 0 there.
  static V either(V a, V b) { return from_bits(bits(a) | bits(b)); }

  /// Returns positions of a piece that is in one row.
  Lanes lanes_in(const Piece& piece, const Range& row) const {
    if (w_.step[2] != 2) return {range(piece.lane, row.first, row.end), V::Mask::first(0), row};
    const int64_t first = 2 * row.first, end = 2 * row.end - 1;
    return {range(0, first, end), range(-V::kLanes, first, end), row};
  }

  static typename V::Mask range(int64_t lane, int64_t first, int64_t end) {
    return V::Mask::first(lane + end) & !V::Mask::first(lane + first);
  }

  int64_t pieces_of(int64_t vector) const {
    return first_piece_[vector + 1] - first_piece_[vector];
  }

  /// Moves a position by n. A grid of one plane has rows below the last one.
  void advance(int64_t n, Extent& at) const {
    at[2] += n;
    while (at[2] >= w_.grid[2]) {
      at[2] -= w_.grid[2];
      if (++at[1] == w_.grid[1] && w_.grid[0] > 1) {
        at[1] = 0;
        ++at[0];
      }
    }
  }

  /// Returns the positions [first, end) of `count` in a row from `at` on that are in the source.
  Range inside_of_row(const Extent& at, int64_t count, const ConvTap& tap) const {
    const int64_t depth = at[0] * w_.step[0] + tap.offset[0];
    const int64_t height = at[1] * w_.step[1] + tap.offset[1];
    if (depth < 0 || depth >= w_.source[0] || height < 0 || height >= w_.source[1]) return {};
    // Position j of the row reads element width + j·step.
    const int64_t step = w_.step[2], width = at[2] * step + tap.offset[2];
    Range inside;
    if (step == 1) {
      inside.first = std::clamp<int64_t>(-width, 0, count);
      inside.end = std::clamp<int64_t>(w_.source[2] - width, inside.first, count);
    } else {
      inside.first = width >= 0 ? 0 : std::min(count, (step - 1 - width) / step);
      const int64_t left = std::max<int64_t>(0, w_.source[2] - width);
      inside.end = std::clamp((left + step - 1) / step, inside.first, count);
    }
    return inside;
  }

  Lanes lanes_of(const Piece& piece, const ConvTap& tap) const {
    if (!linear_) return lanes_in(piece, inside_of_row(piece.at, piece.count, tap));
    Lanes all{V::Mask::first(0), V::Mask::first(0), {}};
    Extent at = piece.at;
    for (int64_t done = 0; done < piece.count;) {
      const int64_t n = std::min(piece.count - done, w_.grid[2] - at[2]);
      const Range row = inside_of_row(at, n, tap);
      all.mask = all.mask | range(piece.lane + done, row.first, row.end);
      done += n;
      advance(n, at);
    }
    return all;
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

  /// Copies to one or two vectors that have kA and kB pieces.
  template <int kA, int kB>
  [[gnu::noinline]] void copy_strip(const float* from, int64_t plane, int64_t channels,
                                    const Lanes* lanes, float* to, int64_t stride) const {
    const Pair a(*this, lanes, 0), b(*this, lanes, kB > 0);
    for (int64_t channel = 0; channel < channels; ++channel) {
      a.template load<kA>(from).store(to);
      if constexpr (kB > 0) b.template load<kB>(from).store(to + V::kLanes);
      from += plane;
      to += stride;
    }
  }

  [[gnu::noinline]] void copy_vectors(const float* from, int64_t channels, const Lanes* lanes,
                                      float* to, int64_t stride) const {
    const int64_t plane = w_.plane(), vectors = vectors_;
    if (pieces_ == vectors) {
      for (int64_t channel = 0; channel < channels; ++channel, from += plane, to += stride) {
#pragma GCC unroll 4
        for (int64_t v = 0; v < vectors; ++v)
          V::load_masked(from + from_[v], lanes[v].mask).store(to + v * V::kLanes);
      }
      return;
    }
    for (int64_t channel = 0; channel < channels; ++channel) {
      for (int64_t v = 0, i = 0; v < vectors; ++v) {
        V x = V::load_masked(from + from_[i], lanes[i].mask);
        for (++i; i < first_piece_[v + 1]; ++i)
          x = either(x, V::load_masked(from + from_[i], lanes[i].mask));
        x.store(to + v * V::kLanes);
      }
      from += plane;
      to += stride;
    }
  }

  /// Copies positions whose elements are two floats apart.
  [[gnu::noinline]] void copy_pairs(const float* from, int64_t channels, const Lanes* lanes,
                                    float* to, int64_t stride) const {
    const int64_t plane = w_.plane(), pieces = pieces_;
    for (int64_t channel = 0; channel < channels; ++channel, from += plane, to += stride) {
      for (int64_t i = 0; i < pieces; ++i) {
        const float* const in = from + from_[i];
        V even, odd;
        split_pairs(V::load_masked(in, lanes[i].mask),
                    V::load_masked(in + V::kLanes, lanes[i].next), even, odd);
        even.store(to + piece_[i].to);
      }
    }
  }

  void copy_strided(const float* from, int64_t channels, const Lanes* lanes, float* to,
                    int64_t stride) const {
    const int64_t step = w_.step[2];
    for (int64_t channel = 0; channel < channels; ++channel, from += w_.plane(), to += stride) {
      for (int64_t i = 0; i < pieces_; ++i) {
        const Piece& piece = piece_[i];
        float* const out = to + piece.to;
        const float* const in = from + from_[i];
        for (int64_t j = 0; j < lanes[i].row.first; ++j) out[j] = 0.0f;
        for (int64_t j = lanes[i].row.first; j < lanes[i].row.end; ++j) out[j] = in[j * step];
        for (int64_t j = lanes[i].row.end; j < piece.count; ++j) out[j] = 0.0f;
      }
    }
  }

  const ConvWindows& w_;
  const int64_t sample_;
  const bool dense_;   ///< Positions read adjacent elements.
  const bool linear_;  ///< Also across rows.
  const bool inside_;  ///< No window reaches outside the source.
  int64_t pieces_ = 0, vectors_ = 0;
  int64_t first_piece_[kConvGathered + 1];  ///< Indexed by vector.
  /// Indexed by piece: floats from a plane's first element for offset 0 to that of lane 0.
  int64_t from_[kConvGathered];
  Piece piece_[kConvGathered];
  int64_t tap_[kConvGathered];  ///< Indexed by slot: floats from the element for offset 0.
  Lanes lanes_[kConvGathered];  ///< Indexed by slot and piece; one slot if all are inside.
};

}  // namespace sluice::cpu::internal
