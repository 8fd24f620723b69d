#pragma once
#include "sluice/ops/op.h"

namespace sluice::ops {

struct IncrementModOptions {
  double increment = 1;  ///< Number to add to t.
  double modulus = 1;    ///< Modulus, greater than 0.
  static auto fields(auto&& use) {
    return use(field("increment", &IncrementModOptions::increment),
               field("modulus", &IncrementModOptions::modulus));
  }
};

const OpDef& increment_mod_def();

/// Returns (t + increment) mod modulus, in [0, modulus). For integers, both must be whole numbers
/// and the dtype must hold modulus - 1; the sum does not overflow. NaN and infinities give NaN.
Tensor increment_mod(TensorArg t, double increment, double modulus);
/// increment_mod into t's storage.
Tensor increment_mod_(TensorArg t, double increment, double modulus);

}  // namespace sluice::ops
