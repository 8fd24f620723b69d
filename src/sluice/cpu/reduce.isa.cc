#include "sluice/cpu/reduce.h"

#include <limits>

#include "sluice/base/simd_math.h"
#include "sluice/cpu/unit.h"

namespace sluice::cpu::internal {
namespace {

using V = VectorFor<kUnitIsa>::type;
constexpr int kLanes = V::kLanes;
constexpr int kPartials = 16;                 ///< kReduceLanes of base/reduce.h.
constexpr int kVectors = kPartials / kLanes;  ///< That hold the partial results of one row.
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Add {
  static constexpr float kIdentity = 0;
  V operator()(V a, V b) const { return a + b; }
};
struct Multiply {
  static constexpr float kIdentity = 1;
  V operator()(V a, V b) const { return a * b; }
};
struct Larger {
  static constexpr float kIdentity = -kInfinity;
  V operator()(V a, V b) const { return max_or_nan(a, b); }
};
struct Smaller {
  static constexpr float kIdentity = kInfinity;
  V operator()(V a, V b) const { return min_or_nan(a, b); }
};

struct Itself {
  V operator()(V x) const { return x; }
};
struct Square {
  V operator()(V x) const { return x * x; }
};
struct Magnitude {
  V operator()(V x) const { return abs(x); }
};

/// The canonical reduction of `element(i, count)`: lanes i to i + count - 1, of which those from
/// kLanes on and the rest of a last vector are ignored. Called once for each vector, ascending.
template <typename Combine, typename Element>
float reduce_row(int64_t n, Combine combine, Element element) {
  V partial[kVectors];
  for (V& p : partial) p = V(Combine::kIdentity);
  int64_t i = 0;
  for (; i + kPartials <= n; i += kPartials) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v)
      partial[v] = combine(partial[v], element(i + v * kLanes, kLanes));
  }
  for (int v = 0; v < kVectors && i < n; ++v, i += kLanes) {
    partial[v] = select(V::Mask::first(n - i), combine(partial[v], element(i, n - i)), partial[v]);
  }
  for (int half = kVectors / 2; half > 0; half /= 2) {
    for (int v = 0; v < half; ++v) partial[v] = combine(partial[v], partial[v + half]);
  }
  return fold_lanes(partial[0], combine);
}

/// Reads like `element` of reduce_row.
V load(const float* p, int64_t count) {
  return count >= kLanes ? V::load(p) : V::load_partial(p, count);
}
void store(V v, float* p, int64_t count) {
  if (count >= kLanes)
    v.store(p);
  else
    v.store_partial(p, count);
}

/// One column of vectors: `count` columns of n rows.
template <typename Combine, typename Prepare>
V reduce_column(const float* x, int64_t n, int64_t row_stride, int64_t count, Combine combine,
                Prepare prepare) {
  V partial[kPartials];
  for (V& p : partial) p = V(Combine::kIdentity);
  const auto row = [&](int64_t i) { return prepare(load(x + i * row_stride, count)); };
  int64_t i = 0;
  for (; i + kPartials <= n; i += kPartials) {
#pragma GCC unroll 16
    for (int j = 0; j < kPartials; ++j) partial[j] = combine(partial[j], row(i + j));
  }
  for (int j = 0; i < n; ++i, ++j) partial[j] = combine(partial[j], row(i));
  for (int half = kPartials / 2; half > 0; half /= 2) {
    for (int j = 0; j < half; ++j) partial[j] = combine(partial[j], partial[j + half]);
  }
  return partial[0];
}

/// Calls `f(combine, prepare, finish)` with what `op` means for n elements.
template <typename F>
void with_op(ReduceOp op, int64_t n, F f) {
  const auto keep = [](V v) { return v; };
  switch (op) {
    case ReduceOp::kSum:
      return f(Add{}, Itself{}, keep);
    case ReduceOp::kMean:
      return f(Add{}, Itself{}, [n](V v) { return v / V(static_cast<float>(n)); });
    case ReduceOp::kMax:
      return f(Larger{}, Itself{}, keep);
    case ReduceOp::kMin:
      return f(Smaller{}, Itself{}, keep);
    case ReduceOp::kProd:
      return f(Multiply{}, Itself{}, keep);
    case ReduceOp::kL1:
      return f(Add{}, Magnitude{}, keep);
    case ReduceOp::kL2:
      return f(Add{}, Square{}, [](V v) { return sqrt(v); });
    case ReduceOp::kSumSquare:
      return f(Add{}, Square{}, keep);
  }
}

float largest(const float* x, int64_t n) {
  return reduce_row(n, Larger{}, [x](int64_t i, int64_t count) { return load(x + i, count); });
}

/// y[i] = f(i, count) in vectors.
template <typename F>
void for_each_vector(int64_t n, float* y, F f) {
  for (int64_t i = 0; i < n; i += kLanes) store(f(i, n - i), y + i, n - i);
}

}  // namespace

using Kernels = ReduceKernels<kUnitIsa>;

template <>
void Kernels::rows(ReduceOp op, const float* x, int64_t rows, int64_t n, int64_t row_stride,
                   float* y) {
  with_op(op, n, [&](auto combine, auto prepare, auto finish) {
    for (int64_t r = 0; r < rows; ++r) {
      const float* row = x + r * row_stride;
      const float result = reduce_row(
          n, combine, [&](int64_t i, int64_t count) { return prepare(load(row + i, count)); });
      finish(V(result)).store_partial(y + r, 1);
    }
  });
}

template <>
void Kernels::columns(ReduceOp op, const float* x, int64_t n, int64_t cols, int64_t row_stride,
                      float* y) {
  with_op(op, n, [&](auto combine, auto prepare, auto finish) {
    for_each_vector(cols, y, [&](int64_t c, int64_t count) {
      return finish(reduce_column(x + c, n, row_stride, count, combine, prepare));
    });
  });
}

template <>
void Kernels::softmax(const float* x, int64_t rows, int64_t n, float* y) {
  for (int64_t r = 0; r < rows; ++r, x += n, y += n) {
    const V top(largest(x, n));
    const V total(reduce_row(n, Add{}, [&](int64_t i, int64_t count) {
      const V e = exp(load(x + i, count) - top);
      store(e, y + i, count);
      return e;
    }));
    for_each_vector(n, y, [&](int64_t i, int64_t count) { return load(y + i, count) / total; });
  }
}

template <>
void Kernels::log_softmax(const float* x, int64_t rows, int64_t n, float* y) {
  for (int64_t r = 0; r < rows; ++r, x += n, y += n) {
    const V top(largest(x, n));
    const V shift = log(V(reduce_row(
        n, Add{}, [&](int64_t i, int64_t count) { return exp(load(x + i, count) - top); })));
    for_each_vector(n, y,
                    [&](int64_t i, int64_t count) { return load(x + i, count) - top - shift; });
  }
}

template <>
void Kernels::softmax_grad(const float* grad, const float* y, int64_t rows, int64_t n, float* dx) {
  for (int64_t r = 0; r < rows; ++r, grad += n, y += n, dx += n) {
    const V dot(reduce_row(n, Add{}, [&](int64_t i, int64_t count) {
      return load(grad + i, count) * load(y + i, count);
    }));
    for_each_vector(n, dx, [&](int64_t i, int64_t count) {
      return load(y + i, count) * (load(grad + i, count) - dot);
    });
  }
}

template <>
void Kernels::log_softmax_grad(const float* grad, const float* y, int64_t rows, int64_t n,
                               float* dx) {
  for (int64_t r = 0; r < rows; ++r, grad += n, y += n, dx += n) {
    const V total(
        reduce_row(n, Add{}, [&](int64_t i, int64_t count) { return load(grad + i, count); }));
    for_each_vector(n, dx, [&](int64_t i, int64_t count) {
      return load(grad + i, count) - exp(load(y + i, count)) * total;
    });
  }
}

}  // namespace sluice::cpu::internal
