// Tests that are generated for every operator from its definition: samples, constraints, kernels
// and gradient.
#include <gtest/gtest.h>

#include "sluice/interp/check_operator.h"
#include "sluice/ops/op.h"

namespace sluice {
namespace {

class OperatorTest : public testing::TestWithParam<const OpDef*> {};

TEST_P(OperatorTest, PassesItsChecks) {
  for (const OperatorCheck& check : operator_checks()) {
    try {
      check.run(*GetParam());
    } catch (const Error& e) {
      ADD_FAILURE() << check.name << ": " << e.what();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, OperatorTest, testing::ValuesIn(ops::all_ops()),
                         [](const auto& info) { return info.param->type; });

}  // namespace
}  // namespace sluice
