#pragma once
#include <array>
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "sluice/cpu/simd/vector_kernels.h"
#include "sluice/ir/op_def.h"
#include "sluice/ops/hyper_rules.h"
#include "sluice/ops/hypers.h"

namespace sluice::cpu {

struct FunctorRow;

/// A type-erased functor of an elementwise op: the kernel that runs it and its parameters.
class Functor {
 public:
  static constexpr int kMaxInputs = kMaxMapInputs;
  static constexpr size_t kMaxBytes = kMaxMapHypers * sizeof(double);
  struct Storage {
    alignas(16) std::byte bytes[kMaxBytes];
  };

  /// Returns whether the op is elementwise, has a functor and one output, and f32 represents the
  /// values of its operands and its result: f32, f16, bf16, bool and, for operands, u8. The caller
  /// converts them to and from f32 for the kernel.
  static bool exists(const OpView& op);

  Functor() = default;
  /// `op` must have a functor: exists() must be true.
  explicit Functor(const OpView& op);

  /// Number of operands that the functor reads. They precede the hyperparameters.
  int inputs() const;
  /// Whether the functor has kExact (ops/functors.h).
  bool is_exact() const;
  /// Whether the functor is the one of ops/ with this kType and kVariant.
  bool is(std::string_view type, std::string_view variant) const;
  /// Whether the result is the operand.
  bool is_copy() const;
  MapFn kernel() const { return kernel_; }
  /// Reads a hyperparameter that is operand i of the op from operand `indices[i]` from now on.
  void move_operands(std::span<const int32_t> indices);
  /// Returns the parameters of the functor. If hyperparameters are operands, stores their current
  /// values in `own` and returns it; otherwise the parameters are the same for every run.
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
