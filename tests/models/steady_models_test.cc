// A steady training step of each model without dropout allocates no memory.

#include <gtest/gtest.h>

#include "../runtime/malloc_counter.h"
#include "sluice/devices/cpu_device.h"
#include "sluice/models/model.h"
#include "sluice/sluice.h"
#include "sluice/train/step_arrays.h"

namespace sluice::test {
namespace {

class SteadyModel : public testing::TestWithParam<const models::Model*> {};

TEST_P(SteadyModel, StepAllocatesNothing) {
  if (!counts_allocations())
    GTEST_SKIP() << "requires a build without sanitizer, which replaces malloc";
  const models::Model& model = *GetParam();
  models::Sizes sizes = model.test_sizes;
  sizes.dropout = 0;  // The reference kernels that drop elements allocate memory.
  for (const int64_t accumulate : {1, 2}) {
    Ir ir;
    const train::Training training =
        train::build_training(ir, model.build(sizes), nn::Optimizer::adamw(),
                              {.accumulate = accumulate, .learning_rate = 0.001});
    Session session(ir, {.device = cpu_device({.threads = 2})});
    train::StepArrays arrays(training);
    arrays.seed(1, 0);
    Binding step = session.bind(arrays.inputs(training), arrays.outputs(training), "train");
    session.run_into(step);
    const int64_t before = allocations();
    for (int i = 0; i < 5; ++i) session.run_into(step);
    EXPECT_EQ(allocations() - before, 0) << "accumulate " << accumulate;
  }
}

std::vector<const models::Model*> all() {
  std::vector<const models::Model*> found;
  for (const models::Model& model : models::all_models()) found.push_back(&model);
  return found;
}

INSTANTIATE_TEST_SUITE_P(All, SteadyModel, testing::ValuesIn(all()), [](const auto& of) {
  std::string name;
  for (const char c : of.param->name) name += std::isalnum(c) != 0 ? c : '_';
  return name;
});

}  // namespace
}  // namespace sluice::test
