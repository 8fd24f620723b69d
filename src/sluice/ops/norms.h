#pragma once
#include <algorithm>
#include <array>
#include <cmath>

#include "sluice/base/reduce.h"
#include "sluice/ops/rules.h"

/// Rules and reference code that the norms share (batch_norm.cc, normalization.cc,
/// rms_norm.cc).
namespace sluice::ops {

/// A tensor (batch, channels, spatial…) seen as planes: the positions of one channel of one sample.
/// The planes of a sample follow each other.
struct Planes {
  /// The shape must have two or more axes.
  explicit Planes(const Shape& shape) : batch(shape[0]), channels(shape[1]) {
    for (int a = 2; a < shape.rank(); ++a) size *= shape[a];
  }
  int64_t batch = 0;
  int64_t channels = 0;
  int64_t size = 1;  ///< Elements of a plane.

  /// Values of a channel.
  int64_t values() const { return batch * size; }
  /// Offset of the plane of channel `c` in sample `n`.
  int64_t at(int64_t n, int64_t c) const { return (n * channels + c) * size; }
};

/// A tensor seen as rows that are cut into at most 16 parts of `size` rows; the last part may have
/// fewer rows. The gradients of layer_norm's parameters are added part by part.
struct RowParts {
  /// The shape must have an axis.
  explicit RowParts(const Shape& shape) : cols(shape.dim(-1)) {
    for (int a = 0; a + 1 < shape.rank(); ++a) rows *= shape[a];
    size = std::max<int64_t>(1, (rows + 15) / 16);
    count = (rows + size - 1) / size;
  }
  int64_t rows = 1;
  int64_t cols = 1;
  int64_t size = 1;
  int64_t count = 0;
};

/// Samples whose elements channel_sum() adds before it adds the sums of chunks.
inline int64_t samples_per_chunk(const Planes& p) {
  return std::max<int64_t>(1, kReduceChunk / std::max<int64_t>(1, p.size));
}

/// Number by which a sum of n values is divided to get their mean: the mean of no values is 0.
inline int64_t divisor_of_mean(int64_t n) { return n > 0 ? n : 1; }

/// Requires that input `i` of an op has `n` elements in one axis and the dtype of input 0.
inline void require_vector(const OpView& op, int i, int64_t n, std::string_view what) {
  const TensorSpec want{{n}, op.input(0).dtype, {}};
  require(op.input(i).shape == want.shape && op.input(i).dtype == want.dtype,
          "{} must be {}, got {}", what, to_string(want), to_string(op.input(i)));
}

/// Requires that the inputs from `first` on are none, a weight, or a weight and a bias of n
/// elements. `constraint` is "(C3)".
inline void require_parameters(const OpView& op, int first, int max, int64_t n,
                               std::string_view constraint) {
  require(op.inputs() <= first + max, "{} {}: must have at most {} operands, got {}", op.def().name,
          constraint, first + max, op.inputs());
  for (int i = first; i < op.inputs(); ++i) {
    require_vector(
        op, i, n,
        fmt::format("{} {}: {}", op.def().name, constraint, i == first ? "weight" : "bias"));
  }
}

/// Requires that input `i` of an op has the shape and the dtype of input 0.
inline void require_like(const OpView& op, int i, std::string_view what) {
  require(op.input(i).shape == op.input(0).shape && op.input(i).dtype == op.input(0).dtype,
          "{} must be {}, got {}", what, to_string(op.input(0)), to_string(op.input(i)));
}

inline void require_epsilon(const OpView& op, double epsilon, std::string_view constraint) {
  require(epsilon >= 0 && std::isfinite(epsilon), "{} {}: epsilon must be finite and >= 0, got {}",
          op.def().name, constraint, epsilon);
}

/// The factor by which a norm multiplies deviations from the mean.
template <typename T>
T inverse_deviation(T variance, double epsilon) {
  return T{1} / std::sqrt(variance + static_cast<T>(epsilon));
}

/// Mean and inverse deviation of n contiguous values, by two canonical sums.
template <typename T>
struct Moments {
  Moments(const T* x, int64_t n, double epsilon) {
    const T count = static_cast<T>(divisor_of_mean(n));
    mean = canonical_sum<T>(n, [&](int64_t i) { return x[i]; }) / count;
    const T squares = canonical_sum<T>(n, [&](int64_t i) { return (x[i] - mean) * (x[i] - mean); });
    inverse = inverse_deviation(squares / count, epsilon);
  }
  T mean = 0;
  T inverse = 0;
};

/// Element i of an optional parameter.
template <typename T>
T parameter(const KernelArgs& k, int input, int64_t i, T missing) {
  return input < k.op().inputs() ? k.in<T>(input).data()[i] : missing;
}

/// The sum over a channel. element(i) is the element at offset i of the tensor.
///
/// There are 64 partial sums: element i of a plane of sample n belongs to number (n mod 4)·16 +
/// i mod 16. The four sets are added as (0 + 2) + (1 + 3), then the 16 sums by reduce_lanes(). If
/// samples of more than kReduceChunk elements are summed, chunks of whole samples, at least one
/// sample and at most kReduceChunk elements, are summed like this, and then the results.
template <typename T, typename Element>
T channel_sum(const Planes& p, int64_t c, Element element) {
  const int64_t samples = samples_per_chunk(p);
  return canonical_sum<T>((p.batch + samples - 1) / samples, [&](int64_t chunk) {
    const int64_t first = chunk * samples;
    std::array<std::array<T, kReduceLanes>, 4> sets{};
    for (int64_t n = first; n < std::min(p.batch, first + samples); ++n) {
      auto& set = at(sets, (n - first) % 4);
      for (int64_t i = 0; i < p.size; ++i) at(set, i % kReduceLanes) += element(p.at(n, c) + i);
    }
    for (size_t j = 0; j < kReduceLanes; ++j)
      sets[0][j] = (sets[0][j] + sets[2][j]) + (sets[1][j] + sets[3][j]);
    return reduce_lanes(sets[0], [](T a, T b) { return a + b; });
  });
}

/// The sums of a plane from which gradients are made.
template <typename T>
struct PlaneSums {
  PlaneSums(const T* grad, const T* x, int64_t n, T mean)
      : grads(canonical_sum<T>(n, [&](int64_t i) { return grad[i]; })),
        products(canonical_sum<T>(n, [&](int64_t i) { return grad[i] * (x[i] - mean); })) {}
  T grads;     ///< Σ grad
  T products;  ///< Σ grad·(x - mean)
};

/// The gradient of a plane's x is (grad·scale - (x - mean)·slope) - shift.
template <typename T>
struct PlaneGrad {
  T mean = 0;
  T scale = 0;
  T slope = 0;
  T shift = 0;
  void run(const T* grad, const T* x, int64_t n, T* dx) const {
    for (int64_t i = 0; i < n; ++i) dx[i] = (grad[i] * scale - (x[i] - mean) * slope) - shift;
  }
};

}  // namespace sluice::ops
