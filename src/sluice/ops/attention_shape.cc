#include "sluice/ops/attention_shape.h"

#include "sluice/base/reduce.h"
#include "sluice/ops/attention.h"
#include "sluice/ops/rules.h"

namespace sluice::ops {
namespace {

HeadRows whole_heads(int64_t heads, int64_t rows, int64_t size, bool heads_last) {
  return {0, heads * rows * size, heads_last ? size : rows * size,
          heads_last ? heads * size : size};
}

// Requires that all rows lie inside of a tensor.
void require_inside(const OpView& op, int input, const HeadRows& rows, const Shape& sizes) {
  const TensorSpec& spec = op.input(input);
  const int64_t strides[] = {rows.batch, rows.head, rows.row, 1};
  const int64_t elements = spec.elements();
  int64_t last = rows.offset;
  bool fits = last >= 0 && last < elements;
  for (int i = 0; i < 4 && fits; ++i) {
    const int64_t stride = strides[i];  // NOLINT
    fits = stride >= 0 && (stride == 0 || sizes[i] - 1 <= (elements - 1 - last) / stride);
    if (fits) last += (sizes[i] - 1) * stride;
  }
  require(
      fits,
      "{} (C8): the rows of operand {} must lie inside of it, got {} with an offset and strides "
      "of [{}, {}, {}, {}]",
      op.def().name, input, to_string(spec), rows.offset, rows.batch, rows.head, rows.row);
}

}  // namespace

int64_t AttentionShape::sum_begin(KeyRange range) {
  const int64_t unit = range.end > kReduceChunk ? kReduceChunk : int64_t{kReduceLanes};
  return range.begin / unit * unit;
}

void AttentionShape::set_whole(const OpView& op, int first) {
  const Shape &qs = op.input(first).shape, &ks = op.input(first + 1).shape,
              &vs = op.input(first + 2).shape;
  require(qs.rank() == 4 && ks.rank() == 4 && vs.rank() == 4 && qs[0] == ks[0] && qs[0] == vs[0] &&
              ks[1] == vs[1] && ks[2] == vs[2] && qs[3] == ks[3],
          "{} (C2): q, k and v must be (batch, heads, queries, size), (batch, kv_heads, keys, "
          "size) and (batch, kv_heads, keys, value size), got {}, {} and {}",
          op.def().name, to_string(qs), to_string(ks), to_string(vs));
  batch = qs[0], heads = qs[1], kv_heads = ks[1], queries = qs[2], keys = ks[2], size = qs[3];
  value_size = vs[3];
  q = whole_heads(heads, queries, size, false);
  k = whole_heads(kv_heads, keys, size, false);
  v = whole_heads(kv_heads, keys, value_size, false);
  grad = whole_heads(heads, queries, value_size, false);
}

void AttentionShape::set_strided(const OpView& op, const AttentionOpOptions& o, int first) {
  const size_t operands = first == 1 ? 4 : 3;
  require(o.sizes.size() == 7 && o.rows.size() == 4 * operands &&
              std::all_of(o.sizes.begin(), o.sizes.end(), [](int64_t s) { return s >= 1; }),
          "{} (C8): must have 7 positive sizes, and an offset and three strides of {} operands, "
          "got {} and {} numbers",
          op.def().name, operands, o.sizes.size(), o.rows.size());
  batch = o.sizes[0], heads = o.sizes[1], kv_heads = o.sizes[2], queries = o.sizes[3];
  keys = o.sizes[4], size = o.sizes[5], value_size = o.sizes[6];
  const auto rows = [&](int input) {
    const auto i = 4 * static_cast<size_t>(input);
    return HeadRows{o.rows[i], o.rows[i + 1], o.rows[i + 2], o.rows[i + 3]};
  };
  if (first == 1) {
    grad = rows(0);
    require_inside(op, 0, grad, {batch, heads, queries, value_size});
  }
  q = rows(first);
  k = rows(first + 1);
  v = rows(first + 2);
  require_inside(op, first, q, {batch, heads, queries, size});
  require_inside(op, first + 1, k, {batch, kv_heads, keys, size});
  require_inside(op, first + 2, v, {batch, kv_heads, keys, value_size});
}

void AttentionShape::set_optional(const OpView& op, const AttentionOpOptions& o, int next) {
  const std::string& name = op.def().name;
  const DType dtype = op.input(is_attention_grad(op.def()) ? 1 : 0).dtype;
  require(op.inputs() == next + o.mask + o.seed + o.position,
          "{} (C7): mask, seed and position are {} operands, got {}", name,
          o.mask + o.seed + o.position, op.inputs() - next);
  if (o.mask) {
    mask_input = next++;
    const TensorSpec& m = op.input(mask_input);
    const Shape scores{batch, heads, queries, keys};
    require(m.dtype == DType::kBool || m.dtype == dtype,
            "{} (C4): mask must be bool or have the dtype of q, {}, got {}", name, name_of(dtype),
            to_string(m));
    bool fits = m.shape.rank() <= 4;
    for (int i = 1; fits && i <= m.shape.rank(); ++i)
      fits = m.shape.dim(-i) == 1 || m.shape.dim(-i) == scores.dim(-i);
    require(fits, "{} (C4): mask must broadcast to (batch, heads, queries, keys) {}, got {}", name,
            to_string(scores), to_string(m));
    const std::vector<int64_t> strides = m.shape.strides();
    const auto stride = [&](int from_end) {
      return from_end > m.shape.rank() || m.shape.dim(-from_end) == 1
                 ? 0
                 : strides[strides.size() - static_cast<size_t>(from_end)];
    };
    mask = {0, stride(4), stride(3), stride(2)};
    mask_key = stride(1);
  }
  if (o.seed) {
    seed_input = next++;
    require(op.input(seed_input).shape == Shape{2} && op.input(seed_input).dtype == u32,
            "{} (C5): seed must be (2,) uint32, got {}", name, to_string(op.input(seed_input)));
  }
  if (o.position) {
    position_input = next++;
    const TensorSpec& p = op.input(position_input);
    require(p.shape.empty() && (p.dtype == i32 || p.dtype == u32),
            "{} (C6): position must be an int32 or uint32 scalar, got {}", name, to_string(p));
  }
}

AttentionShape::AttentionShape(const OpView& op) {
  const auto o = op.options<AttentionOpOptions>();
  const std::string& name = op.def().name;
  const bool backward = is_attention_grad(op.def());
  const int first = backward ? 1 : 0;  // Index of q.
  const TensorSpec &q_spec = op.input(first), &k_spec = op.input(first + 1),
                   &v_spec = op.input(first + 2);
  require_float(q_spec, name + " (C1): q");
  require(k_spec.dtype == q_spec.dtype && v_spec.dtype == q_spec.dtype,
          "{} (C1): k and v must have the dtype of q, {}, got {} and {}", name,
          name_of(q_spec.dtype), to_string(k_spec), to_string(v_spec));
  if (o.sizes.empty())
    set_whole(op, first);
  else
    set_strided(op, o, first);
  for (const Shape& all : {Shape{batch, heads, queries, keys}, Shape{batch, heads, queries, size},
                           Shape{batch, heads, keys, std::max(size, value_size)}})
    static_cast<void>(all.elements());  // An error if it overflows.
  require(kv_heads > 0 && heads % kv_heads == 0,
          "{} (C3): heads must be a multiple of the heads of k and v, got {} and {}", name, heads,
          kv_heads);
  y = whole_heads(heads, queries, value_size, o.heads_last);
  dq = whole_heads(heads, queries, size, o.heads_last);
  dk = whole_heads(kv_heads, keys, size, o.heads_last);
  dv = whole_heads(kv_heads, keys, value_size, o.heads_last);
  set_optional(op, o, first + (backward ? 5 : 3));
  require(o.dropout >= 0 && o.dropout < 1 && o.seed == (o.dropout > 0),
          "{} (C7): dropout must be in [0, 1), with a seed unless it is 0, got {} with{} seed",
          name, o.dropout, o.seed ? " a" : "out");
  constexpr int64_t kFar = int64_t{1} << 28;  // Sums of positions are 32-bit integers.
  require(o.window >= 0 && o.window <= kFar, "{} (C7): window must be in [0, 2^28], got {}", name,
          o.window);
  require(o.causal || o.window > 0 || (o.offset == 0 && !o.position),
          "{} (C7): offset and position need causal or window, without which they have no effect",
          name);
  require(o.offset >= -kFar && o.offset <= kFar, "{} (C7): offset must be within ±2^28, got {}",
          name, o.offset);
}

}  // namespace sluice::ops
