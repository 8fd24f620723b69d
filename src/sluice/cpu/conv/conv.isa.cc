#include "sluice/cpu/conv/conv.h"

#include <algorithm>

#include "sluice/cpu/conv/depthwise.h"
#include "sluice/cpu/conv/gather_windows.h"
#include "sluice/cpu/gemm/gemm_pack.h"
#include "sluice/cpu/gemm/gemm_tile.h"

namespace sluice::cpu::internal {
namespace {

using V = VectorFor<kUnitIsa>::type;
using S = TileShape<V>;

/// Floats between the packed weights of two steps: the rows of a tile, in whole vectors.
constexpr int64_t kPacked = (S::kRows + V::kLanes - 1) / V::kLanes * V::kLanes;

/// Steps between the prefetch of a weight and its use.
constexpr int64_t kStepsAhead = 16;

/// Rows cut into tiles of about equal height.
struct Cut {
  Cut(int64_t rows, int64_t max)
      : tiles((rows + max - 1) / max), height(rows / tiles), higher(rows % tiles) {}
  int64_t begin(int64_t tile) const { return tile * height + std::min(tile, higher); }
  int64_t rows(int64_t tile) const { return height + (tile < higher); }
  int64_t tiles, height, higher;  ///< The first `higher` tiles have one row more.
};

/// One call of correlate().
class Correlator {
 public:
  Correlator(const Correlation& c, const CorrelationOperands& operands, float* workspace)
      : c_(c),
        operands_(operands),
        w_(c.windows),
        plan_(plan_of(c)),
        weights_(workspace),
        sources_(workspace + plan_.weight_floats),
        gather_(w_) {}

  void run(const ConvPart& part) {
    part_ = part;
    for (int64_t row = part.first_row; row < part.end_row;) {
      group_ = row / c_.rows;
      first_row_ = row % c_.rows;
      rows_ = std::min({plan_.rows, c_.rows - first_row_, part.end_row - row});
      row += rows_;
      if (by_sample()) {
        for (int64_t sample = part.first_sample; sample < part.end_sample; ++sample)
          run_blocks(sample, sample + 1);
      } else {
        run_blocks(part.first_sample, part.end_sample);
      }
      if (finishes_late()) finish_samples();
    }
  }

 private:
  /// Whether a sample is finished before the next one begins. Its operands then stay in the L2
  /// cache from one block of the chains to the next. That costs packing for each sample, which is
  /// little compared with the products of many strips.
  bool by_sample() const {
    constexpr int64_t kManyStrips = 8, kManyProducts = 1 << 13;
    return part_.end_position - part_.first_position >= kManyStrips * kConvStrip &&
           rows_ * plan_.depth >= kManyProducts;
  }

  /// Computes the current rows of some samples.
  void run_blocks(int64_t first_sample, int64_t end_sample) {
    const int64_t depth = w_.depth();
    // Positions without a tap are chains without steps: zeros.
    first_ = 0;
    do {
      steps_ = std::min(plan_.depth, depth - first_);
      run_block(first_sample, end_sample);
      first_ += plan_.depth;
    } while (first_ < depth);
  }

  /// Computes the current steps of the chains of the current rows.
  void run_block(int64_t first_sample, int64_t end_sample) {
    const bool narrow = part_.end_position - part_.first_position <= V::kLanes;
    const Cut cut(rows_, narrow ? S::kNarrowRows : S::kRows);
    if (!plan_.in_place) pack_weights(cut);
    for (int64_t p = part_.first_position; p < part_.end_position; p += kConvStrip) {
      const int64_t cols = std::min(kConvStrip, part_.end_position - p);
      set_strip(p, cols);
      for (int64_t sample = first_sample; sample < end_sample; ++sample) {
        const int64_t row = (sample * w_.groups + group_) * c_.rows + first_row_;
        float* const result = operands_.result + row * c_.result_plane + p;
        pack_sources(sample);
        if (end_sample == first_sample + 1) prefetch(sample, p + kConvStrip);
        compute_strip(cut, result, cols);
        if (first_ + steps_ == w_.depth() && !finishes_late()) finish(row, p, cols, result);
      }
    }
  }

  /// Prefetches the sources of the strip at a position: the last tap of the current steps, as the
  /// taps before it were read for earlier strips. The planes are in pages of their own, which
  /// hardware does not prefetch.
  void prefetch(int64_t sample, int64_t position) const {
    if (position >= part_.end_position) {
      position = part_.first_position;
      if (++sample >= part_.end_sample) return;
    }
    if (steps_ == 0) return;
    const Extent& tap = w_.taps.data()[(first_ + steps_ - 1) / w_.channels].offset;
    const int64_t channels = std::min(w_.channels, steps_);
    const int64_t first_channel = channels == w_.channels ? 0 : first_ % w_.channels;
    const float* const source = operands_.source + sample * gather_.sample() +
                                (group_ * w_.channels + first_channel) * w_.plane() +
                                position * w_.plane() / w_.positions() +
                                (tap[0] * w_.source[1] + tap[1]) * w_.source[2] + tap[2];
    const int64_t floats = kConvStrip * w_.plane() / w_.positions();
    for (int64_t c = 0; c < channels; ++c) {
      for (int64_t i = 0; i <= floats; i += 16) __builtin_prefetch(source + c * w_.plane() + i);
    }
  }

  void compute_strip(const Cut& cut, float* result, int64_t cols) {
    for (int64_t j = 0; j < cols; j += S::kCols) {
      Tiles t;
      t.depth = steps_;
      t.a_stride = plan_.in_place ? c_.weight_channel : kPacked;
      t.ask_step = t.a_stride;
      t.ask_jump = 32 * t.a_stride;
      t.b = sources_ + j;
      t.b_stride = kConvStrip;
      t.from_stride = t.to_stride = c_.result_plane;
      t.cols = std::min<int64_t>(S::kCols, cols - j);
      const bool narrow = t.cols <= V::kLanes;
      for (int64_t tile = 0; tile < cut.tiles; ++tile) {
        t.a = plan_.in_place ? weights_in_place() + cut.begin(tile)
                             : weights_ + tile * steps_ * kPacked;
        t.ask = t.a + steps_ * t.a_stride;
        t.to = result + cut.begin(tile) * c_.result_plane + j;
        t.from = first_ == 0 ? nullptr : t.to;
        tile_fn<V>(cut.rows(tile), narrow, false, plan_.in_place)(t);
      }
    }
  }

  /// Returns the weight of the first current row at the first current step.
  const float* weights_in_place() const {
    return operands_.weight + group_ * c_.weight_group + first_row_ + w_.taps[0].weight +
           first_ * c_.weight_channel;
  }

  /// Packs the weights of each tile: the rows of a step, step after step, kPacked floats apart.
  void pack_weights(const Cut& cut) {
    for (int64_t tile = 0; tile < cut.tiles; ++tile) {
      float* to = weights_ + tile * steps_ * kPacked;
      for (int64_t k = first_; k < first_ + steps_;) {
        const int64_t channel = k % w_.channels;
        const int64_t count = std::min(w_.channels - channel, first_ + steps_ - k);
        const float* const from = operands_.weight + group_ * c_.weight_group +
                                  (first_row_ + cut.begin(tile)) * c_.weight_row +
                                  w_.taps.data()[k / w_.channels].weight +
                                  channel * c_.weight_channel;
        pack_tap(from, cut.rows(tile), count, to);
        to += count * kPacked;
        k += count;
      }
    }
  }

  /// Packs the weights of some rows for some channels under one tap.
  void pack_tap(const float* from, int64_t rows, int64_t channels, float* to) const {
    if (c_.weight_row == 1) {
      for (int64_t i = 0; i < channels; ++i) {
        // The rows of a step may be in a page of their own, which hardware does not prefetch.
        __builtin_prefetch(from + (i + kStepsAhead) * c_.weight_channel);
        for (int64_t j = 0; j < rows; j += V::kLanes)
          V::load_partial(from + i * c_.weight_channel + j, rows - j).store(to + i * kPacked + j);
      }
    } else if (c_.weight_channel == 1) {
      transpose_block<V>(from, c_.weight_row, channels, channels, rows, kPacked, to);
    } else {
      for (int64_t i = 0; i < channels; ++i) {
        const float* const p = from + i * c_.weight_channel;
        for (int64_t j = 0; j < rows; ++j) to[i * kPacked + j] = p[j * c_.weight_row];
      }
    }
  }

  /// Prepares to pack some positions of any sample.
  void set_strip(int64_t position, int64_t cols) {
    gather_.set_positions(position, cols);
    const int64_t taps =
        steps_ == 0 ? 0 : (first_ + steps_ - 1) / w_.channels - first_ / w_.channels + 1;
    keeps_taps_ = taps <= gather_.slots();
    for (int64_t i = 0; keeps_taps_ && i < taps; ++i)
      gather_.set_tap(w_.taps.data()[first_ / w_.channels + i], i);
  }

  /// Packs the sources under the windows at the positions of set_strip(): a row for each step.
  void pack_sources(int64_t sample) {
    const float* const source =
        operands_.source + sample * gather_.sample() + group_ * w_.channels * w_.plane();
    if (keeps_taps_ && gather_.copies_taps())
      return gather_.copy_taps(source, steps_, sources_, kConvStrip);
    float* to = sources_;
    int64_t slot = 0;
    for (int64_t k = first_; k < first_ + steps_;) {
      if (!keeps_taps_) gather_.set_tap(w_.taps.data()[k / w_.channels], slot);
      const int64_t channel = k % w_.channels;
      const int64_t end = std::min(w_.channels, channel + first_ + steps_ - k);
      gather_.copy(source + channel * w_.plane(), end - channel, slot, to, kConvStrip);
      to += (end - channel) * kConvStrip;
      k += end - channel;
      slot += keeps_taps_;
    }
  }

  /// Whether the epilogue gets all positions of a sample at once. A call for each strip would cost
  /// much compared with short chains. The results of a task must still be in the L2 cache then.
  bool finishes_late() const {
    constexpr int64_t kMaxFloats = 1 << 16;
    const int64_t positions = part_.end_position - part_.first_position;
    return (part_.end_sample - part_.first_sample) * rows_ * positions <= kMaxFloats;
  }

  void finish_samples() {
    for (int64_t sample = part_.first_sample; sample < part_.end_sample; ++sample) {
      const int64_t row = (sample * w_.groups + group_) * c_.rows + first_row_;
      finish(row, part_.first_position, part_.end_position - part_.first_position,
             operands_.result + row * c_.result_plane + part_.first_position);
    }
  }

  void finish(int64_t row, int64_t position, int64_t cols, float* result) {
    if (operands_.epilogue.run == nullptr) return;
    for (int64_t i = 0; i < rows_; i += kRowBlock) {
      operands_.epilogue.run(operands_.epilogue.state, result + i * c_.result_plane,
                             c_.result_plane, row + i, std::min(kRowBlock, rows_ - i), position,
                             cols);
    }
  }

  const Correlation& c_;
  const CorrelationOperands& operands_;
  const ConvWindows& w_;
  const CorrelationPlan plan_;
  float *const weights_, *const sources_;  ///< Parts of the workspace.
  WindowGather<V> gather_;
  ConvPart part_;
  int64_t group_ = 0, first_row_ = 0, rows_ = 0;  ///< The current rows, in their group.
  int64_t first_ = 0, steps_ = 0;                 ///< The current steps of the chains.
  bool keeps_taps_ = false;                       ///< All taps of the current steps have slots.
};

/// One call of correlate_weights().
class WeightCorrelator {
 public:
  WeightCorrelator(const WeightCorrelation& c, const WeightCorrelationOperands& operands,
                   const WeightPart& part, float* workspace)
      : c_(c),
        operands_(operands),
        part_(part),
        w_(c.windows),
        plan_(plan_of(c, part.steps())),
        y_(workspace),
        sources_(workspace + plan_.y_floats),
        chains_(sources_ + plan_.source_floats),
        gather_(w_) {}

  void run() {
    for (group_ = part_.first_group; group_ < part_.end_group; ++group_) {
      for (col_ = 0; col_ < c_.rows; col_ += plan_.columns) {
        cols_ = std::min(plan_.columns, c_.rows - col_);
        run_columns();
      }
    }
  }

 private:
  const ConvTap& tap_of(int64_t step) const { return w_.taps.data()[step / part_.channels]; }
  int64_t channel_of(int64_t step) const { return part_.first_channel + step % part_.channels; }

  /// Returns the chain of the first column in the result, for step i of the part.
  float* result_of(int64_t i) const {
    const int64_t step = part_.first_step + i;
    return operands_.result + group_ * c_.result_group + col_ * c_.result_row +
           tap_of(step).weight + channel_of(step) * c_.result_channel;
  }
  /// Returns the first chain of step i of the part. Chains of a step are in adjacent columns.
  float* chains_of(int64_t i) const {
    return plan_.direct ? result_of(i) : chains_ + i * plan_.columns;
  }

  void run_columns() {
    const int64_t positions = w_.batch * w_.positions();
    // Without positions, the chains are zeros.
    int64_t p = 0;
    do {
      const int64_t count = count_at(p);
      first_ = p == 0;
      pack_y(p, count);
      if (plan_.by_channels) {
        run_taps(p, count);
      } else {
        run_steps(p, count);
      }
      p += count;
    } while (p < positions);
    if (!plan_.direct) store();
  }

  /// Returns how many positions are packed from position p on.
  int64_t count_at(int64_t p) const {
    const int64_t plane = w_.positions();
    const int64_t count = std::min(plan_.depth, w_.batch * plane - p);
    // Rows below those of a part of a plane are not in the next plane.
    return plan_.shares && plan_.depth < plane ? std::min(count, plane - p % plane) : count;
  }

  /// Computes `count` steps of all chains from position p on. A tile has steps (tap, channel) as
  /// rows.
  void run_steps(int64_t p, int64_t count) {
    set_positions(p, count, 0);
    const float* const source = operands_.source + group_ * w_.channels * w_.plane();
    const ConvTap* tap = nullptr;
    const Cut cut(part_.steps(), max_rows());
    for (int64_t tile = 0; tile < cut.tiles; ++tile) {
      const int64_t rows = cut.rows(tile);
      for (int64_t i = 0; i < rows;) {
        const int64_t step = part_.first_step + cut.begin(tile) + i;
        const int64_t channels = std::min(part_.channels - step % part_.channels, rows - i);
        if (&tap_of(step) != tap) gather_.set_tap(*(tap = &tap_of(step)), 0);
        gather_.copy(source + channel_of(step) * w_.plane(), channels, 0,
                     sources_ + i * source_stride_, source_stride_);
        i += channels;
      }
      Tiles t = tiles_of(count);
      for (int64_t panel = 0; panel < cols_; panel += plan_.width)
        compute_rows(cut.begin(tile), rows, panel, sources_, t);
    }
  }

  /// Like run_steps(), but a tile has channels under one tap as rows. Their sources are packed once
  /// for all taps of a column.
  void run_taps(int64_t p, int64_t count) {
    const Cut cut(part_.channels, max_rows());
    for (int64_t first = 0; first < taps(); ++first) {
      if (!begins_column(first)) continue;
      int64_t last = first;
      for (int64_t tap = first; tap < taps(); tap = next_of_column(tap)) last = tap;
      const int64_t below = floats_between(first, last);
      set_positions(p, count, below);
      gather_.set_tap(tap_at(first), 0);
      Tiles t = tiles_of(count);
      t.a_jump = below;
      if (below > 0) t.run = std::min(count, w_.positions());
      t.ask_jump = t.run * plan_.width;
      for (int64_t tile = 0; tile < cut.tiles; ++tile) {
        const int64_t channel = part_.first_channel + cut.begin(tile);
        gather_.copy(operands_.source + (group_ * w_.channels + channel) * w_.plane(),
                     cut.rows(tile), 0, sources_, source_stride_);
        for (int64_t tap = first; tap < taps(); tap = next_of_column(tap)) {
          const float* const sources = sources_ + floats_between(first, tap);
          for (int64_t panel = 0; panel < cols_; panel += plan_.width)
            compute_rows(tap * part_.channels + cut.begin(tile), cut.rows(tile), panel, sources, t);
        }
      }
    }
  }

  /// Sets the positions of gather_, and where it packs the sources of each row.
  void set_positions(int64_t p, int64_t count, int64_t below) {
    gather_.set_positions(p, count, below);
    const int64_t samples = (count + w_.positions() - 1) / w_.positions();
    source_stride_ =
        (count + samples * below + kConvSlack - 1) / kConvSlack * kConvSlack + kConvSlack;
  }

  int64_t max_rows() const { return plan_.width <= V::kLanes ? S::kNarrowRows : S::kRows; }

  // A column has the taps that differ by rows of the grid, if these share packed sources.
  int64_t taps() const { return static_cast<int64_t>(w_.taps.size()); }
  const ConvTap& tap_at(int64_t i) const { return w_.taps.data()[i]; }
  bool in_one_column(int64_t i, int64_t j) const {
    const Extent &a = tap_at(i).offset, &b = tap_at(j).offset;
    return plan_.shares && a[0] == b[0] && a[2] == b[2] && (a[1] - b[1]) % w_.step[1] == 0;
  }
  bool begins_column(int64_t tap) const {
    for (int64_t i = 0; i < tap; ++i)
      if (in_one_column(i, tap)) return false;
    return true;
  }
  /// Returns the number of taps after the last one.
  int64_t next_of_column(int64_t tap) const {
    int64_t next = tap + 1;
    while (next < taps() && !in_one_column(tap, next)) ++next;
    return next;
  }
  /// Returns the floats between the packed sources of two taps of a column.
  int64_t floats_between(int64_t tap, int64_t later) const {
    return (tap_at(later).offset[1] - tap_at(tap).offset[1]) / w_.step[1] * w_.grid[2];
  }

  /// Returns tiles for `count` steps in one run.
  Tiles tiles_of(int64_t count) const {
    Tiles t;
    t.depth = t.run = count;
    t.a_stride = source_stride_;
    t.b_stride = t.ask_step = plan_.width;
    t.ask_jump = t.run * plan_.width;
    t.from_stride = t.to_stride = plan_.direct ? c_.result_channel : plan_.columns;
    return t;
  }

  /// Computes the chains of `rows` steps of the part from `begin` on, for the columns of a panel.
  /// Sets the operands of the tiles t: a copy of t would wait for its members to be stored.
  void compute_rows(int64_t begin, int64_t rows, int64_t panel, const float* sources, Tiles& t) {
    float* const chains = chains_of(begin);
    const int64_t width = std::min(plan_.width, cols_ - panel);
    t.a = sources;
    for (int64_t j = 0; j < width; j += S::kCols) {
      t.cols = std::min<int64_t>(S::kCols, width - j);
      t.b = y_ + panel * kConvDepth + j;
      t.ask = t.b + 16 * plan_.width;
      t.to = chains + panel + j;
      t.from = first_ ? nullptr : t.to;
      tile_fn<V>(rows, t.cols <= V::kLanes, true, true)(t);
    }
  }

  /// Packs the elements of y at some positions of all samples: panels of columns, one for each row
  /// of y.
  void pack_y(int64_t position, int64_t count) {
    const int64_t plane = w_.positions();
    for (int64_t panel = 0; panel < cols_; panel += plan_.width) {
      const int64_t cols = std::min(plan_.width, cols_ - panel);
      float* const to = y_ + panel * kConvDepth;
      for (int64_t done = 0; done < count;) {
        const int64_t sample = (position + done) / plane, p = (position + done) % plane;
        const int64_t n = std::min(plane - p, count - done);
        const int64_t row = (sample * w_.groups + group_) * c_.rows + col_ + panel;
        transpose_block<V>(operands_.y + row * plane + p, plane, n, n, cols, plan_.width,
                           to + done * plan_.width);
        done += n;
      }
    }
  }

  /// Copies finished chains to the result.
  void store() const {
    for (int64_t i = 0; i < part_.steps(); ++i) {
      const float* const from = chains_of(i);
      float* const to = result_of(i);
      for (int64_t j = 0; j < cols_; ++j) to[j * c_.result_row] = from[j];
    }
  }

  const WeightCorrelation& c_;
  const WeightCorrelationOperands& operands_;
  const WeightPart& part_;
  const ConvWindows& w_;
  const WeightCorrelationPlan plan_;
  float *const y_, *const sources_, *const chains_;  ///< Parts of the workspace.
  WindowGather<V> gather_;
  int64_t group_ = 0;
  int64_t col_ = 0, cols_ = 0;  ///< The current rows of y.
  bool first_ = false;          ///< The chains begin.
  int64_t source_stride_ = 0;   ///< Floats from one row of the packed sources to the next.
};

}  // namespace

template <>
void correlate_on<kUnitIsa>(const Correlation& c, const CorrelationOperands& operands,
                            const ConvPart& part, float* workspace) {
  if (is_depthwise(c)) return depthwise_on<kUnitIsa>(c, operands, part, workspace);
  Correlator(c, operands, workspace).run(part);
}

template <>
void correlate_weights_on<kUnitIsa>(const WeightCorrelation& c,
                                    const WeightCorrelationOperands& operands,
                                    const WeightPart& part, float* workspace) {
  if (is_depthwise(c)) return depthwise_weights_on<kUnitIsa>(c, operands, part, workspace);
  WeightCorrelator(c, operands, part, workspace).run();
}

template <>
void join_columns_on<kUnitIsa>(const float* even, const float* odd, int64_t rows, int64_t width,
                               float* to, int64_t to_stride) {
  const int64_t evens = (width + 1) / 2, odds = width / 2;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < evens; i += V::kLanes) {
      store_pairs(load_some<V>(even + i, evens - i), load_some<V>(odd + i, odds - i), to + 2 * i,
                  width - 2 * i);
    }
    even += evens;
    odd += odds;
    to += to_stride;
  }
}

}  // namespace sluice::cpu::internal
