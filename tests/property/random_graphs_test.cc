// Runs random programs: results equal the interpreter's, the checker accepts the plan, and measured
// bytes equal the planned ones, for any threads, passes and interleaving. SLUICE_SEED=n starts at
// seed n and runs one program. SLUICE_GRAPHS=n runs n programs.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <set>

#include "random_graph_run.h"
#include "sluice/base/rng.h"
#include "sluice/compiler/compile.h"
#include "sluice/exe/executable.h"
#include "sluice/ir/verify.h"
#include "sluice/ops/op.h"

namespace sluice::property {
namespace {

constexpr int kPrograms = 1000;
constexpr int kProgramsOnDevices = 300;
constexpr int kProgramsOfAllOperators = 1000;

std::vector<Way> ways(uint64_t seed, int devices) {
  static const std::vector<std::vector<std::string>> kDisabled{
      {"inline"},
      {"aliasing"},
      {"dead-code"},
      {"fuse"},
      {"split"},
      {"layouts"},
      {"inline", "aliasing"},
      {"transfers"},
      {"entries"},
      {"rotations"},
      {"inline", "dead-code", "split", "fuse", "layouts", "entries", "aliasing", "transfers"}};
  const uint32_t bits = random_bits(Seed{3, 4}, seed);
  std::vector<Way> list{{.threads = 1, .devices = devices}};
  Way other{.threads = 1 + static_cast<int>(bits % 3), .devices = devices};
  if (bits & 16) other.disable = kDisabled[bits / 32 % kDisabled.size()];
  other.interleaved = (bits & 1024) != 0;
  other.io_queues = (bits & 2048) != 0 ? 3 : 1;
  list.push_back(other);
  return list;
}

/// Describes the fault of a program; empty without one.
std::string judge(const RandomProgram& program, const Recipe& recipe, bool* nonfinite = nullptr) {
  try {
    verify(program.ir);
    const Outcome want = interpreted(program);
    if (nonfinite != nullptr) *nonfinite = has_nonfinite(want);
    for (const Way& way : ways(recipe.seed, recipe.devices)) {
      try {
        const std::string wrong = difference(want, executed(program, way));
        if (!wrong.empty()) return way.text() + ": " + wrong;
      } catch (Error& e) {
        throw e.note(way.text());
      }
    }
  } catch (const std::exception& e) {
    return e.what();
  }
  return "";
}

std::string judge(const Recipe& recipe) {
  try {
    return judge(random_program(recipe), recipe);
  } catch (const Error& e) {
    return std::string("building: ") + e.what();
  }
}

/// Leaves out decisions as long as the program fails: halves first, then single decisions.
Recipe shrink(Recipe recipe) {
  for (bool smaller = true; smaller;) {
    smaller = false;
    std::vector<uint64_t> decisions;
    try {
      decisions = random_program(recipe).decisions;
    } catch (const Error&) {
      return recipe;
    }
    for (size_t chunk = std::max<size_t>(decisions.size() / 2, 1); chunk >= 1; chunk /= 2) {
      for (size_t end = decisions.size(); end > 0; end -= std::min(chunk, end)) {
        Recipe trial = recipe;
        for (size_t i = end - std::min(chunk, end); i < end; ++i)
          trial.skipped.insert(decisions[i]);
        if (trial.skipped.size() == recipe.skipped.size() || judge(trial).empty()) continue;
        recipe = std::move(trial);
        smaller = true;
      }
    }
  }
  return recipe;
}

void report_failure(const Recipe& recipe, const std::string& wrong) {
  const Recipe min = shrink(recipe);
  std::string shown = wrong;
  std::string schedule;
  if (const std::string still = judge(min); !still.empty()) shown = still;
  try {
    schedule = text(random_program(min).ir);
  } catch (const Error&) {
  }
  ADD_FAILURE() << "SLUICE_SEED=" << recipe.seed << ": " << wrong << "\n--- with "
                << min.skipped.size() << " decisions left out: " << shown << "\n"
                << schedule;
}

uint64_t number(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

/// Range of seeds: from the environment, or 0 to `programs`.
std::pair<uint64_t, uint64_t> seeds(int programs) {
  const bool seeded = std::getenv("SLUICE_SEED") != nullptr;
  const uint64_t first = number("SLUICE_SEED", 0);
  return {first, first + number("SLUICE_GRAPHS", seeded ? 1 : static_cast<uint64_t>(programs))};
}

struct Totals {
  Census census;
  int nonfinite = 0;
};

/// Judges a program for each recipe. Reports at most five failures.
Totals judge_all(const std::vector<Recipe>& recipes) {
  Totals all;
  int failures = 0;
  for (const Recipe& recipe : recipes) {
    if (failures == 5) break;
    std::string wrong;
    try {
      const RandomProgram program = random_program(recipe);
      if (recipes.size() == 1) std::cout << text(program.ir);
      all.census += program.census;
      bool odd = false;
      wrong = judge(program, recipe, &odd);
      all.nonfinite += odd;
    } catch (const Error& e) {
      wrong = std::string("building: ") + e.what();
    }
    if (wrong.empty()) continue;
    report_failure(recipe, wrong);
    ++failures;
  }
  const Census& c = all.census;
  std::cout << fmt::format(
      "{} programs: {} ops, {} calls ({} of graphs with references), {} repeats, {} conditionals, "
      "{} gradients, {} updates, "
      "{} streams, {} remote loads and stores, {} random ops, {} entries; {} with values that are "
      "not finite\n",
      recipes.size(), c.ops, c.calls, c.by_reference, c.repeats, c.conditionals, c.gradients,
      c.updates, c.streams, c.remote, c.random_ops, c.entry_graphs, all.nonfinite);
  return all;
}

// The seeds are divided into equal parts, which CTest runs in parallel.
constexpr uint64_t kParts = 4;

class RandomGraphParts : public testing::TestWithParam<uint64_t> {};
INSTANTIATE_TEST_SUITE_P(Parts, RandomGraphParts, testing::Range(uint64_t{0}, kParts));

TEST_P(RandomGraphParts, RunAsTheInterpreterDoes) {
  std::vector<Recipe> recipes;
  const auto [first, last] = seeds(kPrograms);
  const uint64_t parts = last - first < 200 ? 1 : kParts;  // A part has enough to be counted.
  if (GetParam() >= parts) return;
  for (uint64_t seed = first + GetParam(); seed < last; seed += parts)
    recipes.push_back({seed, {}});
  const Totals all = judge_all(recipes);
  const auto programs = static_cast<int>(recipes.size());
  if (programs == 1) return;
  EXPECT_GT(all.census.gradients, programs / 10);
  EXPECT_GT(all.census.rotations, programs / 10);
  EXPECT_LT(all.nonfinite, programs / 5);
}

TEST(RandomGraphs, OnSeveralDevicesRunAsTheInterpreterDoes) {
  std::vector<Recipe> recipes;
  const auto [first, last] = seeds(kProgramsOnDevices);
  for (uint64_t seed = first; seed < last; ++seed)
    recipes.push_back({seed, {}, seed % 4 == 3 ? 3 : 2});
  judge_all(recipes);
}

// A quarter of the programs runs on two devices.
class AllOperators : public testing::TestWithParam<uint64_t> {};
INSTANTIATE_TEST_SUITE_P(Parts, AllOperators, testing::Range(uint64_t{0}, kParts));

TEST_P(AllOperators, RunAsTheInterpreterDoes) {
  std::vector<Recipe> recipes;
  const auto [first, last] = seeds(kProgramsOfAllOperators);
  for (uint64_t seed = first + GetParam(); seed < last; seed += kParts)
    recipes.push_back({seed, {}, seed % 4 == 3 ? 2 : 1, true});
  const Totals all = judge_all(recipes);
  const auto programs = static_cast<int>(recipes.size());
  if (programs < 50) return;
  EXPECT_GT(all.census.gradients, programs / 10);
  EXPECT_LT(all.nonfinite, programs / 4);
}

// Views have no kernel.
TEST(RandomGraphs, HaveKernelsOfAllOperators) {
  constexpr uint64_t kSome = 300;
  std::set<std::string> drawn, run;
  for (uint64_t seed = 0; seed < kSome; ++seed) {
    const RandomProgram program = random_program({seed, {}, 1, true});
    drawn.merge(operators_of(program.ir));
    for (const exe::Function& f : compiled(program.ir, 1).executable.functions) {
      for (const exe::Step& step : f.steps) {
        const auto* const kernel = std::get_if<exe::Kernel>(&step.body);
        if (kernel == nullptr) continue;
        run.insert(kernel->op);
        for (const exe::Stage& stage : kernel->stages) run.insert(stage.op);
      }
    }
  }
  for (const OpDef* def : ops::all_ops()) {
    const bool found = def->has(kView) ? drawn.contains(def->name) : run.contains(def->type);
    EXPECT_EQ(found, !undrawn_operators().contains(def->name)) << def->name;
  }
}

// Plans have transfers in flight while kernels and calls run, and entries that depend on loops and
// arguments.
TEST(RandomGraphs, HaveMuchToOverlap) {
  int io = 0, overlapped = 0, computed = 0, folded = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const exe::Executable executable = compiled(random_program({seed, {}}).ir, 1).executable;
    for (const exe::Function& f : executable.functions) {
      int flying = 0;
      for (const exe::Step& step : f.steps) {
        if (const auto* const issue = std::get_if<exe::Issue>(&step.body)) {
          flying += issue->queue != 0;
          io += issue->queue != 0;
          computed += issue->entry_from.has_value();
          folded += !issue->entry.is_constant() && issue->kind != exe::TransferKind::kStreamIn &&
                    issue->kind != exe::TransferKind::kStreamOut;
        } else if (std::holds_alternative<exe::Wait>(step.body)) {
          --flying;
        } else {
          overlapped += flying > 0;
        }
      }
      EXPECT_EQ(flying, 0) << f.name;
    }
  }
  std::cout << fmt::format(
      "{} transfers on io queues, {} steps beside one; {} entries of arguments and counters, {} of "
      "data\n",
      io, overlapped, folded, computed);
  EXPECT_GT(io, 1000);
  EXPECT_GT(overlapped, 1000);
  EXPECT_GT(folded, 50);
  EXPECT_GT(computed, 20);
}

// Plans have kernels of several ops, some with a product or a convolution, and variables in panels.
TEST(RandomGraphs, HaveMuchToFuseAndToLayOut) {
  constexpr uint64_t kSome = 200;
  int fused = 0, products = 0, convolutions = 0, on_panels = 0, in_taps = 0, variables = 0;
  for (uint64_t seed = 0; seed < kSome; ++seed) {
    const exe::Executable executable = compiled(random_program({seed, {}}).ir, 1).executable;
    for (const exe::VariablePlan& v : executable.variables) variables += v.layout != "row";
    for (const exe::Function& f : executable.functions) {
      for (const exe::Step& step : f.steps) {
        const auto* const kernel = std::get_if<exe::Kernel>(&step.body);
        if (kernel == nullptr || kernel->stages.empty()) continue;
        fused += kernel->stages.size() > 1;
        products += kernel->stages.size() > 1 && kernel->stages[0].op == "MatMul";
        convolutions += kernel->stages.size() > 1 && kernel->stages[0].op.starts_with("Conv");
        in_taps += std::any_of(kernel->operands.begin(), kernel->operands.end(),
                               [](const exe::Operand& o) { return o.layout == "taps"; });
        on_panels += std::any_of(kernel->operands.begin(), kernel->operands.end(),
                                 [](const exe::Operand& o) { return o.layout != "row"; });
      }
    }
  }
  std::cout << fmt::format(
      "{} programs: {} kernels of several ops, {} begin with a product, {} with a convolution; {} "
      "on panels, {} on taps, {} variables in panels\n",
      kSome, fused, products, convolutions, on_panels, in_taps, variables);
  EXPECT_GT(fused, 2000);
  EXPECT_GT(products, 200);
  EXPECT_GT(convolutions, 100);
  EXPECT_GT(in_taps, 5);
  EXPECT_GT(on_panels, 100);
  EXPECT_GT(variables, 40);
}

// Plans have messages in functions and loops.
TEST(RandomGraphs, HaveMuchToSend) {
  constexpr uint64_t kSome = 100;
  int messages = 0, in_loops = 0, in_functions = 0;
  for (uint64_t seed = 0; seed < kSome; ++seed) {
    const exe::Executable executable = compiled(random_program({seed, {}, 2}).ir, 2).executable;
    std::set<int32_t> entries, bodies;
    for (const exe::Program& p : executable.programs) {
      for (const exe::Start& entry : p.starts) entries.insert(entry.function);
    }
    for (const exe::Function& f : executable.functions) {
      for (const exe::Step& step : f.steps) {
        if (const auto* const loop = std::get_if<exe::Loop>(&step.body))
          bodies.insert(loop->body.function);
      }
    }
    for (size_t f = 0; f < executable.functions.size(); ++f) {
      const auto sends = static_cast<int>(std::count_if(
          executable.functions[exe::FunctionId(f)].steps.begin(),
          executable.functions[exe::FunctionId(f)].steps.end(),
          [](const exe::Step& s) { return std::holds_alternative<exe::Send>(s.body); }));
      const auto id = static_cast<int32_t>(f);
      messages += sends;
      in_loops += bodies.contains(id) ? sends : 0;
      in_functions += entries.contains(id) || bodies.contains(id) ? 0 : sends;
    }
  }
  std::cout << fmt::format("{} programs: {} messages, {} in loops, {} in functions\n", kSome,
                           messages, in_loops, in_functions);
  EXPECT_GT(messages, 1000);
  EXPECT_GT(in_loops, 100);
  EXPECT_GT(in_functions, 20);
}

// Carried values of plans rotate in rings, also of more than two slots.
TEST(RandomGraphs, HaveMuchToRotate) {
  constexpr uint64_t kSome = 100;
  int rotations = 0, slots = 0;
  for (uint64_t seed = 0; seed < kSome; ++seed) {
    const exe::Executable executable = compiled(random_program({seed, {}}).ir, 1).executable;
    for (const exe::Function& f : executable.functions) {
      for (const exe::Step& step : f.steps) {
        const auto* const loop = std::get_if<exe::Loop>(&step.body);
        if (loop == nullptr) continue;
        for (const exe::Carry& c : loop->carried) {
          const exe::Operand& from = loop->body.args[c.out];
          rotations += from.access == exe::Access::kRead;
          slots += from.at.depth > 2;
        }
      }
    }
  }
  std::cout << fmt::format("{} programs: {} rotations, {} in rings of more than two slots\n", kSome,
                           rotations, slots);
  EXPECT_GT(rotations, 100);
  EXPECT_GT(slots, 100);
}

}  // namespace
}  // namespace sluice::property
