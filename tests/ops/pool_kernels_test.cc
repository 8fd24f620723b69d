// Compares the pool kernels with the reference kernels on random shapes and windows: the same bits
// on every instruction set, and only the bytes of each task are touched.

#include <gtest/gtest.h>

#include <limits>

#include "kernel_trial.h"
#include "sluice/ir/op_def.h"
#include "sluice/ops/pool_shape.h"
#include "sluice/ops/reduction_grads.h"

namespace sluice::cpu {
namespace {

using ops::AveragePoolGradOptions;
using ops::AveragePoolOptions;
using ops::MaxPoolGradOptions;
using ops::PadType;
using ops::PoolOptions;

constexpr int kShapes = 1000;

class Draw {
 public:
  explicit Draw(uint32_t seed) : random_(seed) {}
  int64_t below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }
  int64_t between(int64_t low, int64_t high) { return low + below(high - low + 1); }
  bool once_in(int64_t n) { return below(n) == 0; }
  std::mt19937& random() { return random_; }

 private:
  std::mt19937 random_;
};

/// A pool that the shape rule accepts.
struct Windows {
  Shape x;
  PoolOptions options;
  bool count_padding;
  int64_t divisor;
};

Windows draw_windows(Draw& draw) {
  while (true) {
    const auto axes = static_cast<size_t>(draw.between(1, 3));
    std::vector<int64_t> x{draw.once_in(20) ? 0 : draw.between(1, 3), draw.between(1, 4)};
    const int64_t max[] = {300, 40, 9};
    Windows w{{}, {}, draw.once_in(2), draw.once_in(4) ? 7 : 0};
    PoolOptions& o = w.options;
    const bool is_whole = draw.once_in(10);
    for (size_t a = 0; a < axes; ++a) {
      x.push_back(draw.between(1, max[axes - 1]));
      o.kernel.push_back(is_whole || draw.once_in(12) ? x.back()
                         : draw.once_in(3)            ? 2
                                           : draw.between(1, std::min<int64_t>(x.back(), 6)));
      o.stride.push_back(draw.once_in(3) ? 2 : draw.between(1, 7));
      o.dilation.push_back(draw.once_in(4) ? draw.between(1, 3) : 1);
    }
    if (is_whole) {
      o.dilation.clear();
    } else if (draw.once_in(2)) {
      for (size_t a = 0; a < axes * (draw.once_in(2) ? 2 : 1); ++a)
        o.padding.push_back(draw.between(0, o.kernel[a % axes] / 2));
    } else {
      o.pad_type = static_cast<PadType>(draw.below(4));
    }
    o.ceil_mode = draw.once_in(2);
    w.x = Shape(x);
    try {
      ops::pool_shape({w.x, f32, {}}, o, "draw");
      return w;
    } catch (const Error&) {
      // The windows do not fit. Draw again.
    }
  }
}

/// Returns numbers with many ties, zeros of both signs, and sometimes NaN, infinity and denormals.
HostTensor draw_values(const Shape& shape, Draw& draw) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const float rare[] = {
      0.0f, -0.0f, kInf, -kInf, 1e-40f, -1e-40f, std::numeric_limits<float>::quiet_NaN()};
  const bool has_rare = draw.once_in(2);
  const bool is_coarse = draw.once_in(2);
  const bool is_lowest = draw.once_in(12);
  HostTensor t(f32_spec(shape));
  for (float& v : t.as<float>()) {
    v = is_coarse ? static_cast<float>(draw.between(-2, 2)) : any_float(draw.random());
    if (has_rare && draw.once_in(8)) v = rare[draw.below(std::size(rare))];
    if (is_lowest) v = -kInf;
  }
  return t;
}

template <typename Options, typename Base>
Attrs gradient_options(const Base& base, const Shape& x) {
  Options o;
  static_cast<Base&>(o) = base;
  o.shape = x;
  return to_attrs(o);
}

struct Counts {
  std::string_view key;  // The kernel that is compared.
  int fast = 0, slow = 0;
};

void compare(const OpDef& def, const Attrs& attrs, std::vector<HostTensor> inputs, Draw& draw,
             Counts& counts) {
  Sample sample;
  Case c{&def, attrs, {}, {}, &sample};
  for (HostTensor& t : inputs) {
    c.inputs.push_back(t.spec());
    sample.values.emplace_back(std::move(t));
  }
  c.outputs = def.infer(OpView(def, attrs, c.inputs));
  const bool is_fast = kernel_of(c.view()).key == counts.key;
  (is_fast ? counts.fast : counts.slow) += 1;
  if (!is_fast) return;  // The reference kernel runs it.
  Trial trial(c, draw.random());
  for (const Isa isa : tested_isas()) {
    set_isa(isa);
    ASSERT_EQ(trial.run(false), "") << to_string(isa) << " " << c.text();
  }
}

HostTensor run(const OpDef& def, const Attrs& attrs, const std::vector<HostTensor>& inputs) {
  return run_op(def, attrs, inputs, Precision::kFloat)[0];
}

TEST(PoolKernels, HaveTheBitsOfTheReferenceForAnyWindows) {
  Draw draw(5);
  Counts counts{"cpu.pool"};
  for (int i = 0; i < kShapes && !testing::Test::HasFatalFailure(); ++i) {
    const Windows w = draw_windows(draw);
    const PoolOptions& o = w.options;
    const AveragePoolOptions average{o.kernel,    o.stride,   o.padding,       o.dilation,
                                     o.ceil_mode, o.pad_type, w.count_padding, w.divisor};
    const HostTensor x = draw_values(w.x, draw);
    HostTensor taps = run(ops::max_pool_taps_def(), to_attrs(o), {x});
    const HostTensor grad = draw_values(taps.shape(), draw);
    if (draw.once_in(3)) {  // Numbers that no window has change nothing.
      for (std::byte& b : taps.bytes()) b = static_cast<std::byte>(draw.below(256));
    }
    compare(ops::max_pool_def(), to_attrs(o), {x}, draw, counts);
    compare(ops::max_pool_taps_def(), to_attrs(o), {x}, draw, counts);
    compare(ops::average_pool_def(), to_attrs(average), {x}, draw, counts);
    compare(ops::max_pool_grad_def(), gradient_options<MaxPoolGradOptions>(o, w.x), {grad, taps},
            draw, counts);
    compare(ops::average_pool_grad_def(), gradient_options<AveragePoolGradOptions>(average, w.x),
            {grad}, draw, counts);
  }
  set_isa(detect_isa());
  EXPECT_GT(counts.fast, 4 * kShapes);
  EXPECT_GT(counts.slow, 0);
  std::cout << counts.fast << " pools, " << counts.slow << " of the reference kernel\n";
}

TEST(PoolKernels, SpreadTheGradientOfAGlobalAverage) {
  Draw draw(6);
  Counts counts{"cpu.reduce_grad"};
  for (int i = 0; i < 100 && !testing::Test::HasFatalFailure(); ++i) {
    const Shape x{draw.between(1, 40), draw.between(1, 40), draw.between(1, 9), draw.between(1, 9)};
    const auto o = ops::ReduceGradOptions{.axes = {2, 3}, .keepdims = true, .shape = x};
    compare(ops::reduce_mean_grad_def(), to_attrs(o), {draw_values({x[0], x[1], 1, 1}, draw)}, draw,
            counts);
  }
  set_isa(detect_isa());
  EXPECT_EQ(counts.fast, 100);
}

}  // namespace
}  // namespace sluice::cpu
