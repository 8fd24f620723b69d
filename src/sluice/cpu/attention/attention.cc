#include "sluice/cpu/attention/attention.h"

#include <algorithm>
#include <limits>

#include "sluice/base/checked.h"
#include "sluice/cpu/attention/softmax_row.h"
#include "sluice/cpu/gemm/tiles.h"
#include "sluice/cpu/random/random.h"
#include "sluice/ops/attention.h"

namespace sluice::cpu {
namespace {

using ops::HeadRows;
using ops::KeyRange;

constexpr int64_t kScoreFloats = 49152;  // The scores of a block stay in the second cache.
constexpr int64_t kMaxBlockRows = 64;
// The largest score of a query whose keys are all masked or hidden.
constexpr float kNoScore = -std::numeric_limits<float>::infinity();
constexpr int64_t kDepth = 256;  // Rows of a panel that stay in the first cache.

int64_t panels_of(int64_t cols) { return ceil_div(cols, kPanelCols); }
// Floats of the panels of a matrix; transposed ones have whole vectors of rows.
int64_t panel_floats(int64_t rows, int64_t cols) {
  return panels_of(cols) * round_up(rows, 16) * kPanelCols;
}

// One head of k and v in one batch.
class Head {
 public:
  Head(const AttentionJob& job, const AttentionArrays& arrays, int64_t batch, int64_t kv_head)
      : job_(job),
        s_(job.shape),
        a_(arrays),
        b_(batch),
        kv_(kv_head),
        isa_(current_isa()),
        tiles_(tile_kernels(isa_)),
        key_panels_(arrays.workspace),
        value_panels_(key_panels_ + job.key_panels),
        extra_panels_(value_panels_ + job.value_panels),
        scores_(extra_panels_ + job.extra_panels),
        grads_(scores_ + job.scores),
        q_panels_(grads_ + (job.backward ? job.scores : 0)),
        grad_panels_(q_panels_ + job.query_panels) {
    group_rows_ = 2 * tiles_.rows;
    group_keys_ = std::max<int64_t>(1, 48 / tiles_.rows) * tiles_.rows;
    last_key_ = s_.queries == 0 ? 0 : seen(s_.queries - 1).end;
    first_key_ = s_.queries == 0 ? 0 : seen(0).begin;
  }

  void forward() {
    const float* const k = a_.k + s_.k.at(b_, kv_);
    const bool one_query = s_.queries * s_.group() == 1;
    if (!one_query) pack_transposed(k, s_.k.row, s_.size, key_panels_);
    const float* const v = a_.v + s_.v.at(b_, kv_);
    // Copying values costs as much as a product of several queries.
    const bool in_place = s_.queries * s_.group() < 8 && s_.value_size % kPanelCols == 0;
    if (!in_place) pack_rows(v, s_.v.row, s_.value_size, value_panels_);
    for_each_block([&](int64_t h, int64_t first, int64_t rows) {
      begin_block(h, first, rows);
      const float* const q = a_.q + s_.q.at(b_, h);
      if (one_query)
        tiles_.dot_rows(q, k + base_ * s_.k.row, s_.k.row, ranges_[0].end - base_, s_.size,
                        scores_);
      else
        multiply_transposed(q, s_.q.row, s_.size, key_panels_, scores_);
      for (int64_t r = 0; r < rows_; ++r) {
        const RowSums sums = softmax_row(score_row(r), isa_);
        if (sums.top == kNoScore) see_nothing(r);
        const int64_t row = (b_ * s_.heads + h) * s_.queries + first + r;
        a_.top[row] = sums.top;
        a_.total[row] = sums.total;
        drop(r, scores_);
      }
      float* const y = a_.y + s_.y.at(b_, h) + first * s_.y.row;
      if (in_place)
        multiply_rows(scores_, v, s_.v.row, kPanelCols, s_.value_size, y, s_.y.row);
      else
        multiply_rows(scores_, value_panels_, kPanelCols, panel_step(), s_.value_size, y, s_.y.row);
      note_non_finite(y, s_.y.row, rows_, s_.value_size);
    });
  }

  void backward() {
    clear(a_.dk + s_.dk.at(b_, kv_), s_.dk.row, s_.keys, s_.size);
    clear(a_.dv + s_.dv.at(b_, kv_), s_.dv.row, s_.keys, s_.value_size);
    pack_transposed(a_.k + s_.k.at(b_, kv_), s_.k.row, s_.size, key_panels_);
    pack_transposed(a_.v + s_.v.at(b_, kv_), s_.v.row, s_.value_size, value_panels_);
    pack_rows(a_.k + s_.k.at(b_, kv_), s_.k.row, s_.size, extra_panels_);
    for_each_block([&](int64_t h, int64_t first, int64_t rows) {
      begin_block(h, first, rows);
      const float* const q = a_.q + s_.q.at(b_, h);
      const float* const grad = a_.grad + s_.grad.at(b_, h);
      multiply_transposed(q, s_.q.row, s_.size, key_panels_, scores_);
      multiply_transposed(grad, s_.grad.row, s_.value_size, value_panels_, grads_);
      for (int64_t r = 0; r < rows_; ++r) {
        const int64_t row = (b_ * s_.heads + h) * s_.queries + first + r;
        drop(r, grads_);
        softmax_grad_row(score_row(r), {a_.top[row], a_.total[row]}, grads_ + r * job_.score_cols,
                         isa_);
        if (a_.top[row] == kNoScore) see_nothing(r);
        drop(r, scores_);
      }
      float* const dq = a_.dq + s_.dq.at(b_, h) + first * s_.dq.row;
      multiply_rows(grads_, extra_panels_, kPanelCols, panel_step(), s_.size, dq, s_.dq.row);
      note_non_finite(dq, s_.dq.row, rows_, s_.size);
      accumulate(grads_, q + first * s_.q.row, s_.q.row, s_.size, q_panels_,
                 a_.dk + s_.dk.at(b_, kv_), s_.dk.row);
      accumulate(scores_, grad + first * s_.grad.row, s_.grad.row, s_.value_size, grad_panels_,
                 a_.dv + s_.dv.at(b_, kv_), s_.dv.row);
    });
    note_non_finite(a_.dk + s_.dk.at(b_, kv_), s_.dk.row, s_.keys, s_.size);
    note_non_finite(a_.dv + s_.dv.at(b_, kv_), s_.dv.row, s_.keys, s_.value_size);
  }

  // Whether blocks multiplied a zero of a hidden key by a number that is not finite, perhaps.
  bool needs_single_rows() const { return found_non_finite_ && max_rows_ > 1; }
  void use_single_rows() { max_rows_ = 1; }

 private:
  KeyRange seen(int64_t query) const {
    return s_.seen(job_.options, query + job_.options.offset + a_.position);
  }

  template <typename F>
  void for_each_block(F f) {
    for (int64_t h = kv_ * s_.group(); h < (kv_ + 1) * s_.group(); ++h) {
      const int64_t max = std::min(max_rows_, job_.max_rows);
      for (int64_t first = 0; first < s_.queries; first += max)
        f(h, first, std::min(max, s_.queries - first));
    }
  }

  void begin_block(int64_t head, int64_t first, int64_t rows) {
    head_ = head;
    first_ = first;
    rows_ = rows;
    int64_t begin = s_.keys, end = 0;
    for (int64_t r = 0; r < rows; ++r) {
      ranges_[r] = seen(first + r);
      begin = std::min(begin, ops::AttentionShape::sum_begin(ranges_[r]));
      end = std::max(end, ranges_[r].end);
    }
    base_ = begin / kPanelCols * kPanelCols;
    cols_ = round_up(std::max<int64_t>(end - base_, 0), kPanelCols);
    for (int64_t r = 0; r < rows; ++r) {
      if (ranges_[r].begin == ranges_[r].end) see_nothing(r);
    }
  }

  // Row r of the block sees no key. Its range is one of the block's keys.
  void see_nothing(int64_t r) { ranges_[r] = {base_, base_}; }

  // The rows of the block that see a key of [begin, end).
  std::pair<int64_t, int64_t> rows_that_see(int64_t begin, int64_t end) const {
    int64_t first = 0, last = rows_;
    while (first < last && (ranges_[first].end <= begin || ranges_[first].begin >= end)) ++first;
    while (last > first && (ranges_[last - 1].end <= begin || ranges_[last - 1].begin >= end))
      --last;
    return {first, last};
  }

  // The keys that rows [first, last) see, from the first to the last one; [base, base) if none.
  KeyRange keys_of(int64_t first, int64_t last) const {
    KeyRange all{base_, base_};
    for (int64_t r = first; r < last; ++r) {
      const KeyRange& own = ranges_[r];
      if (own.begin == own.end) continue;
      const bool is_first = all.begin == all.end;
      all = {is_first ? own.begin : std::min(all.begin, own.begin), std::max(all.end, own.end)};
    }
    return all;
  }

  ScoreRow score_row(int64_t r) const {
    const KeyRange range = ranges_[r];
    const int64_t begin = ops::AttentionShape::sum_begin(range);
    ScoreRow row{.x = scores_ + r * job_.score_cols,
                 .sum_begin = std::max<int64_t>(0, begin - base_),
                 .begin = range.begin - base_,
                 .end = range.end - base_,
                 .cols = cols_,
                 .scale = static_cast<float>(job_.options.scale),
                 .mask_step = s_.mask_key};
    if (a_.mask != nullptr) {
      const int64_t at = s_.mask.at(b_, head_) + (first_ + r) * s_.mask.row + base_ * s_.mask_key;
      if (a_.mask_adds)
        row.add = reinterpret_cast<const float*>(a_.mask) + at;
      else
        row.seen = reinterpret_cast<const unsigned char*>(a_.mask) + at;
    }
    return row;
  }

  void drop(int64_t r, float* matrix) const {
    if (!job_.options.seed) return;
    const KeyRange range = ranges_[r];
    float* const x = matrix + r * job_.score_cols + (range.begin - base_);
    const auto index = static_cast<uint64_t>(s_.score(b_, head_, first_ + r) + range.begin);
    dropout(ops::DropoutParams({.p = job_.options.dropout, .offset = 0}), a_.seed, index, x, x,
            range.end - range.begin);
  }

  // Elements from one panel of rows of k or v to the next.
  int64_t panel_step() const { return round_up(s_.keys, 16) * kPanelCols; }

  // Packs the transposes of the rows that queries see: a panel has `size` rows and 32 keys.
  void pack_transposed(const float* from, int64_t stride, int64_t size, float* panels) const {
    const int64_t step = round_up(size, 16) * kPanelCols;
    for (int64_t key = first_key_ / kPanelCols * kPanelCols; key < last_key_; key += kPanelCols)
      tiles_.transpose(from + key * stride, stride, size, std::min(kPanelCols, last_key_ - key),
                       panels + key / kPanelCols * step);
  }

  void pack_rows(const float* from, int64_t stride, int64_t size, float* panels) const {
    for (int64_t c = 0; c < size; c += kPanelCols)
      tiles_.copy(from + first_key_ * stride + c, stride, last_key_ - first_key_,
                  std::min(kPanelCols, size - c),
                  panels + c / kPanelCols * panel_step() + first_key_ * kPanelCols);
  }

  // to[r][key] = the product of row r of `from` and the key.
  void multiply_transposed(const float* from, int64_t stride, int64_t size, const float* panels,
                           float* to) const {
    const int64_t step = round_up(size, 16) * kPanelCols;
    for (int64_t key = 0; key < cols_; key += kPanelCols) {
      const auto [first, last] = rows_that_see(base_ + key, base_ + key + kPanelCols);
      multiply(tiles_, {.m = last - first,
                        .n = kPanelCols,
                        .k = size,
                        .a = from + (first_ + first) * stride,
                        .a_row = stride,
                        .b = panels + (base_ + key) / kPanelCols * step,
                        .c = to + first * job_.score_cols + key,
                        .c_stride = job_.score_cols});
    }
  }

  // to[r] = Σ from[r][key]·row of the key, over the keys that the query sees.
  void multiply_rows(const float* from, const float* panels, int64_t stride, int64_t step,
                     int64_t size, float* to, int64_t to_stride) const {
    const int64_t depth = cols_;
    for (int64_t d = 0; d == 0 || d < depth; d += kDepth) {
      for (int64_t c = 0; c < size; c += kPanelCols) {
        for (int64_t r = 0; r < rows_; r += group_rows_) {
          const int64_t rows = std::min(group_rows_, rows_ - r);
          const KeyRange all = keys_of(r, r + rows);
          int64_t begin = all.begin, end = all.end;
          begin = std::max(begin - base_, d);
          end = std::min(end - base_, std::min(depth, d + kDepth));
          if (d > 0 && end <= begin) continue;
          const int64_t keys = std::max<int64_t>(end - begin, 0);
          if (keys == 0) begin = 0;
          multiply(tiles_, {.m = rows,
                            .n = std::min(kPanelCols, size - c),
                            .k = keys,
                            .a = from + r * job_.score_cols + begin,
                            .a_row = job_.score_cols,
                            .b = panels + c / kPanelCols * step + (base_ + begin) * stride,
                            .b_stride = stride,
                            .c = to + r * to_stride + c,
                            .c_stride = to_stride,
                            .continues = d > 0});
        }
      }
    }
  }

  // Continues the chains to[key] += Σ from[r][key]·row r of `rows`.
  void accumulate(const float* from, const float* rows, int64_t stride, int64_t size, float* panels,
                  float* to, int64_t to_stride) const {
    for (int64_t c = 0; c < size; c += kPanelCols)
      tiles_.copy(rows + c, stride, rows_, std::min(kPanelCols, size - c),
                  panels + c / kPanelCols * kMaxBlockRows * kPanelCols);
    for (int64_t key = 0; key < cols_; key += group_keys_) {
      int64_t end = std::min(cols_, key + group_keys_);
      const auto [first, last] = rows_that_see(base_ + key, base_ + end);
      const KeyRange all = keys_of(first, last);
      const int64_t begin = std::max(key, all.begin - base_);
      end = std::min(end, all.end - base_);
      if (begin >= end) continue;
      for (int64_t c = 0; c < size; c += kPanelCols)
        multiply(tiles_,
                 {.m = end - begin,
                  .n = std::min(kPanelCols, size - c),
                  .k = last - first,
                  .a = from + first * job_.score_cols + begin,
                  .a_row = 1,
                  .a_col = job_.score_cols,
                  .b = panels + c / kPanelCols * kMaxBlockRows * kPanelCols + first * kPanelCols,
                  .c = to + (base_ + begin) * to_stride + c,
                  .c_stride = to_stride,
                  .continues = true});
    }
  }

  static void clear(float* to, int64_t stride, int64_t rows, int64_t size) {
    for (int64_t r = 0; r < rows; ++r) std::fill_n(to + r * stride, size, 0.0F);
  }

  void note_non_finite(const float* x, int64_t stride, int64_t rows, int64_t size) {
    found_non_finite_ = found_non_finite_ || has_non_finite(x, stride, rows, size, isa_);
  }

  const AttentionJob& job_;
  const ops::AttentionShape& s_;
  const AttentionArrays& a_;
  const int64_t b_, kv_;
  const Isa isa_;
  const TileKernels tiles_;
  float *const key_panels_, *const value_panels_, *const extra_panels_;
  float *const scores_, *const grads_;
  float *const q_panels_, *const grad_panels_;
  int64_t group_rows_ = 0;  // Rows that are multiplied by the keys that one of them sees.
  int64_t group_keys_ = 0;
  int64_t first_key_ = 0, last_key_ = 0;  // Keys that a query sees.
  int64_t max_rows_ = kMaxBlockRows;
  bool found_non_finite_ = false;
  // The block: the head of its queries, the first one, their number, and the keys that they see.
  // Its scores begin at key `base_`.
  int64_t head_ = 0, first_ = 0, rows_ = 0, base_ = 0, cols_ = 0;
  KeyRange ranges_[kMaxBlockRows];
};

template <typename F>
void run(const AttentionJob& job, const AttentionArrays& arrays, int64_t batch, int64_t kv_head,
         F f) {
  Head head(job, arrays, batch, kv_head);
  f(head);
  if (!head.needs_single_rows()) return;
  head.use_single_rows();
  f(head);
}

}  // namespace

AttentionJob::AttentionJob(const OpView& op)
    : options(op.options<ops::AttentionOpOptions>()),
      shape(op),
      backward(ops::is_attention_grad(op.def())) {
  score_cols = round_up(shape.keys, kPanelCols) + kPanelCols;
  max_rows = std::clamp<int64_t>(kScoreFloats / score_cols / 4 * 4, 8, kMaxBlockRows);
  max_rows = std::max<int64_t>(1, std::min(max_rows, shape.queries));
  key_panels = panel_floats(shape.size, shape.keys);
  value_panels = backward ? panel_floats(shape.value_size, shape.keys)
                          : panel_floats(shape.keys, shape.value_size);
  if (backward) {
    extra_panels = panel_floats(shape.keys, shape.size);
    query_panels = kMaxBlockRows * panels_of(std::max(shape.size, shape.value_size)) * kPanelCols;
  }
  scores = max_rows * score_cols;
}

int64_t AttentionJob::workspace_bytes() const {
  return 4 * (key_panels + value_panels + extra_panels + (backward ? 2 : 1) * scores +
              2 * query_panels);
}

void attention_forward(const AttentionJob& job, const AttentionArrays& arrays, int64_t batch,
                       int64_t kv_head) {
  run(job, arrays, batch, kv_head, [](Head& head) { head.forward(); });
}

void attention_backward(const AttentionJob& job, const AttentionArrays& arrays, int64_t batch,
                        int64_t kv_head) {
  run(job, arrays, batch, kv_head, [](Head& head) { head.backward(); });
}

}  // namespace sluice::cpu
