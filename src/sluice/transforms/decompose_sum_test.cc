#include "sluice/transforms/decompose_sum.h"

#include "sluice/ir/ir.h"
#include "sluice/ops/activations.h"
#include "sluice/ops/arithmetic.h"
#include "tests/support/gradient_check.h"

namespace sluice::transforms {
namespace {

TEST(DecomposeSum, AddsEachAddendAsSoonAsItIsThere) {
  Ir ir;
  Graph& g = ir.create_graph(
      "f",
      [](Graph&, Tensor x, Tensor y) {
        const Tensor a = ops::tanh(x);
        const Tensor b = ops::gelu(x);
        const Tensor c = ops::tanh(y);
        return ops::add_n({x, y, a, b, c});
      },
      f32_spec({3}), f32_spec({3}));
  const Tensor out = g.outputs()[0];
  const std::vector<HostTensor> inputs{random_array({3}, 1).cast(f32),
                                       random_array({3}, 2).cast(f32)};
  const HostTensor before = Interpreter(ir).evaluate(g, inputs)[0];
  decompose_sum(g);
  verify(ir);
  EXPECT_EQ(print_schedule(g),
            "Graph : f_subgraph(0)\n"
            "  (%1, %2) -> (%9) {\n"
            "    Add.104 (%1 [(3,) float32], %2 [(3,) float32]) -> (%3 [(3,) float32])\n"
            "    Tanh.100 (%1 [(3,) float32]) -> (%4 [(3,) float32])\n"
            "    Add.105 (%3 [(3,) float32], %4 [(3,) float32]) -> (%5 [(3,) float32])\n"
            "    Gelu.101 (%1 [(3,) float32]) -> (%6 [(3,) float32])\n"
            "    Add.106 (%5 [(3,) float32], %6 [(3,) float32]) -> (%7 [(3,) float32])\n"
            "    Tanh.102 (%2 [(3,) float32]) -> (%8 [(3,) float32])\n"
            "    Add.103 (%7 [(3,) float32], %8 [(3,) float32]) -> (%9 [(3,) float32])\n"
            "  }");
  EXPECT_EQ(g.outputs()[0], out);
  EXPECT_TRUE(Interpreter(ir).evaluate(g, inputs)[0].same_bits(before));
}

TEST(DecomposeSum, ReadsTheVersionsThatTheSumRead) {
  Ir ir;
  Graph& g = ir.create_graph(
      "f",
      [](Graph&, Tensor x) {
        const Tensor a = ops::tanh(x);
        const Tensor b = ops::tanh(a);
        ops::add_(a, x);
        const Tensor s = ops::add_n({a, b, ops::add_n({b, x, a}), ops::add_n({b})});
        ops::add_(a, s);
        return ops::add_n({a, s, x});
      },
      f32_spec({3}));
  const std::vector<HostTensor> inputs{random_array({3}, 1).cast(f32)};
  const HostTensor before = Interpreter(ir).evaluate(g, inputs)[0];
  decompose_sum(g);
  verify(ir);
  for (const Op& op : g.ops()) EXPECT_NE(op.def->type, "Sum");
  EXPECT_TRUE(Interpreter(ir).evaluate(g, inputs)[0].same_bits(before));
}

}  // namespace
}  // namespace sluice::transforms
