#pragma once
#include <span>
#include <string_view>

#include "sluice/ir/op_def.h"

namespace sluice {

/// A test of one property of an operator on its samples.
struct OperatorCheck {
  std::string_view name;  ///< "gradient".
  /// Error{kUsage} that names the sample and the difference if the operator lacks the property.
  void (*run)(const OpDef& def);
};

/// Returns the checks that an operator passes: its shape rule gives the results that graphs have;
/// references in float and double agree within the samples' tolerance, write every element, and
/// compute the same bits where operands coincide; a map and a host kernel compute the bits of the
/// reference; must_fail covers each constraint of `doc`;
/// options are read as they are written; gradients are those of central differences in double; a
/// formula computes the op.
std::span<const OperatorCheck> operator_checks();

/// Runs all operator_checks() on an operator, such as a registered one (ops/register_op.h).
/// Error{kUsage} names the first that fails.
void check_operator(const OpDef& def);

}  // namespace sluice
