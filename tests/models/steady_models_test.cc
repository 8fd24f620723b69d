// A steady training step of each model without dropout allocates no memory.

#include <gtest/gtest.h>

#include "../runtime/malloc_counter.h"
#include "sluice/data/feed_queues.h"
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

// An element of zeros.
data::Element zeros(const train::Network& network) {
  data::Element element;
  for (const train::Field& field : network.fields()) {
    element.names.push_back(field.name);
    element.arrays.emplace_back(field.spec);
  }
  return element;
}

struct Zeros : FeedSource {
  bool next(std::span<const ArrayView> fields) override {
    for (const ArrayView& field : fields) std::fill_n(field.data, field.spec.bytes(), std::byte{0});
    return true;
  }
};

struct Ignored : FeedSink {
  void take(std::span<const ConstArrayView>) override {}
};

TEST_P(SteadyModel, StepOnFeedsAllocatesNothing) {
  if (!counts_allocations())
    GTEST_SKIP() << "requires a build without sanitizer, which replaces malloc";
  const models::Model& model = *GetParam();
  models::Sizes sizes = model.test_sizes;
  sizes.dropout = 0;
  const train::Network network = model.build(sizes);
  for (const train::TensorLocations& locations :
       {train::TensorLocations(), train::TensorLocations::phased()}) {
    const bool phases = locations.activations == train::Location::kRemote;
    train::Options options{.accumulate = 2, .locations = locations, .learning_rate = 0.001};
    options.strategy = train::resident();
    if (phases) options.strategy = train::phased();
    options.infeed = std::make_shared<data::InfeedQueue>(
        data::from_function(1, [&](int64_t) { return zeros(network); }));
    options.outfeed = std::make_shared<data::OutfeedQueue>();
    Ir ir;
    const train::Training training =
        train::build_training(ir, network, nn::Optimizer::adamw(), options);
    Session session(ir, {.device = cpu_device({.threads = 2})});
    session.bind_feed(*training.infeed, std::make_shared<Zeros>());
    session.bind_feed(*training.outfeed, std::make_shared<Ignored>());
    train::StepArrays arrays(training);
    Binding step = session.bind(arrays.inputs(training), arrays.outputs(training), "train");
    session.run_into(step);
    const int64_t before = allocations();
    for (int i = 0; i < 5; ++i) session.run_into(step);
    EXPECT_EQ(allocations() - before, 0) << (phases ? "phased" : "resident");
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
