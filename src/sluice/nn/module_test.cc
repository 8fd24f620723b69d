#include "sluice/nn/module.h"

#include <gtest/gtest.h>

#include <functional>

#include "sluice/base/provenance.h"
#include "sluice/interp/interpreter.h"
#include "sluice/ir/verify.h"
#include "sluice/nn/test_util.h"
#include "sluice/ops/activations.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/matmul.h"
#include "sluice/ops/reductions.h"
#include "sluice/ops/reshape.h"

namespace sluice::nn {
namespace {

// The modules of document 004.
class Linear : public Module {
 public:
  explicit Linear(int64_t out_features) : out_features_(out_features) {}

  Tensor build(Builder& b, Tensor x) const {
    const Tensor w = b.add_variable_input("weight", normal(0.0, 0.02), {x.dim(-1), out_features_});
    const Tensor y = ops::matmul(x, w);
    return y + b.add_variable_input("bias", zeros(), {out_features_});
  }

 private:
  int64_t out_features_;
};

class Net : public Module {
 public:
  Tensor build(Builder& b, Tensor x) const {
    x = ops::reshape(x, {-1, 28 * 28});
    x = ops::gelu(fc1_(b, x));
    x = ops::gelu(fc2_(b, x));
    x = ops::gelu(fc3_(b, x));
    return fc4_(b, x);
  }

 private:
  Child<Linear> fc1_{*this, "fc1", 512};
  Child<Linear> fc2_{*this, "fc2", 512};
  Child<Linear> fc3_{*this, "fc3", 512};
  Child<Linear> fc4_{*this, "fc4", 10};
};

class NetOutlined : public Module {
 public:
  Tensor build(Builder& b, Tensor x) const {
    x = ops::reshape(x, {-1, 28 * 28});
    x = ops::gelu(fc1_(b, x));
    const auto [factories, subgraph] = create_graph(b.ir(), Linear(512), x);
    const BoundGraph fc2 = subgraph.bind(b.add_variable_inputs("fc2", factories));
    const BoundGraph fc3 = subgraph.bind(b.add_variable_inputs("fc3", factories));
    x = ops::gelu(fc2.call(x)[0]);
    x = ops::gelu(fc3.call(x)[0]);
    return fc4_(b, x);
  }

 private:
  Child<Linear> fc1_{*this, "fc1", 512};
  Child<Linear> fc4_{*this, "fc4", 10};
};

TEST(Document004, Linear) {
  Ir ir;
  const auto [factories, linear] = create_graph(ir, Linear(32), f32_spec({2, 4}));
  EXPECT_EQ(factories.keys_flat(), (std::vector<std::string>{"weight", "bias"}));
  EXPECT_EQ(linear.print_schedule(),
            R"(Graph : Linear_subgraph(0)
  (%1, weight=%2, bias=%3) -> (%5) {
    MatMul.100 (%1 [(2, 4) float32], %2 [(4, 32) float32]) -> (%4 [(2, 32) float32])
    Add.101 (%4 [(2, 32) float32], %3 [(32,) float32]) -> (%5 [(2, 32) float32])
  })");
  const NamedTensors variables = factories.init(ir.main_graph());
  EXPECT_EQ(to_string(variables),
            "{'bias': Tensor[bias popxl.dtypes.float32 (32,)], 'weight': Tensor[weight "
            "popxl.dtypes.float32 (4, 32)]}");
  verify(ir);
}

TEST(Document004, NetIsInlined) {
  Ir ir;
  const auto [factories, net] = create_graph(ir, Net(), f32_spec({28, 28}));
  EXPECT_EQ(factories.keys_flat(),
            (std::vector<std::string>{"fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias",
                                      "fc3.weight", "fc3.bias", "fc4.weight", "fc4.bias"}));
  EXPECT_EQ(net.print_schedule(),
            R"(Graph : Net_subgraph(0)
  (%1, fc1.weight=%2, fc1.bias=%3, fc2.weight=%4, fc2.bias=%5, fc3.weight=%6, fc3.bias=%7, fc4.weight=%8, fc4.bias=%9) -> (%21) {
    Reshape.100 (%1 [(28, 28) float32]) -> (%10 [(1, 784) float32])
    MatMul.101 (%10 [(1, 784) float32], %2 [(784, 512) float32]) -> (%11 [(1, 512) float32])
    Add.102 (%11 [(1, 512) float32], %3 [(512,) float32]) -> (%12 [(1, 512) float32])
    Gelu.103 (%12 [(1, 512) float32]) -> (%13 [(1, 512) float32])
    MatMul.104 (%13 [(1, 512) float32], %4 [(512, 512) float32]) -> (%14 [(1, 512) float32])
    Add.105 (%14 [(1, 512) float32], %5 [(512,) float32]) -> (%15 [(1, 512) float32])
    Gelu.106 (%15 [(1, 512) float32]) -> (%16 [(1, 512) float32])
    MatMul.107 (%16 [(1, 512) float32], %6 [(512, 512) float32]) -> (%17 [(1, 512) float32])
    Add.108 (%17 [(1, 512) float32], %7 [(512,) float32]) -> (%18 [(1, 512) float32])
    Gelu.109 (%18 [(1, 512) float32]) -> (%19 [(1, 512) float32])
    MatMul.110 (%19 [(1, 512) float32], %8 [(512, 10) float32]) -> (%20 [(1, 10) float32])
    Add.111 (%20 [(1, 10) float32], %9 [(10,) float32]) -> (%21 [(1, 10) float32])
  })");
  EXPECT_EQ(net.graph().ops()[4].provenance->module_path, "fc2");
}

TEST(Document004, NetOutlined) {
  Ir ir;
  const auto [factories, net] = create_graph(ir, NetOutlined(), f32_spec({28, 28}));
  EXPECT_EQ(factories.keys_flat(),
            (std::vector<std::string>{"fc1.weight", "fc1.bias", "fc4.weight", "fc4.bias",
                                      "fc2.weight", "fc2.bias", "fc3.weight", "fc3.bias"}));
  EXPECT_EQ(net.print_schedule(),
            R"(Graph : NetOutlined_subgraph(0)
  (%1, fc1.weight=%2, fc1.bias=%3, fc2.weight=%4, fc2.bias=%5, fc3.weight=%6, fc3.bias=%7, fc4.weight=%8, fc4.bias=%9) -> (%19) {
    Reshape.100 (%1 [(28, 28) float32]) -> (%10 [(1, 784) float32])
    MatMul.101 (%10 [(1, 784) float32], %2 [(784, 512) float32]) -> (%11 [(1, 512) float32])
    Add.102 (%11 [(1, 512) float32], %3 [(512,) float32]) -> (%12 [(1, 512) float32])
    Gelu.103 (%12 [(1, 512) float32]) -> (%13 [(1, 512) float32])
    Call.106(Linear_subgraph(1)) (%13 [(1, 512) float32], %4 [(512, 512) float32], %5 [(512,) float32]) -> (%14 [(1, 512) float32])
    Gelu.107 (%14 [(1, 512) float32]) -> (%15 [(1, 512) float32])
    Call.108(Linear_subgraph(1)) (%15 [(1, 512) float32], %6 [(512, 512) float32], %7 [(512,) float32]) -> (%16 [(1, 512) float32])
    Gelu.109 (%16 [(1, 512) float32]) -> (%17 [(1, 512) float32])
    MatMul.110 (%17 [(1, 512) float32], %8 [(512, 10) float32]) -> (%18 [(1, 10) float32])
    Add.111 (%18 [(1, 10) float32], %9 [(10,) float32]) -> (%19 [(1, 10) float32])
  })");
  verify(ir);
}

TEST(Document004, DotTree) {
  Ir ir;
  const auto [factories, linear] = create_graph(ir, Linear(32), f32_spec({2, 4}));
  const NamedTensors variables = factories.init(ir.main_graph());
  const NamedTensors variables2 = factories.init(ir.main_graph());
  NamedTensors collection;
  collection.insert("layer1", variables);
  collection.insert("layer2", variables2);
  EXPECT_EQ(
      to_string(collection),
      "{'layer1.bias': Tensor[bias popxl.dtypes.float32 (32,)], 'layer1.weight': Tensor[weight "
      "popxl.dtypes.float32 (4, 32)], 'layer2.bias': Tensor[bias__t0 popxl.dtypes.float32 (32,)], "
      "'layer2.weight': Tensor[weight__t1 popxl.dtypes.float32 (4, 32)]}");
  EXPECT_EQ(to_string(collection.tree("layer1")), to_string(variables));
  std::vector<std::string> names;
  for (const Tensor& t : collection.tensors()) names.push_back(t.name());
  EXPECT_EQ(names, (std::vector<std::string>{"bias", "bias__t0", "weight", "weight__t1"}));
}

TEST(Bind, ManyUsersOfOneGraph) {
  Ir ir;
  Graph& main = ir.main_graph();
  const auto [factories, linear] = create_graph(ir, Linear(3), f32_spec({2, 4}));
  const BoundGraph first = linear.bind(factories.init(main));
  const BoundGraph second = linear.bind(factories.init(main));
  const Tensor x = main.variable(HostTensor(f32_spec({2, 4})), "x");
  const CallSiteInfo a = first.call_with_info(x);
  const CallSiteInfo b = second.call_with_info(x);
  EXPECT_EQ(&a.called_graph(), &b.called_graph());
  EXPECT_EQ(a.input(1).name(), "weight");
  EXPECT_EQ(b.input(1).name(), "weight__t1");
  EXPECT_EQ(b.input(2).name(), "bias__t0");
  verify(ir);
}

TEST(Bind, ExtraNamesAreFineUnboundOnesAreNot) {
  Ir ir;
  Graph& main = ir.main_graph();
  const auto [factories, linear] = create_graph(ir, Linear(3), f32_spec({2, 4}));
  NamedTensors variables = factories.init(main);
  const Tensor x = main.variable(HostTensor(f32_spec({2, 4})), "x");
  variables.insert("other", x);
  EXPECT_EQ(linear.bind(variables).call(x)[0].shape(), (Shape{2, 3}));

  const Tensor weight = variables.pop("weight");
  EXPECT_EQ(usage_error([&] { linear.bind(variables).call(x); }),
            "call of graph Linear_subgraph(0): named inputs without a tensor: weight; names that "
            "were bound: bias, other");
  EXPECT_EQ(usage_error([&] { linear.call(x); }),
            "call of graph Linear_subgraph(0): named inputs without a tensor: weight, bias; names "
            "that were bound: none");
  // A missing tensor may be given by a second bind, by name, by input or by position.
  const NamedTensors rest = NamedTensors::from_dict({{"weight", weight}});
  linear.bind(variables).bind(rest).call(x);
  linear.bind(variables).call(x, rest);
  linear.bind(variables).call(x, TensorMap{{linear.args()["weight"], weight}});
  linear.bind(variables).call(x, weight);
  linear.call(x, weight, variables["bias"]);
  EXPECT_NE(usage_error([&] {
              linear.bind(rest).call(x, weight, variables["bias"]);
            }).find("given twice"),
            std::string::npos);
  EXPECT_NE(usage_error([&] {
              linear.bind(NamedTensors::from_dict({{"weight", x}, {"bias", x}})).call(x);
            }).find("input 'weight'"),
            std::string::npos);
}

TEST(Bind, NumbersBecomeConstants) {
  class Scale : public Module {
   public:
    Tensor build(Builder&, Tensor x, Tensor factor) const { return x * factor; }
  };
  Ir ir;
  Graph& main = ir.main_graph();
  const auto [factories, scale] = create_graph(ir, Scale(), f32_spec({2}), f32_spec({}));
  EXPECT_EQ(scale.graph().name(), "Scale_subgraph(0)");
  const Tensor x = main.variable(HostTensor(f32_spec({2})), "x");
  const CallSiteInfo info = scale.call_with_info(x, 3);
  EXPECT_EQ(main.info(info.input(1)).constant->to_doubles(), std::vector<double>{3});
}

TEST(Builder, ListsAndSeveralResults) {
  class Swap : public Module {
   public:
    Tensors build(Builder&, const Tensors& both, double factor) const {
      return {both[1], both[0] * factor};
    }
  };
  Ir ir;
  const std::vector<TensorSpec> specs{f32_spec({2}), f32_spec({3})};
  const auto [factories, swap] = create_graph(ir, Swap(), specs, 2.0);
  EXPECT_EQ(swap.graph().inputs().size(), 2u);
  EXPECT_EQ(swap.graph().outputs()[0], swap.graph().inputs()[1]);
}

TEST(Builder, ByReferenceInputs) {
  class Increment : public Module {
   public:
    void build(Builder&, Tensor x) const { x += x; }
  };
  Ir ir;
  Graph& main = ir.main_graph();
  const auto [factories, increment] =
      create_graph(ir, Increment(), NamedInput{"counter", f32_spec({}), Pass::kByReference});
  EXPECT_EQ(increment.graph().inputs()[0].name(), "counter");
  const Tensor x = main.variable(HostTensor::scalar(1), "x");
  increment.call(x);
  EXPECT_EQ(main.ops().back().inputs[0].mode, Mode::kUpdate);
}

TEST(Builder, AModuleBuiltTwiceInAGraphIsRefused) {
  class Twice : public Module {
   public:
    Tensor build(Builder& b, Tensor x) const { return fc_(b, fc_(b, x)); }

   private:
    Child<Linear> fc_{*this, "fc", 4};
  };
  Ir ir;
  EXPECT_NE(usage_error([&] {
              create_graph(ir, Twice(), f32_spec({2, 4}));
            }).find("variable 'fc.weight'"),
            std::string::npos);
}

TEST(Builder, ListsOfModules) {
  class Stack : public Module {
   public:
    explicit Stack(int layers) {
      for (int i = 0; i < layers; ++i) layers_.add(4);
    }
    Tensor build(Builder& b, Tensor x) const {
      x = head_(b, x);
      for (const auto& layer : layers_) x = layer(b, x);
      return x;
    }

   private:
    Children<Linear> layers_{*this, "layers"};
    Child<Linear> head_{*this, "head", 4};
  };
  Ir ir;
  const auto [factories, stack] = create_graph(ir, Stack(2), f32_spec({2, 4}));
  EXPECT_EQ(factories.keys_flat(),
            (std::vector<std::string>{"layers.0.weight", "layers.0.bias", "layers.1.weight",
                                      "layers.1.bias", "head.weight", "head.bias"}));
  EXPECT_EQ(stack.graph().ops().back().provenance->module_path, "layers/1");
  const Stack copy = Stack(1);
  const Stack moved(copy);
  EXPECT_EQ(create_graph(ir, moved, f32_spec({2, 4})).first.size_flat(), 4u);
}

TEST(Builder, DuplicateSubmodulesAreRefused) {
  class Bad : public Module {
   public:
    Child<Linear> a_{*this, "fc", 1};
    Child<Linear> b_{*this, "fc", 1};
  };
  usage_error([] { Bad(); });
  class Worse : public Module {
   public:
    Child<Linear> a_{*this, "f c", 1};
  };
  usage_error([] { Worse(); });
}

TEST(Factories, FirstValuesDependOnPathSeedAndCount) {
  const auto first_value = [](const Tensor& t) {
    return t.graph().info(t).variable->initializer.evaluate(t.spec()).to_doubles()[0];
  };
  Ir ir;
  Graph& main = ir.main_graph();
  const auto [factories, linear] = create_graph(ir, Linear(3), f32_spec({2, 4}));
  const Tensor a = factories.init(main, {.prefix = "fc1"})["weight"];
  const Tensor b = factories.init(main, {.prefix = "fc2"})["weight"];
  const Tensor c = factories.init(main, {.prefix = "fc1"})["weight"];
  EXPECT_EQ(a.name(), "fc1.weight");
  EXPECT_EQ(main.info(a).variable->path, "fc1.weight");
  EXPECT_EQ(main.info(c).variable->path, "fc1.weight#1");
  EXPECT_NE(first_value(a), first_value(b));
  EXPECT_NE(first_value(a), first_value(c));

  // Another program with another order and other names must get the same values.
  Ir other;
  Graph& train = other.entry_graph("train");
  const auto [factories2, net] = create_graph(other, Linear(3), f32_spec({2, 4}));
  train.variable(f32_spec({}), zeros(), "fc1.weight", "something.else");
  const Tensor b2 = factories2.init(train, {.prefix = "fc2"})["weight"];
  const Tensor a2 = factories2.init(other.main_graph(), {.prefix = "fc1"})["weight"];
  const Tensor c2 = factories2.init(train, {.prefix = "fc1"})["weight"];
  EXPECT_EQ(first_value(a), first_value(a2));
  EXPECT_EQ(first_value(b), first_value(b2));
  EXPECT_EQ(first_value(c), first_value(c2));
  const Tensor seeded =
      factories2.init(other.entry_graph("eval"), {.prefix = "fc3", .seed = 1})["weight"];
  const Tensor plain = factories.init(main, {.prefix = "fc3"})["weight"];
  EXPECT_NE(first_value(seeded), first_value(plain));
}

// Doubles x; keeps a sum of its rows.
struct Sums : Module {
  Tensor build(Builder& b, Tensor x) const {
    const Tensor sum = b.add_running_input("sum", zeros(), {x.dim(-1)});
    if (b.mode() == RunMode::kEvaluate) return x + sum;
    b.update_running(sum, ops::sum(x, {.axes = {0}}), {.keep = 1, .take = 0.5});
    return x * 2.0;
  }
};

struct Outer : Module {
  Tensor build(Builder& b, Tensor x) const { return inner(b, x); }
  Child<Sums> inner{*this, "inner"};
};

// Calls an outlined graph twice with one running variable.
struct TwoCalls : Module {
  Tensor build(Builder& b, Tensor x) const {
    const auto [factories, graph] = create_graph(b.ir(), Sums(), x);
    const BoundGraph own = graph.bind(b.add_variable_inputs("own", factories));
    return own.call(own.call(x)[0])[0];
  }
};

template <typename M>
std::vector<float> sum_after_calls(const M& module, const std::string& key, int calls) {
  Ir ir;
  Graph& main = ir.main_graph();
  const TensorSpec spec = f32_spec({2, 2});
  const auto [factories, graph] = create_graph(ir, module, spec);
  const NamedTensors variables = factories.init(main);
  const Tensor x = main.constant(HostTensor::of<float>({2, 2}, f32, {1, 2, 3, 4}));
  for (int i = 0; i < calls; ++i) graph.bind(variables).call(x);
  verify(ir);
  Interpreter run(ir, Precision::kFloat);
  run.run({});
  const HostTensor sum = run.read(variables[key]);
  return {sum.as<float>().begin(), sum.as<float>().end()};
}

TEST(Running, CallsOfAGraphUpdateTheBoundVariables) {
  EXPECT_EQ(sum_after_calls(Sums(), "sum", 1), (std::vector<float>{2, 3}));
  EXPECT_EQ(sum_after_calls(Outer(), "inner.sum", 3), (std::vector<float>{6, 9}));
  EXPECT_EQ(sum_after_calls(TwoCalls(), "own.sum", 1), (std::vector<float>{6, 9}));
}

TEST(Running, EvaluationReadsTheVariable) {
  Ir ir;
  const auto [factories, graph] = create_eval_graph(ir, Outer(), f32_spec({2, 2}));
  const Tensor input = graph.args()["inner.sum"];
  EXPECT_EQ(graph.graph().info(input).pass, Pass::kByValue);
  EXPECT_EQ(factories["inner.sum"].role(), Role::kRunning);
  ASSERT_EQ(graph.graph().ops().size(), 1u);
  EXPECT_EQ(graph.graph().ops()[0].inputs[1].tensor, input.id());
}

TEST(Running, Refusals) {
  using Build = std::function<Tensor(Builder&, Tensor)>;
  struct Written : Module {
    explicit Written(Build f) : f(std::move(f)) {}
    Tensor build(Builder& b, Tensor x) const { return f(b, x); }
    Build f;
  };
  const auto refused = [](const Build& f, bool evaluate, const std::string& part) {
    const std::string error = usage_error([&] {
      Ir ir;
      if (evaluate) {
        create_eval_graph(ir, Written(f), f32_spec({2, 2}));
      } else {
        create_graph(ir, Written(f), f32_spec({2, 2}));
      }
    });
    EXPECT_NE(error.find(part), std::string::npos) << error;
  };
  refused(
      [](Builder& b, Tensor x) {
        b.update_running(b.add_variable_input("w", zeros(), {2, 2}), x);
        return x;
      },
      false, "must be a result of add_running_input(), got 'w'");
  refused(
      [](Builder& b, Tensor x) {
        b.update_running(b.add_running_input("r", zeros(), {2, 2}), x);
        return x;
      },
      true, "variable 'r' is updated in evaluation");
  refused(
      [](Builder& b, Tensor x) {
        b.update_running(b.add_running_input("r", zeros(), {2}), x);
        return x;
      },
      false, "the value of 'r' must be floating point of shape (2,), got");
  refused(
      [](Builder& b, Tensor x) {
        const Tensor r = b.add_running_input("r", zeros(), {2, 2});
        b.update_running(r, x);
        b.update_running(r, x);
        return x;
      },
      false, "variable 'r' must have one update");
  refused(
      [](Builder& b, Tensor x) {
        b.add_running_input("n", zeros(), {}, i32);
        return x;
      },
      false, "'n' must be floating point, got int32");
}

TEST(Factories, RefuseSubgraphsAndOtherSpecs) {
  Ir ir;
  const auto [factories, linear] = create_graph(ir, Linear(3), f32_spec({2, 4}));
  usage_error([&, f = &factories] { f->init(linear.graph()); });
  usage_error([] { VariableFactory(f32_spec({2}), array(HostTensor(f32_spec({3})))); });
  const NamedTensors zero = factories.init_zero(linear.graph());
  EXPECT_EQ(zero.keys_flat(), (std::vector<std::string>{"weight", "bias"}));
  EXPECT_EQ(zero["bias"].shape(), (Shape{3}));
}

}  // namespace
}  // namespace sluice::nn
