#pragma once
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "sluice/base/rng.h"
#include "sluice/ir/op_def.h"
#include "sluice/ops/op.h"

namespace sluice {

/// Returns the options of a sample: those given, or the defaults of the operator.
inline const Attrs& options_of(const OpDef& def, const Attrs& given) {
  return given.items.empty() ? def.options : given;
}

/// Returns a uniform number for element `i` of draw `draw`.
inline double uniform(uint64_t draw, int64_t i, double low, double high) {
  return low + (high - low) * random_unit(fold(Seed{7, 11}, draw), static_cast<uint64_t>(i));
}

/// Returns input `i` of a sample in its declared dtype: the given value, or one drawn from the
/// domain.
inline HostTensor draw_input(const Sample& sample, size_t i) {
  if (i < sample.values.size() && sample.values[i].has_value()) return *sample.values[i];
  const TensorSpec& spec = sample.inputs[i];
  const auto [low, high] = sample.domain;
  std::vector<double> values(static_cast<size_t>(spec.elements()));
  for (size_t e = 0; e < values.size(); ++e) {
    const auto at = static_cast<int64_t>(e);
    if (is_float(spec.dtype)) {
      values[e] = uniform(i, at, low, high);
    } else if (spec.dtype == boolean) {
      values[e] = uniform(i, at, 0, 1) < 0.5;
    } else {
      const double min = spec.dtype == i32 ? std::ceil(low) : std::max(0.0, std::ceil(low));
      values[e] = std::floor(uniform(i, at, min, std::max(min, std::floor(high)) + 1));
    }
  }
  return HostTensor::of<double>(spec.shape, f64, values).cast(spec.dtype);
}

inline std::vector<HostTensor> draw_inputs(const Sample& sample) {
  std::vector<HostTensor> inputs;
  for (size_t i = 0; i < sample.inputs.size(); ++i) inputs.push_back(draw_input(sample, i));
  return inputs;
}

inline std::string describe(const OpDef& def, const Sample& sample) {
  std::string text = def.name;
  for (const TensorSpec& s : sample.inputs) text += " " + to_string(s);
  return text + " {" + to_string(options_of(def, sample.options)) + "}";
}

}  // namespace sluice
