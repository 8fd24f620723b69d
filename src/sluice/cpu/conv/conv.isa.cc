#include "sluice/cpu/conv/conv.h"

#include <algorithm>

#include "sluice/cpu/conv/gather_windows.h"
#include "sluice/cpu/gemm/gemm_pack.h"
#include "sluice/cpu/gemm/gemm_tile.h"

namespace sluice::cpu::internal {
namespace {

using V = VectorFor<kUnitIsa>::type;
using S = TileShape<V>;

/// Rows cut into tiles of about equal height.
struct Cut {
  Cut(int64_t rows, int64_t most)
      : tiles((rows + most - 1) / most), height(rows / tiles), higher(rows % tiles) {}
  int64_t begin(int64_t tile) const { return tile * height + std::min(tile, higher); }
  int64_t rows(int64_t tile) const { return height + (tile < higher); }
  int64_t tiles, height, higher;  ///< The first `higher` tiles have one row more.
};

/// One call of correlate().
class Correlator {
 public:
  Correlator(const Correlation& c, float* workspace)
      : c_(c),
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
      const int64_t depth = w_.depth();
      // Positions without a tap are chains without steps: zeros.
      int64_t first = 0;
      do {
        run_block(first, std::min(plan_.depth, depth - first));
        first += plan_.depth;
      } while (first < depth);
    }
  }

 private:
  /// Computes steps [first, first + steps) of the chains of the current rows.
  void run_block(int64_t first, int64_t steps) {
    const Cut cut(rows_, S::kRows);
    pack_weights(cut, first, steps);
    const bool last = first + steps == w_.depth();
    for (int64_t sample = part_.first_sample; sample < part_.end_sample; ++sample) {
      const int64_t row = (sample * w_.groups + group_) * c_.rows + first_row_;
      for (int64_t p = part_.first_position; p < part_.end_position; p += kConvStrip) {
        const int64_t cols = std::min(kConvStrip, part_.end_position - p);
        pack_sources(sample, p, cols, first, steps);
        float* const result = c_.result + row * c_.result_plane + p;
        compute_strip(cut, first, steps, result, cols);
        if (last) finish(row, p, cols, result);
      }
    }
  }

  void compute_strip(const Cut& cut, int64_t first, int64_t steps, float* result, int64_t cols) {
    for (int64_t j = 0; j < cols; j += S::kCols) {
      Tiles t;
      t.depth = steps;
      t.b = sources_ + j;
      t.b_stride = kConvStrip;
      t.from_stride = t.to_stride = c_.result_plane;
      t.cols = std::min<int64_t>(S::kCols, cols - j);
      const bool narrow = t.cols <= V::kLanes;
      for (int64_t tile = 0; tile < cut.tiles; ++tile) {
        const int64_t begin = cut.begin(tile);
        t.a = weights_ + begin * steps;
        t.a_stride = cut.rows(tile);
        t.to = result + begin * c_.result_plane + j;
        t.from = first == 0 ? nullptr : t.to;
        tile_fn<V>(cut.rows(tile), narrow, false, false)(t);
      }
    }
  }

  /// Packs the weights of each tile: the rows of a step, step after step.
  void pack_weights(const Cut& cut, int64_t first, int64_t steps) {
    for (int64_t tile = 0; tile < cut.tiles; ++tile) {
      const int64_t begin = cut.begin(tile), rows = cut.rows(tile);
      const float* const from =
          c_.weight + group_ * c_.weight_group + (first_row_ + begin) * c_.weight_row;
      float* const to = weights_ + begin * steps;
      for (int64_t k = 0; k < steps; ++k) {
        const int64_t tap = (first + k) / w_.channels, channel = (first + k) % w_.channels;
        const float* const p =
            from + w_.taps[static_cast<size_t>(tap)].weight + channel * c_.weight_channel;
        for (int64_t i = 0; i < rows; ++i) to[k * rows + i] = p[i * c_.weight_row];
      }
    }
  }

  /// Packs the sources under the windows at some positions: a row for each step.
  void pack_sources(int64_t sample, int64_t position, int64_t cols, int64_t first, int64_t steps) {
    gather_.set_positions(sample * w_.positions() + position, cols);
    const float* const source = c_.source + group_ * w_.channels * w_.plane();
    float* to = sources_;
    for (int64_t k = first; k < first + steps;) {
      gather_.set_tap(w_.taps[static_cast<size_t>(k / w_.channels)]);
      const int64_t channel = k % w_.channels;
      const int64_t end = std::min(w_.channels, channel + first + steps - k);
      for (int64_t i = channel; i < end; ++i, to += kConvStrip)
        gather_.copy(source + i * w_.plane(), to);
      k += end - channel;
    }
  }

  void finish(int64_t row, int64_t position, int64_t cols, float* result) {
    if (c_.epilogue.run == nullptr) return;
    for (int64_t i = 0; i < rows_; i += kRowBlock) {
      c_.epilogue.run(c_.epilogue.state, result + i * c_.result_plane, c_.result_plane, row + i,
                      std::min(kRowBlock, rows_ - i), position, cols);
    }
  }

  const Correlation& c_;
  const ConvWindows& w_;
  const CorrelationPlan plan_;
  float *const weights_, *const sources_;  ///< Parts of the workspace.
  WindowGather<V> gather_;
  ConvPart part_;
  int64_t group_ = 0, first_row_ = 0, rows_ = 0;  ///< The current rows, in their group.
};

/// One call of correlate_weights().
class WeightCorrelator {
 public:
  WeightCorrelator(const WeightCorrelation& c, int64_t steps, float* workspace)
      : c_(c),
        w_(c.windows),
        plan_(plan_of(c, steps)),
        y_(workspace),
        sources_(workspace + plan_.y_floats),
        chains_(sources_ + plan_.source_floats),
        gather_(w_) {}

  void run(int64_t first, int64_t end) {
    const int64_t depth = w_.depth();
    for (int64_t step = first; step < end;) {
      group_ = step / depth;
      first_ = step % depth;
      steps_ = std::min(depth - first_, end - step);
      step += steps_;
      for (col_ = 0; col_ < c_.rows; col_ += plan_.columns) {
        cols_ = std::min(plan_.columns, c_.rows - col_);
        run_columns();
      }
    }
  }

 private:
  /// Returns the first chain of step i of the current range, and the floats from one step's to the
  /// next one's. Chains of a step are in adjacent columns.
  float* chains_of(int64_t i) const {
    if (!plan_.direct) return chains_ + i * plan_.columns;
    const int64_t step = first_ + i;
    return c_.result + group_ * c_.result_group + col_ +
           w_.taps[static_cast<size_t>(step / w_.channels)].weight +
           step % w_.channels * c_.result_channel;
  }

  void run_columns() {
    const int64_t positions = w_.batch * w_.positions();
    for (int64_t p = 0; p == 0 || p < positions; p += kConvDepth) {
      const int64_t count = std::min(kConvDepth, positions - p);
      pack_y(p, count);
      gather_.set_positions(p, count);
      // A tile's rows are channels under one tap if the chains are in the result, whose taps may be
      // anywhere.
      for (int64_t i = 0; i < steps_;) {
        const int64_t left = plan_.direct
                                 ? std::min(steps_ - i, w_.channels - (first_ + i) % w_.channels)
                                 : steps_ - i;
        const Cut cut(left, plan_.width <= V::kLanes ? S::kNarrowRows : S::kRows);
        for (int64_t tile = 0; tile < cut.tiles; ++tile)
          compute_rows(i + cut.begin(tile), cut.rows(tile), p == 0, count);
        i += left;
      }
    }
    if (!plan_.direct) store();
  }

  /// Computes `count` steps of the chains of `rows` rows from `begin` on.
  void compute_rows(int64_t begin, int64_t rows, bool first, int64_t count) {
    constexpr int64_t kStride = kConvDepth + kConvSlack;
    const float* const source = c_.source + group_ * w_.channels * w_.plane();
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t step = first_ + begin + i;
      if (i == 0 || step % w_.channels == 0)
        gather_.set_tap(w_.taps[static_cast<size_t>(step / w_.channels)]);
      gather_.copy(source + step % w_.channels * w_.plane(), sources_ + i * kStride);
    }
    Tiles t;
    t.depth = count;
    t.a = sources_;
    t.a_stride = kStride;
    t.b_stride = t.ask_step = plan_.width;
    t.ask_jump = 32 * plan_.width;
    t.from_stride = t.to_stride = plan_.direct ? c_.result_channel : plan_.columns;
    float* const chains = chains_of(begin);
    for (int64_t panel = 0; panel < cols_; panel += plan_.width) {
      const int64_t width = std::min(plan_.width, cols_ - panel);
      for (int64_t j = 0; j < width; j += S::kCols) {
        t.cols = std::min<int64_t>(S::kCols, width - j);
        t.b = y_ + panel * kConvDepth + j;
        t.ask = t.b + 16 * plan_.width;
        t.to = chains + panel + j;
        t.from = first ? nullptr : t.to;
        tile_fn<V>(rows, t.cols <= V::kLanes, true, true)(t);
      }
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
        transpose_block<V>(c_.y + row * plane + p, plane, n, n, cols, plan_.width,
                           to + done * plan_.width);
        done += n;
      }
    }
  }

  /// Copies finished chains to the result.
  void store() const {
    for (int64_t i = 0; i < steps_; ++i) {
      const int64_t step = first_ + i;
      const float* const from = chains_of(i);
      float* const to = c_.result + group_ * c_.result_group + col_ * c_.result_row +
                        w_.taps[static_cast<size_t>(step / w_.channels)].weight +
                        step % w_.channels * c_.result_channel;
      for (int64_t j = 0; j < cols_; ++j) to[j * c_.result_row] = from[j];
    }
  }

  const WeightCorrelation& c_;
  const ConvWindows& w_;
  const WeightCorrelationPlan plan_;
  float *const y_, *const sources_, *const chains_;  ///< Parts of the workspace.
  WindowGather<V> gather_;
  int64_t group_ = 0, first_ = 0, steps_ = 0;  ///< The current steps, in their group.
  int64_t col_ = 0, cols_ = 0;                 ///< The current rows of y.
};

}  // namespace

template <>
void correlate_on<kUnitIsa>(const Correlation& c, const ConvPart& part, float* workspace) {
  Correlator(c, workspace).run(part);
}

template <>
void correlate_weights_on<kUnitIsa>(const WeightCorrelation& c, int64_t first, int64_t end,
                                    float* workspace) {
  WeightCorrelator(c, end - first, workspace).run(first, end);
}

}  // namespace sluice::cpu::internal
