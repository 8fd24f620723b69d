#pragma once
#include <optional>

#include "sluice/cpu/random/random.h"
#include "sluice/ir/op_def.h"

namespace sluice::cpu {

/// Dropout of f32 elements. Whether an element is kept depends only on the seed and the element's
/// row-major index, so any part of a tensor can be computed alone.
class DropoutOp {
 public:
  /// Returns nullopt if the op is not dropout.
  static std::optional<DropoutOp> of(const OpView& op);
  /// Computes the elements [first, first + n). `x` and `y` point to element `first`; y may be x.
  void run(Seed seed, int64_t first, const float* x, float* y, int64_t n) const {
    dropout(params_, seed, static_cast<uint64_t>(offset_ + first), x, y, n);
  }

 private:
  explicit DropoutOp(const ops::DropoutOptions& options)
      : params_(options), offset_(options.offset) {}

  ops::DropoutParams params_;
  int64_t offset_;
};

}  // namespace sluice::cpu
