// Attention has the bits of product, softmax and product. Its kernel has the bits of the reference
// on random shapes and options. SLUICE_SHAPES sets the number of random cases (default: 600).

#include "sluice/ops/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "../support/gradient_check.h"
#include "kernel_trial.h"
#include "sluice/base/reduce.h"
#include "sluice/ops/attention_shape.h"
#include "sluice/ops/ops.h"

namespace sluice::cpu {
namespace {

class Attention : public testing::Test {
 protected:
  int64_t below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint32_t>(n)); }
  bool one_in(int64_t n) { return below(n) == 0; }
  // Mostly short; at most 300.
  int64_t length() { return one_in(4) ? 1 + below(300) : 1 + below(40); }

  void run(const OpDef& def, const Attrs& attrs, std::vector<TensorSpec> inputs,
           const Sample& sample, bool random_bits) {
    Case c{&def, attrs, std::move(inputs), {}, &sample, random_bits};
    c.outputs = def.infer(c.view());
    ASSERT_EQ(kernel_of(c.view()).key, "cpu.attention") << c.text();
    Trial trial(c, random_);
    for (const Isa isa : tested_isas()) {
      set_isa(isa);
      ASSERT_EQ(trial.run(false), "") << to_string(isa) << " " << c.text();
    }
    set_isa(detect_isa());
  }

  std::mt19937 random_{1};
};

TEST_F(Attention, KernelHasTheBitsOfTheReference) {
  const char* const text = std::getenv("SLUICE_SHAPES");
  const int cases = text == nullptr ? 600 : std::atoi(text);
  for (int i = 0; i < cases && !HasFatalFailure(); ++i) {
    const int64_t kv_heads = 1 + below(3), heads = kv_heads * (one_in(2) ? 1 : 1 + below(3));
    const int64_t batch = 1 + below(3), size = 1 + below(one_in(4) ? 70 : 20);
    const int64_t value_size = one_in(2) ? size : 1 + below(40);
    const int64_t queries = one_in(4) ? 1 : length(), keys = one_in(3) ? queries : length();
    ops::AttentionOpOptions o{.causal = one_in(2), .scale = one_in(3) ? 1 : 0.25};
    if (one_in(3)) o.window = 1 + below(keys + 3);
    if ((o.causal || o.window > 0) && one_in(2)) o.offset = below(keys + 5) - 2;
    const DType dtype = one_in(5) ? (one_in(2) ? f16 : bf16) : f32;
    std::vector<TensorSpec> inputs;
    o.heads_last = one_in(3);
    const int64_t lengths[] = {queries, keys, keys}, own[] = {heads, kv_heads, kv_heads};
    const int64_t sizes[] = {size, size, value_size};
    const bool by_rows = one_in(2);  // How the gradient lies, where the options say so.
    if (one_in(3)) {                 // Rows of an operand that is not in heads.
      o.sizes = {batch, heads, kv_heads, queries, keys, size, value_size};
      o.rows = {0, 0, 0, 0};
      for (int t = 0; t < 3; ++t) {
        const int64_t width = own[t] * sizes[t] + below(3),
                      first = below(width - own[t] * sizes[t] + 1);
        inputs.push_back({{batch, lengths[t], width}, dtype, {}});
        for (const int64_t n : {first, lengths[t] * width, sizes[t], width}) o.rows.push_back(n);
      }
    } else {
      for (int t = 0; t < 3; ++t)
        inputs.push_back({{batch, own[t], lengths[t], sizes[t]}, dtype, {}});
    }
    Sample sample;
    sample.values.resize(3);
    if (one_in(3)) {
      o.mask = true;
      const bool is_bool = one_in(2);
      const Shape masks[] = {{queries, keys}, {1, keys}, {batch, 1, 1, keys}, {heads, queries, 1}};
      inputs.push_back({masks[below(4)], is_bool ? boolean : dtype, {}});
      sample.values.emplace_back();
    }
    if (one_in(4)) {
      o.seed = true;
      o.dropout = 0.25;
      inputs.push_back({{2}, u32, {}});
      sample.values.emplace_back(HostTensor::of<uint32_t>({2}, u32, {1, 2}));
    }
    if ((o.causal || o.window > 0) && one_in(3)) {
      o.position = true;
      inputs.push_back({{}, i32, {}});
      sample.values.emplace_back(
          HostTensor::of<int32_t>({}, i32, {static_cast<int32_t>(below(keys + 4) - 2)}));
    }
    const bool random_bits = one_in(4);
    ops::AttentionOpOptions forward = o;
    if (!o.rows.empty()) forward.rows.erase(forward.rows.begin(), forward.rows.begin() + 4);
    run(ops::attention_def(), to_attrs(forward), inputs, sample, random_bits);
    if (HasFatalFailure()) return;
    // The sums must belong to the operands: others would make gradients that are too large.
    const Case c{&ops::attention_def(), to_attrs(forward), inputs, {}, &sample, false};
    std::vector<HostTensor> values;
    for (size_t k = 0; k < inputs.size(); ++k) values.push_back(draw(c, k, random_));
    const auto sums = run_op(*c.def, c.attrs, inputs, values, Precision::kFloat);
    Sample backward;
    backward.values = {std::nullopt, values[0], values[1], values[2], sums[1], sums[2]};
    backward.values.insert(backward.values.end(), values.begin() + 3, values.end());
    std::vector<TensorSpec> operands{{{batch, heads, queries, value_size}, dtype, {}}};
    if (!o.sizes.empty()) {
      if (by_rows) operands[0].shape = {batch, queries, heads, value_size};
      o.rows[1] = queries * heads * value_size;
      o.rows[2] = by_rows ? value_size : queries * value_size;
      o.rows[3] = by_rows ? heads * value_size : value_size;
    }
    operands.insert(operands.end(), inputs.begin(), inputs.begin() + 3);
    for (const int s : {1, 2}) operands.push_back(sums[static_cast<size_t>(s)].spec());
    operands.insert(operands.end(), inputs.begin() + 3, inputs.end());
    run(ops::attention_grad_def(), to_attrs(o), operands, backward, false);
  }
}

// Attention as other operators, with the queries of the heads that share a head of k in one matrix.
Tensor composed(const Tensors& in, const ops::AttentionOptions& o) {
  const Shape q = in[0].shape(), k = in[1].shape();
  const auto shared = [&](const Tensor& t) {
    return ops::reshape(t, {q[0], k[1], q[1] / k[1] * q[2], t.shape().dim(-1)});
  };
  const auto split = [&](const Tensor& t) {
    return ops::reshape(t, {q[0], q[1], q[2], t.shape().dim(-1)});
  };
  Tensor scores = split(ops::matmul(shared(in[0]), in[1], {.rhs_transposed = true})) * o.scale;
  constexpr double kHidden = -std::numeric_limits<double>::infinity();
  if (o.mask.valid())
    scores = o.mask.dtype() == boolean ? ops::where(o.mask, scores, kHidden) : scores + o.mask;
  HostTensor seen(TensorSpec{{q[2], k[2]}, boolean, {}});
  for (int64_t i = 0; i < q[2]; ++i) {
    for (int64_t j = 0; j < k[2]; ++j) {
      const int64_t p = i + o.offset;
      seen.as<bool>()[static_cast<size_t>(i * k[2] + j)] =
          (!o.causal || j <= p) && (o.window == 0 || std::abs(j - p) < o.window);
    }
  }
  if (o.causal || o.window > 0) scores = ops::where(scores.graph().constant(seen), scores, kHidden);
  Tensor p = ops::softmax(scores);
  if (o.dropout > 0) p = ops::dropout(p, o.seed, o.dropout);
  return split(ops::matmul(shared(p), in[2]));
}

TEST_F(Attention, HasTheBitsOfProductSoftmaxAndProduct) {
  for (int i = 0; i < 60; ++i) {
    const int64_t kv_heads = 1 + below(2), heads = kv_heads * (1 + below(3)), queries = length();
    const int64_t keys = one_in(2) ? queries : length(), size = 1 + below(20);
    const bool causal = one_in(2), adds = one_in(3), drops = one_in(3);
    const int64_t window = one_in(3) ? 1 + below(keys) : 0;
    // Each query must see a key, since the softmax of nothing is not a number.
    const int64_t offset = causal || window > 0 ? below(keys) : 0;
    const auto results = [&](bool one_operator) {
      Ir ir;
      Graph& f = ir.create_empty_graph("f");
      const Tensors in{f.input(f32_spec({2, heads, queries, size})),
                       f.input(f32_spec({2, kv_heads, keys, size})),
                       f.input(f32_spec({2, kv_heads, keys, 7}))};
      ops::AttentionOptions o{.causal = causal, .scale = 0.3, .window = window, .offset = offset};
      if (window > 0 && offset + queries > keys) o.window = queries + offset + 1;
      if (adds) o.mask = f.input(f32_spec({heads, 1, keys}), "mask");
      if (drops) {
        o.seed = f.constant(HostTensor::of<uint32_t>({2}, u32, {5, 6}));
        o.dropout = 0.3;
      }
      f.add_output(one_operator ? ops::attention(in[0], in[1], in[2], o) : composed(in, o));
      const transforms::GradGraphInfo info = transforms::autodiff(f, {.grads_required = in});
      std::vector<HostTensor> arguments;
      for (const Tensor& t : f.inputs())
        arguments.push_back(transforms::random_array(t.shape(), arguments.size()).cast(f32));
      Interpreter interpreter(ir, Precision::kFloat);
      std::vector<HostTensor> all{interpreter.evaluate(f, arguments)[0]};
      arguments.push_back(transforms::random_array(f.outputs()[0].shape(), 9).cast(f32));
      for (HostTensor& t : interpreter.evaluate(transforms::gradient_step(info), arguments))
        all.push_back(std::move(t));
      return all;
    };
    const auto want = results(false), have = results(true);
    ASSERT_EQ(want.size(), have.size());
    for (size_t t = 0; t < want.size(); ++t)
      ASSERT_EQ(first_difference(want[t], have[t]), -1) << "case " << i << ", result " << t;
  }
}

TEST_F(Attention, HiddenKeysTakeNoPart) {
  Ir ir;
  Graph& f = ir.create_empty_graph("f");
  const TensorSpec x = f32_spec({1, 1, 70, 4});
  const Tensors in{f.input(x), f.input(x), f.input(x)};
  f.add_output(ops::attention(in[0], in[1], in[2], {.causal = true}));
  std::vector<HostTensor> arguments(3, HostTensor(x));
  for (HostTensor& t : arguments) std::fill(t.as<float>().begin(), t.as<float>().end(), 0.5F);
  for (size_t c = 0; c < 4; ++c) {  // The last key and value.
    arguments[1].as<float>()[69 * 4 + c] = NAN;
    arguments[2].as<float>()[69 * 4 + c] = INFINITY;
  }
  Interpreter interpreter(ir, Precision::kFloat);
  const auto y = interpreter.evaluate(f, arguments)[0];
  for (size_t e = 0; e < 70 * 4; ++e) EXPECT_EQ(std::isnan(y.as<float>()[e]), e >= 69 * 4) << e;
  const OpDef& def = ops::attention_def();
  ops::AttentionOpOptions o{.causal = true, .scale = 0.5};
  Sample sample;
  for (const HostTensor& t : arguments) sample.values.emplace_back(t);
  run(def, to_attrs(o), {x, x, x}, sample, false);
}

TEST_F(Attention, RowsWithoutKeysAreZeroAndPassNoGradient) {
  Ir ir;
  Graph& f = ir.create_empty_graph("f");
  const TensorSpec x = f32_spec({1, 2, 3, 4});
  const Tensors in{f.input(x), f.input(x), f.input(x)};
  HostTensor seen(TensorSpec{{3, 3}, boolean, {}});
  for (const size_t i : {0, 1, 2, 6, 7}) seen.as<bool>()[i] = true;  // Query 1 sees no key.
  f.add_output(ops::attention(in[0], in[1], in[2], {.mask = f.constant(seen)}));
  const transforms::GradGraphInfo info = transforms::autodiff(f, {.grads_required = in});
  std::vector<HostTensor> arguments;
  for (int i = 0; i < 3; ++i)
    arguments.push_back(transforms::random_array(x.shape, static_cast<uint64_t>(i)).cast(f32));
  Interpreter interpreter(ir, Precision::kFloat);
  const auto y = interpreter.evaluate(f, arguments)[0];
  arguments.push_back(transforms::random_array(x.shape, 9).cast(f32));
  const auto gradients = interpreter.evaluate(transforms::gradient_step(info), arguments);
  for (const size_t head : {0, 1}) {
    for (size_t c = 0; c < 4; ++c) {
      EXPECT_EQ(y.as<float>()[head * 12 + 4 + c], 0);
      EXPECT_EQ(gradients[0].as<float>()[head * 12 + 4 + c], 0);
      EXPECT_NE(y.as<float>()[head * 12 + 8 + c], 0);
      EXPECT_EQ(gradients[1].as<float>()[head * 12 + 8 + c] != 0, true);
    }
  }
}

// Numbers that are not finite, at masked keys and in the gradient of a query that sees none, reach
// no result.
TEST_F(Attention, QueriesWithoutKeysIgnoreNumbersThatAreNotFinite) {
  const TensorSpec x = f32_spec({1, 1, 9, 4}), sums = f32_spec({1, 1, 9});
  ops::AttentionOpOptions o{.causal = true, .scale = 0.5, .mask = true};
  HostTensor seen(TensorSpec{{9, 9}, boolean, {}});
  std::fill(seen.as<bool>().begin(), seen.as<bool>().end(), true);
  std::fill_n(seen.as<bool>().begin(), 9, false);          // Query 0.
  std::fill_n(seen.as<bool>().begin() + 4 * 9, 9, false);  // Query 4.
  HostTensor ones(x), first(x);
  std::fill(ones.as<float>().begin(), ones.as<float>().end(), 0.25F);
  std::copy(ones.as<float>().begin(), ones.as<float>().end(), first.as<float>().begin());
  std::fill_n(first.as<float>().begin() + 4 * 4, 4, INFINITY);
  const std::vector<TensorSpec> inputs{x, x, x, seen.spec()};
  Sample forward;
  forward.values = {first, ones, ones, seen};
  run(ops::attention_def(), to_attrs(o), inputs, forward, false);
  const std::vector<HostTensor> values{first, ones, ones, seen};
  const auto results = run_op(ops::attention_def(), to_attrs(o), inputs, values, Precision::kFloat);
  Sample backward;
  backward.values = {first, first, ones, ones, results[1], results[2], seen};
  const std::vector<TensorSpec> operands{x, x, x, x, sums, sums, seen.spec()};
  run(ops::attention_grad_def(), to_attrs(o), operands, backward, false);
  const auto gradients =
      run_op(ops::attention_grad_def(), to_attrs(o), operands,
             {first, first, ones, ones, results[1], results[2], seen}, Precision::kFloat);
  for (const HostTensor& t : {results[0], gradients[0], gradients[1], gradients[2]}) {
    for (const double v : t.to_doubles()) EXPECT_TRUE(std::isfinite(v));
  }
}

// A position beyond all bounds sees all keys, in the kernel and in the formula.
TEST_F(Attention, FarPositionsSeeAllKeys) {
  Ir ir;
  Graph& f = ir.create_empty_graph("f");
  const TensorSpec x = f32_spec({1, 1, 3, 4});
  const Tensors in{f.input(x), f.input(x), f.input(x), f.input(f32_spec({1, 3}))};
  const Tensor far = f.constant(HostTensor::of<uint32_t>({}, u32, {0xfffffff0}));
  f.add_output(
      ops::attention(in[0], in[1], in[2], {.causal = true, .mask = in[3], .position = far}));
  transforms::check_gradients(transforms::autodiff(f, {.grads_required = in}),
                              transforms::random_inputs(f));
}

TEST_F(Attention, AMaskThatIsLearnedGetsAGradient) {
  Ir ir;
  Graph& f = ir.create_empty_graph("f");
  const TensorSpec x = f32_spec({1, 2, 3, 4});
  const Tensors in{f.input(x), f.input(x), f.input(x), f.input(f32_spec({2, 1, 3}))};
  f.add_output(ops::attention(in[0], in[1], in[2], {.causal = true, .mask = in[3]}));
  transforms::check_gradients(transforms::autodiff(f, {.grads_required = in}),
                              transforms::random_inputs(f));
}

TEST_F(Attention, TakesOperandsWithoutBatchAndHeads) {
  Ir ir;
  Graph& f = ir.create_empty_graph("f");
  for (const Shape& shape : {Shape{5, 4}, Shape{2, 5, 4}, Shape{2, 3, 5, 4}}) {
    const Tensor x = f.input({shape, f32, {}});
    EXPECT_EQ(ops::attention(x, x, x).shape(), shape);
  }
  const Tensor x = f.input(f32_spec({2, 5, 4}));
  const Tensor mask = f.input(f32_spec({2, 5, 5}));  // One for each batch.
  EXPECT_EQ(ops::attention(x, x, x, {.mask = mask}).shape(), x.shape());
}

}  // namespace
}  // namespace sluice::cpu
