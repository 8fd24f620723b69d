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

/// The variables of a compiled program in the memory of an executor, as the host sees them. The
/// host sees whole tensors, row-major, whatever their layout, their tier and the replicas that hold
/// them. An index in the executable names a variable. Each process of a group makes the same calls
/// and reads the same values.
class Variables {
 public:
  /// All arguments must outlive this object.
  Variables(const Compiled& compiled, runtime::Executor& executor, runtime::Agreement& agreement)
      : compiled_(compiled), executor_(executor), agreement_(agreement) {}

  size_t count() const { return plans().size(); }
  const std::string& path(size_t variable) const { return plans()[variable].path; }
  /// Returns the spec of the whole tensor.
  TensorSpec spec(size_t variable) const;
  /// Returns the index of the variable of a handle. Error{kUsage} for another tensor.
  size_t index_of(const Tensor& variable) const;
  /// Returns the index of a variable that can hold this value. Error{kUsage} if shape or dtype
  /// differs, or if the value has a null pointer.
  size_t index_of(const Tensor& variable, const ConstArrayView& value) const;

  /// Copies elements from `begin` on until `out` or `in` ends. The caller has checked the range.
  void read(size_t variable, int64_t begin, std::span<std::byte> out) const;
  void write(size_t variable, int64_t begin, std::span<const std::byte> in);
  /// Returns a copy of the whole value.
  HostTensor value(size_t variable) const;

  /// Returns the hashes (Digest) of all copies of all variables, by variable and replica. The hash
  /// of a shard covers the shard's own elements.
  std::vector<std::vector<std::string>> copy_hashes() const;

  /// Sets every constant and variable to its first value. Error{kUsage} if processes compute
  /// different values.
  void initialize();

 private:
  const std::vector<exe::VariablePlan>& plans() const {
    return executor_.executable().variables.items();
  }
  template <typename F>
  void for_each_part(size_t variable, int64_t begin, int64_t count, F&& f) const;
  runtime::OpenDevice& device_of(int32_t arena, int replica) const;
  int process_of(size_t variable, int replica) const {
    return executor_.placement().process_of(replica, plans()[variable]);
  }
  bool every_process_has(size_t variable, const std::vector<int>& replicas) const;
  void read_copy(size_t variable, int replica, int64_t first, std::span<std::byte> out) const;

  const Compiled& compiled_;
  runtime::Executor& executor_;
  runtime::Agreement& agreement_;
};

/// Number of elements in the buffer through which values are made, saved or loaded. A larger
/// variable passes in parts, so it need not fit into host memory.
inline constexpr int64_t kVariableChunk = 1 << 16;

}  // namespace sluice
