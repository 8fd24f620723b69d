// Compares fused kernels on random ops with reference kernels that run the stages one by one. They
// must have the same bits on every instruction set, and touch only the bytes that the kernel's
// choice allows. SLUICE_SEED=n runs and prints one op; SLUICE_OPS=n sets the number of ops.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <numeric>

#include "random_fused_op.h"
#include "sluice/cpu/fused/chain.h"
#include "sluice/cpu/fused/row_op.h"
#include "sluice/cpu/kernels/kernel_list.h"
#include "sluice/cpu/simd/kernel_test_util.h"
#include "sluice/interp/run_op.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/updates.h"

namespace sluice::cpu {
namespace {

constexpr uint64_t kOps = 6000;

using Buffer = GuardedBuffer<std::byte>;

/// Returns the ranges [begin, end) of an operand's bytes that task `task` may touch.
std::vector<std::pair<int64_t, int64_t>> promised(int64_t bytes, int64_t stride, int64_t pitch,
                                                  int64_t task) {
  if (stride == 0) return {{0, bytes}};
  const int64_t row = pitch == 0 ? bytes : pitch;
  std::vector<std::pair<int64_t, int64_t>> ranges;
  for (int64_t begin = 0; begin < bytes; begin += row) {
    const int64_t end = std::min(bytes, begin + row);
    ranges.emplace_back(std::min(end, begin + task * stride),
                        std::min(end, begin + (task + 1) * stride));
  }
  return ranges;
}

/// An op with random operands and the results of its stages.
class Trial {
 public:
  Trial(const FusedOp& op, Random& random) : op_(op), random_(random) {
    for (int32_t i = 0; i < op.inputs; ++i) {
      HostTensor& t = values_.emplace_back(op.operands[static_cast<size_t>(i)]);
      if (t.dtype() != i32 && t.dtype() != u32) {
        HostTensor floats(f32_spec(t.shape()));
        for (float& x : floats.as<float>()) x = any_float(random);
        if (t.dtype() == u8 || t.dtype() == boolean) {
          for (float& x : floats.as<float>()) x = static_cast<float>(random() % 3);
        }
        t = floats.cast(t.dtype());
        continue;
      }
      // Labels; some of them are not classes.
      const auto any_label = [&](auto& label) {
        label = static_cast<std::decay_t<decltype(label)>>(random() % 8) - 1;
      };
      if (t.dtype() == i32) {
        for (int32_t& label : t.as<int32_t>()) any_label(label);
      } else {
        for (uint32_t& label : t.as<uint32_t>()) any_label(label);
      }
    }
    values_.resize(op.operands.size());
    std::vector<HostTensor> results;
    for (const OpStage& stage : op.stages) {
      std::vector<HostTensor> inputs;
      for (const int32_t i : stage.inputs) {
        inputs.push_back(i < 0 ? results[static_cast<size_t>(~i)]
                               : values_[static_cast<size_t>(i)]);
      }
      results.push_back(run_op(*stage.op, stage.attrs, inputs, Precision::kFloat)[0]);
      if (stage.output >= 0) values_[static_cast<size_t>(stage.output)] = results.back();
    }
  }

  /// Runs on the current instruction set. Returns a description of the first error, or an empty
  /// string.
  std::string run() {
    choice_ = choose_fused_kernel(op_);
    kernel_ = bind_fused_kernel(op_);
    choose_aliases();
    if (std::string wrong = run_together(); !wrong.empty()) return wrong;
    return choice_.tasks > 1 ? run_apart() : "";
  }
  int64_t tasks() const { return choice_.tasks; }
  bool coincides() const { return coincides_; }

 private:
  static constexpr int kPoison = 0xff;  // A NaN of each floating-point dtype.

  size_t operands() const { return op_.operands.size(); }
  int64_t bytes(size_t i) const { return buffer_bytes(op_.operands[i], op_.layouts[i]); }
  bool is_output(size_t i) const { return i >= static_cast<size_t>(op_.inputs); }

  // Places some outputs in the memory of an input, where the choice allows it.
  void choose_aliases() {
    alias_of_.resize(operands());
    std::iota(alias_of_.begin(), alias_of_.end(), 0);
    coincides_ = false;
    auto pairs = choice_.may_coincide;
    std::shuffle(pairs.begin(), pairs.end(), random_);
    std::vector<bool> taken(operands(), false);
    for (const auto& [in, out] : pairs) {
      const auto i = static_cast<size_t>(in);
      const auto o = static_cast<size_t>(op_.inputs + out);
      if (taken[i] || taken[o] || one_in(random_, 3)) continue;
      taken[i] = taken[o] = true;
      alias_of_[o] = i;
      coincides_ = true;
    }
  }

  std::vector<std::unique_ptr<Buffer>> poisoned() {
    std::vector<std::unique_ptr<Buffer>> buffers;
    for (size_t i = 0; i < operands(); ++i) {
      buffers.push_back(std::make_unique<Buffer>(
          bytes(i), one_in(random_, 2) ? Buffer::Against::kBegin : Buffer::Against::kEnd));
      std::memset(buffers[i]->data(), kPoison, static_cast<size_t>(bytes(i)));
    }
    return buffers;
  }

  void write_input(size_t i, Buffer& to) const {
    write_elements(op_.operands[i], op_.layouts[i], to.data(), 0, values_[i].bytes());
  }

  void run_task(const std::vector<std::unique_ptr<Buffer>>& buffers, int64_t task) const {
    std::vector<std::byte*> addresses;
    for (size_t i = 0; i < operands(); ++i) addresses.push_back(buffers[alias_of_[i]]->data());
    GuardedBuffer<std::byte> workspace((choice_.workspace_bytes + 63) / 64 * 64);
    std::memset(workspace.data(), kPoison, static_cast<size_t>(workspace.size()));
    const FlushToZero flush;
    kernel_.run(kernel_.state.get(), {addresses.data(), workspace.data(), nullptr}, task);
  }

  std::string compare(size_t i, const Buffer& found) const {
    HostTensor got(op_.operands[i]);
    read_elements(op_.operands[i], op_.layouts[i], found.data(), 0, got.bytes());
    const HostTensor want = values_[i].cast(f32), have = got.cast(f32);
    const float* const w = want.as<float>().data();
    const float* const h = have.as<float>().data();
    const int64_t at = first_difference(w, h, got.elements());
    if (at < 0) return "";
    return fmt::format("operand %{}, element {}: want {}, got {}", i, at, w[at], h[at]);
  }

  // Runs all tasks on the same operands, in random order.
  std::string run_together() {
    const auto buffers = poisoned();
    for (size_t i = 0; i < static_cast<size_t>(op_.inputs); ++i) write_input(i, *buffers[i]);
    std::vector<int64_t> order(static_cast<size_t>(choice_.tasks));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random_);
    for (const int64_t task : order) run_task(buffers, task);
    std::vector<bool> overwritten(operands(), false);
    for (size_t i = 0; i < operands(); ++i) {
      if (alias_of_[i] != i) overwritten[alias_of_[i]] = true;
    }
    for (size_t i = 0; i < operands(); ++i) {
      if (overwritten[i]) continue;
      if (std::string wrong = compare(i, *buffers[alias_of_[i]]); !wrong.empty())
        return "tasks together: " + wrong;
    }
    return "";
  }

  // Runs each task on operands that hold only the bytes that it may touch.
  std::string run_apart() {
    const auto whole = poisoned();
    const auto result = poisoned();
    for (size_t i = 0; i < static_cast<size_t>(op_.inputs); ++i) write_input(i, *whole[i]);
    for (int64_t task = 0; task < choice_.tasks; ++task) {
      const auto buffers = poisoned();
      const auto ranges = [&](size_t i) {
        return promised(bytes(i), choice_.task_stride[i], choice_.task_pitch[i], task);
      };
      for (size_t i = 0; i < operands(); ++i) {
        if (is_output(i) && choice_.task_stride[i] == 0)
          return fmt::format("each task may write all of output %{}", i);
        if (is_output(i)) continue;
        for (const auto& [begin, end] : ranges(i))
          std::copy(whole[i]->data() + begin, whole[i]->data() + end, buffers[i]->data() + begin);
      }
      run_task(buffers, task);
      for (size_t i = static_cast<size_t>(op_.inputs); i < operands(); ++i) {
        Buffer& written = *buffers[alias_of_[i]];
        for (const auto& [begin, end] : ranges(i)) {
          std::copy(written.data() + begin, written.data() + end, result[i]->data() + begin);
          std::fill(written.data() + begin, written.data() + end, std::byte{kPoison});
        }
        const auto outside = std::find_if(written.begin(), written.end(),
                                          [](std::byte b) { return b != std::byte{kPoison}; });
        if (outside != written.end()) {
          return fmt::format("task {} writes byte {} of output %{}", task,
                             outside - written.begin(), i);
        }
      }
    }
    for (size_t i = static_cast<size_t>(op_.inputs); i < operands(); ++i) {
      if (std::string wrong = compare(i, *result[i]); !wrong.empty())
        return "tasks apart: " + wrong;
    }
    return "";
  }

  const FusedOp& op_;
  Random& random_;
  std::vector<HostTensor> values_;
  KernelChoice choice_;
  runtime::BoundKernel kernel_;
  std::vector<size_t> alias_of_;  // For each operand, the operand whose memory it uses.
  bool coincides_ = false;
};

uint64_t number(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

/// Returns the kind of an op, for statistics.
std::string kind_of(const FusedOp& op) {
  const OpStage& head = op.stages[0];
  const bool product = head.op == &ops::matmul_def() || head.op == &ops::strided_matmul_def();
  const bool mixed = std::any_of(op.operands.begin(), op.operands.end(), [](const TensorSpec& s) {
    return s.dtype != f32 && s.dtype != i32 && s.dtype != u32;
  });
  const bool on_rows = std::any_of(op.stages.begin(), op.stages.end(), [&](const OpStage& stage) {
    const auto specs = op.input_specs(stage);
    return RowOp::of(OpView(*stage.op, stage.attrs, specs, {&stage.spec, 1})).has_value();
  });
  if (mixed && product) return "mixed product";
  if (mixed) return on_rows ? "mixed chain, on rows" : "mixed chain";
  if (on_rows) return product ? "product, on rows" : "chain, on rows";
  const bool reduced = !op.stages.back().op->has(Trait::kElementwise) && op.stages.size() > 1;
  if (reduced) return product ? "product, reduced" : "chain, reduced";
  for (const OpDef* conv :
       {&ops::conv_def(), &ops::conv_transpose_def(), &ops::conv_weight_grad_def()}) {
    if (head.op == conv) return conv->name;
  }
  if (head.op == &ops::strided_matmul_def()) return "strided products";
  if (!product) {
    const auto output = static_cast<size_t>(op.inputs);
    return "chain on " + to_string(op.layouts[output]);
  }
  const auto options = from_attrs<ops::MatmulOptions>(head.attrs);
  const bool several = op.spec_of(head.inputs[1]).shape.rank() > 2;
  return fmt::format("product{}{}{}", several ? "s of several matrices" : "",
                     options.lhs_transposed ? " of a transpose" : "",
                     options.rhs_transposed ? " by a transpose" : "");
}

/// Returns whether a stage after a product reads matrices or rows that some matrices share.
bool shares_matrices(const FusedOp& op) {
  const Shape& space = op.stages[0].spec.shape;
  if (space.rank() < 3 || !op.stages[0].op->name.ends_with("matmul")) return false;
  for (int32_t i = op.stages[0].inputs[1] + 1; i < op.inputs; ++i) {
    const Shape& shape = op.spec_of(i).shape;
    const bool rows = shape.rank() > 1 && shape.dim(-1) == space.dim(-1);
    if (shape != space && rows && shape.elements() > space.dim(-1)) return true;
  }
  return false;
}

// A block of a chain with values for each channel ends at the last channel.
TEST(FusedKernel, SumsNoColumnsBehindValuesForEachChannel) {
  FusedOp op;
  op.operands = {f32_spec({2, 3, 8}), f32_spec({3, 1}), f32_spec({8})};
  op.layouts.resize(3);
  op.inputs = 2;
  OpStage product{.op = &ops::mul_def(), .inputs = {0, 1}, .spec = f32_spec({2, 3, 8})};
  OpStage sum{.op = &ops::reduce_sum_def(),
              .attrs = to_attrs(ops::ReduceOptions{.axes = {0, 1}}),
              .inputs = {~0},
              .output = 2,
              .spec = f32_spec({8})};
  op.stages = {product, sum};
  EXPECT_FALSE(fused_kernel_supports(op));
  op.operands[2] = sum.spec = f32_spec({2, 3});
  sum.attrs = to_attrs(ops::ReduceOptions{.axes = {2}});
  op.stages = {product, sum};
  ASSERT_TRUE(fused_kernel_supports(op));
  Random random(3);
  EXPECT_EQ(Trial(op, random).run(), "");
}

// A fused op with operands of one shape: `inputs` inputs, then outputs.
FusedOp chain_of(const Shape& shape, int32_t inputs, std::vector<OpStage> stages) {
  FusedOp op;
  op.inputs = inputs;
  for (OpStage& stage : stages) {
    stage.spec = f32_spec(shape);
    if (stage.output >= 0) stage.output = inputs++;
  }
  op.operands.assign(static_cast<size_t>(inputs), f32_spec(shape));
  op.layouts.resize(op.operands.size());
  op.stages = std::move(stages);
  return op;
}

// The updates of optimizers, whose operands are the state, the gradient and the variable, and how
// many loops compute them.
std::vector<std::pair<FusedOp, int>> updates(const Shape& shape) {
  constexpr int32_t kM = 0, kGrad = 1, kV = 2, kVariable = 3, kStored = 0;
  const auto moving = [](const char* type, std::vector<int32_t> inputs) {
    return OpStage{.op = &ops::accumulate_def(),
                   .attrs = to_attrs(ops::AccumulateOptions{type, 0.9, ""}),
                   .inputs = std::move(inputs),
                   .output = kStored};
  };
  const auto add = [](std::vector<int32_t> inputs) {
    return OpStage{.op = &ops::scaled_add_def(),
                   .attrs = to_attrs(ops::ScaledAddOptions{0.75, -0.25, ""}),
                   .inputs = std::move(inputs),
                   .output = kStored};
  };
  const auto updater = [](std::vector<int32_t> inputs, int32_t output) {
    return OpStage{
        .op = inputs.size() == 2 ? &ops::adam_updater_def() : &ops::adam_updater_decay_def(),
        .attrs = inputs.size() == 2
                     ? to_attrs(ops::AdamUpdaterOptions{"adam", 3, 0.9, 0.99, 1e-3, ""})
                     : to_attrs(ops::AdamUpdaterDecayOptions{}),
        .inputs = std::move(inputs),
        .output = output};
  };
  const OpStage m = moving("moving_average", {kM, kGrad});
  const OpStage v = moving("moving_average_square", {kV, kGrad});
  const OpStage scaled{.op = &ops::mul_def(), .inputs = {kGrad, kGrad}};
  const auto adam = [&](std::vector<OpStage> stages) {
    return chain_of(shape, 4, std::move(stages));
  };
  return {
      {adam({m, v, updater({~0, ~1}, -1), add({kVariable, ~2})}), 1},
      {adam({v, m, updater({~1, ~0}, -1), add({kVariable, ~2})}), 1},
      {adam({v, m, updater({~1, ~0, kVariable}, -1), add({kVariable, ~2})}), 1},
      {adam({scaled, moving("moving_average", {kM, ~0}), moving("moving_average_square", {kV, ~0}),
             updater({~1, ~2}, -1), add({kVariable, ~3})}),
       1},
      {adam({add({kM, kGrad}), add({kVariable, ~0})}), 1},
      {adam({add({kM, kGrad}), add({kV, ~0}), add({kGrad, kM}), add({kVariable, ~2})}), 2},
      // No loop stores the update, swaps its operands or reads two gradients.
      {adam({m, v, updater({~0, ~1}, kStored), add({kVariable, ~2})}), 0},
      {adam({m, v, updater({~1, ~0}, -1), add({kVariable, ~2})}), 0},
      {adam({m, moving("moving_average_square", {kV, kVariable}), updater({~0, ~1}, -1),
             add({kVariable, ~2})}),
       0},
      // A later stage reads the update.
      {adam({m, v, updater({~0, ~1}, -1), add({kVariable, ~2}), add({kV, ~2})}), 0},
  };
}

TEST(FusedKernel, UpdatesAreOneLoop) {
  Random random(5);
  const Isa before = current_isa();
  for (const Shape& shape : {Shape{3, 37}, Shape{5}, Shape{300, 1000}}) {
    int i = 0;
    for (const auto& [op, loops] : updates(shape)) {
      // Two updates suffice for many blocks.
      if (shape.elements() > Chain::kLoopBlock && i == 2) break;
      SCOPED_TRACE(fmt::format("update {}", i++));
      ASSERT_TRUE(fused_kernel_supports(op));
      Chain chain(op, 0, op.stages.size());
      chain.find_loops();
      EXPECT_EQ(chain.loops(), loops);
      for (const Isa isa : tested_isas()) {
        set_isa(isa);
        EXPECT_EQ(Trial(op, random).run(), "") << to_string(isa);
      }
      set_isa(before);
    }
  }
}

TEST(FusedKernel, GivesTheBitsOfItsStages) {
  const bool one = std::getenv("SLUICE_SEED") != nullptr;
  const uint64_t first = number("SLUICE_SEED", 0);
  const uint64_t last = first + (one ? 1 : number("SLUICE_OPS", kOps));
  const Isa before = current_isa();
  std::map<std::string, int> kinds;
  int several_tasks = 0, coinciding = 0, shared = 0, panels_read = 0, panels_made = 0, refused = 0,
      failures = 0;
  for (uint64_t seed = first; seed < last && failures < 5; ++seed) {
    const std::optional<FusedOp> op = RandomFusedOp(seed).make();
    if (!op || op->stages.empty()) continue;
    if (one) std::cout << text(*op);
    if (!fused_kernel_supports(*op)) {
      ++refused;
      continue;
    }
    ++kinds[kind_of(*op)];
    Random random(static_cast<uint32_t>(seed));
    Trial trial(*op, random);
    for (const Isa isa : tested_isas()) {
      set_isa(isa);
      const std::string wrong = trial.run();
      if (wrong.empty()) continue;
      ADD_FAILURE() << "SLUICE_SEED=" << seed << " on " << to_string(isa) << ": " << wrong << "\n"
                    << text(*op);
      ++failures;
      break;
    }
    set_isa(before);
    shared += shares_matrices(*op);
    several_tasks += trial.tasks() > 1;
    coinciding += trial.coincides();
    panels_made += op->layouts[static_cast<size_t>(op->inputs)] != Layout{};
    panels_read += op->stages[0].op == &ops::matmul_def() &&
                   op->layouts[static_cast<size_t>(op->stages[0].inputs[1])] != Layout{};
  }
  for (const auto& [kind, count] : kinds) std::cout << fmt::format("{} {}\n", count, kind);
  std::cout << fmt::format(
      "{} of several tasks, {} with coinciding operands, {} into panels, {} products by panels, {} "
      "with shared matrices, {} refused\n",
      several_tasks, coinciding, panels_made, panels_read, shared, refused);
  if (one) return;
  const int share = static_cast<int>(last - first) / 100;
  EXPECT_EQ(kinds.size(), 23u);
  for (const auto& [kind, count] : kinds) EXPECT_GE(count, share / 4) << kind;
  for (const int count : {several_tasks, coinciding, panels_made, panels_read})
    EXPECT_GE(count, 5 * share);
  EXPECT_GE(shared, share / 4);
}

}  // namespace
}  // namespace sluice::cpu
