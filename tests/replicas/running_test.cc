// Running variables of replicas: each updates its own, and they average them once an update.
#include <gtest/gtest.h>

#include <cmath>

#include "replicas_util.h"
#include "sluice/train/step_arrays.h"

namespace sluice::test {
namespace {

constexpr int kReplicas = 4;
const char* const kRunning[] = {"r1.running_mean", "r1.running_var", "r2.running_mean",
                                "r2.running_var"};

struct Net : nn::Module {
  Tensor build(nn::Builder& b, Tensor x) const {
    x = fc0(b, x);
    x = ops::tanh(r1(b, x));
    x = ops::tanh(r2(b, fc1(b, x)));
    return fc2(b, x);
  }
  nn::Child<nn::Linear> fc0{*this, "fc0", 5};
  nn::Child<nn::BatchNorm> r1{*this, "r1"};
  nn::Child<nn::Linear> fc1{*this, "fc1", 5};
  nn::Child<nn::BatchNorm> r2{*this, "r2"};
  nn::Child<nn::Linear> fc2{*this, "fc2", 3};
};

TEST(RunningVariables, OfReplicasHaveTheInterpretersBits) {
  using train::Location;
  for (const train::Strategy& strategy :
       {train::Strategy(train::resident()), train::Strategy(train::phased())}) {
    for (const Location location : {Location::kDevice, Location::kRemote}) {
      Ir ir(kReplicas);
      const train::Training t =
          build_training(ir, train::classifier(Net(), f32_spec({4, 6})), nn::Optimizer::adam(),
                         {.strategy = strategy,
                          .accumulate = 2,
                          .locations = {.optimizer = location,
                                        .weights = location,
                                        .activations = location,
                                        .min_elements_sharded =
                                            location == Location::kDevice ? nn::kNeverShard : 4},
                          .seed = 3});
      train::StepArrays arrays(t);
      float next = 0;
      for (float& x : arrays.fields[0].as<float>()) x = std::sin(next += 1.5f);
      for (int32_t& x : arrays.fields[1].as<int32_t>()) x = static_cast<int32_t>(next += 1) % 3;
      Interpreter interpreter(ir);
      interpreter.run(arrays.inputs(t), "train");
      interpreter.run(arrays.inputs(t), "train");
      for_each_group(kReplicas, [&](const auto& group) {
        Session session(ir, {.group = group, .remote = "host"});
        session.run(arrays.inputs(t), "train");
        session.run(arrays.inputs(t), "train");
        for (const char* key : kRunning) {
          const Tensor& v = t.variables[key];
          EXPECT_TRUE(session.read(v).same_bits(interpreter.read(v)))
              << key << " of " << group->size() << " processes";
        }
      });
    }
  }
}

}  // namespace
}  // namespace sluice::test
