#pragma once
#include <cstdint>

namespace sluice {

/// An input of an elementwise kernel: rows that begin `row_step` elements apart.
struct MapInput {
  const float* data = nullptr;
  int64_t step = 1;  ///< 1: a row is an array; 0: one value for the whole row.
  int64_t row_step = 0;
};
struct MapOutput {
  float* data = nullptr;
  int64_t row_step = 0;
};

/// Upper limits of the inputs and of the hyperparameters of an elementwise kernel.
inline constexpr int kMaxMapInputs = 6;
inline constexpr int kMaxMapHypers = 8;

/// Computes outputs[o][r][i] = f(inputs[0][r][i], …)[o] for r < rows, i < n. `functor` points to f.
/// An output may be exactly the same array as an input; otherwise outputs overlap nothing.
using MapFn = void (*)(const void* functor, const MapInput* inputs, const MapOutput* outputs,
                       int64_t rows, int64_t n);

}  // namespace sluice
