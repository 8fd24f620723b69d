// Options::freeze: the work and the memory that a frozen weight saves, and the bits in every
// strategy.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "sluice/base/provenance.h"
#include "sluice/base/test_refusals.h"
#include "sluice/train/cut/test_ways.h"

namespace sluice::train {
namespace {

// Three blocks A, B and C with a linear layer each; the last one has a norm, too.
Network three_blocks() {
  return network([](nn::Builder& b, const Inputs& in) {
    Tensor x = in["x"];
    for (const char* name : {"A", "B"}) {
      const nn::Block block(b, name);
      x = ops::gelu(linear(b, name, x));
    }
    const nn::Block block(b, "C");
    x = b.inlined("norm", nn::LayerNorm(), x);
    return results(in, linear(b, "C", x, 3) * in["scale"]);
  });
}

// The number of ops with the role of gradients, by block.
using GradientOps = std::map<std::string, int>;

GradientOps gradient_ops(const Options& options, const nn::Optimizer& optimizer) {
  Ir ir;
  build_training(ir, three_blocks(), optimizer, options);
  GradientOps found;
  for (const GraphId g : ir.graph_ids()) {
    for (const Op& op : ir.graph(g).ops()) {
      if (op.provenance->role == OpRole::kGradient) ++found[op.provenance->block];
    }
  }
  return found;
}

TEST(Freeze, StopsTheBackwardPassBeforeTheFirstTrainedWeight) {
  const nn::Optimizer sgd = nn::Optimizer::sgd();
  const GradientOps all = gradient_ops({}, sgd);
  EXPECT_TRUE(all.contains("A") && all.contains("B") && all.contains("C"));
  const GradientOps first = gradient_ops({.freeze = {"A.*"}}, sgd);
  EXPECT_FALSE(first.contains("A"));
  // B trains, but its input needs no gradient.
  EXPECT_LT(first.at("B"), all.at("B"));
  EXPECT_EQ(first.at("C"), all.at("C"));
  const GradientOps both = gradient_ops({.freeze = {"A.*", "B.*", "norm.*"}}, sgd);
  EXPECT_FALSE(both.contains("A") || both.contains("B"));
  EXPECT_LT(both.at("C"), all.at("C"));
  // The gradient passes a frozen block on its way to the first one.
  const GradientOps inner = gradient_ops({.freeze = {"B.*"}}, sgd);
  EXPECT_EQ(inner.at("A"), all.at("A"));
  EXPECT_LT(inner.at("B"), all.at("B"));
}

TEST(Freeze, LeavesNoStateAndEqualsAnOptimizerWithoutThatGroup) {
  const auto trained = [](const Options& options, const nn::Optimizer& optimizer) {
    Ir ir;
    const Training t = build_training(ir, three_blocks(), optimizer, options);
    std::set<std::string> state;
    for (const std::string& key : t.state.keys_flat()) state.insert(key.substr(0, key.rfind('.')));
    return std::pair(t.frozen, state);
  };
  const auto [listed, state] = trained({.freeze = {"A.*", "*.bias"}}, nn::Optimizer::adam());
  EXPECT_EQ(std::set(listed.begin(), listed.end()),
            (std::set<std::string>{"A.bias", "A.weight", "B.bias", "C.bias", "norm.bias"}));
  EXPECT_EQ(state, (std::set<std::string>{"B.weight", "C.weight", "norm.weight"}));
  const nn::Optimizer grouped =
      nn::Optimizer::grouped({{nn::keys_unlike({"A.*", "*.bias"}), nn::Optimizer::adam()}});
  EXPECT_EQ(trained({}, grouped).first, listed);
  // A parameter group may be frozen as a whole.
  const nn::Optimizer two =
      nn::Optimizer::grouped({{nn::keys_like({"*.bias"}), nn::Optimizer::sgd()},
                              {nn::keys_unlike({"*.bias"}), nn::Optimizer::adam()}});
  EXPECT_EQ(trained({.learning_rate = 0.1, .freeze = {"*.bias", "A.weight"}}, two).first, listed);
}

TEST(Freeze, HasTheBitsOfTheResidentStepInEveryStrategy) {
  size_t draw = 0;
  std::set<std::string> digests;
  for (const std::vector<std::string>& freeze :
       {std::vector<std::string>{"A.*"}, {"B.*", "norm.*"}, {"A.*", "B.*"}, {"*.weight"}}) {
    const int replicas = 1 + static_cast<int>(draw % 2);
    const Options options{.accumulate = 3,
                          .max_grad_norm = draw % 2 == 0 ? std::optional(0.05) : std::nullopt,
                          .freeze = freeze};
    std::string first;
    for (const Way& way : share(ways(), 2, draw++)) {
      const std::string digest =
          run(three_blocks(), with_reductions_of(way.step, options), replicas, 2, way.more_devices)
              .digest;
      if (first.empty()) first = digest;
      EXPECT_EQ(digest, first) << way.name << ", " << freeze[0];
    }
    digests.insert(first);
  }
  EXPECT_EQ(digests.size(), 4u);
}

TEST(Freeze, KeepsTheValuesOfFrozenWeights) {
  Ir ir;
  const Training t =
      build_training(ir, three_blocks(), nn::Optimizer::adam(), {.freeze = {"B.weight"}});
  Session session(ir, {.device = cpu_device({.threads = 1})});
  const auto value = [&](const char* path) { return session.read(t.variables[path]).to_doubles(); };
  const auto frozen = value("B.weight"), trained = value("A.weight");
  StepArrays arrays(t);
  for (float& x : arrays.fields[0].as<float>()) x = 0.5f;
  for (float& x : arrays.fields[2].as<float>()) x = 1;
  session.run(arrays.inputs(t), "train");
  EXPECT_EQ(value("B.weight"), frozen);
  EXPECT_NE(value("A.weight"), trained);
}

TEST(Freeze, RefusesPatternsWithoutAWeightAndWithoutATrainedOne) {
  const auto build = [](std::vector<std::string> freeze) {
    return [freeze = std::move(freeze)] {
      build_training(Ir(), three_blocks(), nn::Optimizer::sgd(), {.freeze = freeze});
    };
  };
  expect_refused({
      {"a pattern without a weight", build({"A.*", "embedding.*"}),
       "freeze: 'embedding.*' must match the path of a weight, got none; weights are A.weight, "
       "A.bias, B.weight, B.bias, norm.weight, norm.bias, C.weight, C.bias"},
      {"a part of a path", build({"A"}), "freeze: 'A' must match the path of a weight, got none"},
      {"all", build({"*"}),
       "freeze: must leave a weight that the optimizer trains, got *, which "
       "match all of "},
      {"inference", [] { build_inference(Ir(), three_blocks(), {.freeze = {"A.*"}}); },
       "inference: freeze requires an optimizer; leave it out"},
  });
}

}  // namespace
}  // namespace sluice::train
