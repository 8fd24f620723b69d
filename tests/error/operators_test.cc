// Errors of operators that their samples do not cover: operands and options that only a caller can
// get wrong.

#include <functional>

#include "sluice/base/test_refusals.h"
#include "sluice/sluice.h"

namespace sluice {
namespace {

class Operators : public testing::Test {
 protected:
  Tensor constant(TensorSpec spec, std::string name) {
    return main.constant(HostTensor(std::move(spec)), std::move(name));
  }
  // Returns a definition's options with a new value of one option.
  static Attrs with(const OpDef& def, const std::string& field, AttrValue value) {
    Attrs attrs = def.options;
    for (auto& [name, old] : attrs.items) {
      if (name == field) old = value;
    }
    return attrs;
  }
  static std::function<void()> emit(const OpDef& def, const std::vector<TensorArg>& inputs,
                                    Attrs attrs) {
    return [&def, inputs, attrs] { ops::emit(def, inputs, attrs); };
  }

  Ir ir;
  Graph& main = ir.main_graph();
  Tensor x = constant(f32_spec({2, 3}), "x");
  Tensor n = constant(i32_spec({2}), "n");
  Tensor scalar = constant(f32_spec({}), "scalar");
  Tensor pixels = constant({{2}, u8, {}}, "pixels");
  Tensor mask = constant({{2}, boolean, {}}, "mask");
  Tensor seed = constant({{2}, u32, {}}, "seed");
  Tensor w = main.variable(HostTensor(f32_spec({2, 3})), "w");
};

TEST_F(Operators, RefuseOperandsAndNumbers) {
  expect_refused({
      {"a sum of nothing", [] { ops::add_n({}); },
       "add_n: requires at least one operand, got none"},
      {"a joint of nothing", [] { ops::concat({}); }, "concat"},
      {"an operand of another Ir", [&] { ops::add(x, Ir().main_graph().scalar(1, f32)); },
       "add: tensor 't' belongs to graph main of another Ir, not to main"},
      {"an empty operand", [&] { ops::add(x, Tensor()); }, "add: an operand is an empty handle"},
      {"an empty first operand", [&] { ops::add(Tensor(), x); }, "the handle is empty"},
      {"a number beside integers", [&] { pixels * -3.0; },
       "a number combined with 'pixels', which is (2,) uint8, must be a whole number in [0, 255], "
       "got -3; "
       "cast 'pixels' first"},
      {"a large number beside integers", [&] { n + 3e9; },
       "must be a whole number in [-2147483648, 2147483647], got 3000000000"},
      {"a scalar", [&] { main.scalar(-1, u32, "s"); },
       "scalar 's': must be a whole number in [0, 4294967295] to be uint32, got -1"},
      {"a value of init",
       [&] {
         ops::init(main, {{2}, u8, {}}, 256);
       },
       "init: value must be a whole number in [0, 255] to be uint8, got 256"},
      {"a sum of bytes", [&] { ops::sum(pixels); },
       "sum (C1): x must be int32, uint32, float32, float16 or bfloat16, got (2,) uint8; cast it "
       "first"},
      {"a product of bool", [&] { ops::prod(mask); },
       "prod (C1): x must be int32, uint32, float32, float16 or bfloat16, got (2,) bool"},
      {"a maximum of bool", [&] { ops::max(mask); }, "max (C1): x must be int32, uint32, float32"},
      {"a minimum of bytes", [&] { ops::min(pixels); }, "min (C1): x must be int32, uint32"},
      {"a mean of integers", [&] { ops::mean(n); },
       "mean (C1): x must be float32, float16 or bfloat16, got (2,) int32"},
      {"an increment", [&] { ops::increment_mod(n, 1e12, 7); },
       "increment_mod (C3): increment must be a whole number of at most 2^32 in magnitude, got "
       "1000000000000"},
      {"a modulus", [&] { ops::increment_mod(n, 1, 1e12); },
       "increment_mod (C3): modulus - 1 must be a whole number in [-2147483648, 2147483647] to be "
       "int32, got 999999999999"},
      {"a random shape",
       [&] {
         ops::random_uniform(seed, {2, -1});
       },
       "random_uniform (C1): dimensions of shape must not be negative, got (2, -1)"},
      {"bounds", [&] { ops::random_uniform(seed, {2}, 1, 0); },
       "random_uniform (C3): low 1 is above high 0"},
      {"a deviation", [&] { ops::random_normal(seed, {2}, 0, -1); },
       "random_normal (C3): std must not be negative, got -1"},
      {"no seeds", [&] { ops::split_random_seed(seed, 0); },
       "split_random_seed: n must be greater than 0, got 0"},
  });
}

TEST_F(Operators, RefuseOptionsThatDoNotFitTheirOperands) {
  const OpDef& nll_grad = *ops::find_op("NllGrad");
  const OpDef& max_grad = *ops::find_op("ReduceMaxGrad");
  const OpDef& fold = ops::fold_seed_def();
  const OpDef& scaled_add = *ops::find_op("ScaledAdd");
  expect_refused({
      {"seeds folded with two words", emit(fold, {seed, n, n}, fold.options), "fold_seed"},
      {"two scalars of data",
       emit(fold, {seed, constant(i32_spec({}), "a"), constant(i32_spec({}), "b")}, fold.options),
       "fold_seed (C3): must have at most one operand of data, got 2"},
      {"four operands of a loss's gradient",
       emit(nll_grad, {scalar, n, constant(f32_spec({2, 3}), "p"), constant(f32_spec({2, 3}), "q")},
            with(nll_grad, "classes", int64_t{3})),
       "nll_grad (C5): must have 2 or 3 operands, got 4"},
      {"a maximum that is none",
       emit(max_grad, {scalar, x, x}, with(max_grad, "shape", std::vector<int64_t>{2, 3})),
       "(C3): "},
      {"a hyperparameter that is none",
       emit(scaled_add, {x, x}, with(scaled_add, "operands", std::string("c"))),
       "scaled_add (C3): option operands: must name hyperparameters, each at most once, got 'c'"},
      {"a hyperparameter without an operand",
       emit(scaled_add, {x, x}, with(scaled_add, "operands", std::string("a"))),
       "scaled_add (C3): hyperparameter 'a' requires an operand, got none"},
      {"options of another operator", emit(scaled_add, {x, x}, nll_grad.options),
       "scaled_add: options must be '"},
      {"a constant to be written", [&] { ops::scaled_add_(x, w, 1.0, 1.0); },
       "constant 'x' cannot be written"},
  });
}

}  // namespace
}  // namespace sluice
