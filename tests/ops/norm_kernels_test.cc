// Compares the kernels of norms with their reference kernels on random shapes: bit for bit, on
// every instruction set, with each operand between guard pages.

#include <gtest/gtest.h>

#include <map>

#include "kernel_trial.h"
#include "sluice/ir/op_def.h"
#include "sluice/ops/normalization.h"

namespace sluice::cpu {
namespace {

int64_t pick(std::mt19937& random, int64_t min, int64_t max) {
  return std::uniform_int_distribution<int64_t>(min, max)(random);
}

/// Returns a shape (batch, channels, spatial…) of at most about 30,000 elements. Planes of one
/// element, odd sizes, and more channels or samples than one call takes are frequent.
Shape draw_planes(std::mt19937& random) {
  static constexpr int64_t kSizes[] = {1, 1, 2, 7, 15, 16, 17, 49, 64, 130};
  std::vector<int64_t> dims{pick(random, 1, 9), pick(random, 1, 24)};
  if (random() % 4 == 0) dims[random() % 2] = pick(random, 60, 140);
  const auto axes = pick(random, 0, 3);
  for (int64_t a = 0; a < axes; ++a) {
    const int64_t size = kSizes[random() % std::size(kSizes)];
    if (Shape(dims).elements() * size <= 30000) dims.push_back(size);
  }
  return Shape(dims);
}

void add_vectors(Case& c, int64_t n, int64_t count) {
  for (int64_t i = 0; i < count; ++i) c.inputs.push_back(f32_spec({n}));
}

Case draw_layer_norm(std::mt19937& random, bool gradient) {
  const int64_t cols = random() % 8 == 0 ? pick(random, 1000, 5000) : pick(random, 1, 70);
  const Shape shape{pick(random, 1, 4), pick(random, 1, 12), cols};
  const ops::LayerNormOptions o{.epsilon = random() % 2 == 0 ? 1e-5 : 0.5};
  Case c{gradient ? &ops::layer_norm_grad_def() : &ops::layer_norm_def(), to_attrs(o), {}, {}, {}};
  c.inputs.assign(gradient ? 2 : 1, f32_spec(shape));
  add_vectors(c, cols, pick(random, 0, gradient ? 1 : 2));
  return c;
}

Case draw_rms_norm(std::mt19937& random, bool gradient) {
  const int64_t cols = random() % 8 == 0 ? pick(random, 1000, 5000) : pick(random, 1, 70);
  const Shape shape{pick(random, 1, 4), pick(random, 1, 12), cols};
  const ops::RmsNormOptions o{.epsilon = random() % 2 == 0 ? 1e-5 : 0.5};
  Case c{gradient ? &ops::rms_norm_grad_def() : &ops::rms_norm_def(), to_attrs(o), {}, {}, {}};
  c.inputs.assign(gradient ? 2 : 1, f32_spec(shape));
  add_vectors(c, cols, pick(random, 0, 1));
  return c;
}

Case draw_group_norm(std::mt19937& random, bool gradient) {
  Shape shape = draw_planes(random);
  int64_t groups = pick(random, 1, shape[1]);
  while (shape[1] % groups != 0) --groups;
  // A single value per group is refused, so add rows.
  if (shape.elements() == groups) shape[0] += 1;
  const ops::GroupNormOptions o{.groups = groups};
  Case c{gradient ? &ops::group_norm_grad_def() : &ops::group_norm_def(), to_attrs(o), {}, {}, {}};
  c.inputs.assign(gradient ? 2 : 1, f32_spec(shape));
  add_vectors(c, shape[1], pick(random, 0, gradient ? 1 : 2));
  return c;
}

Case draw_batch_norm(std::mt19937& random, const OpDef& def) {
  Shape shape = draw_planes(random);
  if (shape.elements() == shape[1]) shape[0] += 1;  // One value for each channel is refused.
  const bool gradient = &def == &ops::batch_norm_grad_def();
  const Attrs options = gradient
                            ? to_attrs(ops::BatchNormGradOptions{.training = random() % 4 != 0})
                            : to_attrs(ops::BatchNormOptions{.epsilon = 1e-3});
  Case c{&def, options, {}, {}, {}};
  c.inputs.assign(gradient ? 2 : 1, f32_spec(shape));
  add_vectors(c, shape[1], &def == &ops::batch_norm_def() ? 0 : 2);
  add_vectors(c, shape[1], pick(random, 0, gradient ? 1 : 2));
  return c;
}

Case draw_case(std::mt19937& random) {
  switch (random() % 9) {
    case 0:
      return draw_layer_norm(random, false);
    case 1:
      return draw_layer_norm(random, true);
    case 2:
      return draw_group_norm(random, false);
    case 3:
      return draw_group_norm(random, true);
    case 4:
      return draw_batch_norm(random, ops::batch_norm_def());
    case 5:
      return draw_batch_norm(random, ops::batch_norm_inference_def());
    case 6:
      return draw_rms_norm(random, false);
    case 7:
      return draw_rms_norm(random, true);
    default:
      return draw_batch_norm(random, ops::batch_norm_grad_def());
  }
}

/// Runs a case on every instruction set, and returns the key of its kernel.
std::string_view check(Case& c, std::mt19937& random) {
  const bool has_variance =
      c.def == &ops::batch_norm_inference_def() || c.def == &ops::batch_norm_grad_def();
  static const Sample any;
  static const Sample positive{.domain = {0.01, 2}};
  c.sample = has_variance ? &positive : &any;
  c.random_bits = random() % 8 == 0;  // A sum with such elements is rarely finite.
  static constexpr DType kDTypes[] = {f32, f32, f32, f16, bf16};
  const DType dtype = kDTypes[random() % std::size(kDTypes)];
  for (TensorSpec& spec : c.inputs) spec.dtype = dtype;
  c.outputs = c.def->infer(OpView(*c.def, c.attrs, c.inputs));
  Trial trial(c, random);
  for (const Isa isa : tested_isas()) {
    set_isa(isa);
    EXPECT_EQ(trial.run(random() % 2 == 0), "") << to_string(isa) << " " << c.text();
  }
  set_isa(detect_isa());
  return kernel_of(c.view()).key;
}

TEST(NormKernels, HaveTheBitsOfTheReferenceOnRandomShapes) {
  std::mt19937 random(17);
  std::map<std::string_view, int> runs;
  for (int i = 0; i < 1800 && !HasFailure(); ++i) {
    Case c = draw_case(random);
    ++runs[check(c, random)];
  }
  EXPECT_GT(runs["cpu.rows"], 300);
  EXPECT_GT(runs["cpu.layer_norm"], 150);
  EXPECT_GT(runs["cpu.rms_norm"], 150);
  EXPECT_GT(runs["cpu.group_norm"], 300);
  EXPECT_GT(runs["cpu.batch_norm"], 500);
}

// Sums of more elements than a chunk, over rows, groups, planes and samples.
TEST(NormKernels, HaveTheBitsOfTheReferenceInChunks) {
  std::mt19937 random(18);
  const auto run = [&](const OpDef& def, const Shape& shape, int tensors, int64_t n, int vectors) {
    Case c{&def, def.options, {}, {}, {}};
    c.inputs.assign(static_cast<size_t>(tensors), f32_spec(shape));
    add_vectors(c, n, vectors);
    EXPECT_NE(check(c, random), "cpu.reference");
  };
  run(ops::layer_norm_def(), {2, 150001}, 1, 150001, 2);
  run(ops::layer_norm_grad_def(), {2, 150001}, 2, 150001, 1);
  run(ops::rms_norm_def(), {2, 150001}, 1, 150001, 1);
  run(ops::rms_norm_grad_def(), {2, 150001}, 2, 150001, 1);
  run(ops::group_norm_def(), {1, 3, 50001}, 1, 3, 2);
  run(ops::group_norm_grad_def(), {1, 2, 70001}, 2, 2, 1);
  for (const Shape& shape : {Shape{2, 2, 70001}, Shape{140001, 2}, Shape{65536, 1, 2}}) {
    run(ops::batch_norm_def(), shape, 1, shape[1], 2);
    run(ops::batch_norm_grad_def(), shape, 2, shape[1], 3);
  }
}

}  // namespace
}  // namespace sluice::cpu
