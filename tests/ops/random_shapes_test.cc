// Compares the kernels of operator families with the reference kernels on random shapes, axes and
// dtypes, bit for bit, on every instruction set, under guard pages. SLUICE_SHAPES sets the number
// of cases of each family (default: 2000).

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <numeric>

#include "kernel_trial.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/attention.h"
#include "sluice/ops/bitwise.h"
#include "sluice/ops/cast.h"
#include "sluice/ops/compare.h"
#include "sluice/ops/concat.h"
#include "sluice/ops/cumsum.h"
#include "sluice/ops/gather.h"
#include "sluice/ops/indexing.h"
#include "sluice/ops/matmul.h"
#include "sluice/ops/op.h"
#include "sluice/ops/random.h"
#include "sluice/ops/reduction_grads.h"
#include "sluice/ops/reductions.h"
#include "sluice/ops/reshape.h"
#include "sluice/ops/slice.h"
#include "sluice/ops/softmax.h"
#include "sluice/ops/sort.h"
#include "sluice/ops/sparse_accumulate.h"
#include "sluice/ops/strided_matrices.h"
#include "sluice/ops/take_along_axis.h"
#include "sluice/ops/transpose.h"

namespace sluice::cpu {
namespace {

class RandomShapes : public testing::Test {
 protected:
  static int cases() {
    const char* const text = std::getenv("SLUICE_SHAPES");
    return text == nullptr ? 2000 : std::atoi(text);
  }

  int64_t below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint32_t>(n)); }

  // A shape of `least` to `most` axes and at most 20,000 elements. Some axes are long, have one
  // element, or none.
  Shape shape(int least, int most) {
    std::vector<int64_t> dims(static_cast<size_t>(least + below(most - least + 1)));
    int64_t elements = 1;
    for (int64_t& d : dims) {
      const int64_t choice = below(16);
      d = choice == 0 ? below(2) : choice < 3 ? 1 + below(200) : 1 + below(11);
      if (elements * d > 20000) d = 1;
      elements *= std::max<int64_t>(1, d);
    }
    return Shape(dims);
  }
  DType any_dtype() {
    static constexpr DType kAll[] = {f32, f32, f16, bf16, i32, u8, boolean};
    return kAll[below(std::ssize(kAll))];
  }
  DType float_dtype() {
    static constexpr DType kFloats[] = {f32, f32, f16, bf16};
    return kFloats[below(std::ssize(kFloats))];
  }
  // Some of the axes, in random order, possibly counted from the end.
  std::vector<int64_t> some_axes(int rank) {
    std::vector<int64_t> axes;
    for (int a = 0; a < rank; ++a) {
      if (below(2) == 0) axes.push_back(below(2) == 0 ? a : a - rank);
    }
    std::shuffle(axes.begin(), axes.end(), random_);
    return axes;
  }
  ops::SliceOptions slice_of(const Shape& shape) {
    ops::SliceOptions o;
    for (const int64_t dim : shape) {
      const int64_t step = (1 + below(3)) * (below(4) == 0 ? -1 : 1);
      const int64_t start = dim == 0 ? 0 : below(dim);
      const int64_t most = dim == 0 ? 0 : 1 + (step > 0 ? (dim - 1 - start) / step : start / -step);
      o.starts.push_back(start);
      o.steps.push_back(below(2) == 0 ? (step > 0 ? 1 : -1) : step);
      o.sizes.push_back(below(2) == 0 ? most : below(most + 1));
    }
    return o;
  }

  // Requires that some of the cases without a given key ran on vector kernels.
  void expect_fast(int least) { EXPECT_GE(fast_, least); }

  // Runs the op on every instruction set. The kernel's key must be `key` unless that is empty.
  void run(const OpDef& def, Attrs attrs, std::vector<TensorSpec> inputs, std::string_view key,
           const Sample& sample = {}) {
    Case c{&def, std::move(attrs), std::move(inputs), {}, &sample};
    c.outputs = def.infer(c.view());
    if (!key.empty()) {
      ASSERT_EQ(kernel_of(c.view()).key, key) << c.text();
    }
    fast_ += kernel_of(c.view()).key != "cpu.reference";
    Trial trial(c, random_);
    for (const Isa isa : tested_isas()) {
      set_isa(isa);
      ASSERT_EQ(trial.run(below(2) == 0), "") << to_string(isa) << " " << c.text();
    }
    set_isa(detect_isa());
  }

  std::mt19937 random_{static_cast<uint32_t>(cases())};
  int fast_ = 0;
};

TEST_F(RandomShapes, Transposes) {
  for (int i = 0; i < cases() && !HasFatalFailure(); ++i) {
    const Shape x = shape(0, 5);
    ops::TransposeOptions o;
    for (int a = 0; a < x.rank(); ++a) o.permutation.push_back(a);
    std::shuffle(o.permutation.begin(), o.permutation.end(), random_);
    run(ops::transpose_def(), to_attrs(o), {{x, any_dtype(), {}}}, "cpu.move");
  }
}

TEST_F(RandomShapes, Broadcasts) {
  for (int i = 0; i < cases() && !HasFatalFailure(); ++i) {
    const Shape y = shape(0, 5);
    std::vector<int64_t> x;
    for (int a = static_cast<int>(below(y.rank() + 1)); a < y.rank(); ++a)
      x.push_back(below(2) == 0 ? 1 : y[a]);
    run(ops::broadcast_to_def(), to_attrs(ops::ShapeOptions{y}), {{Shape(x), any_dtype(), {}}},
        "cpu.move");
  }
}

TEST_F(RandomShapes, Slices) {
  for (int i = 0; i < cases() && !HasFatalFailure(); ++i) {
    const Shape x = shape(0, 4);
    run(ops::slice_def(), to_attrs(slice_of(x)), {{x, any_dtype(), {}}}, "cpu.move");
  }
}

TEST_F(RandomShapes, UpdatesOfSlices) {
  for (int i = 0; i < cases() && !HasFatalFailure(); ++i) {
    const Shape t = shape(0, 4);
    const ops::SliceOptions o = slice_of(t);
    const Shape y(o.sizes);
    if (below(2) == 0) {
      const DType dtype = any_dtype();
      run(ops::update_slice_def(), to_attrs(o), {{t, dtype, {}}, {y, dtype, {}}},
          "cpu.slice_update");
    } else {
      const ops::SliceGradOptions grad{o.starts, o.sizes, o.steps, t};
      run(ops::slice_grad_def(), to_attrs(grad), {{y, float_dtype(), {}}}, "cpu.slice_update");
    }
  }
}

TEST_F(RandomShapes, UpdatesOfRows) {
  for (int i = 0; i < cases() && !HasFatalFailure(); ++i) {
    const Shape t = shape(1, 4);
    const Shape y(std::vector<int64_t>(t.begin() + 1, t.end()));
    const DType dtype = any_dtype();
    // An index may be outside.
    const auto index = static_cast<int32_t>(below(t[0] + 2)) - 1;
    run(ops::update_row_def(), {}, {{t, dtype, {}}, {y, dtype, {}}, i32_spec({})},
        "cpu.slice_update",
        {.values = {std::nullopt, std::nullopt, HostTensor::of<int32_t>({}, i32, {index})}});
  }
}

TEST_F(RandomShapes, ConcatsAndSplits) {
  for (int i = 0; i < cases() && !HasFatalFailure(); ++i) {
    const Shape x = shape(1, 4);
    const int axis = static_cast<int>(below(x.rank()));
    const DType dtype = any_dtype();
    std::vector<int64_t> sizes;
    std::vector<TensorSpec> parts;
    for (int64_t left = x[axis]; left > 0 || sizes.empty(); left -= sizes.back()) {
      sizes.push_back(below(4) == 0 ? left : below(left + 1));
      Shape part = x;
      part[axis] = sizes.back();
      parts.push_back({part, dtype, {}});
    }
    const int64_t named = below(2) == 0 ? axis : axis - x.rank();
    run(ops::concat_def(), to_attrs(ops::ConcatOptions{named}), parts, "cpu.concat");
    run(ops::split_def(), to_attrs(ops::SplitOptions{sizes, named}), {{x, dtype, {}}},
        "cpu.concat");
  }
}

TEST_F(RandomShapes, Reductions) {
  const OpDef* const defs[] = {&ops::reduce_sum_def(), &ops::reduce_mean_def(),
                               &ops::reduce_max_def(), &ops::reduce_min_def(),
                               &ops::reduce_l1_def(),  &ops::reduce_sum_square_def()};
  for (int i = 0; i < cases() && !HasFatalFailure(); ++i) {
    const Shape x = shape(1, 4);
    if (x.elements() == 0) continue;
    const ops::ReduceOptions o{.axes = some_axes(x.rank()), .keepdims = below(2) == 0};
    run(*defs[below(std::ssize(defs))], to_attrs(o), {{x, float_dtype(), {}}}, "");
  }
  expect_fast(cases() * 3 / 4);
}

TEST_F(RandomShapes, ReductionsOfIntegers) {
  const OpDef* const defs[] = {&ops::reduce_sum_def(), &ops::reduce_prod_def(),
                               &ops::reduce_max_def(), &ops::reduce_min_def()};
  for (int i = 0; i < cases() && !HasFatalFailure(); ++i) {
    const Shape x = shape(0, 5);
    if (x.elements() == 0) continue;
    const ops::ReduceOptions o{.axes = some_axes(x.rank()), .keepdims = below(2) == 0};
    run(*defs[below(std::ssize(defs))], to_attrs(o), {{x, below(2) == 0 ? i32 : u32, {}}},
        "cpu.integer_reduce", {.domain = {-9, 9}});
  }
}

TEST_F(RandomShapes, CastsOfIntegers) {
  for (int i = 0; i < cases() && !HasFatalFailure(); ++i) {
    static constexpr DType kIntegers[] = {i32, u32, u8, boolean};
    const DType from = kIntegers[below(4)], to = kIntegers[below(4)];
    const Shape x = shape(0, 3);
    if (from != to && x.elements() > 0)
      run(ops::cast_def(), to_attrs(ops::CastOptions{to}), {{x, from, {}}}, "cpu.elementwise");
  }
}

TEST_F(RandomShapes, GradientsOfReductions) {
  // Each shape is used for eight operators.
  for (int i = 0; i < cases() / 8 && !HasFatalFailure(); ++i) {
    const Shape x = shape(1, 4);
    if (x.elements() == 0) continue;
    const ops::ReduceOptions o{.axes = some_axes(x.rank()), .keepdims = below(2) == 0};
    const ops::Reduction r(x, o, "test");
    const Attrs attrs =
        to_attrs(ops::ReduceGradOptions{.axes = o.axes, .keepdims = o.keepdims, .shape = x});
    for (const OpDef* def : ops::all_ops()) {
      if (!def->type.starts_with("Reduce") || !def->type.ends_with("Grad")) continue;
      const DType dtype = float_dtype();
      std::vector<TensorSpec> inputs{{r.out, dtype, {}}};
      for (size_t input = 1; input < def->inputs.size(); ++input)
        inputs.push_back({def->inputs[input].name == "x" ? x : r.out, dtype, {}});
      // Few different values, so that elements tie with the maximum.
      Sample sample;
      std::vector<float> values(static_cast<size_t>(x.elements()));
      for (float& v : values) v = static_cast<float>(below(3)) - 1;
      std::vector<float> results(static_cast<size_t>(r.out.elements()), 1);
      for (const InputDef& input : def->inputs) {
        const bool is_x = input.name == "x", is_y = input.name == "y";
        sample.values.push_back(is_x   ? std::optional(HostTensor::of<float>(x, f32, values))
                                : is_y ? std::optional(HostTensor::of<float>(r.out, f32, results))
                                       : std::nullopt);
      }
      if (below(3) == 0) sample.values.clear();
      run(*def, attrs, inputs, "", sample);
    }
  }
  expect_fast(cases() / 2);
}

TEST_F(RandomShapes, GathersAndScatters) {
  for (int i = 0; i < cases() && !HasFatalFailure(); ++i) {
    const Shape x = shape(1, 3), at = shape(0, 2);
    const int axis = static_cast<int>(below(x.rank()));
    const Shape slices = ops::replace_axis(x, axis, at);
    if (slices.elements() > 50000) continue;
    // Some indices are outside.
    std::vector<int32_t> values(static_cast<size_t>(at.elements()));
    for (int32_t& v : values) v = static_cast<int32_t>(below(x[axis] + 3)) - 1;
    const DType index = below(2) == 0 ? i32 : u32;
    const auto indices = HostTensor::of<int32_t>(at, i32, values).cast(index);
    const TensorSpec index_spec{at, index, {}};
    const DType dtype = any_dtype();
    const ops::GatherOptions gather{.axis = axis, .zero_out_of_range = below(2) == 0};
    run(ops::gather_def(), to_attrs(gather), {{x, dtype, {}}, index_spec}, "cpu.gather",
        {.values = {std::nullopt, indices}});
    run(ops::onehot_def(), to_attrs(ops::OnehotOptions{.classes = x[axis], .axis = below(2) - 1}),
        {index_spec, {{2}, dtype, {}}}, "cpu.gather", {.values = {indices, std::nullopt}});
    run(ops::gather_grad_def(), to_attrs(ops::GatherGradOptions{.axis = axis, .size = x[axis]}),
        {{slices, float_dtype(), {}}, index_spec}, "cpu.scatter",
        {.values = {std::nullopt, indices}});
    const bool reads_f = below(2) == 0;
    const ops::SparseAccumulateOptions sparse{
        .axis = axis, .f = 0.75, .operands = reads_f ? "f" : ""};
    const DType summed = float_dtype();
    std::vector<TensorSpec> inputs{{x, summed, {}}, {slices, summed, {}}, index_spec};
    if (reads_f) inputs.push_back({{}, float_dtype(), {}});
    run(ops::sparse_accumulate_def(), to_attrs(sparse), inputs, "cpu.scatter",
        {.values = {std::nullopt, std::nullopt, indices}});
  }
}

TEST_F(RandomShapes, OperatorsAlongAnAxis) {
  for (int i = 0; i < cases() && !HasFatalFailure(); ++i) {
    const Shape x = shape(0, 4);
    const int rank = ops::axes_of(x);
    const int axis = static_cast<int>(below(rank));
    const int64_t named = below(2) == 0 ? axis : axis - rank;
    const bool flag = below(2) == 0, other = below(2) == 0;
    static constexpr DType kSummed[] = {f32, f16, bf16, i32, u32};
    run(ops::cumsum_def(), to_attrs(ops::CumsumOptions{named, flag, other}),
        {{x, kSummed[below(5)], {}}}, "cpu.lanes");
    static constexpr DType kSorted[] = {f32, f16, bf16, i32, u32, u8};
    // Often few different values, so that elements tie: zeros of both signs and NaN too.
    static constexpr float kTies[] = {0, -0.0f, 1, 2, NAN};
    const DType dtype = kSorted[below(6)];
    std::vector<float> values(static_cast<size_t>(x.elements()));
    for (float& v : values) v = kTies[below(5)];
    Sample sample{.domain = {0, 200}};
    if (flag) sample.values = {HostTensor::of<float>(x, f32, values).cast(dtype)};
    run(ops::sort_def(), to_attrs(ops::SortOptions{named, other}), {{x, dtype, {}}}, "cpu.lanes",
        sample);
    Shape at = x;
    if (at.rank() > 0) at[axis] = below(12);
    const int64_t size = x.rank() > 0 ? x[axis] : 1;
    std::vector<int32_t> places(static_cast<size_t>(at.elements()));
    for (int32_t& v : places) v = static_cast<int32_t>(below(size + 3)) - 1;
    const DType index = other ? i32 : u32;
    const auto indices = HostTensor::of<int32_t>(at, i32, places).cast(index);
    const TensorSpec index_spec{at, index, {}};
    run(ops::take_along_axis_def(), to_attrs(ops::TakeAlongAxisOptions{named, flag}),
        {{x, any_dtype(), {}}, index_spec}, "cpu.lanes", {.values = {std::nullopt, indices}});
    run(ops::add_along_axis_def(), to_attrs(ops::AddAlongAxisOptions{named, size}),
        {{at, float_dtype(), {}}, index_spec}, "cpu.lanes", {.values = {std::nullopt, indices}});
    static constexpr DType kMultiplied[] = {f32, f16, bf16, i32, u32};
    run(ops::cumprod_def(), to_attrs(ops::CumprodOptions{named}), {{x, kMultiplied[below(5)], {}}},
        "cpu.lanes");
    const TensorSpec multiplied{x, float_dtype(), {}};
    run(ops::cumprod_grad_def(), to_attrs(ops::CumprodOptions{named}), {multiplied, multiplied},
        "cpu.lanes");
  }
}

TEST_F(RandomShapes, Softmax) {
  for (int i = 0; i < cases() && !HasFatalFailure(); ++i) {
    const TensorSpec x{shape(1, 4), float_dtype(), {}};
    const int rank = x.shape.rank();
    const int axis = static_cast<int>(below(rank));
    const Attrs along = to_attrs(ops::AxisOptions{below(2) == 0 ? axis : axis - rank});
    const Sample sample{.domain = {-9, 9}};
    const bool is_log = below(2) == 0;
    const std::string_view key = x.elements() == 0  ? "cpu.reference"
                                 : axis + 1 == rank ? "cpu.rows"
                                                    : "cpu.columns";
    run(is_log ? ops::log_softmax_def() : ops::softmax_def(), along, {x}, key, sample);
    run(is_log ? ops::log_softmax_grad_def() : ops::softmax_grad_def(), along, {x, x}, key, sample);
  }
}

TEST_F(RandomShapes, LogarithmsOfSums) {
  for (int i = 0; i < cases() && !HasFatalFailure(); ++i) {
    const TensorSpec x{shape(1, 4), float_dtype(), {}};
    const ops::ReduceOptions o{.axes = some_axes(x.shape.rank()), .keepdims = below(2) == 0};
    run(below(3) == 0 ? ops::reduce_log_sum_def() : ops::reduce_log_sum_exp_def(), to_attrs(o), {x},
        "", {.domain = {0, 40}});
  }
  expect_fast(cases() * 3 / 4);
}

TEST_F(RandomShapes, Extremes) {
  static constexpr float kTies[] = {0, -0.0f, 1, 2, NAN};
  for (int i = 0; i < cases() && !HasFatalFailure(); ++i) {
    static constexpr DType kNumbers[] = {f32, f16, bf16, i32, u32, u8};
    const TensorSpec x{shape(1, 4), kNumbers[below(6)], {}};
    if (x.elements() == 0) continue;
    std::vector<float> values(static_cast<size_t>(x.elements()));
    for (float& v : values) v = kTies[below(5)];
    Sample sample{.domain = {0, 200}};
    if (below(2) == 0) sample.values = {HostTensor::of<float>(x.shape, f32, values).cast(x.dtype)};
    const ops::ArgOptions o{.axis = below(x.shape.rank()), .flatten = below(4) == 0};
    run(below(2) == 0 ? ops::argmax_def() : ops::argmin_def(), to_attrs(o), {x}, "cpu.argmax",
        sample);
  }
}

TEST_F(RandomShapes, ElementwiseBroadcasts) {
  const OpDef* const defs[] = {&ops::add_def(), &ops::mul_def(),     &ops::maximum_def(),
                               &ops::pow_def(), &ops::greater_def(), &ops::equal_def()};
  const OpDef* const integers[] = {&ops::add_def(),           &ops::mul_def(),
                                   &ops::div_def(),           &ops::minimum_def(),
                                   &ops::bitwise_xor_def(),   &ops::shift_left_def(),
                                   ops::find_op("Remainder"), ops::find_op("Less")};
  for (int i = 0; i < cases() && !HasFatalFailure(); ++i) {
    const Shape y = shape(0, 4);
    if (y.elements() == 0) continue;
    const auto operand = [&] {
      std::vector<int64_t> dims;
      for (int a = static_cast<int>(below(y.rank() + 1)); a < y.rank(); ++a)
        dims.push_back(below(3) == 0 ? 1 : y[a]);
      return Shape(dims);
    };
    const DType dtype = float_dtype();
    const TensorSpec a{below(2) == 0 ? y : operand(), dtype, {}}, b{operand(), dtype, {}};
    run(*defs[below(std::ssize(defs))], {}, {a, b}, "cpu.elementwise");
    run(ops::where_def(), {}, {{operand(), boolean, {}}, a, b}, "cpu.elementwise");
    static constexpr DType kIntegers[] = {i32, u32, u8};
    const DType integer = kIntegers[below(3)];
    const TensorSpec c{a.shape, integer, {}}, d{b.shape, integer, {}};
    run(*integers[below(std::ssize(integers))], {}, {c, d}, "cpu.elementwise",
        {.domain = {-40, 40}});
    run(ops::where_def(), {}, {{operand(), boolean, {}}, c, d}, "cpu.elementwise");
  }
}

TEST_F(RandomShapes, RotaryEmbeddings) {
  for (int i = 0; i < cases() && !HasFatalFailure(); ++i) {
    Shape x = shape(2, 4);
    if (below(4) == 0 && x.elements() <= 200) x[x.rank() - 1] = 1 + below(100);
    if (x.elements() == 0) continue;
    const DType dtype = float_dtype();
    const Shape table{x.dim(-2), 2 * below(x.dim(-1) / 2 + 1)};
    const ops::RotaryOptions o{.interleaved = below(2) == 0, .inverse = below(2) == 0};
    run(ops::rotary_def(), to_attrs(o), {{x, dtype, {}}, {table, dtype, {}}}, "cpu.rotary");
  }
}

// Matrices that are transposed parts of larger tensors.
TEST_F(RandomShapes, StridedProducts) {
  for (int i = 0; i < cases() && !HasFatalFailure(); ++i) {
    ops::StridedMatmulOptions o;
    o.batch.resize(static_cast<size_t>(below(3)));
    for (int64_t& size : o.batch) size = 1 + below(4);
    o.m = 1 + below(below(8) == 0 ? 60 : 12);
    o.n = 1 + below(below(4) == 0 ? 70 : 12);
    o.k = 1 + below(below(8) == 0 ? 300 : 20);
    // The axes in a random order, from the outermost to the innermost.
    const auto draw = [&](int64_t rows, int64_t cols, bool padded, Shape& shape) {
      std::vector<int64_t> sizes = o.batch;
      sizes.insert(sizes.end(), {rows, cols});
      std::vector<size_t> order(sizes.size());
      std::iota(order.begin(), order.end(), size_t{0});
      // Products run on matrices with rows or columns of neighbours.
      std::shuffle(order.begin(), order.end() - below(3), random_);
      std::vector<int64_t> stored, list(sizes.size() + 1);
      for (const size_t axis : order) stored.push_back(sizes[axis] + (padded ? below(2) : 0));
      shape = Shape(stored);
      const std::vector<int64_t> strides = shape.strides();
      for (size_t a = 0; a < order.size(); ++a) {
        list[order[a] + 1] = strides[a];
        list[0] += below(stored[a] - sizes[order[a]] + 1) * strides[a];
      }
      return list;
    };
    Shape lhs, rhs, out;
    o.lhs = draw(o.m, o.k, true, lhs);
    o.rhs = draw(o.k, o.n, true, rhs);
    o.out = draw(o.m, o.n, false, out);
    o.shape = out.dims();
    const DType dtype = float_dtype();
    run(ops::strided_matmul_def(), to_attrs(o), {{lhs, dtype, {}}, {rhs, dtype, {}}}, "");
  }
  expect_fast(cases() / 5);
}

// Products of several matrices by several, which may share matrices.
TEST_F(RandomShapes, BatchedProducts) {
  for (int i = 0; i < cases() && !HasFatalFailure(); ++i) {
    std::vector<int64_t> lhs(static_cast<size_t>(1 + below(2)));
    for (int64_t& size : lhs) size = 1 + below(below(4) == 0 ? 20 : 4);
    std::vector<int64_t> rhs = lhs;
    for (auto* const batch : {&lhs, &rhs}) {
      if (below(4) == 0) (*batch)[0] = 1;
      if (below(4) == 0) batch->erase(batch->begin());
    }
    const bool large = below(16) == 0;
    const int64_t m = 1 + below(large ? 60 : 12), n = 1 + below(large ? 300 : 40);
    const int64_t k = 1 + below(large ? 80 : 20);
    const ops::MatmulOptions o{.lhs_transposed = below(2) == 0, .rhs_transposed = below(2) == 0};
    lhs.insert(lhs.end(), {o.lhs_transposed ? k : m, o.lhs_transposed ? m : k});
    rhs.insert(rhs.end(), {o.rhs_transposed ? n : k, o.rhs_transposed ? k : n});
    const DType dtype = float_dtype();
    run(ops::matmul_def(), to_attrs(o), {{Shape(lhs), dtype, {}}, {Shape(rhs), dtype, {}}},
        "cpu.gemm");
  }
}

// Products that continue the chains of a matrix.
TEST_F(RandomShapes, AccumulatedProducts) {
  for (int i = 0; i < cases() && !HasFatalFailure(); ++i) {
    const int64_t m = 1 + below(below(8) == 0 ? 200 : 20), n = 1 + below(below(4) == 0 ? 90 : 12);
    const int64_t k = below(below(8) == 0 ? 600 : 40);
    const ops::MatmulOptions o{.lhs_transposed = below(2) == 0, .rhs_transposed = below(2) == 0};
    const Shape lhs = o.lhs_transposed ? Shape{k, m} : Shape{m, k};
    const Shape rhs = o.rhs_transposed ? Shape{n, k} : Shape{k, n};
    const DType dtype = float_dtype();
    run(ops::matmul_accumulate_def(), to_attrs(o),
        {f32_spec({m, n}), {lhs, dtype, {}}, {rhs, dtype, {}}}, "cpu.gemm");
  }
}

TEST_F(RandomShapes, ManyOperands) {
  const OpDef* const defs[] = {&ops::add_n_def(), &ops::maximum_def(), &ops::minimum_def()};
  for (int i = 0; i < cases() && !HasFatalFailure(); ++i) {
    const TensorSpec x{shape(0, 3), float_dtype(), {}};
    if (x.elements() == 0) continue;
    run(*defs[below(std::ssize(defs))], {},
        std::vector<TensorSpec>(static_cast<size_t>(3 + below(3)), x), "cpu.variadic");
  }
}

TEST_F(RandomShapes, RandomNumbers) {
  const TensorSpec seed{Shape{2}, u32, {}};
  for (int i = 0; i < cases() && !HasFatalFailure(); ++i) {
    const Shape x = shape(0, 3);
    const DType dtype = float_dtype();
    const int64_t offset = below(1000);
    run(ops::dropout_def(), to_attrs(ops::DropoutOptions{.p = 0.25, .offset = offset}),
        {{x, dtype, {}}, seed}, "cpu.random");
    run(ops::random_uniform_def(),
        to_attrs(ops::RandomUniformOptions{
            .shape = x, .dtype = dtype, .low = -2, .high = 3, .offset = offset}),
        {seed}, "cpu.random");
    if (x.elements() < 2000)
      run(ops::random_normal_def(),
          to_attrs(ops::RandomNormalOptions{
              .shape = x, .dtype = dtype, .mean = 1, .std = 2, .offset = offset}),
          {seed}, "cpu.random");
    const TensorSpec word{{}, below(2) == 0 ? i32 : u32, {}};
    run(ops::fold_seed_def(), to_attrs(ops::FoldSeedOptions{}), {seed, word}, "cpu.random");
    run(ops::fold_seed_def(), to_attrs(ops::FoldSeedOptions{offset - 500}), {seed}, "cpu.random");
  }
}

}  // namespace
}  // namespace sluice::cpu
