#include "sluice/cpu/reduce/reduce.h"

#include "sluice/base/numbers/extended_range.h"
#include "sluice/base/numbers/simd_math.h"
#include "sluice/cpu/reduce/row_vectors.h"
#include "sluice/cpu/simd/divide.h"

namespace sluice::cpu::internal {
namespace {

struct Multiply {
  static constexpr float kIdentity = 1;
  V operator()(V a, V b) const { return a * b; }
};
struct Smaller {
  static constexpr float kIdentity = kInfinity;
  V operator()(V a, V b) const { return min_or_nan(a, b); }
};

struct AddExtended {
  static constexpr float kIdentity = 0;
  V operator()(V a, V b) const { return simd::add_extended(a, b); }
};

struct Itself {
  V operator()(V x) const { return x; }
};
struct Square {
  V operator()(V x) const { return x * x; }
};
struct SquareExtended {
  V operator()(V x) const { return simd::square_extended(x); }
};
struct Magnitude {
  V operator()(V x) const { return abs(x); }
};

/// Vectors of columns whose partial results fit in the L1 cache.
constexpr int64_t kColumnVectors = 128 / kLanes;
/// Distance of the prefetch in rows. Long rows are in different pages, which the hardware
/// prefetcher does not handle.
constexpr int64_t kRowsAhead = 3;

/// Computes y[c] for `cols` columns of n rows; at most kColumnVectors vectors of columns. It goes
/// through memory row by row. Column by column, each load would touch another page.
template <typename T, typename Combine, typename Prepare, typename Finish>
void reduce_columns_of_block(const T* x, int64_t n, int64_t row_stride, int64_t cols,
                             Combine combine, Prepare prepare, Finish finish, float* y) {
  V partial[kColumnVectors][kPartials];
  const int64_t whole = cols / kLanes;
  const int64_t vectors = (cols + kLanes - 1) / kLanes;
  for (V* p = partial[0]; p != partial[vectors]; ++p) *p = V(Combine::kIdentity);
  for (int64_t i = 0; i < n; ++i) {
    const T* const row = x + i * row_stride;
    const int64_t j = i % kPartials;
    for (int64_t v = 0; v < whole; ++v) {
      __builtin_prefetch(row + kRowsAhead * row_stride + v * kLanes);
      partial[v][j] = combine(partial[v][j], prepare(load_elements<V>(row + v * kLanes)));
    }
    if (whole < vectors) {
      const int64_t at = whole * kLanes;
      partial[whole][j] =
          combine(partial[whole][j], prepare(load_elements_partial<V>(row + at, cols - at)));
    }
  }
  for (int64_t v = 0; v < vectors; ++v) {
    V* const p = partial[v];
    for (int half = kPartials / 2; half > 0; half /= 2) {
      for (int j = 0; j < half; ++j) p[j] = combine(p[j], p[j + half]);
    }
    store(finish(p[0]), y + v * kLanes, cols - v * kLanes);
  }
}

/// Computes y[c] like reduce_columns_of_block(), for more than kChunk rows.
template <typename T, typename Combine, typename Prepare, typename Finish>
void reduce_columns_in_chunks(const T* x, int64_t n, int64_t row_stride, int64_t cols,
                              Combine combine, Prepare prepare, Finish finish, float* y) {
  constexpr int64_t kMax = kColumnVectors * kLanes;
  alignas(64) float chunk[kMax] = {};
  alignas(64) float partial[kPartials * kMax];
  for (float& p : partial) p = Combine::kIdentity;
  for (int64_t first = 0; first < n; first += kChunk) {
    const int64_t rest = n - first;
    reduce_columns_of_block(
        x + first * row_stride, rest < kChunk ? rest : kChunk, row_stride, cols, combine, prepare,
        [](V v) { return v; }, chunk);
    float* const p = partial + first / kChunk % kPartials * kMax;
    for (int64_t c = 0; c < cols; c += kLanes)
      combine(V::load(p + c), V::load(chunk + c)).store(p + c);
  }
  reduce_columns_of_block(
      partial, kPartials, kMax, cols, combine, [](V v) { return v; }, finish, y);
}

/// Calls f(combine, prepare, finish) with the functions that define `op` for n elements.
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
    case ReduceOp::kSumSquareExtended:
      return f(AddExtended{}, SquareExtended{}, keep);
    case ReduceOp::kSumExtended:
      return f(AddExtended{}, Itself{}, keep);
  }
}

/// Calls `f` with a pointer to the array's element type.
template <typename F>
void with_elements(FloatArray x, F f) {
  if (x.dtype == f16) return f(static_cast<const Half*>(x.data));
  if (x.dtype == bf16) return f(static_cast<const Bfloat*>(x.data));
  f(static_cast<const float*>(x.data));
}

/// Reads an array that consists of runs of n elements, `stride` elements apart.
template <typename T>
class Runs {
 public:
  Runs(const T* x, int64_t n, int64_t stride) : run_(x), n_(n), stride_(stride) {}
  /// Returns the next min(count, kLanes) elements; other lanes have any value.
  V next(int64_t count) {
    if (at_ + kLanes <= n_ && count >= kLanes) {
      const V v = load_elements<V>(run_ + at_);
      at_ += kLanes;
      return v;
    }
    T elements[kLanes] = {};
    const int64_t lanes = count < kLanes ? count : kLanes;
    for (int64_t lane = 0; lane < lanes; ++lane) {
      if (at_ == n_) {
        run_ += stride_;
        at_ = 0;
      }
      elements[lane] = run_[at_++];
    }
    return load_elements<V>(elements);
  }

 private:
  const T* run_;
  const int64_t n_, stride_;
  int64_t at_ = 0;
};

}  // namespace

using Kernels = ReduceKernels<kUnitIsa>;

template <>
void Kernels::rows(ReduceOp op, FloatArray array, int64_t rows, int64_t n, int64_t row_stride,
                   float* y) {
  with_elements(array, [&](const auto* x) {
    with_op(op, n, [&](auto combine, auto prepare, auto finish) {
      for (int64_t r = 0; r < rows; ++r) {
        const auto* row = x + r * row_stride;
        const float result = reduce_row(
            n, combine, [&](int64_t i, int64_t count) { return prepare(load(row + i, count)); });
        finish(V(result)).store_partial(y + r, 1);
      }
    });
  });
}

template <>
void Kernels::runs(ReduceOp op, FloatArray array, int64_t runs, int64_t rows, int64_t n,
                   int64_t first, int64_t end, float* y) {
  with_elements(array, [&](const auto* x) {
    with_op(op, runs * n, [&](auto combine, auto prepare, auto finish) {
      for (int64_t r = first; r < end; ++r) {
        Runs row(x + r * n, n, rows * n);
        const float result = reduce_row(
            runs * n, combine, [&](int64_t, int64_t count) { return prepare(row.next(count)); });
        finish(V(result)).store_partial(y + (r - first), 1);
      }
    });
  });
}

template <>
void Kernels::columns(ReduceOp op, FloatArray array, int64_t n, int64_t cols, int64_t row_stride,
                      float* y) {
  with_elements(array, [&](const auto* x) {
    with_op(op, n, [&](auto combine, auto prepare, auto finish) {
      constexpr int64_t kMax = kColumnVectors * kLanes;
      for (int64_t c = 0; c < cols; c += kMax) {
        const int64_t some = cols - c < kMax ? cols - c : kMax;
        if (n <= kChunk) {
          reduce_columns_of_block(x + c, n, row_stride, some, combine, prepare, finish, y + c);
        } else {
          reduce_columns_in_chunks(x + c, n, row_stride, some, combine, prepare, finish, y + c);
        }
      }
    });
  });
}

template <>
void Kernels::more_columns(ReduceOp op, const float* x, int64_t first, int64_t rows,
                           int64_t results, int64_t row_stride, float* partial, int64_t step) {
  with_op(op, 1, [&](auto combine, auto prepare, auto) {
    for (int64_t i = first; i < first + rows; ++i, x += row_stride) {
      float* const p = partial + i % kPartials * step;
      for_each_vector(results, p, [&](int64_t c, int64_t count) {
        return combine(load(p + c, count), prepare(load(x + c, count)));
      });
    }
  });
}

template <>
void Kernels::more_row(ReduceOp op, const float* x, int64_t n, float* partial) {
  with_op(op, 1, [&](auto combine, auto prepare, auto) {
    for (int64_t i = 0; i < n; i += kPartials) {
      const int64_t m = n - i < kPartials ? n - i : kPartials;
      for_each_vector(m, partial, [&](int64_t j, int64_t count) {
        return combine(load(partial + j, count), prepare(load(x + i + j, count)));
      });
    }
  });
}

template <>
void Kernels::end(ReduceOp op, int64_t n, int64_t results, float* partial, int64_t step, float* y) {
  with_op(op, n, [&](auto combine, auto, auto finish) {
    for (int half = kPartials / 2; half > 0; half /= 2) {
      for (int j = 0; j < half; ++j) {
        float* const p = partial + j * step;
        const float* const q = partial + (j + half) * step;
        for_each_vector(results, p, [&](int64_t c, int64_t count) {
          return combine(load(p + c, count), load(q + c, count));
        });
      }
    }
    for_each_vector(results, y,
                    [&](int64_t c, int64_t count) { return finish(load(partial + c, count)); });
  });
}

template <>
void Kernels::softmax(const float* x, int64_t rows, int64_t n, float* y) {
  for (int64_t r = 0; r < rows; ++r, x += n, y += n) {
    const V top(largest(x, n));
    const V total(reduce_row(n, Add{}, [&](int64_t i, int64_t count) {
      const V e = exp(load(x + i, count) - top);
      __builtin_prefetch(x + n + i);  // Fetch the next row while this one is computed.
      store(e, y + i, count);
      return e;
    }));
    const Divider<V> by_total(total);
    for_each_vector(n, y, [&](int64_t i, int64_t count) { return by_total(load(y + i, count)); });
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
