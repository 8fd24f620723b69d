#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "sluice/base/reduce.h"
#include "sluice/ir/op_def.h"
#include "sluice/ops/loss_rows.h"

namespace sluice::cpu {

/// An op that computes each row independently, such as a softmax over the last axis, a loss of rows
/// of probabilities, or the gradient of one of these. Its result has one row or one value for each
/// row of an operand. It computes in f32: the caller widens operands of f16 and bf16.
class RowOp {
 public:
  enum class Operand : uint8_t {
    kRows,
    kSamples,  ///< One value for each row.
    kShared,   ///< Elements that every row reads, such as one value or a weight for each column.
    kLabels,   ///< The labels of all rows; every task reads all of them.
  };
  static constexpr size_t kMaxInputs = 3;

  /// Rows of an operand, `step` floats apart. `step` is 1 for kSamples and 0 for kShared.
  struct Rows {
    float* data = nullptr;
    int64_t step = 0;
  };

  /// The part of an op that one call computes: rows [first, first + rows) of `cols` elements.
  struct RowBlock {
    const ops::Labels* labels = nullptr;  ///< The labels of all rows; null if the op has none.
    /// kMaxInputs entries, which point to row `first`, except the labels. Entries without
    /// an operand have null data.
    const Rows* inputs = nullptr;
    Rows result;  ///< Points to row `first`; may be an input with rows.
    int64_t first = 0;
    int64_t rows = 0;
    int64_t cols = 0;
    /// `rows` if the rows of all operands follow each other without gaps, else 1.
    int64_t at_once = 1;

    /// Returns row r of input i, with r counted from `first`.
    const float* in(size_t i, int64_t r) const { return inputs[i].data + r * inputs[i].step; }
    float* out(int64_t r) const { return result.data + r * result.step; }
  };

  /// A fast kernel for an op on rows, returned by the files of CPU_ROW_OPS (cpu/CMakeLists.txt).
  struct Kernel {
    std::vector<Operand> inputs;  ///< At most kMaxInputs, at most one of them kLabels.
    /// Computes a part with the bits of the op's reference kernel. It must not allocate memory.
    void (*run)(const void* options, const RowBlock& part) = nullptr;
    std::shared_ptr<const void> options = nullptr;  ///< Passed to `run`.
    bool reduces_rows = false;                      ///< The result has one value for each row.
    /// Options of the labels, if the op has labels.
    bool has_ignore_index = false;
    int64_t ignore_index = 0;
  };

  /// Returns the op as a RowOp, or nullopt if no kernel of CPU_ROW_OPS runs it.
  static std::optional<RowOp> of(const OpView& op);

  std::span<const Operand> inputs() const { return kernel_.inputs; }
  bool reduces_rows() const { return kernel_.reduces_rows; }
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  /// Index of the input with the labels; -1 if the op has no labels.
  int labels_input() const { return labels_input_; }
  /// Returns the labels stored at `data`. The op must have labels.
  ops::Labels labels(const std::byte* data) const {
    return {data, label_dtype_, rows_, cols_, kernel_};
  }

  /// Computes a part; sets its `at_once`.
  void run(RowBlock part) const;

 private:
  Kernel kernel_;
  int64_t rows_ = 0;
  int64_t cols_ = 0;
  int labels_input_ = -1;
  DType label_dtype_ = i32;
};

/// Finds the kernel of an op; nullopt if the file has none for it.
using FindRowKernel = std::optional<RowOp::Kernel> (*)(const OpView& op);

/// Returns the functions <word>_row_op of the list CPU_ROW_OPS.
std::span<const FindRowKernel> row_kernel_list();

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
