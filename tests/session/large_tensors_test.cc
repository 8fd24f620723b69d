// Tensors larger than the caches: kernels store their elements without caching them. Results have
// the interpreter's bits, in place and not.

#include "fusion_program.h"

namespace sluice::test {
namespace {

using LargeTensors = Fusion;

// A little over 8 MiB. Blocks do not divide the rows and columns.
constexpr int64_t kRows = 513, kCols = 4099;

void expect_same_bits(property::RandomProgram& program) {
  program.runs = {"main"};
  const Outcome want = interpreted(program);
  for (const int threads : {1, 3}) {
    const property::Way way{.threads = threads};
    const std::string difference = property::difference(want, executed(program, way));
    EXPECT_TRUE(difference.empty()) << way.text() << ": " << difference.substr(0, 300);
  }
}

TEST_F(LargeTensors, OfElementwiseChains) {
  const Tensor a = variable({kRows, kCols}, "a");
  const Tensor column = variable({kRows, 1}, "column");
  const Tensor row = variable({kCols}, "row");
  show(ops::relu((a + row) * column));
  const Tensor kept = ops::tanh(a * 0.5);
  show(kept);
  show(ops::max(kept + 1.0, {.axes = {0}}));
  ops::add_(a, kept);
  expect_same_bits(program);
}

TEST_F(LargeTensors, OfSingleOperators) {
  const Tensor a = variable({kRows, kCols}, "a");
  show(ops::gelu(a));
  show(ops::cast(ops::gelu(ops::cast(a, bf16)), f32));
  ops::relu_(a);
  expect_same_bits(program);
}

TEST_F(LargeTensors, OfCastsAndRows) {
  const Tensor a = variable({2 * kRows, kCols}, "a");
  const Tensor half = ops::cast(a, f16);
  show(ops::cast(half, f32));
  show(half);
  show(ops::softmax(a));
  show(ops::log_softmax(a));
  expect_same_bits(program);
}

}  // namespace
}  // namespace sluice::test
