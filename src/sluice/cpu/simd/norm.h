#pragma once
#include <cstdint>

#include "sluice/cpu/simd/isa.h"

/// Rows of norms (docs/design/0015), for every instruction set. Sums have the canonical order of
/// base/reduce.h. Results must not overlap inputs unless stated otherwise.
namespace sluice::cpu {

/// Rows of `n` floats that begin `stride` floats apart.
struct NormRows {
  int64_t rows = 0;
  int64_t n = 0;
  int64_t stride = 0;
};

/// One number for each row; `step` is 0 if all rows have the same number, otherwise 1.
struct NormParameter {
  const float* data = nullptr;
  int64_t step = 1;
};

/// Computes sums[r] = Σ x.
void norm_sums(const NormRows& shape, const float* x, float* sums, Isa isa = current_isa());

/// Computes squares[r] = Σ (x - mean)².
void norm_squares(const NormRows& shape, const float* x, NormParameter mean, float* squares,
                  Isa isa = current_isa());

/// Computes grads[r] = Σ grad and products[r] = Σ grad·(x - mean).
void norm_products(const NormRows& shape, const float* grad, const float* x, NormParameter mean,
                   float* grads, float* products, Isa isa = current_isa());

/// Planes of `size` floats of successive channels, which follow each other, for each of some
/// samples, which begin `sample_stride` floats apart.
struct NormChannels {
  static constexpr int64_t kMax = 32;  ///< Channels of one call.
  int64_t samples = 0;
  int64_t channels = 0;
  int64_t size = 0;
  int64_t sample_stride = 0;
};

/// Sums of channels in the order of ops::channel_sum() (ops/norms.h), for one chunk of samples.
/// Computes sums[c] = Σ x.
void channel_sums(const NormChannels& shape, const float* x, float* sums, Isa isa = current_isa());
/// Computes squares[c] = Σ (x - mean[c])².
void channel_squares(const NormChannels& shape, const float* x, const float* mean, float* squares,
                     Isa isa = current_isa());
/// Computes grads[c] = Σ grad and products[c] = Σ grad·(x - mean[c]).
void channel_products(const NormChannels& shape, const float* grad, const float* x,
                      const float* mean, float* grads, float* products, Isa isa = current_isa());

/// The numbers of norm_scale() and norm_gradient(). All have the same step.
struct NormNumbers {
  const float* mean = nullptr;
  const float* scale = nullptr;
  const float* slope = nullptr;  ///< Only for norm_gradient().
  const float* shift = nullptr;
  int64_t step = 1;
};

/// Computes y = (x - mean)·scale + shift. y may be x.
void norm_scale(const NormRows& shape, const float* x, const NormNumbers& p, float* y,
                Isa isa = current_isa());

/// Computes dx = (grad·scale - (x - mean)·slope) - shift. dx may be grad or x.
void norm_gradient(const NormRows& shape, const float* grad, const float* x, const NormNumbers& p,
                   float* dx, Isa isa = current_isa());

/// Computes the mean and the inverse deviation of each row.
void norm_moments(const NormRows& shape, const float* x, double epsilon, float* mean,
                  float* inverse, Isa isa = current_isa());

/// Computes y = ((x - mean)·inverse)·weight + bias. weight and bias have n elements, or are null.
/// y may be x.
void layer_norm_rows(const NormRows& shape, const float* x, const float* weight, const float* bias,
                     double epsilon, float* y, int64_t y_stride, Isa isa = current_isa());

/// Computes the gradient of layer_norm with respect to x for contiguous rows. Adds each row's
/// gradients of the weight and of the bias to dweight and dbias. weight has n elements or is null.
void layer_norm_grad_rows(int64_t rows, int64_t n, const float* grad, const float* x,
                          const float* weight, double epsilon, float* dx, float* dweight,
                          float* dbias, Isa isa = current_isa());

/// Computes y = (x / √(mean(x²) + epsilon))·weight. weight has n elements, or is null. y may be x.
void rms_norm_rows(const NormRows& shape, const float* x, const float* weight, double epsilon,
                   float* y, int64_t y_stride, Isa isa = current_isa());

/// Computes the gradient of rms_norm with respect to x for contiguous rows. Adds each row's
/// gradient of the weight to dweight. weight has n elements or is null.
void rms_norm_grad_rows(int64_t rows, int64_t n, const float* grad, const float* x,
                        const float* weight, double epsilon, float* dx, float* dweight,
                        Isa isa = current_isa());

namespace internal {
/// The kernels of one instruction set (norm.isa.cc).
template <Isa kIsa>
struct NormKernels {
  static void sums(const NormRows& shape, const float* x, float* sums);
  static void squares(const NormRows& shape, const float* x, NormParameter mean, float* squares);
  static void products(const NormRows& shape, const float* grad, const float* x, NormParameter mean,
                       float* grads, float* products);
  static void channel_sums(const NormChannels& shape, const float* x, float* sums);
  static void channel_squares(const NormChannels& shape, const float* x, const float* mean,
                              float* squares);
  static void channel_products(const NormChannels& shape, const float* grad, const float* x,
                               const float* mean, float* grads, float* products);
  static void scale(const NormRows& shape, const float* x, const NormNumbers& p, float* y);
  static void gradient(const NormRows& shape, const float* grad, const float* x,
                       const NormNumbers& p, float* dx);
  /// One row of layer_norm and of its gradient. With the mean 0 and without a bias they are those
  /// of rms_norm. dbias may be null.
  static void layer(int64_t n, const float* x, const float* weight, const float* bias, float mean,
                    float inverse, float* y);
  static void layer_products(int64_t n, const float* grad, const float* x, const float* weight,
                             float mean, float inverse, float* sums);
  static void layer_gradient(int64_t n, const float* grad, const float* x, const float* weight,
                             float mean, float inverse, float grads, float slope, float* dx,
                             float* dweight, float* dbias);
};
}  // namespace internal

}  // namespace sluice::cpu
