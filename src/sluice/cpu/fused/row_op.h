#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "sluice/base/reduce.h"
#include "sluice/ir/op_def.h"
#include "sluice/ops/loss_rows.h"

namespace sluice::cpu {

/// An op that computes each row independently. It is a softmax over the last axis, a loss of rows
/// of probabilities, or the gradient of one of these. Its result has one row or one value for each
/// row of an operand. It computes in f32: the caller widens operands of f16 and bf16.
class RowOp {
 public:
  enum class Operand : uint8_t {
    kRows,
    kSamples,  ///< One value for each row.
    kValue,    ///< One value for all rows.
    kLabels,   ///< The labels of all rows; every task reads all of them.
  };
  static constexpr size_t kMostInputs = 3;

  /// Rows of an operand, `step` floats apart. `step` is 1 for kSamples and 0 for kValue.
  struct Rows {
    float* data = nullptr;
    int64_t step = 0;
  };

  /// Returns the op as a RowOp, or nullopt if it does not work on rows.
  static std::optional<RowOp> of(const OpView& op);

  std::span<const Operand> inputs() const { return {inputs_.data(), input_count_}; }
  bool gives_samples() const { return kind_ == Kind::kLoss; }
  /// Index of the input with the labels; -1 if the op has no labels.
  int labels_input() const { return kind_ < Kind::kLoss ? -1 : 1; }
  /// Returns the labels stored at `data`. The op must have labels.
  ops::Labels labels(const std::byte* data) const {
    return {data, label_dtype_, samples_, classes_, loss_};
  }

  /// Computes rows [first, first + rows) of `cols` elements. `inputs` and `result` point to row
  /// `first`; `labels` are those of all rows, and the entry of `inputs` at labels_input() is
  /// ignored. `result` may be an input with rows.
  void run(const ops::Labels* labels, const Rows* inputs, Rows result, int64_t first, int64_t rows,
           int64_t cols) const;

 private:
  enum class Kind : uint8_t {
    kSoftmax,
    kLogSoftmax,
    kSoftmaxGrad,
    kLogSoftmaxGrad,
    kLoss,             // nll_loss without reduction.
    kLossGrad,         // nll_grad.
    kLossSoftmaxGrad,  // nll_softmax_grad.
  };
  void set(Kind kind, std::initializer_list<Operand> inputs);

  Kind kind_ = Kind::kSoftmax;
  std::array<Operand, kMostInputs> inputs_{};
  size_t input_count_ = 0;
  ops::NllSoftmaxGradOptions loss_;  // Only the options that the op has are set.
  bool log_prob_ = false;
  int64_t samples_ = 0;
  int64_t classes_ = 0;
  DType label_dtype_ = i32;
};

/// An op that reduces the losses of all samples to one loss, in f32.
class LossTotal {
 public:
  static std::optional<LossTotal> of(const OpView& op);
  ops::Labels labels(const std::byte* data) const { return {data, label_dtype_, samples_, 0, o_}; }
  float run(const ops::Labels& labels, const float* losses) const {
    return ops::total_loss<float>(labels, o_.reduction, [&](int64_t i) { return losses[i]; });
  }

 private:
  ops::NllTotalOptions o_;
  int64_t samples_ = 0;
  DType label_dtype_ = i32;
};

}  // namespace sluice::cpu
