#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "sluice/base/layout.h"
#include "sluice/ir/op_def.h"

namespace sluice {

/// Ops that one kernel runs as stages, one after the other, on operands in buffers. A single op is
/// one stage. Every result has the shape of the first stage's result, except reductions of it and
/// results with one value per row.
struct FusedOp {
  std::vector<TensorSpec> operands;  ///< Inputs, then outputs.
  std::vector<Layout> layouts;       ///< One per operand.
  int32_t inputs = 0;
  std::vector<OpStage> stages;

  /// The spec of an operand, or of the result of stage ~source if `source` is negative.
  const TensorSpec& spec_of(int32_t source) const {
    return source < 0 ? at(stages, ~source).spec : at(operands, source);
  }
  const Layout& layout_of(int32_t operand) const { return at(layouts, operand); }
  /// For each operand, whether it must have the results' layout: outputs, and inputs of elementwise
  /// stages that have the shape of the first stage's result.
  std::vector<bool> result_like() const {
    std::vector<bool> like(operands.size(), false);
    for (const OpStage& stage : stages) {
      if (stage.spec.shape != stages.front().spec.shape) continue;  // A reduction.
      if (stage.output >= 0) at(like, stage.output) = true;
      if (!stage.op->has(Trait::kElementwise)) continue;
      for (const int32_t i : stage.inputs) {
        if (i >= 0 && spec_of(i).shape == stage.spec.shape) at(like, i) = true;
      }
    }
    return like;
  }
  /// Returns a copy in which the operands of result_like() have the layout `layout`.
  FusedOp with_layout(const Layout& layout) const& { return FusedOp(*this).with_layout(layout); }
  FusedOp with_layout(const Layout& layout) && {
    const std::vector<bool> like = result_like();
    for (size_t i = 0; i < like.size(); ++i) {
      if (like[i]) layouts[i] = layout;
    }
    return std::move(*this);
  }
  std::vector<TensorSpec> input_specs(const OpStage& stage) const {
    std::vector<TensorSpec> specs;
    for (const int32_t i : stage.inputs) specs.push_back(spec_of(i));
    return specs;
  }
};

}  // namespace sluice
