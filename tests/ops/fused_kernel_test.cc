// Fused kernels against their stages run one by one by the reference kernels, on generated ops: bit for bit, on every
// instruction set, touching only what the choice of the kernel promises.
// SLUICE_SEED=n runs one op and says what it is, SLUICE_OPS=n as many ops.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <numeric>
#include <optional>

#include "sluice/base/layout.h"
#include "sluice/cpu/functor.h"
#include "sluice/cpu/kernel_list.h"
#include "sluice/cpu/kernel_test_util.h"
#include "sluice/interp/run_op.h"
#include "sluice/ops/matmul.h"
#include "sluice/ops/op.h"
#include "sluice/ops/reductions.h"

namespace sluice::cpu {
namespace {

constexpr uint64_t kOps = 2500;
constexpr int64_t kMostWork = 1 << 21;  // Multiply-adds of a product.

using Random = std::mt19937;
using Buffer = GuardedBuffer<float>;

int64_t pick(Random& random, std::initializer_list<int64_t> from) {
  return from.begin()[random() % from.size()];
}
bool one_in(Random& random, uint32_t n) { return random() % n == 0; }

int64_t any_size(Random& random) {
  return pick(random, {1, 1, 2, 7, 15, 16, 17, 24, 31, 32, 33, 48, 64, 65, 112, 113, 200});
}
int64_t any_depth(Random& random) {
  return pick(random, {1, 2, 7, 16, 17, 24, 31, 33, 100, 128, 129, 256, 257, 300, 520});
}

/// Operators that chains may have.
const std::vector<const OpDef*>& chain_ops() {
  static const std::vector<const OpDef*> all = [] {
    std::vector<const OpDef*> found;
    for (const OpDef* def : ops::all_ops()) {
      const size_t inputs = def->inputs.size() - (def->variadic ? 1 : 0);
      const std::vector<TensorSpec> specs(inputs, f32_spec({4}));
      const TensorSpec out = f32_spec({4});
      const OpView view(*def, def->options, specs, {&out, 1});
      if (Functor::exists(view)) found.push_back(def);
    }
    return found;
  }();
  return all;
}

void set(Attrs& attrs, std::string_view name, const AttrValue& value) {
  for (auto& [key, old] : attrs.items) {
    if (key == name) old = value;
  }
}
bool has(const Attrs& attrs, std::string_view name) {
  return std::any_of(attrs.items.begin(), attrs.items.end(),
                     [&](const auto& item) { return item.first == name; });
}

/// Grows a FusedOp; operands are collected as inputs first and renumbered at the end.
class Maker {
 public:
  explicit Maker(uint64_t seed) : random_(static_cast<uint32_t>(seed * 2654435761u + 17)) {}

  std::optional<FusedOp> make() {
    const bool headed = !one_in(random_, 4);
    if (headed) {
      add_product();
    } else {
      space_ = any_space();
    }
    const Layout full = any_layout();
    const bool may_broadcast = full == Layout{} && !one_in(random_, 4);
    const int stages =
        headed ? static_cast<int>(random_() % 8) : 1 + static_cast<int>(random_() % 8);
    for (int s = 0; s < stages; ++s) add_stage(may_broadcast);
    if (one_in(random_, 3)) add_reduction();
    store_results();
    for (size_t i = 0; i < op_.operands.size(); ++i) op_.layouts.emplace_back();
    if (headed && one_in(random_, 2)) {
      const auto b = static_cast<size_t>(op_.stages[0].inputs[1]);
      op_.layouts[b] =
          one_in(random_, 4) ? any_layout() : Layout{op_.operands[b].shape[1] <= 16 ? 16 : 32};
    }
    op_ = op_.with_layout(full);
    if (headed && one_in(random_, 16)) op_.layouts[0] = {16};  // Refused.
    return op_;
  }

 private:
  Shape any_space() {
    switch (random_() % 8) {
      case 0:
        return Shape{};
      case 1:
        return {pick(random_, {1, 5, 17, 1000, 5000, 70001})};
      case 2:
        return {any_size(random_), 3, any_size(random_)};
      default:
        return {any_size(random_), pick(random_, {1, 7, 17, 32, 33, 200, 1500})};
    }
  }

  Layout any_layout() { return {pick(random_, {0, 0, 16, 32})}; }

  void add_product() {
    int64_t m, n, k;
    do {
      m = any_size(random_);
      n = any_size(random_);
      k = any_depth(random_);
    } while (m * n * k > kMostWork);
    const ops::MatmulOptions options{.lhs_transposed = one_in(random_, 3),
                                     .rhs_transposed = one_in(random_, 3)};
    // Rows of several matrices are rows of one.
    const int64_t matrices =
        !options.lhs_transposed && m * n * k * 3 < kMostWork && one_in(random_, 4) ? 3 : 0;
    space_ = matrices > 0 ? Shape{matrices, m, n} : Shape{m, n};
    FusedOp::Stage stage;
    stage.def = &ops::matmul_def();
    stage.attrs = to_attrs(options);
    const Shape lhs = matrices > 0 ? Shape{matrices, m, k} : Shape{m, k};
    stage.inputs = {add_input(options.lhs_transposed ? Shape{k, m} : lhs),
                    add_input(options.rhs_transposed ? Shape{n, k} : Shape{k, n})};
    if (m == k && n == k && matrices == 0 && one_in(random_, 4)) stage.inputs[1] = 0;
    stage.spec = f32_spec(space_);
    op_.stages.push_back(stage);
  }

  int32_t add_input(Shape shape) {
    op_.operands.push_back(f32_spec(std::move(shape)));
    return op_.inputs++;
  }

  Shape shape_of_operand(bool may_broadcast) {
    if (!may_broadcast) return one_in(random_, 5) ? Shape{} : space_;
    const int rank = space_.rank();
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

  int32_t operand(const Shape& shape) {
    // One that is there, so that operands have several readers.
    std::vector<int32_t> known;
    for (int32_t i = 0; i < op_.inputs; ++i) {
      if (op_.operands[static_cast<size_t>(i)].shape == shape) known.push_back(i);
    }
    if (!known.empty() && (one_in(random_, 3) || op_.inputs > 8))
      return known[random_() % known.size()];
    return add_input(shape);
  }

  int32_t source(bool may_broadcast) {
    const auto stages = static_cast<int32_t>(op_.stages.size());
    if (stages > 0 && !one_in(random_, 3)) return ~(stages - 1);
    if (stages > 1 && one_in(random_, 3))
      return ~static_cast<int32_t>(random_() % op_.stages.size());
    return operand(shape_of_operand(may_broadcast));
  }

  bool try_stage(bool may_broadcast) {
    FusedOp::Stage stage;
    stage.def = chain_ops()[random_() % chain_ops().size()];
    stage.attrs = stage.def->options;
    if (has(stage.attrs, "kind")) {
      static const char* const kKinds[] = {"add", "add_square", "mean", "moving_average",
                                           "moving_average_square"};
      set(stage.attrs, "kind", std::string(kKinds[random_() % 5]));
    }
    for (const char* hyper : {"a", "b", "f", "beta1", "beta2", "learning_rate", "weight_decay"}) {
      const double value =
          one_in(random_, 6) ? 0 : std::uniform_real_distribution<>(-0.9, 0.9)(random_);
      if (has(stage.attrs, hyper)) set(stage.attrs, hyper, value);
    }
    const FusedOp before = op_;
    const size_t count = stage.def->inputs.size() - (stage.def->variadic ? 1 : 0);
    for (size_t i = 0; i < count; ++i) stage.inputs.push_back(source(may_broadcast));
    if (stage.def->variadic && has(stage.attrs, "operands") && one_in(random_, 2)) {
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
    try {
      const auto specs = op_.input_specs(stage);
      const auto out = stage.def->infer(OpView(*stage.def, stage.attrs, specs));
      if (out.size() == 1 && out[0] == f32_spec(space_)) {
        stage.spec = out[0];
        op_.stages.push_back(stage);
        return true;
      }
    } catch (const Error&) {
    }
    op_ = before;
    return false;
  }

  void add_stage(bool may_broadcast) {
    for (int tries = 0; tries < 50; ++tries) {
      if (try_stage(may_broadcast)) return;
    }
  }

  // Of the last stage mostly; over the first axes, the last ones, or all.
  void add_reduction() {
    if (op_.stages.empty()) return;
    static const std::vector<const OpDef*> kOps = {
        &ops::reduce_sum_def(), &ops::reduce_mean_def(), &ops::reduce_max_def(),
        &ops::reduce_l2_def(),  &ops::reduce_l1_def(),   &ops::reduce_sum_square_def()};
    const auto stages = static_cast<int32_t>(op_.stages.size());
    const int rank = space_.rank();
    ops::ReduceOptions options{.keepdims = one_in(random_, 3)};
    const auto some = static_cast<int>(random_() % static_cast<uint32_t>(rank + 1));
    for (int a = 0; a < some; ++a) options.axes.push_back(a);
    if (one_in(random_, 2)) {
      for (int64_t& axis : options.axes) axis = rank - 1 - axis;
    }
    FusedOp::Stage stage;
    stage.def = kOps[random_() % kOps.size()];
    stage.attrs = to_attrs(options);
    stage.inputs = {one_in(random_, 6)
                        ? ~static_cast<int32_t>(random_() % static_cast<uint32_t>(stages))
                        : ~(stages - 1)};
    stage.spec = stage.def->infer(OpView(*stage.def, stage.attrs, op_.input_specs(stage)))[0];
    op_.stages.push_back(stage);
  }

  // Each result that no stage reads, and some others.
  void store_results() {
    std::vector<bool> read(op_.stages.size(), false);
    for (const FusedOp::Stage& stage : op_.stages) {
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
  Shape space_;
  FusedOp op_;
};

std::string text(const FusedOp& op) {
  std::string lines;
  for (size_t i = 0; i < op.operands.size(); ++i) {
    lines += fmt::format("  %{} {} {}\n", i, to_string(op.operands[i]), to_string(op.layouts[i]));
  }
  for (size_t s = 0; s < op.stages.size(); ++s) {
    const FusedOp::Stage& stage = op.stages[s];
    lines += fmt::format("  stage {} {} {} (", s, stage.def->type, to_string(stage.attrs));
    for (const int32_t i : stage.inputs)
      lines += i < 0 ? fmt::format(" stage{}", ~i) : fmt::format(" %{}", i);
    lines += stage.output < 0 ? " )\n" : fmt::format(" ) -> %{}\n", stage.output);
  }
  return lines;
}

/// Bytes of an operand that task t may touch, as a mark for each float.
std::vector<bool> promised(int64_t floats, int64_t stride, int64_t pitch, int64_t task) {
  std::vector<bool> may(static_cast<size_t>(floats), stride == 0);
  if (stride == 0) return may;
  for (int64_t i = 0; i < floats; ++i) {
    const int64_t at = pitch == 0 ? i * 4 : i * 4 % pitch;
    may[static_cast<size_t>(i)] = at >= task * stride && at < (task + 1) * stride;
  }
  return may;
}

/// An op with operands drawn for it, and what its stages make of them.
class Trial {
 public:
  Trial(const FusedOp& op, Random& random) : op_(op), random_(random) {
    for (int32_t i = 0; i < op.inputs; ++i) {
      HostTensor& t = values_.emplace_back(op.operands[static_cast<size_t>(i)]);
      for (float& x : t.as<float>()) x = any_float(random);
    }
    values_.resize(op.operands.size());
    std::vector<HostTensor> results;
    for (const FusedOp::Stage& stage : op.stages) {
      std::vector<HostTensor> inputs;
      for (const int32_t i : stage.inputs) {
        inputs.push_back(i < 0 ? results[static_cast<size_t>(~i)]
                               : values_[static_cast<size_t>(i)]);
      }
      results.push_back(run_op(*stage.def, stage.attrs, inputs, Precision::kFloat)[0]);
      if (stage.output >= 0) values_[static_cast<size_t>(stage.output)] = results.back();
    }
  }

  /// What is wrong on the instruction set in use; empty if nothing is.
  std::string run() {
    choice_ = choose_fused_kernel(op_);
    kernel_ = bind_fused_kernel(op_);
    choose_homes();
    if (std::string wrong = run_together(); !wrong.empty()) return wrong;
    return choice_.tasks > 1 ? run_apart() : "";
  }
  int64_t tasks() const { return choice_.tasks; }
  bool coincides() const { return coincides_; }

 private:
  static constexpr int kPoison = 0xff;  // Four of them are a NaN.

  size_t operands() const { return op_.operands.size(); }
  int64_t floats(size_t i) const { return buffer_elements(op_.operands[i], op_.layouts[i]); }
  bool is_output(size_t i) const { return i >= static_cast<size_t>(op_.inputs); }

  // Some outputs lie where an input does, as the choice allows.
  void choose_homes() {
    homes_.resize(operands());
    std::iota(homes_.begin(), homes_.end(), 0);
    coincides_ = false;
    auto pairs = choice_.may_coincide;
    std::shuffle(pairs.begin(), pairs.end(), random_);
    std::vector<bool> taken(operands(), false);
    for (const auto& [in, out] : pairs) {
      const auto i = static_cast<size_t>(in);
      const auto o = static_cast<size_t>(op_.inputs + out);
      if (taken[i] || taken[o] || one_in(random_, 3)) continue;
      taken[i] = taken[o] = true;
      homes_[o] = i;
      coincides_ = true;
    }
  }

  std::vector<std::unique_ptr<Buffer>> poisoned() {
    std::vector<std::unique_ptr<Buffer>> buffers;
    for (size_t i = 0; i < operands(); ++i) {
      buffers.push_back(std::make_unique<Buffer>(
          floats(i), one_in(random_, 2) ? Buffer::Against::kBegin : Buffer::Against::kEnd));
      std::memset(buffers[i]->data(), kPoison, static_cast<size_t>(floats(i)) * 4);
    }
    return buffers;
  }

  void write_input(size_t i, Buffer& to) const {
    write_elements(op_.operands[i], op_.layouts[i], reinterpret_cast<std::byte*>(to.data()), 0,
                   values_[i].bytes());
  }

  void run_task(const std::vector<std::unique_ptr<Buffer>>& buffers, int64_t task) const {
    std::vector<std::byte*> addresses;
    for (size_t i = 0; i < operands(); ++i)
      addresses.push_back(reinterpret_cast<std::byte*>(buffers[homes_[i]]->data()));
    GuardedBuffer<std::byte> workspace((choice_.workspace_bytes + 63) / 64 * 64);
    std::memset(workspace.data(), kPoison, static_cast<size_t>(workspace.size()));
    const FlushToZero flush;
    kernel_.run(kernel_.state.get(), {addresses.data(), workspace.data(), nullptr}, task);
  }

  std::string compare(size_t i, const Buffer& found) const {
    HostTensor got(op_.operands[i]);
    read_elements(op_.operands[i], op_.layouts[i], reinterpret_cast<const std::byte*>(found.data()),
                  0, got.bytes());
    const float* const want = values_[i].as<float>().data();
    const float* const have = got.as<float>().data();
    const int64_t at = first_difference(want, have, got.elements());
    if (at < 0) return "";
    return fmt::format("operand %{}, element {}: want {}, got {}", i, at, want[at], have[at]);
  }

  // All tasks on the same operands, in random order.
  std::string run_together() {
    const auto buffers = poisoned();
    for (size_t i = 0; i < static_cast<size_t>(op_.inputs); ++i) write_input(i, *buffers[i]);
    std::vector<int64_t> order(static_cast<size_t>(choice_.tasks));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random_);
    for (const int64_t task : order) run_task(buffers, task);
    std::vector<bool> overwritten(operands(), false);
    for (size_t i = 0; i < operands(); ++i) {
      if (homes_[i] != i) overwritten[homes_[i]] = true;
    }
    for (size_t i = 0; i < operands(); ++i) {
      if (overwritten[i]) continue;
      if (std::string wrong = compare(i, *buffers[homes_[i]]); !wrong.empty())
        return "tasks together: " + wrong;
    }
    return "";
  }

  // Each task on operands that hold only what it may touch.
  std::string run_apart() {
    const auto whole = poisoned();
    const auto result = poisoned();
    for (size_t i = 0; i < static_cast<size_t>(op_.inputs); ++i) write_input(i, *whole[i]);
    for (int64_t task = 0; task < choice_.tasks; ++task) {
      const auto buffers = poisoned();
      std::vector<std::vector<bool>> may;
      for (size_t i = 0; i < operands(); ++i) {
        const int64_t stride = choice_.task_stride[i];
        const int64_t pitch = choice_.task_pitch[i];
        may.push_back(promised(floats(i), stride, pitch, task));
        if (is_output(i) && stride == 0)
          return fmt::format("each task may write all of output %{}", i);
        for (int64_t f = 0; f < floats(i); ++f) {
          if (!is_output(i) && may[i][static_cast<size_t>(f)]) (*buffers[i])[f] = (*whole[i])[f];
        }
      }
      run_task(buffers, task);
      for (size_t i = static_cast<size_t>(op_.inputs); i < operands(); ++i) {
        const Buffer& written = *buffers[homes_[i]];
        for (int64_t f = 0; f < floats(i); ++f) {
          const auto bits = std::bit_cast<uint32_t>(written[f]);
          if (may[i][static_cast<size_t>(f)]) {
            (*result[i])[f] = written[f];
          } else if (bits != 0xffffffffu) {
            return fmt::format("task {} writes float {} of output %{}", task, f, i);
          }
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
  std::vector<size_t> homes_;  // The operand in whose bytes each one lies.
  bool coincides_ = false;
};

uint64_t number(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

/// What kind of op it is, for counting.
std::string kind_of(const FusedOp& op) {
  const bool reduced = !op.stages.back().def->has(Trait::kElementwise) && op.stages.size() > 1;
  const FusedOp::Stage& head = op.stages[0];
  if (reduced) return head.def == &ops::matmul_def() ? "product, reduced" : "chain, reduced";
  if (head.def != &ops::matmul_def()) {
    const auto output = static_cast<size_t>(op.inputs);
    return "chain on " + to_string(op.layouts[output]);
  }
  const auto options = from_attrs<ops::MatmulOptions>(head.attrs);
  return fmt::format("product{}{}", options.lhs_transposed ? " of a transpose" : "",
                     options.rhs_transposed ? " by a transpose" : "");
}

TEST(FusedKernel, GivesTheBitsOfItsStages) {
  const bool one = std::getenv("SLUICE_SEED") != nullptr;
  const uint64_t first = number("SLUICE_SEED", 0);
  const uint64_t last = first + (one ? 1 : number("SLUICE_OPS", kOps));
  const Isa before = current_isa();
  std::map<std::string, int> kinds;
  int several_tasks = 0, coinciding = 0, panels_read = 0, panels_made = 0, refused = 0,
      failures = 0;
  for (uint64_t seed = first; seed < last && failures < 5; ++seed) {
    const std::optional<FusedOp> op = Maker(seed).make();
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
    several_tasks += trial.tasks() > 1;
    coinciding += trial.coincides();
    panels_made += op->layouts[static_cast<size_t>(op->inputs)] != Layout{};
    panels_read += op->stages[0].def == &ops::matmul_def() &&
                   op->layouts[static_cast<size_t>(op->stages[0].inputs[1])] != Layout{};
  }
  for (const auto& [kind, count] : kinds) std::cout << fmt::format("{} {}\n", count, kind);
  std::cout << fmt::format(
      "{} of several tasks, {} with coinciding operands, {} into panels, {} products by panels, {} "
      "refused\n",
      several_tasks, coinciding, panels_made, panels_read, refused);
  if (one) return;
  const int share = static_cast<int>(last - first) / 100;
  EXPECT_EQ(kinds.size(), 9u);
  for (const auto& [kind, count] : kinds) EXPECT_GE(count, share) << kind;
  for (const int count : {several_tasks, coinciding, panels_made, panels_read})
    EXPECT_GE(count, 5 * share);
}

}  // namespace
}  // namespace sluice::cpu
