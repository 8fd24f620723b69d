#include "sluice/cpu/simd/norm.h"

#include <algorithm>
#include <cmath>

namespace sluice::cpu {
namespace {

constexpr int64_t kRowsAtOnce = 16;  ///< Rows of a layer norm that stay in the L1 cache.

/// The number of rows that layer norms process at once.
int64_t rows_at_once(int64_t n) {
  constexpr int64_t kFloats = 4096;
  return std::clamp<int64_t>(kFloats / std::max<int64_t>(n, 1), 1, kRowsAtOnce);
}

/// Computes the factor of each row of an RMS norm.
void inverse_rms(const NormRows& shape, const float* x, double epsilon, float* inverse, Isa isa) {
  const float zero = 0;
  norm_squares(shape, x, {&zero, 0}, inverse, isa);
  for (int64_t r = 0; r < shape.rows; ++r) {
    inverse[r] =
        1.0f / std::sqrt(inverse[r] / static_cast<float>(shape.n) + static_cast<float>(epsilon));
  }
}

}  // namespace

void norm_sums(const NormRows& shape, const float* x, float* sums, Isa isa) {
  with_kernels<internal::NormKernels>(isa, [&](auto k) { k.sums(shape, x, sums); });
}

void norm_squares(const NormRows& shape, const float* x, NormParameter mean, float* squares,
                  Isa isa) {
  with_kernels<internal::NormKernels>(isa, [&](auto k) { k.squares(shape, x, mean, squares); });
}

void norm_products(const NormRows& shape, const float* grad, const float* x, NormParameter mean,
                   float* grads, float* products, Isa isa) {
  with_kernels<internal::NormKernels>(
      isa, [&](auto k) { k.products(shape, grad, x, mean, grads, products); });
}

void channel_sums(const NormChannels& shape, const float* x, float* sums, Isa isa) {
  with_kernels<internal::NormKernels>(isa, [&](auto k) { k.channel_sums(shape, x, sums); });
}

void channel_squares(const NormChannels& shape, const float* x, const float* mean, float* squares,
                     Isa isa) {
  with_kernels<internal::NormKernels>(isa,
                                      [&](auto k) { k.channel_squares(shape, x, mean, squares); });
}

void channel_products(const NormChannels& shape, const float* grad, const float* x,
                      const float* mean, float* grads, float* products, Isa isa) {
  with_kernels<internal::NormKernels>(
      isa, [&](auto k) { k.channel_products(shape, grad, x, mean, grads, products); });
}

void norm_scale(const NormRows& shape, const float* x, const NormNumbers& p, float* y, Isa isa) {
  with_kernels<internal::NormKernels>(isa, [&](auto k) { k.scale(shape, x, p, y); });
}

void norm_gradient(const NormRows& shape, const float* grad, const float* x, const NormNumbers& p,
                   float* dx, Isa isa) {
  with_kernels<internal::NormKernels>(isa, [&](auto k) { k.gradient(shape, grad, x, p, dx); });
}

void norm_moments(const NormRows& shape, const float* x, double epsilon, float* mean,
                  float* inverse, Isa isa) {
  const auto count = static_cast<float>(shape.n);
  norm_sums(shape, x, mean, isa);
  for (int64_t r = 0; r < shape.rows; ++r) mean[r] = mean[r] / count;
  norm_squares(shape, x, {mean}, inverse, isa);
  for (int64_t r = 0; r < shape.rows; ++r)
    inverse[r] = 1.0f / std::sqrt(inverse[r] / count + static_cast<float>(epsilon));
}

void layer_norm_rows(const NormRows& shape, const float* x, const float* weight, const float* bias,
                     double epsilon, float* y, int64_t y_stride, Isa isa) {
  float mean[kRowsAtOnce], inverse[kRowsAtOnce];
  const int64_t max = rows_at_once(shape.n);
  for (int64_t first = 0; first < shape.rows; first += max) {
    NormRows some = shape;
    some.rows = std::min(max, shape.rows - first);
    norm_moments(some, x + first * shape.stride, epsilon, mean, inverse, isa);
    with_kernels<internal::NormKernels>(isa, [&](auto k) {
      for (int64_t r = 0; r < some.rows; ++r) {
        k.layer(shape.n, x + (first + r) * shape.stride, weight, bias, mean[r], inverse[r],
                y + (first + r) * y_stride);
      }
    });
  }
}

void layer_norm_grad_rows(int64_t rows, int64_t n, const float* grad, const float* x,
                          const float* weight, double epsilon, float* dx, float* dweight,
                          float* dbias, Isa isa) {
  float mean[kRowsAtOnce], inverse[kRowsAtOnce];
  const auto count = static_cast<float>(n);
  const int64_t max = rows_at_once(2 * n);
  for (int64_t first = 0; first < rows; first += max) {
    const NormRows some{std::min(max, rows - first), n, n};
    norm_moments(some, x + first * n, epsilon, mean, inverse, isa);
    with_kernels<internal::NormKernels>(isa, [&](auto k) {
      for (int64_t r = 0; r < some.rows; ++r) {
        const int64_t at = (first + r) * n;
        float sums[2];
        k.layer_products(n, grad + at, x + at, weight, mean[r], inverse[r], sums);
        k.layer_gradient(n, grad + at, x + at, weight, mean[r], inverse[r], sums[0] / count,
                         sums[1] / count, dx + at, dweight, dbias);
      }
    });
  }
}

// The kernels of layer norms subtract the mean 0, which changes no bit that they use.
void rms_norm_rows(const NormRows& shape, const float* x, const float* weight, double epsilon,
                   float* y, int64_t y_stride, Isa isa) {
  float inverse[kRowsAtOnce];
  const int64_t max = rows_at_once(shape.n);
  for (int64_t first = 0; first < shape.rows; first += max) {
    NormRows some = shape;
    some.rows = std::min(max, shape.rows - first);
    inverse_rms(some, x + first * shape.stride, epsilon, inverse, isa);
    with_kernels<internal::NormKernels>(isa, [&](auto k) {
      for (int64_t r = 0; r < some.rows; ++r) {
        k.layer(shape.n, x + (first + r) * shape.stride, weight, nullptr, 0, inverse[r],
                y + (first + r) * y_stride);
      }
    });
  }
}

void rms_norm_grad_rows(int64_t rows, int64_t n, const float* grad, const float* x,
                        const float* weight, double epsilon, float* dx, float* dweight, Isa isa) {
  float inverse[kRowsAtOnce];
  const auto count = static_cast<float>(n);
  const int64_t max = rows_at_once(2 * n);
  for (int64_t first = 0; first < rows; first += max) {
    const NormRows some{std::min(max, rows - first), n, n};
    inverse_rms(some, x + first * n, epsilon, inverse, isa);
    with_kernels<internal::NormKernels>(isa, [&](auto k) {
      for (int64_t r = 0; r < some.rows; ++r) {
        const int64_t at = (first + r) * n;
        float sums[2];
        k.layer_products(n, grad + at, x + at, weight, 0, inverse[r], sums);
        k.layer_gradient(n, grad + at, x + at, weight, 0, inverse[r], 0, sums[1] / count, dx + at,
                         dweight, nullptr);
      }
    });
  }
}

}  // namespace sluice::cpu
