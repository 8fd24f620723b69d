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

TEST_P(OperatorTest, DescribesItsOptions) {
  const OpDef& def = *GetParam();
  ASSERT_EQ(def.fields.size(), def.options.items.size());
  for (size_t i = 0; i < def.fields.size(); ++i) {
    const FieldInfo& field = def.fields[i];
    const auto& [name, value] = def.options.items[i];
    EXPECT_EQ(field.name, name);
    if (def.audience == Audience::kPrograms) EXPECT_NE(field.doc, "") << name;
    if (field.words.empty()) continue;
    EXPECT_NE(word_at(field.words, std::get<int64_t>(value)), "") << name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, OperatorTest, testing::ValuesIn(ops::all_ops()),
                         [](const auto& info) { return info.param->type; });

}  // namespace
}  // namespace sluice
