#include "sluice/cpu/conv/depthwise.h"
#include "sluice/base/ids/ids.h"

#include <algorithm>
#include <bit>

#include "sluice/cpu/gemm/gemm_pack.h"
#include "sluice/cpu/simd/pairs.h"

namespace sluice::cpu::internal {
namespace {

using V = VectorFor<kUnitIsa>::type;
constexpr int kLanes = V::kLanes;

/// Vectors of results that are computed side by side, to hide the latency of their chains.
constexpr int kBlock = 8;
/// Taps whose chains are computed side by side, a vector of groups each.
constexpr int kTapBlock = 10;

/// Rows of the grid at one depth.
struct Band {
  int64_t depth = 0, row = 0, rows = 0;
};

/// The elements of a region that are inside the source, for the packed rows of a band.
struct Inside {
  Inside() = default;
  Inside(const ConvWindows& w, const PackedSource& packed, const Extent& region, const Band& band,
         int64_t height_step, int64_t packed_rows) {
    const auto first = [](int64_t at, int64_t step) {
      return at >= 0 ? 0 : (step - 1 - at) / step;
    };
    const int64_t z = band.depth * w.step[0] + region[0];
    const int64_t y = (band.row * height_step + packed.above) * packed.step[1] + region[1];
    const int64_t x = packed.low * packed.step[2] + region[2];
    first_row = first(y, packed.step[1]);
    end_row = std::min(packed_rows, first(y - w.source[1], packed.step[1]));
    if (z < 0 || z >= w.source[0]) end_row = 0;
    first_column = first(x, packed.step[2]);
    columns = std::min(packed.length, first(x - w.source[2], packed.step[2])) - first_column;
    if (columns <= 0) end_row = 0;
    from = (z * w.source[1] + y + first_row * packed.step[1]) * w.source[2] + x +
           first_column * packed.step[2];
    to = first_row * packed.pitch + first_column;
  }
  int64_t first_row, end_row;     ///< Packed rows.
  int64_t first_column, columns;  ///< Elements of a packed row.
  int64_t from, to;  ///< The first of them, in a plane of the source and in the packed region.
};

void fill_zeros(float* p, int64_t floats) {
  for (int64_t i = 0; i < floats; i += kLanes) store_some(V(0.0f), p + i, floats - i);
}

/// Rows of a source and their packed form.
struct RowCopy {
  const float* from;
  float* to;
  int64_t rows, columns;           ///< Elements to copy.
  int64_t from_stride, to_stride;  ///< Floats from one row to the next.
};

/// Copies rows whose elements are kStep floats apart. Zeros follow a row up to a whole vector; the
/// next row overwrites those that reach into it.
template <int kStep>
void copy_rows(const RowCopy& copy) {
  const int64_t whole = (copy.columns - 1) / kLanes * kLanes;
  const int64_t floats = kStep * (copy.columns - 1 - whole) + 1;
  const V::Mask first = V::Mask::first(floats), second = V::Mask::first(floats - kLanes);
  const float* from = copy.from;
  float* to = copy.to;
  for (int64_t row = 0; row < copy.rows; ++row, from += copy.from_stride, to += copy.to_stride) {
    if constexpr (kStep == 1) {
      for (int64_t i = 0; i < whole; i += kLanes) V::load(from + i).store(to + i);
      V::load_masked(from + whole, first).store(to + whole);
    } else {
      V even, odd;
      for (int64_t i = 0; i < whole; i += kLanes) {
        split_pairs(V::load(from + 2 * i), V::load(from + 2 * i + kLanes), even, odd);
        even.store(to + i);
      }
      const float* const last = from + 2 * whole;
      split_pairs(V::load_masked(last, first), V::load_masked(last + kLanes, second), even, odd);
      even.store(to + whole);
    }
  }
}

/// Copies rows whose elements are `step` floats apart. Nothing follows a row.
void copy_rows_apart(const RowCopy& copy, int64_t step) {
  for (int64_t row = 0; row < copy.rows; ++row) {
    for (int64_t i = 0; i < copy.columns; ++i)
      copy.to[row * copy.to_stride + i] = copy.from[row * copy.from_stride + i * step];
  }
}

/// Adjacent vectors of results in the order of packed sources.
struct Block {
  const float* source;       ///< Packed source of the first position, for offset 0.
  const float* weight;       ///< Index of the row's first step.
  const int64_t* source_at;  ///< For each step: offset in floats from `source`.
  const int64_t* weight_at;
  int64_t steps;
  const float* lanes;  ///< For each vector: the lanes that are positions.
  float *to, *end;     ///< The results that the block may write.
};

/// Computes a block and returns the end of its results.
template <int kVectors>
float* compute_block(const Block& b) {
  V acc[kVectors];
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) acc[v] = V(0.0f);
  for (int64_t k = 0; k < b.steps; ++k) {
    const float* const source = b.source + b.source_at[k];
    const V weight(b.weight[b.weight_at[k]]);
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) acc[v] = fma(weight, V::load(source + v * kLanes), acc[v]);
  }
  float* to = b.to;
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    const auto lanes = std::bit_cast<uint32_t>(b.lanes[v]);
    // The next vector overwrites what this one writes after its results.
    store_some(compress(acc[v], lanes), to, b.end - to);
    to += std::popcount(lanes);
  }
  return to;
}

using BlockFn = float* (*)(const Block&);
constexpr BlockFn kBlockFns[kBlock] = {compute_block<1>, compute_block<2>, compute_block<3>,
                                       compute_block<4>, compute_block<5>, compute_block<6>,
                                       compute_block<7>, compute_block<8>};

/// One call of correlate().
class Depthwise {
 public:
  Depthwise(const Correlation& c, const CorrelationOperands& operands, const ConvPart& part,
            float* workspace)
      : c_(c),
        operands_(operands),
        part_(part),
        w_(c.windows),
        plan_(depthwise_plan_of(c)),
        sources_(workspace),
        lanes_(workspace + plan_.source_floats) {
    for (int64_t k = 0; k < w_.depth(); ++k) {
      const int64_t t = k / w_.channels, channel = k % w_.channels;
      const PackedSource::Tap& tap = at(plan_.packed.tap, t);
      at(source_at_, k) = (tap.region * w_.channels + channel) * plan_.region_floats + tap.element;
      at(weight_at_, k) = w_.taps.data()[t].weight + channel * c_.weight_channel;
    }
  }

  void run() {
    const int64_t width = w_.grid[2], height = w_.grid[1];
    for (first_ = part_.first_position; first_ < part_.end_position; first_ = end_) {
      const int64_t row = first_ / width;
      band_ = {row / height, row % height, std::min(plan_.rows, height - row % height)};
      end_ = std::min(part_.end_position, (row + band_.rows) * width);
      set_lanes();
      for (int64_t i = 0; i < plan_.packed.regions; ++i) {
        at(inside_, i) = Inside(w_, plan_.packed, at(plan_.packed.region, i), band_, 1,
                                band_.rows + plan_.packed.more);
      }
      fill_zeros(sources_, plan_.source_floats);
      for (int64_t sample = part_.first_sample; sample < part_.end_sample; ++sample)
        compute_rows(sample);
    }
  }

 private:
  /// Finds the lanes that are positions of the band: [first_, end_).
  void set_lanes() {
    const int64_t width = w_.grid[2], pitch = plan_.packed.pitch;
    begin_ = first_ % width;
    vectors_ = 0;
    const int64_t last = end_ - 1 - (first_ - begin_);
    const int64_t end = last / width * pitch + last % width + 1;
    for (int64_t i = begin_, column = begin_; i < end; i += kLanes, column += kLanes) {
      while (column >= pitch) column -= pitch;
      uint32_t lanes = 0;
      for (int64_t lane = -column; lane < kLanes; lane += pitch) {
        const int64_t first = std::max<int64_t>(lane, 0);
        const int64_t count = std::clamp<int64_t>(lane + width - first, 0, kLanes - first);
        lanes |= ((uint32_t{1} << count) - 1) << first;
      }
      lanes_[vectors_++] = std::bit_cast<float>(lanes);
    }
  }

  /// Computes the rows of a sample in the current band.
  void compute_rows(int64_t sample) {
    const int64_t rows = w_.groups * c_.rows, count = end_ - first_;
    const int64_t max = std::clamp<int64_t>(kFinished / count, 1, kRowBlock);
    int64_t unfinished = part_.first_row, packed_group = -1;
    for (int64_t row = part_.first_row; row < part_.end_row; ++row) {
      const int64_t group = row / c_.rows;
      if (group != packed_group) pack_sources(sample, packed_group = group);
      float* const result = operands_.result + (sample * rows + row) * c_.result_plane + first_;
      compute_row(
          operands_.weight + group * c_.weight_group + (row - group * c_.rows) * c_.weight_row,
          result, result + count);
      if (row + 1 - unfinished < max && row + 1 < part_.end_row) continue;
      if (operands_.epilogue.run != nullptr) {
        operands_.epilogue.run(operands_.epilogue.state,
                               result - (row - unfinished) * c_.result_plane, c_.result_plane,
                               sample * rows + unfinished, row + 1 - unfinished, first_, count);
      }
      unfinished = row + 1;
    }
  }

  void pack_sources(int64_t sample, int64_t group) {
    const PackedSource& packed = plan_.packed;
    for (int64_t region = 0; region < packed.regions; ++region) {
      const Inside& in = inside_.data()[region];
      for (int64_t channel = 0; channel < w_.channels; ++channel) {
        const RowCopy copy{
            operands_.source + ((sample * w_.groups + group) * w_.channels + channel) * w_.plane() +
                in.from,
            sources_ + (region * w_.channels + channel) * plan_.region_floats + in.to,
            in.end_row - in.first_row,
            in.columns,
            packed.step[1] * w_.source[2],
            packed.pitch};
        if (packed.step[2] == 1) {
          copy_rows<1>(copy);
        } else if (packed.step[2] == 2) {
          copy_rows<2>(copy);
        } else {
          copy_rows_apart(copy, packed.step[2]);
        }
      }
    }
  }

  void compute_row(const float* weight, float* to, float* end) const {
    const int64_t blocks = (vectors_ + kBlock - 1) / kBlock;
    const int64_t max = (vectors_ + blocks - 1) / blocks;
    for (int64_t v = 0; v < vectors_; v += max) {
      to = kBlockFns[std::min(max, vectors_ - v) - 1]({.source = sources_ + begin_ + v * kLanes,
                                                       .weight = weight,
                                                       .source_at = source_at_.data(),
                                                       .weight_at = weight_at_.data(),
                                                       .steps = w_.depth(),
                                                       .lanes = lanes_ + v,
                                                       .to = to,
                                                       .end = end});
    }
  }

  /// Floats that stay in the L1 cache until they are finished.
  static constexpr int64_t kFinished = 1 << 12;

  const Correlation& c_;
  const CorrelationOperands& operands_;
  const ConvPart& part_;
  const ConvWindows& w_;
  const DepthwisePlan plan_;
  float *const sources_, *const lanes_;  ///< Parts of the workspace.
  Band band_;
  std::array<Inside, PackedSource::kMax> inside_;  ///< Indexed by region.
  int64_t first_ = 0, end_ = 0;                    ///< Positions of the band.
  int64_t begin_ = 0;    ///< Element of the packed sources for the first position.
  int64_t vectors_ = 0;  ///< Vectors of results.
  /// For each step: offsets in floats from the packed sources and from the weight of a row.
  std::array<int64_t, kConvDepth> source_at_, weight_at_;
};

/// Chains of the weights of some taps, a vector of groups each.
struct Products {
  const float *source, *y;
  int64_t rows, columns;       ///< Positions.
  int64_t row_step, col_step;  ///< Floats of the source from one row or column to the next.
  const int64_t* offset;       ///< Offset of each tap in the source.
  float* chains;               ///< Indexed by tap.
};

template <int kTaps>
void add_products(const Products& p) {
  V chain[kTaps];
  int64_t offset[kTaps];
#pragma GCC unroll 10
  for (int t = 0; t < kTaps; ++t) {
    chain[t] = V::load(p.chains + t * kLanes);
    offset[t] = p.offset[t];
  }
  const float* y = p.y;
  for (int64_t row = 0; row < p.rows; ++row) {
    const float* source = p.source + row * p.row_step;
    for (int64_t column = 0; column < p.columns; ++column) {
      const V factor = V::load(y);
#pragma GCC unroll 10
      for (int t = 0; t < kTaps; ++t) chain[t] = fma(V::load(source + offset[t]), factor, chain[t]);
      source += p.col_step;
      y += kLanes;
    }
  }
#pragma GCC unroll 10
  for (int t = 0; t < kTaps; ++t) chain[t].store(p.chains + t * kLanes);
}

using ProductsFn = void (*)(const Products&);
constexpr ProductsFn kProductsFns[kTapBlock] = {
    add_products<1>, add_products<2>, add_products<3>, add_products<4>, add_products<5>,
    add_products<6>, add_products<7>, add_products<8>, add_products<9>, add_products<10>};

/// One call of correlate_weights(). The lanes of a vector are groups.
class DepthwiseWeights {
 public:
  DepthwiseWeights(const WeightCorrelation& c, const WeightCorrelationOperands& operands,
                   const WeightPart& part, float* workspace)
      : c_(c),
        operands_(operands),
        part_(part),
        w_(c.windows),
        plan_(depthwise_plan_of(c)),
        sources_(workspace),
        line_(sources_ + plan_.source_floats),
        y_(line_ + plan_.line_floats),
        chains_(y_ + plan_.y_floats) {
    for (size_t t = 0; t < w_.taps.size(); ++t) {
      const PackedSource::Tap& tap = plan_.packed.tap[t];
      offset_[t] = (tap.region * plan_.region_elements + tap.element) * kLanes;
    }
  }

  void run() {
    fill_zeros(sources_, plan_.source_floats);
    for (group_ = part_.first_group; group_ < part_.end_group; group_ += kLanes) {
      groups_ = std::min<int64_t>(kLanes, part_.end_group - group_);
      for (int64_t channel = 0; channel < part_.channels; ++channel) compute_channel(channel);
    }
  }

 private:
  /// Computes the weights of a channel of the part, for the current groups.
  void compute_channel(int64_t channel) {
    channel_ = part_.first_channel + channel;
    // Steps are (tap, channel).
    const auto taps_before = [&](int64_t step) {
      return std::max<int64_t>(0, step - channel + part_.channels - 1) / part_.channels;
    };
    first_tap_ = taps_before(part_.first_step);
    taps_ = taps_before(part_.end_step) - first_tap_;
    fill_zeros(chains_, c_.rows * taps_ * kLanes);
    for (int64_t sample = 0; sample < w_.batch; ++sample) {
      for (band_.depth = 0; band_.depth < w_.grid[0]; ++band_.depth) {
        for (band_.row = 0; band_.row < w_.grid[1]; band_.row += band_.rows) {
          band_.rows = std::min(plan_.rows, w_.grid[1] - band_.row);
          add_band(sample);
        }
      }
    }
    store();
  }

  void add_band(int64_t sample) {
    pack_sources(sample);
    const int64_t max = (taps_ + kTapBlock - 1) / kTapBlock;
    for (int64_t row = 0; row < c_.rows; ++row) {
      pack_y(sample, row);
      for (int64_t i = 0; i < max; ++i) {
        const int64_t t = i * taps_ / max, taps = (i + 1) * taps_ / max - t;
        kProductsFns[taps - 1]({.source = sources_,
                                .y = y_,
                                .rows = band_.rows,
                                .columns = w_.grid[2],
                                .row_step = w_.step[1] * plan_.packed.pitch * kLanes,
                                .col_step = w_.step[2] * kLanes,
                                .offset = offset_.data() + first_tap_ + t,
                                .chains = chains_ + (row * taps_ + t) * kLanes});
      }
    }
  }

  /// Packs the rows of the source that the band reads.
  void pack_sources(int64_t sample) {
    const PackedSource& packed = plan_.packed;
    const int64_t rows = (band_.rows - 1) * w_.step[1] + 1 + packed.more;
    const float* const plane =
        operands_.source + ((sample * w_.groups + group_) * w_.channels + channel_) * w_.plane();
    for (int64_t region = 0; region < packed.regions; ++region) {
      const Inside in(w_, packed, at(packed.region, region), band_, w_.step[1], rows);
      float* const to = sources_ + region * plan_.region_elements * kLanes;
      const int64_t begin = std::min(in.first_row, in.end_row);
      fill_zeros(to, begin * packed.pitch * kLanes);
      for (int64_t row = begin; row < in.end_row; row += plan_.line_rows) {
        const int64_t count = std::min(plan_.line_rows, in.end_row - row);
        pack_lines(plane, in, row, count, to);
      }
      const int64_t end = std::max<int64_t>(in.end_row, 0);
      fill_zeros(to + end * packed.pitch * kLanes, (rows - end) * packed.pitch * kLanes);
    }
  }

  /// Packs `count` rows of a source from packed row `row` on.
  void pack_lines(const float* plane, const Inside& in, int64_t row, int64_t count, float* to) {
    const PackedSource& packed = plan_.packed;
    const int64_t column = packed.low + in.first_column, width = w_.source[2];
    const float* const from = plane + in.from - column + (row - in.first_row) * width;
    transpose_block<V>(from, w_.channels * w_.plane(), count * width, count * width, groups_,
                       kLanes, line_);
    for (int64_t i = 0; i < count; ++i) {
      const float* const line = line_ + (i * width + column) * kLanes;
      float* const out = to + ((row + i) * packed.pitch + in.first_column) * kLanes;
      for (int64_t j = 0; j < in.columns * kLanes; j += kLanes) V::load(line + j).store(out + j);
    }
  }

  void pack_y(int64_t sample, int64_t row) {
    const int64_t first = (band_.depth * w_.grid[1] + band_.row) * w_.grid[2];
    const int64_t count = band_.rows * w_.grid[2];
    const float* const from =
        operands_.y + ((sample * w_.groups + group_) * c_.rows + row) * w_.positions() + first;
    transpose_block<V>(from, c_.rows * w_.positions(), count, count, groups_, kLanes, y_);
  }

  void store() const {
    for (int64_t row = 0; row < c_.rows; ++row) {
      for (int64_t t = 0; t < taps_; ++t) {
        float* const to = operands_.result + group_ * c_.result_group + row * c_.result_row +
                          w_.taps.data()[first_tap_ + t].weight + channel_ * c_.result_channel;
        const float* const from = chains_ + (row * taps_ + t) * kLanes;
        for (int64_t g = 0; g < groups_; ++g) to[g * c_.result_group] = from[g];
      }
    }
  }

  const WeightCorrelation& c_;
  const WeightCorrelationOperands& operands_;
  const WeightPart& part_;
  const ConvWindows& w_;
  const DepthwiseWeightsPlan plan_;
  float *const sources_, *const line_, *const y_, *const chains_;  ///< Parts of the workspace.
  Band band_;
  int64_t group_ = 0, groups_ = 0;  ///< The current groups.
  int64_t channel_ = 0;
  int64_t first_tap_ = 0, taps_ = 0;                ///< The current taps.
  std::array<int64_t, PackedSource::kMax> offset_;  ///< Offset of each tap in the packed sources.
};

}  // namespace

template <>
void depthwise_on<kUnitIsa>(const Correlation& c, const CorrelationOperands& operands,
                            const ConvPart& part, float* workspace) {
  Depthwise(c, operands, part, workspace).run();
}

template <>
void depthwise_weights_on<kUnitIsa>(const WeightCorrelation& c,
                                    const WeightCorrelationOperands& operands,
                                    const WeightPart& part, float* workspace) {
  DepthwiseWeights(c, operands, part, workspace).run();
}

}  // namespace sluice::cpu::internal
