#include "sluice/ops/attention.h"

#include <cmath>
#include <limits>

#include "sluice/base/reduce.h"
#include "sluice/base/rng.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/attention_shape.h"
#include "sluice/ops/cast.h"
#include "sluice/ops/compare.h"
#include "sluice/ops/indexing.h"
#include "sluice/ops/matmul.h"
#include "sluice/ops/random.h"
#include "sluice/ops/reductions.h"
#include "sluice/ops/reshape.h"
#include "sluice/ops/rules.h"
#include "sluice/ops/scalar_math.h"
#include "sluice/ops/unary.h"

namespace sluice::ops {
namespace {

constexpr std::string_view kAttention = "Attention";
constexpr std::string_view kAttentionGrad = "AttentionGrad";

Shape result_shape(int64_t batch, int64_t heads, int64_t rows, int64_t size, bool heads_last) {
  return heads_last ? Shape{batch, rows, heads, size} : Shape{batch, heads, rows, size};
}

std::vector<TensorSpec> infer_attention(const OpView& op) {
  const AttentionShape s(op);
  const bool last = op.options<AttentionOpOptions>().heads_last;
  const TensorSpec sums{{s.batch, s.heads, s.queries}, f32, {}};
  return {{result_shape(s.batch, s.heads, s.queries, s.value_size, last), op.input(0).dtype, {}},
          sums,
          sums};
}

std::vector<TensorSpec> infer_attention_grad(const OpView& op) {
  const AttentionShape s(op);
  const bool last = op.options<AttentionOpOptions>().heads_last;
  const DType dtype = op.input(1).dtype;
  const Shape sums{s.batch, s.heads, s.queries};
  const Shape result{s.batch, s.heads, s.queries, s.value_size};
  const bool whole = !op.options<AttentionOpOptions>().sizes.empty();
  require(op.input(0).dtype == dtype && (whole || op.input(0).shape == result),
          "attention_grad (C9): grad must be {} {}, got {}", to_string(result), name_of(dtype),
          to_string(op.input(0)));
  for (const int i : {4, 5})
    require(op.input(i).shape == sums && op.input(i).dtype == f32,
            "attention_grad (C9): {} must be {} float32, got {}", i == 4 ? "top" : "total",
            to_string(sums), to_string(op.input(i)));
  return {{result_shape(s.batch, s.heads, s.queries, s.size, last), dtype, {}},
          {result_shape(s.batch, s.kv_heads, s.keys, s.size, last), dtype, {}},
          {result_shape(s.batch, s.kv_heads, s.keys, s.value_size, last), dtype, {}}};
}

// The scores and the softmax of one query at a time.
template <typename T>
class Scores {
 public:
  Scores(const KernelArgs& k, int q_input)
      : k_(k),
        o_(k.options<AttentionOpOptions>()),
        s_(k.op()),
        q_(k.in<T>(q_input).data()),
        keys_(k.in<T>(q_input + 1).data()),
        probs(static_cast<size_t>(s_.keys)) {
    if (s_.position_input >= 0) position_ = indices_of(k, s_.position_input)[0];
    if (s_.seed_input >= 0) {
      const auto words = k.in<uint32_t>(s_.seed_input);
      seed_ = {words[0], words[1]};
    }
  }

  const AttentionShape& shape() const { return s_; }

  // Sets `range`, and `probs` to the scores of a query of head h in batch b.
  void compute(int64_t b, int64_t h, int64_t query) {
    range = s_.seen(o_, query + o_.offset + position_);
    first_ = s_.score(b, h, query);
    const T* const q = q_ + s_.q.at(b, h) + query * s_.q.row;
    const T* const keys = keys_ + s_.k.at(b, h / s_.group());
    for (int64_t j = range.begin; j < range.end; ++j) {
      T sum = 0;
      for (int64_t c = 0; c < s_.size; ++c) sum = chain(q[c], keys[j * s_.k.row + c], sum);
      sum = sum * static_cast<T>(o_.scale);
      if (s_.mask_input >= 0) {
        const int64_t m = s_.mask.at(b, h) + query * s_.mask.row + j * s_.mask_key;
        if (k_.in_dtype(s_.mask_input) == DType::kBool)
          sum = k_.in<bool>(s_.mask_input).data()[m] ? sum : -std::numeric_limits<T>::infinity();
        else
          sum = sum + k_.in<T>(s_.mask_input).data()[m];
      }
      at(j) = sum;
    }
  }
  // Returns the largest score.
  T top() const {
    return canonical_reduce(
        range.end - range.begin, -std::numeric_limits<T>::infinity(),
        [&](int64_t i) { return probs[static_cast<size_t>(range.begin + i)]; }, math::max<T>);
  }
  // Replaces the scores by exponentials; returns their sum. A query whose scores are all -inf sees
  // no key.
  T exponentiate(T top) {
    if (top == -std::numeric_limits<T>::infinity()) range.end = range.begin;
    for (int64_t j = range.begin; j < range.end; ++j) at(j) = math::exp(at(j) - top);
    return sum([&](int64_t j) { return at(j); });
  }
  // Divides the exponentials by their sum.
  void divide(T total) {
    for (int64_t j = range.begin; j < range.end; ++j) at(j) = at(j) / total;
  }
  // Sums f(key) over the range in the order of all keys.
  template <typename F>
  T sum(F f) const {
    const int64_t begin = AttentionShape::sum_begin(range);
    return canonical_sum<T>(range.end - begin, [&](int64_t i) {
      return begin + i < range.begin ? T{0} : f(begin + i);
    });
  }
  // Applies dropout to the element of a key.
  T drop(T x, int64_t key) const {
    if (s_.seed_input < 0) return x;
    const DropoutParams params({.p = o_.dropout, .offset = 0});
    const T scale = std::is_same_v<T, float> ? params.scale : static_cast<T>(1 / (1 - o_.dropout));
    const uint32_t bits = random_bits(seed_, static_cast<uint64_t>(first_ + key)) >> 8;
    return bits >= params.threshold ? x * scale : T{0};
  }
  T scale() const { return static_cast<T>(o_.scale); }
  T& at(int64_t key) { return probs[static_cast<size_t>(key)]; }

  static T chain(T a, T b, T sum) {
    if constexpr (std::is_same_v<T, float>)
      return std::fma(a, b, sum);
    else
      return sum + a * b;
  }

 private:
  const KernelArgs& k_;
  const AttentionOpOptions o_;
  const AttentionShape s_;
  const T* const q_;
  const T* const keys_;
  int64_t position_ = 0;
  int64_t first_ = 0;  // Index of the score of key 0.
  Seed seed_{};

 public:
  std::vector<T> probs;
  KeyRange range;
};

template <typename T>
void reference_attention(const KernelArgs& k) {
  Scores<T> scores(k, 0);
  const AttentionShape& s = scores.shape();
  const T* const values = k.in<T>(2).data();
  T* const y = k.out<T>(0).data();
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t h = 0; h < s.heads; ++h) {
      for (int64_t i = 0; i < s.queries; ++i) {
        scores.compute(b, h, i);
        const T top = scores.top();
        const T total = scores.exponentiate(top);
        scores.divide(total);
        const auto row = static_cast<size_t>((b * s.heads + h) * s.queries + i);
        k.out<T>(1)[row] = top;
        k.out<T>(2)[row] = total;
        for (int64_t c = 0; c < s.value_size; ++c) {
          T sum = 0;
          for (int64_t j = scores.range.begin; j < scores.range.end; ++j)
            sum = Scores<T>::chain(scores.drop(scores.at(j), j),
                                   values[s.v.at(b, h / s.group()) + j * s.v.row + c], sum);
          y[s.y.at(b, h) + i * s.y.row + c] = sum;
        }
      }
    }
  }
}

template <typename T>
void reference_attention_grad(const KernelArgs& k) {
  Scores<T> scores(k, 1);
  const AttentionShape& s = scores.shape();
  const T* const grads = k.in<T>(0).data();
  const T* const qs = k.in<T>(1).data();
  const T* const ks = k.in<T>(2).data();
  const T* const vs = k.in<T>(3).data();
  for (const int i : {0, 1, 2}) std::fill(k.out<T>(i).begin(), k.out<T>(i).end(), T{0});
  std::vector<T> ds(static_cast<size_t>(s.keys));
  const auto chain = Scores<T>::chain;
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t h = 0; h < s.heads; ++h) {
      const int64_t kv = h / s.group();
      for (int64_t i = 0; i < s.queries; ++i) {
        scores.compute(b, h, i);
        const auto row = static_cast<size_t>((b * s.heads + h) * s.queries + i);
        scores.exponentiate(k.in<T>(4)[row]);
        scores.divide(k.in<T>(5)[row]);
        const KeyRange range = scores.range;
        const T* const grad = grads + s.grad.at(b, h) + i * s.grad.row;
        const auto d = [&](int64_t j) -> T& { return ds[static_cast<size_t>(j)]; };
        for (int64_t j = range.begin; j < range.end; ++j) {
          const T* const v = vs + s.v.at(b, kv) + j * s.v.row;
          T sum = 0;
          for (int64_t c = 0; c < s.value_size; ++c) sum = chain(grad[c], v[c], sum);
          d(j) = scores.drop(sum, j);
        }
        const T dot = scores.sum([&](int64_t j) { return d(j) * scores.at(j); });
        for (int64_t j = range.begin; j < range.end; ++j) {
          d(j) = scores.at(j) * (d(j) - dot) * scores.scale();
          T* const dv = k.out<T>(2).data() + s.dv.at(b, kv) + j * s.dv.row;
          const T p = scores.drop(scores.at(j), j);
          for (int64_t c = 0; c < s.value_size; ++c) dv[c] = chain(p, grad[c], dv[c]);
        }
        const T* const q = qs + s.q.at(b, h) + i * s.q.row;
        T* const dq = k.out<T>(0).data() + s.dq.at(b, h) + i * s.dq.row;
        for (int64_t j = range.begin; j < range.end; ++j) {
          const T* const key = ks + s.k.at(b, kv) + j * s.k.row;
          T* const dk = k.out<T>(1).data() + s.dk.at(b, kv) + j * s.dk.row;
          for (int64_t c = 0; c < s.size; ++c) {
            dq[c] = chain(d(j), key[c], dq[c]);
            dk[c] = chain(d(j), q[c], dk[c]);
          }
        }
      }
    }
  }
}

// Only the compiler, after differentiation, makes attention with other addresses.
void require_plain(const OpView& op) {
  const auto o = op.options<AttentionOpOptions>();
  require(o.sizes.empty() && !o.heads_last,
          "{} (C8): sizes, rows and heads_last must not be set where it is differentiated",
          op.def().name);
}

// The formula of attention, as a graph of other ops.
struct AttentionFormula {
  AttentionFormula(const OpView& op, const Tensors& in, int q_input)
      : s(op), o(op.options<AttentionOpOptions>()), inputs(in), first(q_input) {
    require_plain(op);
  }

  const Tensor& input(int i) const { return inputs[static_cast<size_t>(i)]; }
  // The queries of all heads that share a head of k are the rows of one matrix.
  Tensor shared(const Tensor& t) const {
    return reshape(t, {s.batch, s.kv_heads, s.group() * s.queries, t.shape().dim(-1)});
  }
  Tensor split(const Tensor& t) const {
    return reshape(t, {s.batch, s.heads, s.queries, t.shape().dim(-1)});
  }
  Tensor scores() const {
    Tensor t =
        split(matmul(shared(input(first)), input(first + 1), {.rhs_transposed = true})) * o.scale;
    Graph& graph = t.graph();
    constexpr double kHidden = -std::numeric_limits<double>::infinity();
    if (s.mask_input >= 0) {
      const Tensor& mask = input(s.mask_input);
      t = mask.dtype() == DType::kBool ? where(mask, t, kHidden) : t + mask;
    }
    if (!o.causal && o.window == 0) return t;
    std::vector<int32_t> queries, keys;
    for (int64_t i = 0; i < s.queries; ++i) queries.push_back(static_cast<int32_t>(i + o.offset));
    for (int64_t j = 0; j < s.keys; ++j) keys.push_back(static_cast<int32_t>(j));
    Tensor position = graph.constant(HostTensor::of<int32_t>({s.queries, 1}, i32, queries));
    const Tensor key = graph.constant(HostTensor::of<int32_t>({1, s.keys}, i32, keys));
    if (s.position_input >= 0) {
      // Positions beyond these bounds see all keys or none, as these do.
      const Tensor& p = input(s.position_input);
      constexpr double kFar = 1 << 30;
      const Tensor near = cast(where(greater(p, kFar), kFar, p), i32);
      position = position + where(less(near, -kFar), -kFar, near);
    }
    const Tensor window = graph.scalar(static_cast<double>(o.window), i32);
    Tensor seen;
    if (o.window > 0)
      seen = logical_and(greater(key + window, position), less(key, position + window));
    if (o.causal) {
      const Tensor before = less_equal(key, position);
      seen = seen.valid() ? logical_and(seen, before) : before;
    }
    return where(seen, t, kHidden);
  }
  Tensor dropped(const Tensor& t) const {
    return o.seed ? dropout(t, input(s.seed_input), o.dropout) : t;
  }
  // Whether a row has a score.
  static Tensor is_alive(const Tensor& top) {
    return logical_not(equal(top, -std::numeric_limits<double>::infinity()));
  }
  Tensor exponentials(const Tensor& scores, const Tensor& top) const {
    return exp(scores - where(is_alive(top), top, 0.0));
  }
  Tensor divided(const Tensor& e, const Tensor& total) const {
    return e / where(equal(total, 0.0), 1.0, total);
  }

  AttentionShape s;
  AttentionOpOptions o;
  const Tensors& inputs;
  int first;
};

Tensors attention_formula(const OpView& op, const Tensors& in) {
  const AttentionFormula f(op, in, 0);
  const AttentionShape& s = f.s;
  const ReduceOptions rows{.axes = {-1}, .keepdims = true};
  const Tensor scores = f.scores();
  const Tensor top = max(scores, rows);
  const Tensor e = f.exponentials(scores, top);
  const Tensor total = sum(e, rows);
  const Tensor p = f.dropped(f.divided(e, total));
  const Shape sums{s.batch, s.heads, s.queries};
  return {f.split(matmul(f.shared(p), in[2])), cast(reshape(top, sums), f32),
          cast(reshape(total, sums), f32)};
}

Tensors attention_grad_formula(const OpView& op, const Tensors& in) {
  const AttentionFormula f(op, in, 1);
  const AttentionShape& s = f.s;
  const DType dtype = in[1].dtype();
  const auto column = [&](const Tensor& t) {
    return cast(reshape(t, {s.batch, s.heads, s.queries, 1}), dtype);
  };
  const Tensor p = f.divided(f.exponentials(f.scores(), column(in[4])), column(in[5]));
  const Tensor grad = f.shared(in[0]);
  const Tensor dp = f.dropped(f.split(matmul(grad, in[3], {.rhs_transposed = true})));
  const Tensor ds = p * (dp - sum(dp * p, {.axes = {-1}, .keepdims = true})) * f.o.scale;
  const MatmulOptions transposed{.lhs_transposed = true};
  return {f.split(matmul(f.shared(ds), in[2])), matmul(f.shared(ds), f.shared(in[1]), transposed),
          matmul(f.shared(f.dropped(p)), grad, transposed)};
}

Tensors attention_gradient(GradContext& g) {
  const auto o = g.options<AttentionOpOptions>();
  require_plain(g.op());
  // A learned mask, and the sums that no function returns, are differentiated by the formula.
  if (g.has_grad(1) || g.has_grad(2) || (o.mask && g.needs(3))) return {};
  std::vector<TensorArg> operands{g.grad(0),  g.input(0),  g.input(1),
                                  g.input(2), g.output(1), g.output(2)};
  for (int i = 3; i < g.op().inputs(); ++i) operands.emplace_back(g.input(i));
  Tensors result = emit(attention_grad_def(), operands, to_attrs(o));
  result.resize(static_cast<size_t>(g.op().inputs()));
  return result;
}

double attention_flops(const OpView& op, double count) {
  const AttentionShape s(op);
  const auto o = op.options<AttentionOpOptions>();
  double keys = 0;  // That a query sees, summed over the queries.
  for (int64_t i = 0; i < s.queries; ++i) {
    const int64_t position = o.position ? s.keys - s.queries + i : i;
    const KeyRange range = s.seen(o, position + o.offset);
    keys += static_cast<double>(range.end - range.begin);
  }
  return count * static_cast<double>(s.batch * s.heads) * keys *
         static_cast<double>(s.size + s.value_size);
}

// --- definitions ---

const char* const kAttentionConstraints =
    "(C1) q, k and v have the same floating dtype. (C2) q is (batch, heads, queries, size), k is "
    "(batch, kv_heads, keys, size), v is (batch, kv_heads, keys, value size). (C3) kv_heads "
    "divides "
    "heads. (C4) The mask is bool or has the dtype of q, and broadcasts to (batch, heads, queries, "
    "keys). (C5) The seed is uint32 of shape (2,). (C6) The position is an int32 or uint32 scalar. "
    "(C7) Options are in their ranges and have an effect; the optional operands are those that "
    "they "
    "name. (C8) Sizes and strides, which the compiler sets, describe rows inside of the operands.";

struct SampleOf {
  Sample forward;
  // The sample of attention_grad for the sums of this one.
  Sample backward() const {
    const std::vector<TensorSpec>& in = forward.inputs;
    const Shape &q = in[0].shape, &v = in[2].shape;
    const Shape sums{q[0], q[1], q[2]};
    Sample s = forward;
    s.inputs = {{{q[0], q[1], q[2], v[3]}, in[0].dtype, {}}, in[0], in[1], in[2]};
    s.inputs.push_back(f32_spec(sums));
    s.inputs.push_back(f32_spec(sums));
    s.inputs.insert(s.inputs.end(), in.begin() + 3, in.end());
    s.values.clear();
    const auto n = static_cast<size_t>(sums.elements());
    s.values.resize(4);
    s.values.emplace_back(HostTensor::of<float>(sums, f32, std::vector<float>(n, 0.5F)));
    s.values.emplace_back(HostTensor::of<float>(sums, f32, std::vector<float>(n, 3.0F)));
    for (size_t i = 3; i < forward.values.size(); ++i) s.values.push_back(forward.values[i]);
    return s;
  }
};

std::vector<Sample> attention_samples() {
  const auto of = [](const AttentionOpOptions& o) { return to_attrs(o); };
  const auto f = [](std::vector<int64_t> dims) { return f32_spec(Shape(std::move(dims))); };
  const TensorSpec seed{{2}, u32, {}}, position{{}, i32, {}};
  const HostTensor words = HostTensor::of<uint32_t>({2}, u32, {7, 9});
  const HostTensor two = HostTensor::of<int32_t>({}, i32, {2});
  std::vector<Sample> all;
  all.push_back({.inputs = {f({1, 2, 3, 2}), f({1, 2, 4, 2}), f({1, 2, 4, 3})},
                 .options = of({.scale = 0.5})});
  all.push_back({.inputs = {f({1, 1, 3, 2}), f({1, 1, 3, 2}), f({1, 1, 3, 2})},
                 .options = of({.causal = true})});
  all.push_back({.inputs = {f({1, 4, 3, 2}), f({1, 2, 5, 2}), f({1, 2, 5, 1}), f({3, 5})},
                 .options = of({.window = 2, .offset = 1, .mask = true})});
  // Query 0 sees nothing; all keys of query 2 are masked.
  HostTensor seen(TensorSpec{{3, 3}, DType::kBool, {}});
  for (const size_t i : {0, 1, 2, 4, 5}) seen.as<bool>()[i] = true;
  all.push_back(
      {.inputs = {f({1, 1, 3, 2}), f({1, 1, 3, 2}), f({1, 1, 3, 2}), {{3, 3}, DType::kBool, {}}},
       .options = of({.causal = true, .offset = -1, .mask = true}),
       .values = {{}, {}, {}, seen}});
  all.push_back({.inputs = {f({2, 2, 1, 3}), f({2, 1, 4, 3}), f({2, 1, 4, 2}), seed, position},
                 .options = of({.causal = true, .dropout = 0.5, .seed = true, .position = true}),
                 .values = {{}, {}, {}, words, two}});
  all.push_back({.inputs = {f({2, 2, 9, 17}), f({2, 2, 40, 17}), f({2, 2, 40, 5})},
                 .options = of({.causal = true, .scale = 0.25, .window = 20, .offset = 31}),
                 .domain = {-1, 1},
                 .gradient = false});
  const auto half = [](Shape shape) { return TensorSpec{std::move(shape), f16, {}}; };
  all.push_back({.inputs = {half({1, 2, 3, 4}), half({1, 2, 3, 4}), half({1, 2, 3, 4})},
                 .options = of({.causal = true, .scale = 0.5}),
                 .gradient = false});
  return all;
}

// Operands and options that attention, or attention_grad, refuses.
std::vector<MustFail> refused_attention(bool backward) {
  using O = AttentionOpOptions;
  const TensorSpec x = f32_spec({1, 2, 3, 4}), sums = f32_spec({1, 2, 3});
  // (batch, queries, q k v, heads, size).
  const TensorSpec qkv = f32_spec({2, 3, 3, 2, 4});
  O strided{.causal = true,
            .sizes = {2, 2, 2, 3, 3, 4, 4},
            .rows = {0, 72, 4, 24, 8, 72, 4, 24, 16, 72, 4, 24},
            .heads_last = true};
  if (backward) strided.rows.insert(strided.rows.begin(), {0, 24, 12, 4});
  std::vector<MustFail> all;
  const auto add = [&](const char* constraint, std::vector<TensorSpec> inputs, void (*change)(O&),
                       O options = {}) {
    change(options);
    if (backward) {
      inputs.insert(inputs.begin(), options.sizes.empty() ? x : f32_spec({2, 2, 3, 4}));
      inputs.insert(inputs.begin() + 4, {sums, sums});
    }
    all.push_back({constraint, inputs, to_attrs(options)});
  };
  const auto nothing = [](O&) {};
  const auto masked = [](O& o) { o.mask = true; };
  add("(C1)", {i32_spec({1, 2, 3, 4}), x, x}, nothing);
  add("(C1)", {x, x, {{1, 2, 3, 4}, f16, {}}}, nothing);
  add("(C2)", {x, x, f32_spec({1, 2, 4, 4})}, nothing);
  add("(C2)", {f32_spec({2, 3, 4}), f32_spec({2, 3, 4}), f32_spec({2, 3, 4})}, nothing);
  add("(C3)", {f32_spec({1, 3, 3, 4}), x, x}, nothing);
  add("(C4)", {x, x, x, f32_spec({2, 3})}, masked);
  add("(C4)", {x, x, x, i32_spec({3, 3})}, masked);
  add("(C5)", {x, x, x, f32_spec({2})}, [](O& o) {
    o.dropout = 0.5;
    o.seed = true;
  });
  add("(C6)", {x, x, x, i32_spec({1})}, [](O& o) { o.causal = o.position = true; });
  add("(C7)", {x, x, x}, [](O& o) { o.dropout = 0.5; });
  add("(C7)", {x, x, x}, [](O& o) { o.window = -1; });
  add("(C7)", {x, x, x}, [](O& o) { o.offset = 1; });
  add("(C7)", {x, x, x}, masked);
  const std::vector<TensorSpec> parts{qkv, qkv, qkv};
  add(
      "(C8)", parts, [](O& o) { o.rows[0] = 1 << 20; }, strided);
  add(
      "(C8)", parts, [](O& o) { o.rows[5] = 200; }, strided);
  add(
      "(C8)", parts, [](O& o) { o.rows.pop_back(); }, strided);
  return all;
}

}  // namespace

bool is_attention(const OpDef& def) { return def.type == kAttention; }
bool is_attention_grad(const OpDef& def) { return def.type == kAttentionGrad; }

const OpDef& attention_def() {
  static const OpDef def = [] {
    OpDef d;
    d.type = kAttention;
    d.name = "attention";
    d.doc =
        std::string(
            "Scaled dot product attention of each head: softmax(scale·q·kᵀ + mask)·v. The other "
            "results are the maximum of each row of scores and the sum of its exponentials. ") +
        kAttentionConstraints;
    d.inputs = {{"q"}, {"k"}, {"v"}, {"optional"}};
    d.variadic = true;
    d.outputs = {"y", "top", "total"};
    d.set_options(AttentionOpOptions{});
    d.infer = infer_attention;
    d.grad = attention_gradient;
    d.formula = attention_formula;
    d.reference_float = reference_attention<float>;
    d.reference_double = reference_attention<double>;
    d.flops = [](const OpView& op) { return attention_flops(op, 2); };
    d.samples = attention_samples();
    d.must_fail = refused_attention(false);
    return d;
  }();
  return def;
}

const OpDef& attention_grad_def() {
  static const OpDef def = [] {
    OpDef d;
    d.type = kAttentionGrad;
    d.name = "attention_grad";
    d.audience = Audience::kOperators;
    d.doc = std::string("Gradients of attention with respect to q, k and v. ") +
            kAttentionConstraints +
            " (C9) grad has the shape and dtype of attention's result; top and total are its other "
            "results.";
    d.inputs = {{"grad"}, {"q"}, {"k"}, {"v"}, {"top"}, {"total"}, {"optional"}};
    d.variadic = true;
    d.outputs = {"dq", "dk", "dv"};
    d.set_options(AttentionOpOptions{});
    d.infer = infer_attention_grad;
    d.formula = attention_grad_formula;
    d.reference_float = reference_attention_grad<float>;
    d.reference_double = reference_attention_grad<double>;
    d.flops = [](const OpView& op) { return attention_flops(op, 5); };
    for (const Sample& s : attention_samples()) d.samples.push_back(SampleOf{s}.backward());
    const TensorSpec x = f32_spec({1, 2, 3, 4}), sums = f32_spec({1, 2, 3});
    d.must_fail = refused_attention(true);
    d.must_fail.push_back({"(C9)", {f32_spec({1, 2, 3, 5}), x, x, x, sums, sums}});
    d.must_fail.push_back({"(C9)", {x, x, x, x, sums, f32_spec({1, 2, 4})}});
    return d;
  }();
  return def;
}

Tensor attention(TensorArg q, TensorArg k, TensorArg v, const AttentionOptions& options) {
  const Tensor query = q, key = k, value = v;
  const int rank = query.rank();
  require(rank >= 2 && rank <= 4 && key.rank() == rank && value.rank() == rank,
          "attention (C2): q, k and v must have the same 2 to 4 axes, the last ones rows and their "
          "elements, got '{}' {}, '{}' {} and '{}' {}",
          query.name(), to_string(query.spec()), key.name(), to_string(key.spec()), value.name(),
          to_string(value.spec()));
  const auto heads = [&](const Tensor& t) {
    std::vector<int64_t> dims = t.shape().dims();
    dims.insert(dims.begin() + (rank == 3 ? 1 : 0), static_cast<size_t>(4 - rank), 1);
    return rank == 4 ? t : reshape(t, Shape(dims));
  };
  AttentionOpOptions o{.causal = options.causal,
                       .scale = options.scale,
                       .window = options.window,
                       .offset = options.offset,
                       .dropout = options.dropout,
                       .mask = options.mask.valid(),
                       .seed = options.seed.valid(),
                       .position = options.position.valid()};
  const int64_t size = query.shape().dim(-1);
  if (o.scale == 0) o.scale = size > 0 ? 1 / std::sqrt(static_cast<double>(size)) : 1;
  std::vector<TensorArg> operands{heads(query), heads(key), heads(value)};
  if (o.mask) {
    // The axis of heads of operands without it is that of the mask, too.
    const bool adds = rank == 3 && options.mask.rank() == 3;
    std::vector<int64_t> dims = options.mask.shape().dims();
    if (adds) dims.insert(dims.begin() + 1, 1);
    operands.emplace_back(adds ? reshape(options.mask, Shape(dims)) : options.mask);
  }
  if (o.seed) operands.emplace_back(options.seed);
  if (o.position) operands.emplace_back(options.position);
  const Tensor y = emit(attention_def(), operands, to_attrs(o))[0];
  if (rank == 4) return y;
  std::vector<int64_t> dims = query.shape().dims();
  dims.back() = value.shape().dim(-1);
  return reshape(y, Shape(dims));
}

std::vector<const OpDef*> attention_ops() { return {&attention_def(), &attention_grad_def()}; }

}  // namespace sluice::ops
