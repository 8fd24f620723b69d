// Tests the error messages of this layer, one row for each error. A message must name the value
// that was found.

#include <cmath>

#include "sluice/base/test_refusals.h"
#include "sluice/nn/autodiff.h"
#include "sluice/nn/dot_tree.h"
#include "sluice/nn/layers.h"
#include "sluice/nn/update/optimizers.h"

namespace sluice::nn {
namespace {

using Tree = DotTree<std::string>;

// A graph for y = Linear(x), and its variables in `main`.
class NnRefusals : public testing::Test {
 protected:
  Ir ir;
  Graph& main = ir.main_graph();
  std::pair<NamedVariableFactories, GraphWithNamedArgs> made =
      create_graph(ir, Linear(3), f32_spec({2, 4}));
  GraphWithNamedArgs& linear = made.second;
  NamedTensors variables = made.first.init(main);
  Tensor x = main.host_load(ir.h2d_stream(f32_spec({2, 4}), "x"));
  Tensor w = variables["weight"];
};

TEST_F(NnRefusals, Trees) {
  Tree tree = Tree::from_dict({{"a.b", "1"}, {"x", "2"}, {"0", "3"}});
  const std::string one = "1";
  expect_refused({
      {"a space", [&] { tree.insert("a c", one); },
       "tree: key must be an identifier or a number of at most 18 digits, got 'a c'"},
      {"an empty part", [&] { tree.insert("new..x", one); }, "at most 18 digits, got ''"},
      {"a letter after a digit", [&] { tree.insert("1x", one); }, "at most 18 digits, got '1x'"},
      {"a long number", [&] { tree.insert("1234567890123456789", one); },
       "at most 18 digits, got '1234567890123456789'"},
      {"a negative number", [&] { tree.insert(-1, one); }, "tree: key must be at least 0, got -1"},
      {"a key that exists", [&] { tree.insert("a.c", one); }, "tree: key 'a' exists already"},
      {"a leaf on the way", [&] { tree.merge("x.y", one); },
       "tree: key 'x.y' exists already ('x' is a leaf)"},
      {"a merged key that exists", [&] { tree.merge("a.b", one); },
       "tree: key 'a.b' exists already"},
      {"a node over a leaf", [&] { tree.node("x"); }, "tree: 'x' is a leaf, not a node"},
      {"an update",
       [&] {
         tree.update(Tree::from_dict({{"new", "1"}, {"x", "1"}}));
       },
       "tree: key 'x' exists already"},
      {"a missing leaf", [&] { tree["a.c"]; }, "tree: there is no key 'a.c'; keys are a.b, x, 0"},
      {"below a leaf", [&] { tree["x.y"]; }, "tree: there is no key 'x.y'"},
      {"a node for a leaf", [&] { tree["a"]; }, "tree: 'a' is a node with keys b, not a leaf"},
      {"a leaf for a node", [&] { tree.tree("x"); }, "tree: 'x' is a leaf, not a node"},
      {"before the first", [&] { tree[-2]; }, "tree: there is no key '-2'; keys are a, x, 0"},
      {"a number", [&] { tree[7]; }, "tree: there is no key '7'"},
      {"popping a node", [&] { tree.pop("a"); }, "'a' is a node with keys b, not a leaf"},
      {"popping a leaf as a tree", [&] { tree.pop_tree("x"); }, "'x' is a leaf, not a node"},
      {"filtering twice",
       [&] {
         tree.filter_keys({"x", "x"});
       },
       "tree: key 'x' is given twice"},
      {"filtering what is not there", [&] { tree.filter_keys({"y"}); }, "there is no key 'y'"},
      {"packing", [] { Tree::pack({"a"}, {}); },
       "tree: pack requires one key for each leaf, got 1 keys and 0 leaves"},
      {"a repeated key",
       [] {
         Tree::from_dict({{"a", "1"}, {"a", "2"}});
       },
       "tree: key 'a' exists already"},
      {"leaf and node",
       [] {
         Tree::from_dict({{"a", "1"}, {"a.b", "2"}});
       },
       "tree: key 'a.b' exists already ('a' is a leaf)"},
      {"node and leaf",
       [] {
         Tree::from_dict({{"a.b", "1"}, {"a", "2"}});
       },
       "tree: key 'a' exists already"},
  });
  EXPECT_EQ(tree.keys_flat(), (std::vector<std::string>{"a.b", "x", "0"})) << "unchanged";
}

TEST_F(NnRefusals, NamedTensorsWithoutPartner) {
  expect_refused({{"remap",
                   [&] {
                     variables.remap({{variables["bias"], x}});
                   },
                   "remap: 'weight' (Tensor[weight popxl.dtypes.float32 (4, 3)]) has no partner"}});
}

TEST_F(NnRefusals, Calls) {
  const NamedTensors no_input = NamedTensors::from_dict({{"y", linear.graph().outputs()[0]}});
  const NamedTensors elsewhere = NamedTensors::from_dict({{"w", w}});
  const Tensor elsewhere_x = ir.create_empty_graph("elsewhere").input(f32_spec({2, 4}));
  expect_refused({
      {"arguments that are no inputs", [&] { GraphWithNamedArgs(linear.graph(), no_input); },
       "graph Linear_subgraph(0): argument 'y' is not one of its inputs"},
      {"arguments of another graph", [&] { GraphWithNamedArgs(linear.graph(), elsewhere); },
       "graph Linear_subgraph(0): argument 'w' is not one of its inputs"},
      {"a forward graph's gradient", [&] { linear.grad_graph_info(); },
       "graph Linear_subgraph(0) is not a gradient graph"},
      {"nothing bound", [&] { linear.call(x); },
       "call of graph Linear_subgraph(0): named inputs without a tensor: weight, bias; names that "
       "were bound: none"},
      {"one unbound",
       [&] {
         linear.bind(NamedTensors::from_dict({{"bias", x}, {"more", x}})).call(x);
       },
       "named inputs without a tensor: weight; names that were bound: bias, more"},
      {"no tensor at all",
       [&] {
         const auto [factories, doubled] = create_graph(ir, Relu(), f32_spec({}));
         doubled.call(1.0);
       },
       "arguments must have a tensor or the graph to call in, got neither"},
      {"too many", [&] { linear.bind(variables).call(x, x); }, "is given twice"},
      {"too many numbers", [&] { linear.call(x, w, variables["bias"], 2.0); },
       "call: 4 inputs given, graph Linear_subgraph(0) has 3"},
      {"a bound tensor of another spec",
       [&] {
         linear.bind(NamedTensors::from_dict({{"weight", x}, {"bias", x}})).call(x);
       },
       "input 'weight' of graph Linear_subgraph(0) must be (4, 3) float32, got tensor 'x' with (2, "
       "4)"},
      {"two graphs", [&] { linear.bind(variables).call(elsewhere_x); },
       "tensor 'weight' belongs to graph main, not to elsewhere_subgraph("},
  });
}

class Repeated : public Module {
 public:
  Child<Linear> a_{*this, "fc", 1};
  Child<Linear> b_{*this, "fc", 1};
};

class Misnamed : public Module {
 public:
  Child<Linear> a_{*this, "f c", 1};
};

class Twice : public Module {
 public:
  Tensor build(Builder& b, Tensor x) const { return fc_(b, fc_(b, x)); }

 private:
  Child<Linear> fc_{*this, "fc", 4};
};

TEST_F(NnRefusals, Modules) {
  expect_refused({
      {"two submodules of one name", [] { Repeated(); },
       "module: a submodule 'fc' is declared already"},
      {"a name", [] { Misnamed(); }, "at most 18 digits, got 'f c'"},
      {"one module twice",
       [&] {
         create_graph(ir, Twice(), f32_spec({2, 4}));
       },
       "module: variable 'fc.weight' of graph Twice_subgraph(1) exists already; to use a module "
       "twice, outline it or make two modules"},
      {"features", [] { Linear(0); }, "Linear: out_features must be at least 1, got 0"},
      {"a scalar", [&] { create_graph(ir, Linear(3), f32_spec({})); },
       "Linear: input must have at least one dimension, got 'x' () float32"},
      {"everything dropped", [] { Dropout(1.0); }, "Dropout: p must be in [0, 1), got 1"},
      {"less than nothing dropped", [] { Dropout(-0.1); }, "Dropout: p must be in [0, 1)"},
      {"dropped NaN", [] { Dropout(std::nan("")); }, "Dropout: p must be in [0, 1), got nan"},
  });
}

TEST_F(NnRefusals, Factories) {
  expect_refused({
      {"in a subgraph", [&] { made.first.init(linear.graph()); },
       "init: graph of variables must be an entry graph, got Linear_subgraph(0)"},
      {"a first value of another shape",
       [] { VariableFactory(f32_spec({2}), array(HostTensor(f32_spec({3})))); },
       "variable factory: first value must be (2,) float32, got (3,) float32"},
      {"a first value of another dtype",
       [] { VariableFactory(f32_spec({2}), array(HostTensor(i32_spec({2})))); },
       "variable factory: first value must be (2,) float32, got (2,) int32"},
  });
}

struct NoUpdate : Module {
  void build(Builder&, Tensor, Tensor, Tensor) const {}
  std::string cache_key() const { return ""; }
};

TEST_F(NnRefusals, Optimizers) {
  GraphCache cache;
  const auto named = [](const Tensor& t) { return NamedTensors::from_dict({{"w", t}}); };
  const NamedTensors weight = named(w);
  const auto apply = [&](const NamedTensors& variables, const NamedTensors& grads,
                         UpdateOptions options = {}) {
    return [=, &main = main] { Optimizer::sgd().apply(main, variables, grads, 0.1, options); };
  };
  Graph& other = ir.create_empty_graph("other");
  for (int i = 0; i < 100; ++i) other.input(f32_spec({4, 3}));
  const Tensor scalar = main.scalar(0.5, f32);
  const Tensor integer = main.scalar(1, i32);
  expect_refused({
      {"custom", [] { Optimizer::custom(NoUpdate(), 0); },
       "optimizer: default_learning_rate must be finite and above 0, got 0"},
      {"momentum", [] { Optimizer::sgd({.momentum = 1}); },
       "optimizer: momentum must be in [0, 1), got 1"},
      {"decay", [] { Optimizer::sgd({.weight_decay = -1}); },
       "optimizer: weight_decay must be finite and at least 0, got -1"},
      {"dampening above 1", [] { Optimizer::sgd({.momentum = 0.9, .dampening = 1.5}); },
       "optimizer: dampening must be in [0, 1], got 1.5"},
      {"dampening without momentum", [] { Optimizer::sgd({.dampening = 0.5}); },
       "optimizer: dampening requires momentum above 0, got momentum 0"},
      {"Nesterov without momentum", [] { Optimizer::sgd({.form = SgdForm::kNesterov}); },
       "optimizer: Nesterov's form requires momentum above 0 and dampening 0, got momentum 0 and "
       "dampening 0"},
      {"Nesterov with dampening",
       [] { Optimizer::sgd({.momentum = 0.9, .dampening = 0.5, .form = SgdForm::kNesterov}); },
       "above 0 and dampening 0, got momentum 0.9 and dampening 0.5"},
      {"Nesterov with a tensor as dampening",
       [&] { Optimizer::sgd({.momentum = 0.9, .dampening = scalar, .form = SgdForm::kNesterov}); },
       "above 0 and dampening 0, got momentum 0.9 and dampening a tensor"},
      {"alpha", [] { Optimizer::rmsprop({.alpha = 1}); },
       "optimizer: alpha must be in [0, 1), got 1"},
      {"RMSprop's epsilon", [] { Optimizer::rmsprop({.epsilon = 0}); },
       "optimizer: epsilon must be finite and above 0, got 0"},
      {"RMSprop's decay", [] { Optimizer::rmsprop({.weight_decay = -1}); },
       "optimizer: weight_decay must be finite and at least 0, got -1"},
      {"RMSprop's momentum", [] { Optimizer::rmsprop({.momentum = std::nan("")}); },
       "optimizer: momentum must be in [0, 1), got nan"},
      {"a hyperparameter with a dimension", [&] { Optimizer::adam({.beta1 = w}); },
       "optimizer: beta1 must be a number or a floating-point scalar, got (4, 3) float32"},
      {"an integer as hyperparameter", [&] { Optimizer::adam({.weight_decay = integer}); },
       "optimizer: weight_decay must be a number or a floating-point scalar, got () int32"},
      {"a hyperparameter of another graph",
       [&] { Optimizer::adam({.beta1 = other.scalar(0.5, f32)}).apply(main, weight, weight, 0.1); },
       "belongs to graph other_subgraph"},
      {"beta1", [] { Optimizer::adam({.beta1 = -0.1}); }, "beta1 must be in [0, 1), got -0.1"},
      {"beta2", [] { Optimizer::adam({.beta2 = 1}); }, "beta2 must be in [0, 1), got 1"},
      {"epsilon", [] { Optimizer::adam({.epsilon = 0}); },
       "epsilon must be finite and above 0, got 0"},
      {"LAMB's norm", [] { Optimizer::lamb({.max_weight_norm = 0}); },
       "optimizer: max_weight_norm must be above 0, got 0"},
      {"Adamax without steps", [] { Optimizer::adamax({.bias_correction = BiasCorrection::kOff}); },
       "optimizer: Adamax requires bias correction"},
      {"the norm of a shard over another number of replicas",
       [&] {
         const TensorSpec shard{{4}, f32, {2, 4}};
         Optimizer::lamb().step_graph(ir, shard, shard);
       },
       "norm: 'variable', a shard of (2, 4) over 1 replicas, must have 8 elements, got 4"},
      {"Adam's decay", [] { Optimizer::adamw({.weight_decay = -1}); }, "weight_decay must be"},
      {"no gradient", apply(weight, {}),
       "optimizer: variable 'w' has no gradient; gradients are none"},
      {"a gradient of another shape", apply(weight, named(x)),
       "optimizer: gradient of variable 'w' must have the shape of (4, 3) float32, got (2, 4) "
       "float32"},
      {"no variable", apply(named(x), named(x)), "optimizer: 'w' is not a variable of graph main"},
      {"a tensor of another graph", apply(named(other.inputs().back()), weight),
       "optimizer: 'w' is not a variable of graph main"},
      {"a norm of nothing", [&] { global_norm({}, cache); },
       "global_norm: requires at least one tensor, got none"},
      {"a norm of 0", apply(weight, weight, {.max_grad_norm = 0.0}),
       "clip_factor: the largest norm must be a float32 above 0, got 0"},
      {"a learning rate of another graph",
       [&] { Optimizer::sgd().apply(main, weight, weight, other.scalar(0.1, f32)); },
       "belongs to graph other_subgraph"},
  });
}

TEST_F(NnRefusals, ParameterGroups) {
  const KeyMatch all = keys_unlike({});
  const Optimizer sgd = Optimizer::sgd();
  const NamedTensors weight = NamedTensors::from_dict({{"fc.bias", w}});
  expect_refused({
      {"no groups", [] { Optimizer::grouped({}); },
       "optimizer: requires at least one parameter group, got none"},
      {"no match",
       [&] {
         Optimizer::grouped({{all, sgd}, {{}, sgd}});
       },
       "optimizer: parameter group 1 requires a match, got none"},
      {"groups in a group",
       [&] {
         Optimizer::grouped({{all, Optimizer::grouped({{all, sgd}})}});
       },
       "optimizer: the optimizer of parameter group 0 must be without groups; list its groups "
       "instead"},
      {"a factor below 0",
       [&] {
         Optimizer::grouped({{all, sgd, -1}});
       },
       "optimizer: rate_factor must be finite and at least 0, got -1"},
      {"a factor with a dimension",
       [&] {
         Optimizer::grouped({{all, sgd, w}});
       },
       "optimizer: rate_factor must be a number or a floating-point scalar, got (4, 3) float32"},
      {"a variable in two groups",
       [&] {
         Optimizer::grouped({{keys_like({"fc.*"}), sgd},
                             {keys_like({"norm.*"}), sgd},
                             {keys_like({"*.bias"}), Optimizer::adam()}})
             .apply(main, weight, weight, 0.1);
       },
       "optimizer: variable 'fc.bias' must be in at most one parameter group, got 0 and 2; make "
       "their matches disjoint"},
      {"an update without its group",
       [&] {
         Optimizer::grouped({{all, sgd}}).step_graph(ir, w.spec(), w.spec());
       },
       "optimizer: with parameter groups, an update must name its group, got none; use group_of()"},
  });
}

}  // namespace
}  // namespace sluice::nn
