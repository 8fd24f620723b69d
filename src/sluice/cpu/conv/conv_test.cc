#include <gtest/gtest.h>

#include <random>

#include "sluice/cpu/conv/conv_op.h"
#include "sluice/cpu/layout/layouts.h"
#include "sluice/cpu/simd/kernel_test_util.h"
#include "sluice/ir/op_def.h"
#include "sluice/ops/op.h"

namespace sluice::cpu {
namespace {

using Buffer = GuardedBuffer<float>;

/// A random operator on random shapes. Its operands and its result are between guard pages.
struct Case {
  Layout weight;  ///< Layout of the weight or of its gradient.
  const OpDef* def = nullptr;
  Attrs attrs;
  std::vector<TensorSpec> inputs;
  TensorSpec output;
  OpView view() const { return OpView(*def, attrs, inputs, {&output, 1}); }
};

class RandomCases {
 public:
  explicit RandomCases(uint32_t seed) : random_(seed) {}
  std::mt19937& random() { return random_; }

  Case next() {
    Case c;
    switch (number(0, 2)) {
      case 0:
        c = conv_case();
        break;
      case 1:
        c = transpose_case();
        break;
      default:
        c = weight_grad_case();
    }
    if (chance(2)) c.weight = in_taps();
    c.output = c.def->infer(OpView(*c.def, c.attrs, c.inputs))[0];
    return c;
  }

 private:
  int64_t number(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }
  bool chance(int64_t of) { return number(1, of) == 1; }

  /// Draws the shapes of x and w and the options that conv() has.
  void draw() {
    axes_ = chance(4) ? number(1, 3) : 2;
    // Large planes are packed in parts, small ones together.
    const bool large = axes_ == 2 && chance(8);
    const int64_t min = large ? 16 : 1;
    const int64_t max = large ? 20 : axes_ == 3 ? 6 : axes_ == 2 ? 14 : 70;
    // Many small groups, as depthwise convolutions have.
    const bool grouped = chance(4), small_groups = grouped && chance(2);
    options_ = {.groups = small_groups ? number(2, 40) : grouped ? number(2, 4) : 1};
    int64_t x_channels = chance(4) ? number(1, 32) : number(1, 6);
    int64_t y_channels = chance(8) ? number(1, 70) : number(1, 8);
    if (small_groups) {
      x_channels = chance(3) ? number(1, 5) : 1;
      y_channels = chance(3) ? number(1, 5) : 1;
    }
    x_ = {chance(20) ? 0 : number(1, 4), options_.groups * x_channels};
    w_ = {options_.groups * y_channels, x_channels};
    const bool strided = chance(3), dilated = chance(4), padded = chance(2);
    for (int64_t a = 0; a < axes_; ++a) {
      const int64_t size = number(min, max),
                    tap = chance(8) ? size : number(1, std::min<int64_t>(5, size));
      options_.stride.push_back(strided ? number(1, 4) : 1);
      options_.dilation.push_back(dilated ? number(1, 3) : 1);
      options_.padding.push_back(padded ? number(0, 3) : 0);
      x_.push_back(size);
      w_.push_back(tap);
    }
    for (int64_t a = 0; a < axes_; ++a) {
      const auto at = static_cast<size_t>(a);
      options_.padding.push_back(padded ? number(0, 3) : 0);
      const int64_t padded_size =
          x_[at + 2] + options_.padding[at] + options_.padding[options_.padding.size() - 1];
      if (options_.dilation[at] * (w_[at + 2] - 1) + 1 > padded_size) options_.dilation[at] = 1;
    }
  }

  Case conv_case() {
    draw();
    return {
        {}, &ops::conv_def(), to_attrs(options_), {f32_spec(Shape(x_)), f32_spec(Shape(w_))}, {}};
  }

  Case weight_grad_case() {
    const Case conv = conv_case();
    const TensorSpec y = conv.def->infer(OpView(*conv.def, conv.attrs, conv.inputs))[0];
    const ops::ConvWeightGradOptions o{.kernel = {w_.begin() + 2, w_.end()},
                                       .stride = options_.stride,
                                       .padding = options_.padding,
                                       .dilation = options_.dilation,
                                       .groups = options_.groups};
    return {{}, &ops::conv_weight_grad_def(), to_attrs(o), {conv.inputs[0], y}, {}};
  }

  /// The gradient of the input of a convolution.
  Case transpose_case() {
    const Case conv = conv_case();
    const Shape y = conv.def->infer(OpView(*conv.def, conv.attrs, conv.inputs))[0].shape;
    ops::ConvTransposeOptions o{.stride = options_.stride,
                                .padding = options_.padding,
                                .dilation = options_.dilation,
                                .groups = options_.groups};
    const auto axes = static_cast<size_t>(axes_);
    for (size_t a = 0; a < axes; ++a) {
      const int64_t covered = (y[static_cast<int>(a) + 2] - 1) * o.stride[a] +
                              o.dilation[a] * (w_[a + 2] - 1) + 1 - o.padding[a] -
                              o.padding[axes + a];
      o.output_padding.push_back(x_[a + 2] - covered);
    }
    return {{}, &ops::conv_transpose_def(), to_attrs(o), {f32_spec(y), conv.inputs[1]}, {}};
  }

  std::mt19937 random_;
  int64_t axes_ = 2;
  ops::ConvOptions options_;
  std::vector<int64_t> x_, w_;
};

/// An array of random numbers that ends or begins at a guard page.
struct RandomBuffer : Buffer {
  RandomBuffer(int64_t n, std::mt19937& random)
      : Buffer(n, random() % 2 == 0 ? Against::kBegin : Against::kEnd) {
    for (float& x : *this) x = any_float(random);
  }
};

/// An epilogue that negates its elements, which must be at their position in the result.
struct Negation {
  const float* result;
  int64_t plane;
  static void run(const void* state, float* c, int64_t c_stride, int64_t row, int64_t rows,
                  int64_t col, int64_t cols) {
    const auto& n = *static_cast<const Negation*>(state);
    ASSERT_EQ(c, n.result + row * n.plane + col);
    ASSERT_EQ(c_stride, n.plane);
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < cols; ++j) c[i * c_stride + j] = -c[i * c_stride + j];
  }
};

/// Computes conv or conv_transpose task by task. The result is negated twice: by the epilogue of a
/// plan that may have one, and then here.
void run_correlations(const Case& c, const float* x, const float* w, float* y, Isa isa) {
  const ops::ConvSizes sizes = ops::conv_sizes(c.view());
  const ConvPlan plan = c.def == &ops::conv_def()
                            ? plan_conv(sizes, weight_steps(sizes, c.weight))
                            : plan_conv_transpose(sizes, weight_steps(sizes, c.weight));
  const ConvCut cut = cut_conv(plan);
  Buffer workspace(conv_workspace_bytes(plan) / 4);
  const Negation negation{y, plan.correlations[0].result_plane};
  CorrelationOperands operands{x, w, y};
  if (!plan.interleaves()) operands.epilogue = {Negation::run, &negation};
  for (int64_t task = 0; task < cut.tasks; ++task)
    run_conv_task(plan, cut, operands, task, workspace.data(), isa);
  for (int64_t i = 0; !plan.interleaves() && i < c.output.elements(); ++i) y[i] = -y[i];
}

void run_weight_grad(const Case& c, const float* x, const float* y, float* w, Isa isa) {
  const ops::ConvSizes sizes = ops::conv_sizes(c.view());
  const WeightCorrelation plan = plan_conv_weight_grad(sizes, weight_steps(sizes, c.weight));
  const WeightCut cut = cut_weight_grad(plan);
  Buffer workspace(correlate_weights_workspace_bytes(plan, cut.steps) / 4);
  for (int64_t task = 0; task < cut.tasks; ++task)
    correlate_weights(plan, {x, y, w}, part_of(cut, plan, task), workspace.data(), isa);
}

/// Returns the elements of a row-major tensor in a layout.
std::vector<float> in_layout(const TensorSpec& spec, const Layout& layout, const float* rows) {
  std::vector<float> out(static_cast<size_t>(spec.elements()));
  write_elements(spec, layout, std::as_writable_bytes(std::span(out)).data(), 0,
                 std::as_bytes(std::span(rows, out.size())));
  return out;
}

/// Compares the result of a case with the reference, bit for bit.
void check(const Case& c, const std::vector<Isa>& isas, std::mt19937& random) {
  RandomBuffer a(c.inputs[0].elements(), random);
  RandomBuffer b(c.inputs[1].elements(), random);
  std::vector<float> expected(static_cast<size_t>(c.output.elements()));
  void* const operands[] = {a.data(), b.data(), expected.data()};
  const FlushToZero flush;
  c.def->reference_float(KernelArgs(c.view(), operands));
  const bool weight_grad = c.def == &ops::conv_weight_grad_def();
  if (weight_grad) {
    expected = in_layout(c.output, c.weight, expected.data());
  } else {
    const std::vector<float> weight = in_layout(c.inputs[1], c.weight, b.data());
    std::copy(weight.begin(), weight.end(), b.begin());
  }
  for (const Isa isa : isas) {
    RandomBuffer result(c.output.elements(), random);
    float* const out = result.data();
    if (weight_grad) {
      run_weight_grad(c, a.data(), b.data(), out, isa);
    } else {
      run_correlations(c, a.data(), b.data(), out, isa);
    }
    const int64_t at = first_difference(out, expected.data(), c.output.elements());
    ASSERT_EQ(at, -1) << c.def->name << " " << to_string(c.inputs[0]) << " "
                      << to_string(c.inputs[1]) << " {" << to_string(c.attrs) << "} "
                      << to_string(c.weight) << " on " << to_string(isa) << ": " << out[at]
                      << ", not " << expected[static_cast<size_t>(at)];
  }
}

TEST(Conv, HasTheBitsOfTheReferenceForRandomShapes) {
  constexpr int kCases = 2400;
  RandomCases cases(17);
  for (int i = 0; i < kCases; ++i) {
    const Case c = cases.next();
    if (c.output.elements() == 0) continue;
    SCOPED_TRACE(i);
    std::vector<Isa> isas = tested_isas();
    if (i % 8 != 0) std::erase(isas, Isa::kBase);
    check(c, isas, cases.random());
    if (HasFatalFailure()) return;
  }
}

/// Planes so large that kernels for small groups pack them in several bands, and tasks that are
/// ranges of positions.
TEST(Conv, HasTheBitsOfTheReferenceForSmallGroupsOfLargePlanes) {
  std::mt19937 random(18);
  for (const int64_t groups : {3, 17}) {
    for (const int64_t stride : {1, 2, 3}) {
      const ops::ConvOptions options{
          .stride = {stride, stride}, .padding = {1, 2}, .groups = groups};
      const TensorSpec x = f32_spec(Shape({2, groups, 130, 115}));
      const TensorSpec w = f32_spec(Shape({groups, 1, 3, 5}));
      Case forward{in_taps(), &ops::conv_def(), to_attrs(options), {x, w}, {}};
      forward.output = forward.def->infer(OpView(*forward.def, forward.attrs, forward.inputs))[0];
      check(forward, tested_isas(), random);
      const ops::ConvWeightGradOptions gradient{
          .kernel = {3, 5}, .stride = options.stride, .padding = options.padding, .groups = groups};
      check({in_taps(), &ops::conv_weight_grad_def(), to_attrs(gradient), {x, forward.output}, w},
            tested_isas(), random);
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace sluice::cpu
