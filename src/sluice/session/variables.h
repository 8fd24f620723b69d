#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "sluice/base/host_tensor.h"
#include "sluice/compiler/compile.h"
#include "sluice/runtime/executor.h"

namespace sluice {

/// The variables of a compiled program in the memory that an executor allocated, as the host sees them: whole tensors,
/// row-major, whatever their layout, their tier and the replicas that hold them. A variable is named by its index in the
/// executable. Each process of a group makes the same calls, and reads the same values.
class Variables {
 public:
  /// All three must outlive this object.
  Variables(const Compiled& compiled, runtime::Executor& executor, runtime::Agreement& agreement)
      : compiled_(compiled), executor_(executor), agreement_(agreement) {}

  size_t count() const { return plans().size(); }
  const std::string& path(size_t variable) const { return plans()[variable].path; }
  /// The spec of the whole tensor.
  TensorSpec spec(size_t variable) const;
  /// The index of a handle's variable. Error{kUsage} for another tensor.
  size_t index_of(const Tensor& variable) const;
  /// The same for a variable that takes this value. Error{kUsage} if shape or dtype differs, or if there is no memory.
  size_t index_of(const Tensor& variable, const ConstArrayView& value) const;

  /// Copies elements from `begin` on, as many as `out` or `in` has bytes for. The caller has checked the range.
  void read(size_t variable, int64_t begin, std::span<std::byte> out) const;
  void write(size_t variable, int64_t begin, std::span<const std::byte> in);
  /// A copy of the whole value.
  HostTensor value(size_t variable) const;

  /// Gives every constant and variable its first value. Error{kUsage} if processes compute different ones.
  void initialize();

 private:
  const std::vector<exe::VariablePlan>& plans() const { return executor_.executable().variables; }
  template <typename F>
  void for_each_part(size_t variable, int64_t begin, int64_t count, F&& f) const;
  runtime::Device& device_of(const exe::VariablePlan& plan) const;
  bool every_process_has(const std::vector<int>& replicas) const;

  const Compiled& compiled_;
  runtime::Executor& executor_;
  runtime::Agreement& agreement_;
};

/// Elements of a variable that one buffer holds when values are made, saved or loaded: such a value need not fit host memory.
inline constexpr int64_t kVariableChunk = 1 << 16;

}  // namespace sluice
