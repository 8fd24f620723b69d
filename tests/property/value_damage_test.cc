// Damages plans so that they compute something else than the graph. The value program must show it,
// whatever the checker reports about their memory.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <functional>

#include "../support/mlp.h"
#include "damage.h"
#include "random_graph.h"
#include "random_graph_run.h"
#include "sluice/compiler/compile.h"
#include "sluice/exe/text.h"
#include "sluice/ops/op.h"
#include "small_programs.h"

namespace sluice::property {
namespace {

/// The op of a kernel, or of one stage of a fused kernel.
struct KernelOp {
  std::string& op;
  Attrs& attrs;
};
KernelOp part(exe::Kernel& k, size_t stage) {
  if (k.stages.empty()) return {k.op, k.attrs};
  return {k.stages[stage].op, k.stages[stage].attrs};
}

/// Swaps input i of an op with the next one. Returns false if they are the same value or have
/// different specs.
bool swap_inputs(exe::Kernel& k, size_t stage, size_t i) {
  if (k.stages.empty()) {
    if (i + 1 >= k.operands.size() || k.operands[i + 1].access != exe::Access::kRead) return false;
    std::swap(k.operands[i], k.operands[i + 1]);
    return k.operands[i].spec == k.operands[i + 1].spec &&
           k.operands[i].value != k.operands[i + 1].value;
  }
  std::vector<int32_t>& inputs = k.stages[stage].inputs;
  const auto spec_of = [&](int32_t n) {
    return n < 0 ? k.stages[static_cast<size_t>(~n)].spec : k.operands[static_cast<size_t>(n)].spec;
  };
  if (i + 1 >= inputs.size()) return false;
  std::swap(inputs[i], inputs[i + 1]);
  return spec_of(inputs[i]) == spec_of(inputs[i + 1]) && inputs[i] != inputs[i + 1];
}

bool is_symmetric(const KernelOp& p) {
  // The factors of a scaled addition may be equal.
  const auto& attrs = p.attrs.items;
  return p.op == "Add" || p.op == "Mul" ||
         (p.op == "ScaledAddLhsInplace" && attrs[0].second == attrs[1].second);
}

/// Returns the possible changes of one op of a kernel. Each returns whether it changed something.
std::vector<std::function<bool(exe::Kernel&)>> changes(exe::Kernel& kernel, size_t stage) {
  std::vector<std::function<bool(exe::Kernel&)>> list;
  const KernelOp right = part(kernel, stage);
  const std::pair<const char*, const char*> others[] = {
      {"Add", "Sub"}, {"Exp", "Neg"}, {"Neg", "Abs"}, {"Tanh", "Sigmoid"}, {"Sigmoid", "Tanh"}};
  for (const auto& [from, to] : others) {
    if (right.op != from) continue;
    list.emplace_back([=, other = to](exe::Kernel& k) {
      part(k, stage).op = other;
      return true;
    });
  }
  for (size_t n = 0; n < right.attrs.items.size(); ++n) {
    list.emplace_back([=](exe::Kernel& k) {
      auto& [name, value] = part(k, stage).attrs.items[n];
      if (auto* flag = std::get_if<bool>(&value)) *flag = !*flag;
      if (auto* factor = std::get_if<double>(&value)) *factor += 1;
      return name.ends_with("_transposed") || std::holds_alternative<double>(value);
    });
  }
  for (size_t i = 0; i < kernel.operands.size() && !is_symmetric(right); ++i)
    list.emplace_back([=](exe::Kernel& k) { return swap_inputs(k, stage, i); });
  return list;
}

/// Returns the changes of single ops, with the op as kind. The results differ.
std::vector<Damage> changes(const exe::Executable& right) {
  std::vector<Damage> list;
  const auto holds = same_fingerprint(right);
  for (size_t f = 0; f < right.functions.size(); ++f) {
    for (size_t s = 0; s < right.functions[exe::FunctionId(f)].steps.size(); ++s) {
      const exe::Step& step = right.functions[exe::FunctionId(f)].steps[s];
      if (!std::holds_alternative<exe::Kernel>(step.body)) continue;
      auto kernel = std::get<exe::Kernel>(step.body);
      for (size_t stage = 0; stage < std::max<size_t>(kernel.stages.size(), 1); ++stage) {
        const std::string op = part(kernel, stage).op;
        if (ops::find_op(op) == nullptr) continue;
        for (const auto& change : changes(kernel, stage)) {
          exe::Kernel changed = kernel;
          if (!change(changed)) continue;
          list.push_back({op,
                          exe::step_title(step),
                          {},
                          [f, s, changed](exe::Executable& e) {
                            e.functions[exe::FunctionId(f)].steps[s].body = changed;
                            return std::string();
                          },
                          holds,
                          true});
        }
      }
    }
  }
  return list;
}

Damage branches_swapped(const exe::Executable& right) {
  return {"Branch",
          "every function",
          {},
          [](exe::Executable& e) {
            for (exe::Function& f : e.functions) {
              for (exe::Step& s : f.steps) {
                if (auto* b = std::get_if<exe::Branch>(&s.body))
                  std::swap(b->then_call.function, b->else_call.function);
              }
            }
            return std::string();
          },
          same_fingerprint(right),
          true};
}

TEST(ValueDamage, OfAKernelThatIsNotItsOpIsShown) {
  Tally tally;
  const auto add = [&](const RandomProgram& program, int devices) {
    const Compiled plan = compiled(program.ir, devices);
    std::vector<Damage> damages = changes(plan.executable);
    if (devices == 2) damages.push_back(branches_swapped(plan.executable));
    tally += judge({.right = plan.executable, .runs = value_runs(program, plan)}, damages);
  };
  add({.ir = test::MlpProgram({.layers = 2}).ir, .runs = {"train", "train", "eval"}}, 1);
  add({.ir = control_flow_program(), .runs = {"main", "main", "main"}}, 2);
  print(tally);
  for (const auto& [op, verdicts] : tally.by_kind) {
    EXPECT_EQ(verdicts.size(), 1u) << "more than the op is wrong: " << op;
    EXPECT_TRUE(verdicts.contains(Verdict::kFingerprint)) << op;
  }
  for (const char* op :
       {"Add", "MatMul", "GeluSlope", "ScaledAddLhsInplace", "Tanh", "Neg", "Branch"})
    EXPECT_TRUE(tally.by_kind.contains(op)) << op;
}

// Other changes are invisible: in arms that are not taken, or before a rounding, a comparison or a
// product with 0.
TEST(ValueDamage, OfRandomGraphsIsOftenShown) {
  int made = 0;
  Tally tally;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const RandomProgram program = random_program({seed, {}});
    const Compiled plan = compiled(program.ir, 1);
    std::vector<Damage> all = changes(plan.executable);
    std::erase_if(all, [](const Damage& d) { return d.kind == "Clip" || d.kind == "Greater"; });
    if (all.empty()) continue;
    ++made;
    Damage& damage = all[seed % all.size()];
    damage.differs = std::nullopt;
    tally += judge({.right = plan.executable, .runs = value_runs(program, plan)}, {damage});
  }
  std::printf("%d of %d changes are shown\n", tally.differing, made);
  EXPECT_GT(made, 50);
  EXPECT_GT(tally.differing, made / 3);
}

}  // namespace
}  // namespace sluice::property
