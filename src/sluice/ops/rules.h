#pragma once
#include <string_view>

#include "sluice/ir/op_def.h"

namespace sluice::ops {

/// Checks that shape rules share, in addition to require_device_dtype of base/shape.h. `what` is
/// the start of the message: "matmul (C1): lhs". All throw Error{kUsage}.

/// Requires dtype f32, f16 or bf16.
inline void require_float(const TensorSpec& t, std::string_view what) {
  require(is_float(t.dtype) && t.dtype != f64, "{} must be float32, float16 or bfloat16, got {}",
          what, to_string(t));
}

/// Requires dtype i32 or u32, the dtypes of labels and indices.
inline void require_index(const TensorSpec& t, std::string_view what) {
  require(t.dtype == i32 || t.dtype == u32, "{} must be int32 or uint32, got {}", what,
          to_string(t));
}

}  // namespace sluice::ops
