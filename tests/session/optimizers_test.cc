// Updates of every optimizer, after the products that compute gradients. They have the
// interpreter's bits in every way of compiling.
#include "../support/custom_updates.h"
#include "fusion_program.h"

namespace sluice::test {
namespace {

using Optimizers = Fusion;

TEST_F(Optimizers, HaveTheInterpretersBitsEveryWay) {
  // Returns a hyperparameter in [0, 1).
  const auto tensor = [&] { return ops::abs(ops::tanh(input({}))); };
  const std::pair<const char*, nn::Optimizer> forms[] = {
      {"sgd", nn::Optimizer::sgd({.momentum = 0.9, .weight_decay = 0.01})},
      {"dampened", nn::Optimizer::sgd({.momentum = 0.9, .dampening = 0.5})},
      {"nesterov",
       nn::Optimizer::sgd({.momentum = 0.9, .weight_decay = 0.01, .form = nn::SgdForm::kNesterov})},
      {"rmsprop", nn::Optimizer::rmsprop({.momentum = 0.9, .centering = nn::Centering::kOn})},
      {"rmsprop_tf",
       nn::Optimizer::rmsprop(
           {.weight_decay = 0.01, .momentum = 0.9, .form = nn::RmspropForm::kTensorFlow})},
      {"tensors_sgd", nn::Optimizer::sgd({.momentum = tensor(),
                                          .weight_decay = ops::cast(tensor(), f16),
                                          .dampening = tensor()})},
      {"tensors_adamw", nn::Optimizer::adamw({.beta1 = tensor(),
                                              .beta2 = ops::cast(tensor(), f16),
                                              .epsilon = tensor() + 0.1,
                                              .weight_decay = tensor()})},
      {"tensors_rmsprop", nn::Optimizer::rmsprop({.alpha = tensor(),
                                                  .epsilon = ops::cast(tensor() + 0.1, f16),
                                                  .weight_decay = tensor(),
                                                  .momentum = tensor(),
                                                  .form = nn::RmspropForm::kTensorFlow})},
      {"adam", nn::Optimizer::adam({.weight_decay = 0.01})},
      {"adam_f16", nn::Optimizer::adam_f16()},
      {"adamw", nn::Optimizer::adamw()},
      {"adamax", nn::Optimizer::adamax({.weight_decay = 0.01})},
      {"lamb", nn::Optimizer::lamb()},
      {"lion", nn::Optimizer::custom(Lion())},
      {"normalized", nn::Optimizer::custom(NormalizedSgd(), 0.1)},
      {"lamb_f16", nn::Optimizer::lamb({.bias_correction = nn::BiasCorrection::kOff,
                                        .first_order_dtype = f16,
                                        .max_weight_norm = 2})}};
  const Tensor x = input({12, 20});
  for (auto [name, optimizer] : forms) {
    const Tensor w = variable({20, 36}, fmt::format("{}.weight", name));
    const Tensor b = variable({36}, fmt::format("{}.bias", name));
    const Tensor y = ops::gelu(ops::matmul(x, w) + b);
    const Tensor dy = ops::tanh(y);
    nn::UpdateOptions options{.remote_state = std::string_view(name) == "lamb"};
    if (std::string_view(name) == "adamax") options.max_grad_norm = 0.5;
    optimizer.apply(main, nn::NamedTensors::from_dict({{"w", w}, {"b", b}}),
                    nn::NamedTensors::from_dict({{"w", ops::matmul(x, dy, kOfTransposed)},
                                                 {"b", ops::sum(dy, {.axes = {0}})}}),
                    0.0625, options);
    show(y);
  }
  const Effect effect = check();
  EXPECT_EQ(effect.layouts.at("adamax.weight"), "panels32");
  EXPECT_GE(effect.max, 3);
}

// A step reads and updates a few rows of a table, some of them twice.
TEST_F(Optimizers, SparseRowsOfATable) {
  const Tensor rows =
      main.constant(HostTensor::of<int32_t>({2, 3}, i32, {0, 39, 3, 3, 40, -1}), "rows");
  const Tensor table = variable({40, 24}, "table");
  const Tensor half =
      main.variable({{24, 40}, f16, {}}, Initializer::uniform(-1, 1).keyed({1, 2}), "half");
  const Tensor w = variable({24, 8}, "w");
  const Tensor x = ops::gather(table, rows, {.axis = 0, .zero_out_of_range = true});
  const Tensor dy = ops::tanh(ops::matmul(x, w));
  const Tensor dx = ops::matmul(dy, w, kByTransposed);
  const Tensor rate = ops::neg(ops::mean(ops::abs(dx)));
  ops::sparse_accumulate_(table, dx, rows, 0, rate);
  ops::sparse_accumulate_(half, ops::reshape(dx, {24, 6}), ops::flatten(rows), 1, -0.25);
  show(ops::cast(half, f32));
  show(table);
  check();
}

}  // namespace
}  // namespace sluice::test
