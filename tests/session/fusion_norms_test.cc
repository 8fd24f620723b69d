// As fusion_test.cc, for norms.

#include "fusion_program.h"
#include "sluice/ops/ops.h"

namespace sluice::test {
namespace {

class Norms : public Fusion {
 protected:
  Tensor channels(int64_t n, const std::string& name) { return variable({n}, name); }
};

TEST_F(Norms, BatchNormInferenceJoinsTheConvolution) {
  const Tensor y = ops::conv(input({2, 3, 9, 7}), variable({6, 3, 3, 3}, "w"), {.padding = {1, 1}});
  const Tensor variance = ops::abs(channels(6, "variance"));
  show(ops::relu(ops::batch_norm_inference(y, channels(6, "weight"), channels(6, "bias"),
                                           channels(6, "mean"), variance)));
  const Effect effect = check();
  EXPECT_EQ(effect.fused, 1);
  EXPECT_EQ(effect.max, 5) << "conv, sub, mul, add, relu";
}

TEST_F(Norms, BatchNormInferenceStaysWhereNothingJoinsIt) {
  const Tensor variance = ops::abs(channels(6, "variance"));
  show(ops::batch_norm_inference(input({2, 6, 5}), channels(6, "weight"), channels(6, "bias"),
                                 channels(6, "mean"), variance));
  EXPECT_EQ(check().fused, 0);
}

TEST_F(Norms, LayerNormJoinsTheOpsAroundIt) {
  const Tensor x = input({3, 7, 50}) + input({3, 7, 50});
  show(ops::gelu(ops::layer_norm(x, channels(50, "weight"), channels(50, "bias"))));
  const Effect effect = check();
  EXPECT_EQ(effect.fused, 1);
  EXPECT_EQ(effect.max, 3);
}

TEST_F(Norms, GradientsHaveTheBitsOfTheInterpreter) {
  differentiate({variable({4, 6, 5, 3}, "x"), channels(6, "a"), channels(6, "b")},
                [](const Tensors& t) { return ops::batch_norm(t[0], t[1], t[2]); });
  differentiate({variable({4, 6, 5, 3}, "x1"), channels(6, "a1"), channels(6, "b1")},
                [](const Tensors& t) {
                  return Tensors{ops::group_norm(ops::relu(t[0]), t[1], t[2], {.groups = 2})};
                });
  differentiate({variable({41, 30}, "x2"), channels(30, "a2"), channels(30, "b2")},
                [](const Tensors& t) { return Tensors{ops::layer_norm(t[0] * t[0], t[1], t[2])}; });
  check();
}

}  // namespace
}  // namespace sluice::test
