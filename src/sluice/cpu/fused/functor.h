#pragma once
#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "sluice/cpu/simd/vector_kernels.h"
#include "sluice/ir/op_def.h"
#include "sluice/ops/hypers.h"

namespace sluice::cpu {

struct FunctorRow;

/// The functor of an elementwise op, without its type: which kernel runs it, on what parameters.
class Functor {
 public:
  static constexpr int kMostInputs = 6;
  static constexpr size_t kMostBytes = 64;
  struct Storage {
    alignas(16) std::byte bytes[kMostBytes];
  };

  /// Whether the op is elementwise with a functor, one output, and f32 throughout.
  static bool exists(const OpView& op);
  /// The same with operands of f32, f16 and bf16, which the caller widens to f32 for the kernel.
  static bool exists_on_floats(const OpView& op);

  Functor() = default;
  /// Of an op for which one exists.
  explicit Functor(const OpView& op);

  /// The op's first operands, which the functor reads; hyperparameters come after them.
  int inputs() const;
  MapFn kernel() const { return kernel_; }
  /// Hyperparameters that are operands are found at other places: number i at `places[i]`.
  void move_operands(std::span<const int32_t> places);
  /// The functor: `own` filled with what the operands hold now, or the same for every run.
  const void* parameters(std::byte* const* operands, Storage& own) const {
    return hypers_in_memory_ ? make(operands, own) : fixed_.bytes;
  }

 private:
  const void* make(std::byte* const* operands, Storage& own) const;

  const FunctorRow* row_ = nullptr;
  MapFn kernel_ = nullptr;
  std::vector<ops::Hyper> hypers_;
  std::vector<DType> hyper_dtypes_;
  bool hypers_in_memory_ = false;
  Storage fixed_{};
};

}  // namespace sluice::cpu
