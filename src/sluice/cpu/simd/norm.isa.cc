#include "sluice/cpu/simd/norm.h"

#include <array>

#include "sluice/cpu/simd/unit.h"

namespace sluice::cpu::internal {
namespace {

using V = VectorFor<kUnitIsa>::type;
constexpr int kLanes = V::kLanes;
constexpr int kPartials = 16;                 ///< kReduceLanes of base/reduce.h.
constexpr int64_t kChunk = 65536;             ///< kReduceChunk of base/reduce.h.
constexpr int kVectors = kPartials / kLanes;  ///< Vectors with the partial sums of one row.

V load(const float* p, int64_t count) {
  return count >= kLanes ? V::load(p) : V::load_partial(p, count);
}

/// Adds partial sums in the tree 8+8, 4+4, 2+2, 1+1.
float fold(V (&partial)[kVectors]) {
  for (int half = kVectors / 2; half > 0; half /= 2) {
    for (int v = 0; v < half; ++v) partial[v] = partial[v] + partial[v + half];
  }
  return fold_lanes(partial[0], [](V a, V b) { return a + b; });
}

/// Computes kSums sums over elements [begin, end) of each of kRows rows, at most kChunk elements.
/// `element(r, i, count)` returns the addends i, i + 1, … of row r, of which min(count, kLanes)
/// are used. Several rows at once hide the latency of the additions.
template <int kRows, int kSums, typename Element>
void sum_chunk(int64_t begin, int64_t end, Element element, float (&out)[kRows][kSums]) {
  V partial[kRows][kSums][kVectors];
  for (auto& row : partial) {
    for (auto& sum : row) {
      for (V& p : sum) p = V(0.0f);
    }
  }
  int64_t i = begin;
  for (; i + kPartials <= end; i += kPartials) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const std::array<V, kSums> addends = element(r, i + v * kLanes, kLanes);
#pragma GCC unroll 2
        for (int s = 0; s < kSums; ++s) partial[r][s][v] = partial[r][s][v] + addends[s];
      }
    }
  }
  for (int v = 0; v < kVectors && i < end; ++v, i += kLanes) {
    const auto used = V::Mask::first(end - i);
    for (int r = 0; r < kRows; ++r) {
      const std::array<V, kSums> addends = element(r, i, end - i);
      for (int s = 0; s < kSums; ++s)
        partial[r][s][v] = select(used, partial[r][s][v] + addends[s], partial[r][s][v]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int s = 0; s < kSums; ++s) out[r][s] = fold(partial[r][s]);
  }
}

/// Computes kSums canonical sums over n elements of each of kRows rows.
template <int kRows, int kSums, typename Element>
void sum_rows(int64_t n, Element element, float (&out)[kRows][kSums]) {
  if (n <= kChunk) return sum_chunk(0, n, element, out);
  float partial[kRows][kSums][kPartials] = {};
  for (int64_t first = 0; first < n; first += kChunk) {
    sum_chunk(first, n - first < kChunk ? n : first + kChunk, element, out);
    for (int r = 0; r < kRows; ++r) {
      for (int s = 0; s < kSums; ++s) {
        float& p = partial[r][s][first / kChunk % kPartials];
        p = p + out[r][s];
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int s = 0; s < kSums; ++s) {
      V lanes[kVectors];
      for (int v = 0; v < kVectors; ++v) lanes[v] = V::load(partial[r][s] + v * kLanes);
      out[r][s] = fold(lanes);
    }
  }
}

/// Calls f(first, rows) for parts of kRows rows, then for single rows. `rows` is a constant.
template <int kRows, typename F>
void for_rows(int64_t rows, F f) {
  int64_t r = 0;
  for (; r + kRows <= rows; r += kRows) f(r, std::integral_constant<int, kRows>{});
  for (; r < rows; ++r) f(r, std::integral_constant<int, 1>{});
}

/// Computes n elements of y, vector by vector: f(i, count) returns the elements from i on.
template <typename F>
void for_each_vector(int64_t n, float* y, F f) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) f(i, kLanes).store(y + i);
  if (i < n) f(i, n - i).store_partial(y + i, n - i);
}

constexpr int kSets = 4;  ///< Sets of partial sums of a channel (ops/norms.h).

/// Partial sums of a channel: kSums sums in kSets sets.
template <int kSums>
using ChannelLanes = V[kSums][kSets][kVectors];

/// Adds the elements of kPlanes planes to as many sets, from `set` on. `element(p, i, count)` is as
/// for sum_chunk(). The additions of one plane hide the latency of those of the other.
template <int kPlanes, int kSums, typename Element>
[[gnu::always_inline]] inline void add_planes(int64_t size, Element element,
                                              ChannelLanes<kSums>& lanes, int set) {
  V partial[kPlanes][kSums][kVectors];
  for (int p = 0; p < kPlanes; ++p) {
    for (int s = 0; s < kSums; ++s) {
      for (int v = 0; v < kVectors; ++v) partial[p][s][v] = lanes[s][set + p][v];
    }
  }
  int64_t i = 0;
  for (; i + kPartials <= size; i += kPartials) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
#pragma GCC unroll 2
      for (int p = 0; p < kPlanes; ++p) {
        const std::array<V, kSums> addends = element(p, i + v * kLanes, kLanes);
        for (int s = 0; s < kSums; ++s) partial[p][s][v] = partial[p][s][v] + addends[s];
      }
    }
  }
  for (int v = 0; v < kVectors && i < size; ++v, i += kLanes) {
    const auto used = V::Mask::first(size - i);
    for (int p = 0; p < kPlanes; ++p) {
      const std::array<V, kSums> addends = element(p, i, size - i);
      for (int s = 0; s < kSums; ++s)
        partial[p][s][v] = select(used, partial[p][s][v] + addends[s], partial[p][s][v]);
    }
  }
  for (int p = 0; p < kPlanes; ++p) {
    for (int s = 0; s < kSums; ++s) {
      for (int v = 0; v < kVectors; ++v) lanes[s][set + p][v] = partial[p][s][v];
    }
  }
}

/// sum_channels() for planes of one element: each lane is a channel.
template <int kSums, typename Element>
void sum_columns(const NormChannels& shape, const float* means, Element element,
                 const std::array<float*, kSums>& out) {
  for (int64_t c = 0; c < shape.channels; c += kLanes) {
    const int64_t count = shape.channels - c;
    const V mean = means == nullptr ? V(0.0f) : load(means + c, count);
    V sets[kSums][kSets];
    for (auto& sum : sets) {
      for (V& set : sum) set = V(0.0f);
    }
    for (int64_t n = 0; n < shape.samples; ++n) {
      const std::array<V, kSums> addends = element(n * shape.sample_stride + c, mean, count);
      for (int s = 0; s < kSums; ++s) sets[s][n % kSets] = sets[s][n % kSets] + addends[s];
    }
    for (int s = 0; s < kSums; ++s) {
      const V sum = (sets[s][0] + sets[s][2]) + (sets[s][1] + sets[s][3]);
      for_each_vector(count < kLanes ? count : kLanes, out[s] + c,
                      [&](int64_t, int64_t) { return sum; });
    }
  }
}

/// Computes kSums sums of each channel. `element(at, mean, count)` returns the addends of the
/// elements from offset `at` on; `mean` is the channel's number, 0 if `means` is null.
template <int kSums, typename Element>
void sum_channels(const NormChannels& shape, const float* means, Element element,
                  const std::array<float*, kSums>& out) {
  if (shape.size == 1) return sum_columns<kSums>(shape, means, element, out);
  ChannelLanes<kSums> lanes[NormChannels::kMax];
  const V* const end = lanes[shape.channels][0][0];
  for (V* lane = lanes[0][0][0]; lane != end; ++lane) *lane = V(0.0f);
  const auto add = [&](auto planes, int64_t n) {
    for (int64_t c = 0; c < shape.channels; ++c) {
      const V mean(means == nullptr ? 0.0f : means[c]);
      const int64_t at = n * shape.sample_stride + c * shape.size;
      add_planes<planes(), kSums>(
          shape.size,
          [&](int p, int64_t i, int64_t count) {
            return element(at + p * shape.sample_stride + i, mean, count);
          },
          lanes[c], static_cast<int>(n % kSets));
    }
  };
  for_rows<2>(shape.samples, [&](int64_t n, auto planes) { add(planes, n); });
  for (int64_t c = 0; c < shape.channels; ++c) {
    for (int s = 0; s < kSums; ++s) {
      auto& sets = lanes[c][s];
      for (int v = 0; v < kVectors; ++v)
        sets[0][v] = (sets[0][v] + sets[2][v]) + (sets[1][v] + sets[3][v]);
      out[s][c] = fold(sets[0]);
    }
  }
}

/// Rows of one element that follow each other are one row with numbers for each element.
bool is_transposed(const NormRows& shape, int64_t step) {
  return shape.n == 1 && shape.stride == 1 && step == 1;
}

}  // namespace

using Kernels = NormKernels<kUnitIsa>;

template <>
void Kernels::sums(const NormRows& shape, const float* x, float* sums) {
  // Adding 0 makes 0 of -0, as adding partial sums does.
  if (is_transposed(shape, 1)) {
    return for_each_vector(shape.rows, sums,
                           [&](int64_t i, int64_t count) { return V(0.0f) + load(x + i, count); });
  }
  for_rows<4>(shape.rows, [&](int64_t first, auto rows) {
    const float* const from = x + first * shape.stride;
    float out[rows()][1];
    sum_rows<rows(), 1>(
        shape.n,
        [&](int r, int64_t i, int64_t count) {
          return std::array<V, 1>{load(from + r * shape.stride + i, count)};
        },
        out);
    for (int r = 0; r < rows(); ++r) sums[first + r] = out[r][0];
  });
}

template <>
void Kernels::squares(const NormRows& shape, const float* x, NormParameter mean, float* squares) {
  if (is_transposed(shape, mean.step)) {
    return for_each_vector(shape.rows, squares, [&](int64_t i, int64_t count) {
      const V d = load(x + i, count) - load(mean.data + i, count);
      return V(0.0f) + d * d;
    });
  }
  for_rows<4>(shape.rows, [&](int64_t first, auto rows) {
    const float* const from = x + first * shape.stride;
    V means[rows()];
    for (int r = 0; r < rows(); ++r) means[r] = V(mean.data[(first + r) * mean.step]);
    float out[rows()][1];
    sum_rows<rows(), 1>(
        shape.n,
        [&](int r, int64_t i, int64_t count) {
          const V d = load(from + r * shape.stride + i, count) - means[r];
          return std::array<V, 1>{d * d};
        },
        out);
    for (int r = 0; r < rows(); ++r) squares[first + r] = out[r][0];
  });
}

template <>
void Kernels::products(const NormRows& shape, const float* grad, const float* x, NormParameter mean,
                       float* grads, float* products) {
  if (is_transposed(shape, mean.step)) {
    for_each_vector(shape.rows, grads,
                    [&](int64_t i, int64_t count) { return V(0.0f) + load(grad + i, count); });
    return for_each_vector(shape.rows, products, [&](int64_t i, int64_t count) {
      const V d = load(x + i, count) - load(mean.data + i, count);
      return V(0.0f) + load(grad + i, count) * d;
    });
  }
  for_rows<2>(shape.rows, [&](int64_t first, auto rows) {
    const int64_t at = first * shape.stride;
    V means[rows()];
    for (int r = 0; r < rows(); ++r) means[r] = V(mean.data[(first + r) * mean.step]);
    float out[rows()][2];
    sum_rows<rows(), 2>(
        shape.n,
        [&](int r, int64_t i, int64_t count) {
          const V g = load(grad + at + r * shape.stride + i, count);
          const V d = load(x + at + r * shape.stride + i, count) - means[r];
          return std::array<V, 2>{g, g * d};
        },
        out);
    for (int r = 0; r < rows(); ++r) {
      grads[first + r] = out[r][0];
      products[first + r] = out[r][1];
    }
  });
}

template <>
void Kernels::channel_sums(const NormChannels& shape, const float* x, float* sums) {
  sum_channels<1>(
      shape, nullptr,
      [&](int64_t at, V, int64_t count) { return std::array<V, 1>{load(x + at, count)}; }, {sums});
}

template <>
void Kernels::channel_squares(const NormChannels& shape, const float* x, const float* mean,
                              float* squares) {
  sum_channels<1>(shape, mean,
                  [&](int64_t at, V m, int64_t count) {
                    const V d = load(x + at, count) - m;
                    return std::array<V, 1>{d * d};
                  },
                  {squares});
}

template <>
void Kernels::channel_products(const NormChannels& shape, const float* grad, const float* x,
                               const float* mean, float* grads, float* products) {
  sum_channels<2>(shape, mean,
                  [&](int64_t at, V m, int64_t count) {
                    const V g = load(grad + at, count);
                    return std::array<V, 2>{g, g * (load(x + at, count) - m)};
                  },
                  {grads, products});
}

template <>
void Kernels::scale(const NormRows& shape, const float* x, const NormNumbers& p, float* y) {
  if (is_transposed(shape, p.step)) {
    return for_each_vector(shape.rows, y, [&](int64_t i, int64_t count) {
      return (load(x + i, count) - load(p.mean + i, count)) * load(p.scale + i, count) +
             load(p.shift + i, count);
    });
  }
  for (int64_t r = 0; r < shape.rows; ++r) {
    const float* const from = x + r * shape.stride;
    const V mean(p.mean[r * p.step]), scale(p.scale[r * p.step]), shift(p.shift[r * p.step]);
    for_each_vector(shape.n, y + r * shape.stride, [&](int64_t i, int64_t count) {
      return (load(from + i, count) - mean) * scale + shift;
    });
  }
}

template <>
void Kernels::gradient(const NormRows& shape, const float* grad, const float* x,
                       const NormNumbers& p, float* dx) {
  if (is_transposed(shape, p.step)) {
    return for_each_vector(shape.rows, dx, [&](int64_t i, int64_t count) {
      const V d = load(x + i, count) - load(p.mean + i, count);
      return (load(grad + i, count) * load(p.scale + i, count) - d * load(p.slope + i, count)) -
             load(p.shift + i, count);
    });
  }
  for (int64_t r = 0; r < shape.rows; ++r) {
    const int64_t at = r * shape.stride;
    const int64_t number = r * p.step;
    const V mean(p.mean[number]), scale(p.scale[number]);
    const V slope(p.slope[number]), shift(p.shift[number]);
    for_each_vector(shape.n, dx + at, [&](int64_t i, int64_t count) {
      const V d = load(x + at + i, count) - mean;
      return (load(grad + at + i, count) * scale - d * slope) - shift;
    });
  }
}

template <>
void Kernels::layer(int64_t n, const float* x, const float* weight, const float* bias, float mean,
                    float inverse, float* y) {
  const V m(mean), s(inverse);
  const auto normal = [&](int64_t i, int64_t count) { return (load(x + i, count) - m) * s; };
  if (weight == nullptr) return for_each_vector(n, y, normal);
  if (bias == nullptr) {
    return for_each_vector(
        n, y, [&](int64_t i, int64_t count) { return normal(i, count) * load(weight + i, count); });
  }
  for_each_vector(n, y, [&](int64_t i, int64_t count) {
    return normal(i, count) * load(weight + i, count) + load(bias + i, count);
  });
}

template <>
void Kernels::layer_products(int64_t n, const float* grad, const float* x, const float* weight,
                             float mean, float inverse, float* sums) {
  const V m(mean), s(inverse);
  float out[1][2];
  const auto run = [&](auto weighted) {
    sum_rows<1, 2>(
        n,
        [&](int, int64_t i, int64_t count) {
          V h = load(grad + i, count);
          if constexpr (decltype(weighted)::value) h = h * load(weight + i, count);
          return std::array<V, 2>{h, h * ((load(x + i, count) - m) * s)};
        },
        out);
  };
  if (weight == nullptr) {
    run(std::false_type{});
  } else {
    run(std::true_type{});
  }
  sums[0] = out[0][0];
  sums[1] = out[0][1];
}

template <>
void Kernels::layer_gradient(int64_t n, const float* grad, const float* x, const float* weight,
                             float mean, float inverse, float grads, float slope, float* dx,
                             float* dweight, float* dbias) {
  const V m(mean), s(inverse), a(grads), b(slope);
  const auto add = [](V v, float* to, int64_t count) {
    const V sum = load(to, count) + v;
    if (count >= kLanes)
      sum.store(to);
    else
      sum.store_partial(to, count);
  };
  const auto run = [&](auto weighted, auto biased) {
    for_each_vector(n, dx, [&](int64_t i, int64_t count) {
      const V g = load(grad + i, count);
      const V z = (load(x + i, count) - m) * s;
      add(g * z, dweight + i, count);
      if constexpr (decltype(biased)::value) add(g, dbias + i, count);
      const V h = decltype(weighted)::value ? g * load(weight + i, count) : g;
      return ((h - a) - z * b) * s;
    });
  };
  const auto run_biased = [&](auto weighted) {
    if (dbias == nullptr) {
      run(weighted, std::false_type{});
    } else {
      run(weighted, std::true_type{});
    }
  };
  if (weight == nullptr) {
    run_biased(std::false_type{});
  } else {
    run_biased(std::true_type{});
  }
}

}  // namespace sluice::cpu::internal
