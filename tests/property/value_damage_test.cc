// Damages plans so that they compute something else than the graph. The value program must show it,
// whatever the checker says about their memory.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <map>
#include <set>

#include "../support/mlp.h"
#include "mutations/mutate.h"
#include "random_graph.h"
#include "random_graph_run.h"
#include "sluice/check/checker.h"
#include "sluice/compiler/compile.h"
#include "sluice/exe/text.h"
#include "sluice/ops/op.h"
#include "small_programs.h"

namespace sluice::property {
namespace {

RandomProgram control_flow() {
  return {.ir = control_flow_program(), .runs = {"main", "main", "main"}};
}

/// A plan in which one op of a kernel was changed.
struct Changed {
  std::string what;
  std::string op;
  exe::Executable plan;
};

/// The op of a kernel, or of one stage of a fused kernel.
struct Part {
  std::string& op;
  Attrs& attrs;
};
Part part(exe::Kernel& k, size_t stage) {
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

bool is_symmetric(const Part& p) {
  // The factors of a scaled addition may be equal.
  const auto& attrs = p.attrs.items;
  return ops::find_op(p.op)->has(kCommutative) ||
         (p.op == "ScaledAddLhsInplace" && attrs[0].second == attrs[1].second);
}

/// Returns the possible changes of one op of a kernel. Each returns whether it changed something.
std::vector<std::function<bool(exe::Kernel&)>> changes(exe::Kernel& kernel, size_t stage) {
  std::vector<std::function<bool(exe::Kernel&)>> list;
  const Part right = part(kernel, stage);
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

std::vector<Changed> changes(const exe::Executable& right) {
  std::vector<Changed> list;
  exe::Executable plan = right;
  for (size_t f = 0; f < right.functions.size(); ++f) {
    for (size_t s = 0; s < right.functions[f].steps.size(); ++s) {
      auto* kernel = std::get_if<exe::Kernel>(&plan.functions[f].steps[s].body);
      if (kernel == nullptr) continue;
      for (size_t stage = 0; stage < std::max<size_t>(kernel->stages.size(), 1); ++stage) {
        const std::string op = part(*kernel, stage).op;
        if (ops::find_op(op) == nullptr) continue;
        for (const auto& change : changes(*kernel, stage)) {
          const exe::Kernel was = *kernel;
          if (change(*kernel))
            list.push_back({exe::step_title(right.functions[f].steps[s]), op, plan});
          *kernel = was;
        }
      }
    }
  }
  return list;
}

/// Describes how the results of a changed plan differ from the interpreter's; empty if they do not.
std::string seen(const RandomProgram& program, Compiled plan, const exe::Executable& changed) {
  plan.executable = changed;
  try {
    return bit_difference(interpreted(program, Remote::kShown), by_values(program, plan));
  } catch (const Error& e) {
    return e.what();
  }
}

TEST(ValueDamage, OfAKernelThatIsNotItsOpIsShown) {
  std::map<std::string, int> shown;
  const auto expect_shown = [&](const RandomProgram& program, int devices) {
    const Compiled plan = compiled(program.ir, devices);
    for (const Changed& c : changes(plan.executable)) {
      EXPECT_TRUE(check::violations(c.plan).empty()) << "more than the op is wrong: " << c.what;
      EXPECT_NE(seen(program, plan, c.plan), "") << c.what;
      ++shown[c.op];
    }
  };
  expect_shown({.ir = test::MlpProgram({.layers = 2}).ir, .runs = {"train", "train", "eval"}}, 1);
  expect_shown(control_flow(), 2);
  for (const auto& [op, count] : shown) std::printf("%4d  %s\n", count, op.c_str());
  for (const char* op : {"Add", "MatMul", "GeluSlope", "ScaledAddLhsInplace", "Tanh", "Neg"})
    EXPECT_GT(shown[op], 0) << op;
}

// Other changes are invisible: in arms that are not taken, or before a rounding, a comparison or a
// product with 0.
TEST(ValueDamage, OfRandomGraphsIsOftenShown) {
  int made = 0;
  int shown = 0;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const RandomProgram program = random_program({seed, {}});
    const Compiled plan = compiled(program.ir, 1);
    std::vector<Changed> all = changes(plan.executable);
    std::erase_if(all, [](const Changed& c) { return c.op == "Clip" || c.op == "Greater"; });
    if (all.empty()) continue;
    ++made;
    shown += !seen(program, plan, all[seed % all.size()].plan).empty();
  }
  std::printf("%d of %d changes are shown\n", shown, made);
  EXPECT_GT(made, 50);
  EXPECT_GT(shown, made / 3);
}

TEST(ValueDamage, OfValuesIsShownAndOfMemoryIsNot) {
  const std::set<std::string> of_values = {
      "step dropped",     "transfer dropped", "stream entries swapped", "message swapped",
      "trips off by one", "carry dropped",    "remote entry beyond",    "final damaged"};
  const std::set<std::string> of_memory = {
      "buffer moved", "released early",      "arena shrunk",     "argument rebound",
      "sync dropped", "rotation off by one", "workspace shared", "layout renamed"};
  const RandomProgram program = control_flow();
  const Compiled plan = compiled(program.ir, 2);
  std::map<std::string, int> made;
  for (const Mutant& m : mutate(plan.executable, 1, 20)) {
    ++made[m.kind];
    if (!of_values.contains(m.kind) && !of_memory.contains(m.kind)) continue;
    EXPECT_EQ(!seen(program, plan, m.plan).empty(), of_values.contains(m.kind))
        << m.kind << " at " << m.about;
  }
  for (const auto* kinds : {&of_values, &of_memory}) {
    for (const std::string& kind : *kinds) EXPECT_GT(made[kind], 0) << kind;
  }
}

TEST(ValueDamage, OfABranchIsShown) {
  const RandomProgram program = control_flow();
  const Compiled plan = compiled(program.ir, 2);
  exe::Executable swapped = plan.executable;
  for (exe::Function& f : swapped.functions) {
    for (exe::Step& s : f.steps) {
      if (auto* b = std::get_if<exe::Branch>(&s.body))
        std::swap(b->then_call.function, b->else_call.function);
    }
  }
  EXPECT_TRUE(check::violations(swapped).empty());
  EXPECT_NE(seen(program, plan, swapped), "");
}

}  // namespace
}  // namespace sluice::property
