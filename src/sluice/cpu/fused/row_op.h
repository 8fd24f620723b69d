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

/// An op that works on rows, each for itself: a softmax over the last axis or its gradient, or a loss of rows of
/// probabilities. Its result has a row for each of an operand's, or one value. It computes in f32: the caller widens
/// operands of f16 and bf16.
class RowOp {
 public:
  enum class Operand : uint8_t {
    kRows,
    kSamples,  ///< One value for each row.
    kValue,    ///< One for all.
    kLabels,   ///< Of all rows, read whole.
  };
  static constexpr size_t kMostInputs = 3;

  /// Rows of an operand, `step` floats apart: 1 for samples, 0 for a value.
  struct Rows {
    float* data = nullptr;
    int64_t step = 0;
  };

  /// The op as one on rows, if it is one.
  static std::optional<RowOp> of(const OpView& op);

  std::span<const Operand> inputs() const { return {inputs_.data(), input_count_}; }
  bool gives_samples() const { return kind_ == Kind::kLoss; }
  /// Which input has the labels of all samples; -1: none.
  int labels_input() const { return kind_ < Kind::kLoss ? -1 : 1; }
  /// Those labels, from where they are. For ops that have them.
  ops::Labels labels(const std::byte* data) const {
    return {data, label_dtype_, samples_, classes_, loss_};
  }

  /// Rows [first, first + rows) of `cols` elements; all begin at `first` but for labels, whose place among the inputs is
  /// not looked at. The result may be an input with rows.
  void run(const ops::Labels* labels, const Rows* inputs, Rows result, int64_t first, int64_t rows,
           int64_t cols) const;

 private:
  enum class Kind : uint8_t {
    kSoftmax,
    kLogSoftmax,
    kSoftmaxGrad,
    kLogSoftmaxGrad,
    kLoss,             // nll_loss without reduction,
    kLossGrad,         // nll_grad,
    kLossSoftmaxGrad,  // nll_softmax_grad.
  };
  void set(Kind kind, std::initializer_list<Operand> inputs);

  Kind kind_ = Kind::kSoftmax;
  std::array<Operand, kMostInputs> inputs_{};
  size_t input_count_ = 0;
  ops::NllSoftmaxGradOptions loss_;  // What of it the op has.
  bool log_prob_ = false;
  int64_t samples_ = 0;
  int64_t classes_ = 0;
  DType label_dtype_ = i32;
};

/// The op that makes one loss of the samples' losses, in f32.
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
