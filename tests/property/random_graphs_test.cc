// Random programs: interpreter = run, plan accepted, planned bytes = measured bytes, whatever the
// threads, the passes and the interleaving. SLUICE_SEED=n runs one seed, SLUICE_GRAPHS=n as many
// programs.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>

#include "random_graph_run.h"
#include "sluice/compiler/compile.h"
#include "sluice/base/rng.h"
#include "sluice/exe/executable.h"
#include "sluice/ir/verify.h"

namespace sluice::property {
namespace {

constexpr int kPrograms = 1000;

std::vector<Way> ways(uint64_t seed) {
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
      {"inline", "dead-code", "split", "fuse", "layouts", "entries", "aliasing", "transfers"}};
  const uint32_t bits = random_bits(Seed{3, 4}, seed);
  std::vector<Way> list{{.threads = 1}};
  Way other{.threads = 1 + static_cast<int>(bits % 3)};
  if (bits & 16) other.disable = kDisabled[bits / 32 % kDisabled.size()];
  other.interleaved = (bits & 1024) != 0;
  other.io_queues = (bits & 2048) != 0 ? 3 : 1;
  list.push_back(other);
  return list;
}

/// What is wrong with a program, empty if nothing is.
std::string judge(const RandomProgram& program, uint64_t seed, bool* nonfinite = nullptr) {
  try {
    verify(program.ir);
    const Outcome want = interpreted(program);
    if (nonfinite != nullptr) *nonfinite = has_nonfinite(want);
    for (const Way& way : ways(seed)) {
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
    return judge(random_program(recipe), recipe.seed);
  } catch (const Error& e) {
    return std::string("building: ") + e.what();
  }
}

/// Leaves out decisions as long as something stays wrong: first halves, then single ones.
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

void report_failure(uint64_t seed, const std::string& wrong) {
  const Recipe least = shrink({seed, {}});
  std::string shown = wrong;
  std::string schedule;
  if (const std::string still = judge(least); !still.empty()) shown = still;
  try {
    schedule = text(random_program(least).ir);
  } catch (const Error&) {
  }
  ADD_FAILURE() << "SLUICE_SEED=" << seed << ": " << wrong << "\n--- with " << least.skipped.size()
                << " decisions left out: " << shown << "\n"
                << schedule;
}

uint64_t number(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

TEST(RandomGraphs, RunAsTheInterpreterDoes) {
  const bool seeded = std::getenv("SLUICE_SEED") != nullptr;
  const uint64_t first = number("SLUICE_SEED", 0);
  const uint64_t last = first + number("SLUICE_GRAPHS", seeded ? 1 : kPrograms);
  const bool one = last == first + 1;
  Census all;
  int nonfinite = 0;
  int failures = 0;
  for (uint64_t seed = first; seed < last && failures < 5; ++seed) {
    std::string wrong;
    try {
      const RandomProgram program = random_program({seed, {}});
      if (one) std::cout << text(program.ir);
      all += program.census;
      bool odd = false;
      wrong = judge(program, seed, &odd);
      nonfinite += odd;
    } catch (const Error& e) {
      wrong = std::string("building: ") + e.what();
    }
    if (wrong.empty()) continue;
    report_failure(seed, wrong);
    ++failures;
  }
  std::cout << fmt::format(
      "{} programs: {} ops, {} calls ({} of graphs with references), {} repeats, {} conditionals, "
      "{} gradients, {} updates, "
      "{} streams, {} remote loads and stores, {} random ops, {} entries; {} with values that are "
      "not finite\n",
      last - first, all.ops, all.calls, all.by_reference, all.repeats, all.conditionals,
      all.gradients, all.updates, all.streams, all.remote, all.random_ops, all.entry_graphs,
      nonfinite);
  if (one) return;
  EXPECT_GT(all.gradients, static_cast<int>(last - first) / 10);
  EXPECT_LT(nonfinite, static_cast<int>(last - first) / 5);
}

// Transfers in flight while kernels and calls run, and entries that loops and arguments decide.
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

// What the programs are for: kernels of several ops, products among them, and variables in panels.
TEST(RandomGraphs, HaveMuchToFuseAndToLayOut) {
  constexpr uint64_t kSome = 200;
  int fused = 0, products = 0, on_panels = 0, variables = 0;
  for (uint64_t seed = 0; seed < kSome; ++seed) {
    const exe::Executable executable = compiled(random_program({seed, {}}).ir, 1).executable;
    for (const exe::VariablePlan& v : executable.variables) variables += v.layout != "row";
    for (const exe::Function& f : executable.functions) {
      for (const exe::Step& step : f.steps) {
        const auto* const kernel = std::get_if<exe::Kernel>(&step.body);
        if (kernel == nullptr || kernel->stages.empty()) continue;
        fused += kernel->stages.size() > 1;
        products += kernel->stages.size() > 1 && kernel->stages[0].op == "MatMul";
        on_panels += std::any_of(kernel->operands.begin(), kernel->operands.end(),
                                 [](const exe::Operand& o) { return o.layout != "row"; });
      }
    }
  }
  std::cout << fmt::format(
      "{} programs: {} kernels of several ops, {} begin with a product; {} on panels, {} variables "
      "in panels\n",
      kSome, fused, products, on_panels, variables);
  EXPECT_GT(fused, 2000);
  EXPECT_GT(products, 200);
  EXPECT_GT(on_panels, 100);
  EXPECT_GT(variables, 40);
}

TEST(RandomGraphs, OnTwoDevicesEndTheSame) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const RandomProgram program = random_two_device_program(seed);
    const Outcome want = interpreted(program);
    for (const bool interleaved : {false, true}) {
      const Way way{
          .threads = 1 + static_cast<int>(seed % 3), .interleaved = interleaved, .devices = 2};
      std::string wrong;
      try {
        wrong = difference(want, executed(program, way));
      } catch (const Error& e) {
        wrong = e.what();
      }
      ASSERT_EQ(wrong, "") << "seed " << seed << ", " << way.text() << "\n" << text(program.ir);
    }
  }
}

}  // namespace
}  // namespace sluice::property
