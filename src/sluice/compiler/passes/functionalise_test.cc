#include "sluice/compiler/passes/functionalise.h"

#include <gtest/gtest.h>

#include "sluice/base/test_refusals.h"
#include "sluice/compiler/test_bodies.h"
#include "sluice/ir/call.h"
#include "sluice/ops/activations.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/reshape.h"
#include "sluice/ops/updates.h"

namespace sluice::compiler {
namespace {

const TensorSpec kFour{{4}, f32, {}};

class Functionalise : public testing::Test {
 protected:
  // Expects these bodies, without names, source locations and the numbers of graphs and ops.
  void expect(const std::string& text) {
    TestProgram p("");
    Program program(ir_);
    functionalise(program, p.context);
    verify(program, "functionalise");
    for (Body& body : program.bodies) {
      body.graph = {};
      body.name = "b";
      for (BodyValue& v : body.values) v.tensor.clear();
      for (BodyParam& param : body.params) param.name.clear();
      for (Node& node : body.nodes) {
        node.origin = {};
        node.provenance = {};
      }
    }
    EXPECT_EQ(to_text(program), to_text(TestProgram(text).program));
  }
  Tensor variable() { return main_.variable(HostTensor(kFour), "w"); }

  Ir ir_;
  Graph& main_ = ir_.main_graph();
};

TEST_F(Functionalise, AWriteMakesAValueThatIsTiedToTheOld) {
  const Tensor w = variable();
  const Tensor y = ops::neg(w);
  ops::add_(w, y);
  expect(R"(
    body b entry device -1
      variable 0 %0 f32(4)
      kernel Neg in %0 out %1 f32(4)
      kernel AddLhsInplace in %0 %1 out %2 f32(4) name "" 1 tie 0 %0
      last 0 %2
    end)");
}

TEST_F(Functionalise, AnAliasIsTheSameValueUnderAnotherShape) {
  const Tensor w = variable();
  const Tensor rows = ops::reshape_(w, Shape({2, 2}));
  ops::relu_(rows);
  ops::neg(w);
  expect(R"(
    body b entry device -1
      variable 0 %0 f32(4)
      kernel ReluInplace in %0 as f32(2,2) out %1 f32(4) name "" 1 as f32(2,2) tie 0 %0
      kernel Neg in %1 out %2 f32(4)
      last 0 %1
    end)");
}

TEST_F(Functionalise, AnInputByValueIsCopiedBeforeItIsWritten) {
  Graph& f = ir_.create_graph(
      "f", [](Graph&, Tensor x) { return ops::add_(x, x); }, kFour);
  ops::call(main_, f, {variable()});
  expect(R"(
    body b function number 0 device -1
      param %0 f32(4)
      copy in %0 out %1 f32(4)
      kernel AddLhsInplace in %1 %1 out %2 f32(4) name "" 1 tie 0 %1
      results %2
    end
    body b entry number 1 device -1
      variable 0 %0 f32(4)
      call 0 in %0 out %1 f32(4)
    end)");
}

TEST_F(Functionalise, AnInputByReferenceIsUpdatedAtTheCall) {
  Graph& f = ir_.create_graph(
      "f", [](Graph&, Tensor x) { ops::add_(x, x); }, NamedInput{"x", kFour, Pass::kByReference});
  ops::call(main_, f, {variable()});
  expect(R"(
    body b function number 0 device -1
      param %0 f32(4) last %1
      kernel AddLhsInplace in %0 %0 out %1 f32(4) name "" 1 tie 0 %0
    end
    body b entry number 1 device -1
      variable 0 %0 f32(4)
      call 0 updated 0 in %0 out %1 f32(4) name "" 1 tie 0 %0
      last 0 %1
    end)");
}

TEST_F(Functionalise, AnInputByReferenceThatIsOnlyReadIsNoUpdate) {
  Graph& f = ir_.create_graph(
      "f", [](Graph&, Tensor x) { return ops::neg(x); },
      NamedInput{"x", kFour, Pass::kByReference});
  ops::call(main_, f, {variable()});
  expect(R"(
    body b function number 0 device -1
      param %0 f32(4)
      kernel Neg in %0 out %1 f32(4)
      results %1
    end
    body b entry number 1 device -1
      variable 0 %0 f32(4)
      call 0 in %0 out %1 f32(4)
    end)");
}

TEST_F(Functionalise, ALoopHasAnIterationAndNoParametersForItsCounters) {
  Graph& f = ir_.create_graph(
      "f", [](Graph&, Tensor x) { return ops::neg(x); }, kFour);
  ops::repeat(main_, f, 3, {variable()});
  TestProgram p("");
  Program program(ir_);
  functionalise(program, p.context);
  verify(program, "functionalise");
  const Body& main = program.body(program.entries[0].bodies[0]);
  const auto* loop = main.nodes.back().as<Node::Loop>();
  ASSERT_NE(loop, nullptr);
  EXPECT_EQ(loop->trips, 3);
  EXPECT_EQ(loop->carried, 1);
  const Body& body = program.body(loop->callee);
  EXPECT_EQ(body.role, Role::kLoopBody);
  EXPECT_EQ(body.params.size(), 1U);
  EXPECT_EQ(body.index_params, (std::vector<std::optional<IndexRange>>{std::nullopt}));
}

TEST_F(Functionalise, ALoopWithoutTripsReturnsWhatItWasGiven) {
  Graph& f = ir_.create_graph(
      "f", [](Graph&, Tensor x) { return ops::neg(x); }, kFour);
  const Tensors last = ops::repeat(main_, f, 0, {variable()});
  ops::neg(last[0]);
  expect(R"(
    body b entry device -1
      variable 0 %0 f32(4)
      view in %0 out %1 f32(4)
      kernel Neg in %1 out %2 f32(4)
    end)");
}

TEST_F(Functionalise, RefusesConditionalsThatCommunicate) {
  const H2dStream in = ir_.h2d_stream(kFour, "in");
  Graph& loads = ir_.create_graph("loads", [&](Graph& g) { return g.host_load(in); });
  const Tensor yes = main_.scalar(1, boolean);
  ops::conditional(main_, yes, loads, loads, {}, {});
  TestProgram p("");
  Program program(ir_);
  expect_refused({{"stream", [&] { functionalise(program, p.context); },
                   "uses stream 'in'; a conditional may not communicate"}});
}

}  // namespace
}  // namespace sluice::compiler
