#pragma once
#include <algorithm>
#include <optional>
#include <random>
#include <string>

#include "sluice/cpu/fused/functor.h"
#include "sluice/cpu/layout/layouts.h"
#include "sluice/ops/cast.h"
#include "sluice/ops/conv.h"
#include "sluice/ops/indexing.h"
#include "sluice/ops/losses.h"
#include "sluice/ops/matmul.h"
#include "sluice/ops/normalization.h"
#include "sluice/ops/op.h"
#include "sluice/ops/random.h"
#include "sluice/ops/reductions.h"
#include "sluice/ops/softmax.h"
#include "sluice/ops/strided_matrices.h"
#include "sluice/target/fused_op.h"

/// Draws random fused ops. Kernels run most of them and refuse some.
namespace sluice::cpu {

inline constexpr int64_t kMaxWork = 1 << 21;  // Maximum multiply-adds of a product.

using Random = std::mt19937;

inline int64_t pick(Random& random, std::initializer_list<int64_t> from) {
  return from.begin()[random() % from.size()];
}
inline bool one_in(Random& random, uint32_t n) { return random() % n == 0; }

inline int64_t any_size(Random& random) {
  return pick(random, {1, 1, 2, 7, 15, 16, 17, 24, 31, 32, 33, 48, 64, 65, 112, 113, 200});
}
inline int64_t any_depth(Random& random) {
  return pick(random, {1, 2, 7, 16, 17, 24, 31, 33, 100, 128, 129, 256, 257, 300, 520});
}

/// Operators that may occur in chains, in f32 or with a result of bool.
inline const std::vector<const OpDef*>& chain_ops() {
  static const std::vector<const OpDef*> all = [] {
    std::vector<const OpDef*> found;
    for (const OpDef* def : ops::all_ops()) {
      const size_t inputs = def->inputs.size() - (def->variadic ? 1 : 0);
      const std::vector<TensorSpec> specs(inputs, f32_spec({4}));
      for (const DType dtype : {f32, boolean}) {
        const TensorSpec out{{4}, dtype, {}};
        if (Functor::exists(OpView(*def, def->options, specs, {&out, 1}))) found.push_back(def);
      }
    }
    return found;
  }();
  return all;
}

inline void set(Attrs& attrs, std::string_view name, const AttrValue& value) {
  for (auto& [key, old] : attrs.items) {
    if (key == name) old = value;
  }
}
inline bool has(const Attrs& attrs, std::string_view name) {
  return std::any_of(attrs.items.begin(), attrs.items.end(),
                     [&](const auto& item) { return item.first == name; });
}

/// Builds a FusedOp. It collects operands as inputs first and renumbers them at the end.
class RandomFusedOp {
 public:
  explicit RandomFusedOp(uint64_t seed) : random_(static_cast<uint32_t>(seed * 2654435761u + 17)) {}

  std::optional<FusedOp> make() {
    const bool headed = !one_in(random_, 4);
    if (headed && one_in(random_, 4)) {
      add_conv();
    } else if (headed && one_in(random_, 4)) {
      add_strided_product();
    } else if (headed) {
      add_product();
    } else {
      space_ = any_space();
    }
    const Layout full = any_layout();
    mixes_ = full == Layout{} && one_in(random_, 2);
    if (mixes_ && !headed) dtype_ = any_dtype();
    const bool may_broadcast = full == Layout{} && !one_in(random_, 4);
    const int stages =
        headed ? static_cast<int>(random_() % 8) : 1 + static_cast<int>(random_() % 8);
    const bool has_rows = full == Layout{} && space_.rank() > 0 && one_in(random_, mixes_ ? 2 : 3);
    for (int s = 0; s < stages; ++s) {
      if (has_rows && one_in(random_, 2)) {
        attempt([&] { add_row_stage(); });
      } else if (full == Layout{} ? one_in(random_, 12) : one_in(random_, 100)) {
        add_dropout();
      } else {
        add_stage(may_broadcast);
      }
    }
    if (one_in(random_, 3)) attempt([&] { add_reduction(); });
    store_results();
    for (size_t i = 0; i < op_.operands.size(); ++i) op_.layouts.emplace_back();
    if (headed && op_.stages[0].op == &ops::matmul_def() && one_in(random_, 2) &&
        at(op_.operands, op_.stages[0].inputs[1]).shape.rank() == 2) {
      const auto b = static_cast<size_t>(op_.stages[0].inputs[1]);
      op_.layouts[b] =
          one_in(random_, 4) ? any_layout() : in_panels(op_.operands[b].shape[1] <= 16 ? 16 : 32);
    }
    if (headed && op_.stages[0].op == &ops::conv_def() && one_in(random_, 2))
      op_.layouts[static_cast<size_t>(op_.stages[0].inputs[1])] = in_taps();
    op_ = op_.with_layout(space_.rank() == 2 ? full : full == Layout{} ? full : in_taps());
    if (headed && one_in(random_, 16)) op_.layouts[0] = in_panels(16);  // Not supported.
    return op_;
  }

 private:
  // Adds a stage, or nothing if its operands have dtypes that it refuses.
  template <typename F>
  void attempt(F add) {
    const FusedOp before = op_;
    try {
      add();
    } catch (const Error&) {
      op_ = before;
    }
  }

  Shape any_space() {
    switch (random_() % 8) {
      case 0:
        return Shape{};
      case 1:
        return {pick(random_, {1, 5, 17, 1000, 5000, 70001})};
      case 2:
        return {any_size(random_), 3, any_size(random_)};
      case 3:
        return {pick(random_, {1, 3}), any_size(random_), 5, pick(random_, {1, 7, 33})};
      default:
        return {any_size(random_), pick(random_, {1, 7, 17, 32, 33, 200, 1500})};
    }
  }

  Layout any_layout() {
    const int64_t width = pick(random_, {0, 0, 16, 32});
    return width == 0 ? Layout{} : in_panels(width);
  }

  void add_product() {
    int64_t m, n, k;
    do {
      m = any_size(random_);
      n = any_size(random_);
      k = any_depth(random_);
    } while (m * n * k > kMaxWork);
    const ops::MatmulOptions options{.lhs_transposed = one_in(random_, 3),
                                     .rhs_transposed = one_in(random_, 3)};
    // The rows of several matrices by one are treated as rows of one matrix.
    std::vector<int64_t> batch, of_lhs, of_rhs;
    if (m * n * k * 6 < kMaxWork && !one_in(random_, 3)) {
      batch = one_in(random_, 2) ? std::vector<int64_t>{3} : std::vector<int64_t>{2, 3};
      of_lhs = batch_of_operand(batch);
      of_rhs = one_in(random_, 3) ? std::vector<int64_t>{} : batch_of_operand(batch);
      batch = broadcast(Shape(of_lhs), Shape(of_rhs), "").dims();
    }
    const auto matrices = [](std::vector<int64_t> dims, int64_t rows, int64_t cols) {
      dims.insert(dims.end(), {rows, cols});
      return Shape(std::move(dims));
    };
    space_ = matrices(batch, m, n);
    OpStage stage;
    stage.op = &ops::matmul_def();
    stage.attrs = to_attrs(options);
    stage.inputs = {
        add_input(options.lhs_transposed ? matrices(of_lhs, k, m) : matrices(of_lhs, m, k)),
        add_input(options.rhs_transposed ? matrices(of_rhs, n, k) : matrices(of_rhs, k, n))};
    if (m == k && n == k && batch.empty() && one_in(random_, 4)) stage.inputs[1] = 0;
    stage.spec = f32_spec(space_);
    op_.stages.push_back(stage);
  }

  // The batch axes of an operand of products: sometimes fewer, or with a single index.
  std::vector<int64_t> batch_of_operand(std::vector<int64_t> batch) {
    for (int64_t& size : batch) {
      if (one_in(random_, 5)) size = 1;
    }
    if (one_in(random_, 5)) batch.erase(batch.begin());
    return batch;
  }

  /// Adds products of the heads of (batch, rows, heads, size) with each other, as attention has.
  void add_strided_product() {
    int64_t m, n, k;
    do {
      m = any_size(random_);
      n = any_size(random_);
      k = any_depth(random_);
    } while (m * n * k * 6 > kMaxWork);
    const int64_t batch = 2, heads = pick(random_, {1, 3});
    const bool heads_last = one_in(random_, 8);  // Not supported.
    ops::StridedMatmulOptions o{.batch = {batch, heads}, .m = m, .n = n, .k = k};
    o.lhs = {0, m * heads * k, k, heads * k, 1};
    o.rhs = {0, n * heads * k, k, 1, heads * k};
    o.out = heads_last ? std::vector<int64_t>{0, m * heads * n, n, heads * n, 1}
                       : std::vector<int64_t>{0, heads * m * n, m * n, n, 1};
    space_ = heads_last ? Shape{batch, m, heads, n} : Shape{batch, heads, m, n};
    o.shape = space_.dims();
    OpStage stage;
    stage.op = &ops::strided_matmul_def();
    stage.attrs = to_attrs(o);
    stage.inputs = {add_input({batch, m, heads, k}), add_input({batch, n, heads, k})};
    stage.spec = f32_spec(space_);
    op_.stages.push_back(stage);
  }

  /// Adds a convolution, a transposed one or the gradient of a weight, for images.
  void add_conv() {
    const int64_t batch = pick(random_, {1, 2, 5}), groups = pick(random_, {1, 1, 2});
    const int64_t in = groups * pick(random_, {1, 3, 17}),
                  out = groups * pick(random_, {1, 5, 10, 33});
    const int64_t tap = pick(random_, {1, 2, 3});
    const int64_t height = tap + pick(random_, {0, 3, 9}), width = tap + pick(random_, {0, 5, 17});
    OpStage stage;
    if (one_in(random_, 3)) {
      stage.op = &ops::conv_weight_grad_def();
      stage.attrs = to_attrs(ops::ConvWeightGradOptions{.kernel = {tap, tap}, .groups = groups});
      stage.inputs = {add_input({batch, in, height, width}),
                      add_input({batch, out, height - tap + 1, width - tap + 1})};
    } else if (one_in(random_, 2)) {
      stage.op = &ops::conv_transpose_def();
      stage.attrs = to_attrs(
          ops::ConvTransposeOptions{.stride = {pick(random_, {1, 1, 1, 2}), 1}, .groups = groups});
      stage.inputs = {add_input({batch, in, height, width}),
                      add_input({in, out / groups, tap, tap})};
    } else {
      stage.op = &ops::conv_def();
      stage.attrs = to_attrs(ops::ConvOptions{.stride = {1, pick(random_, {1, 2})},
                                              .padding = {pick(random_, {0, 1}), 1},
                                              .groups = groups});
      stage.inputs = {add_input({batch, in, height, width}),
                      add_input({out, in / groups, tap, tap})};
    }
    stage.spec = stage.op->infer(OpView(*stage.op, stage.attrs, op_.input_specs(stage)))[0];
    space_ = stage.spec.shape;
    op_.stages.push_back(stage);
  }

  DType any_dtype() {
    static constexpr DType kDTypes[] = {f32, f16, bf16};
    return kDTypes[random_() % 3];
  }

  int32_t add_input(Shape shape, DType dtype = f32) {
    op_.operands.push_back({std::move(shape), dtype, {}});
    return op_.inputs++;
  }

  Shape shape_of_operand(bool may_broadcast) {
    if (!may_broadcast) return one_in(random_, 5) ? Shape{} : space_;
    const int rank = space_.rank();
    if (rank > 2 && one_in(random_, 4)) {  // Matrices, rows or values that matrices share.
      std::vector<int64_t> dims(space_.begin(), space_.end());
      for (int64_t& size : dims) {
        if (one_in(random_, 2)) size = 1;
      }
      if (one_in(random_, 3)) dims.erase(dims.begin());
      return Shape(std::move(dims));
    }
    if (rank == 4 && one_in(random_, 2)) return {space_[1], 1, 1};
    if (rank > 1 && one_in(random_, 8)) {  // One value for each element of some axis.
      const auto axis = static_cast<int>(random_() % static_cast<uint32_t>(rank));
      std::vector<int64_t> dims(static_cast<size_t>(rank - axis), 1);
      dims[0] = space_[axis];
      return Shape(std::move(dims));
    }
    switch (random_() % 7) {
      case 0:
        return one_in(random_, 2) ? Shape{} : Shape{1};
      case 1:
        if (rank > 0) return {space_[rank - 1]};
        return {};
      case 2:
        if (rank > 1) return {1, space_[rank - 1]};
        return space_;
      case 3: {
        if (rank == 0) return {};
        std::vector<int64_t> dims(space_.begin(), space_.end());
        dims.back() = 1;
        return Shape(std::move(dims));
      }
      default:
        return space_;
    }
  }

  int32_t operand(const Shape& shape) { return operand(shape, dtype_); }
  int32_t operand(const Shape& shape, DType dtype) {
    // Sometimes reuses an operand, so that it has several readers.
    std::vector<int32_t> known;
    for (int32_t i = 0; i < op_.inputs; ++i) {
      if (op_.operands[static_cast<size_t>(i)] == TensorSpec{shape, dtype, {}}) known.push_back(i);
    }
    if (!known.empty() && (one_in(random_, 3) || op_.inputs > 8))
      return known[random_() % known.size()];
    return add_input(shape, dtype);
  }

  int32_t source(bool may_broadcast) {
    const auto stages = static_cast<int32_t>(op_.stages.size());
    if (stages > 0 && !one_in(random_, 3)) return ~(stages - 1);
    if (stages > 1 && one_in(random_, 3))
      return ~static_cast<int32_t>(random_() % op_.stages.size());
    DType dtype = dtype_;
    if (mixes_ && one_in(random_, 8)) dtype = one_in(random_, 3) ? u8 : boolean;
    if (mixes_ && one_in(random_, 12)) dtype = any_dtype();
    return operand(shape_of_operand(may_broadcast), dtype);
  }

  bool try_stage(bool may_broadcast) {
    OpStage stage;
    stage.op = chain_ops()[random_() % chain_ops().size()];
    stage.attrs = stage.op->options;
    if (has(stage.attrs, "kind")) {
      static const char* const kKinds[] = {"add", "add_square", "mean", "moving_average",
                                           "moving_average_square"};
      set(stage.attrs, "kind", std::string(kKinds[random_() % 5]));
    }
    if (stage.op == &ops::cast_def()) stage.attrs = to_attrs(ops::CastOptions{any_dtype()});
    for (const char* hyper : {"a", "b", "f", "beta1", "beta2", "learning_rate", "weight_decay"}) {
      const double value =
          one_in(random_, 6) ? 0 : std::uniform_real_distribution<>(-0.9, 0.9)(random_);
      if (has(stage.attrs, hyper)) set(stage.attrs, hyper, value);
    }
    bool added = false;
    attempt([&] {
      const size_t count = stage.op->inputs.size() - (stage.op->variadic ? 1 : 0);
      for (size_t i = 0; i < count; ++i) stage.inputs.push_back(source(may_broadcast));
      if (stage.op->variadic && has(stage.attrs, "operands") && one_in(random_, 2)) {
        const std::string names = has(stage.attrs, "a")   ? (one_in(random_, 2) ? "a,b" : "b")
                                  : has(stage.attrs, "f") ? "f"
                                                          : "learning_rate";
        if (names != "learning_rate" || has(stage.attrs, names)) {
          set(stage.attrs, "operands", names);
          for (size_t h = 0; h <= static_cast<size_t>(std::count(names.begin(), names.end(), ','));
               ++h)
            stage.inputs.push_back(operand({}));
        }
      }
      const auto specs = op_.input_specs(stage);
      const auto out = stage.op->infer(OpView(*stage.op, stage.attrs, specs));
      require(out.size() == 1 && out[0].shape == space_ && (mixes_ || out[0].dtype == f32),
              "the result does not fit");
      stage.spec = out[0];
      op_.stages.push_back(stage);
      if (out[0].dtype != boolean) dtype_ = out[0].dtype;
      added = true;
    });
    return added;
  }

  void add_stage(bool may_broadcast) {
    for (int tries = 0; tries < 50; ++tries) {
      if (try_stage(may_broadcast)) return;
    }
  }

  // Returns a tensor of rows, usually the result of a stage.
  int32_t rows_source() {
    std::vector<int32_t> known;
    for (size_t s = 0; s < op_.stages.size(); ++s) {
      if (op_.stages[s].spec.shape == space_ && op_.stages[s].spec.dtype == dtype_)
        known.push_back(~static_cast<int32_t>(s));
    }
    if (known.empty() || one_in(random_, 4)) return operand(space_);
    return one_in(random_, 2) ? known.back() : known[random_() % known.size()];
  }

  Shape samples() const { return Shape(std::vector<int64_t>(space_.begin(), space_.end() - 1)); }

  int32_t labels() {
    for (int32_t i = 0; i < op_.inputs; ++i) {
      const TensorSpec& spec = op_.operands[static_cast<size_t>(i)];
      if ((spec.dtype == i32 || spec.dtype == u32) && spec.shape == samples() &&
          !one_in(random_, 4))
        return i;
    }
    op_.operands.push_back({samples(), one_in(random_, 2) ? i32 : u32, {}});
    return op_.inputs++;
  }

  void add_dropout() {
    op_.operands.push_back({{2}, u32, {}});
    const int32_t seed = op_.inputs++;
    OpStage stage;
    stage.op = &ops::dropout_def();
    stage.attrs = to_attrs(ops::DropoutOptions{.p = 0.3, .offset = pick(random_, {0, 5})});
    stage.inputs = {rows_source(), seed};
    stage.spec = {space_, dtype_, {}};
    op_.stages.push_back(stage);
  }

  void add_row_stage() {
    using ops::LossReduction;
    const bool ignores = one_in(random_, 2);
    const auto reduction = static_cast<LossReduction>(random_() % 3);
    OpStage stage;
    switch (random_() % 9) {
      case 0:
        stage.op = one_in(random_, 3) ? &ops::log_softmax_def() : &ops::softmax_def();
        stage.inputs = {rows_source()};
        break;
      case 1:
        stage.op = &ops::layer_norm_def();
        stage.attrs = to_attrs(ops::LayerNormOptions{});
        stage.inputs = {rows_source()};
        for (uint32_t n = random_() % 3; n > 0; --n)
          stage.inputs.push_back(operand({space_.dim(-1)}));
        break;
      case 7:
        stage.op = &ops::rms_norm_def();
        stage.attrs = to_attrs(ops::RmsNormOptions{});
        stage.inputs = {rows_source()};
        if (one_in(random_, 2)) stage.inputs.push_back(operand({space_.dim(-1)}));
        break;
      case 2:
        stage.op = one_in(random_, 2) ? &ops::log_softmax_grad_def() : &ops::softmax_grad_def();
        stage.inputs = {rows_source(), rows_source()};
        break;
      case 3:
      case 4:
        stage.op = &ops::nll_loss_def();
        stage.attrs =
            to_attrs(ops::NllLossOptions{LossReduction::kNone, ignores, 1, one_in(random_, 2)});
        stage.inputs = {rows_source(), labels()};
        break;
      case 5:
        stage.op = &ops::nll_softmax_grad_def();
        stage.attrs = to_attrs(ops::NllSoftmaxGradOptions{reduction, ignores, 1, 0.5});
        stage.inputs = {rows_source(), labels()};
        break;
      case 6: {
        const ops::NllGradOptions options{reduction, ignores, 1, space_.dim(-1)};
        stage.op = &ops::nll_grad_def();
        stage.attrs = to_attrs(options);
        const bool each = reduction == LossReduction::kNone;
        stage.inputs = {each && last_samples() != 0 && one_in(random_, 2)
                            ? last_samples()
                            : operand(each ? samples() : Shape{}),
                        labels()};
        if (one_in(random_, 2)) stage.inputs.push_back(rows_source());
        break;
      }
      default:
        if (last_samples() == 0 || reduction == LossReduction::kNone) return;
        stage.op = &ops::nll_total_def();
        stage.attrs = to_attrs(ops::NllTotalOptions{reduction, ignores, 1});
        stage.inputs = {last_samples(), labels()};
    }
    if (stage.attrs.items.empty()) stage.attrs = to_attrs(ops::AxisOptions{});
    stage.spec = stage.op->infer(OpView(*stage.op, stage.attrs, op_.input_specs(stage)))[0];
    op_.stages.push_back(stage);
  }

  // The last stage that returns one loss per row; 0 if there is none.
  int32_t last_samples() const {
    for (size_t s = op_.stages.size(); s-- > 0;) {
      if (op_.stages[s].op == &ops::nll_loss_def()) return ~static_cast<int32_t>(s);
    }
    return 0;
  }

  // Reduces a stage, usually the last one, over the first axes, the last axes, or all.
  void add_reduction() {
    if (op_.stages.empty()) return;
    static const std::vector<const OpDef*> kOps = {
        &ops::reduce_sum_def(), &ops::reduce_mean_def(), &ops::reduce_max_def(),
        &ops::reduce_l2_def(),  &ops::reduce_l1_def(),   &ops::reduce_sum_square_def()};
    const auto stages = static_cast<int32_t>(op_.stages.size());
    const int32_t reduced = one_in(random_, 6)
                                ? static_cast<int32_t>(random_() % static_cast<uint32_t>(stages))
                                : stages - 1;
    const int rank = op_.stages[static_cast<size_t>(reduced)].spec.shape.rank();
    ops::ReduceOptions options{.keepdims = one_in(random_, 3)};
    const auto some = static_cast<int>(random_() % static_cast<uint32_t>(rank + 1));
    for (int a = 0; a < some; ++a) options.axes.push_back(a);
    if (one_in(random_, 2)) {
      for (int64_t& axis : options.axes) axis = rank - 1 - axis;
    }
    OpStage stage;
    stage.op = kOps[random_() % kOps.size()];
    stage.attrs = to_attrs(options);
    stage.inputs = {~reduced};
    stage.spec = stage.op->infer(OpView(*stage.op, stage.attrs, op_.input_specs(stage)))[0];
    op_.stages.push_back(stage);
  }

  // Stores each result that no stage reads, and some others.
  void store_results() {
    std::vector<bool> read(op_.stages.size(), false);
    for (const OpStage& stage : op_.stages) {
      for (const int32_t i : stage.inputs) {
        if (i < 0) read[static_cast<size_t>(~i)] = true;
      }
    }
    for (size_t s = 0; s < op_.stages.size(); ++s) {
      if (read[s] && !one_in(random_, 3)) continue;
      op_.stages[s].output = static_cast<int32_t>(op_.operands.size());
      op_.operands.push_back(op_.stages[s].spec);
    }
  }

  Random random_;
  bool mixes_ = false;  // Stages may have other dtypes than f32.
  DType dtype_ = f32;   // The last result that is not bool.
  Shape space_;
  FusedOp op_;
};

inline std::string text(const FusedOp& op) {
  std::string lines;
  for (size_t i = 0; i < op.operands.size(); ++i) {
    lines += fmt::format("  %{} {} {}\n", i, to_string(op.operands[i]), to_string(op.layouts[i]));
  }
  for (size_t s = 0; s < op.stages.size(); ++s) {
    const OpStage& stage = op.stages[s];
    lines += fmt::format("  stage {} {} {} (", s, stage.op->type, to_string(stage.attrs));
    for (const int32_t i : stage.inputs)
      lines += i < 0 ? fmt::format(" stage{}", ~i) : fmt::format(" %{}", i);
    lines += stage.output < 0 ? " )\n" : fmt::format(" ) -> %{}\n", stage.output);
  }
  return lines;
}

}  // namespace sluice::cpu
