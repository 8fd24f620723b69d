// Damage to loops that exit: the checker refuses it, or it changes no bit.
#include <gtest/gtest.h>

#include <cstdio>
#include <functional>

#include "../plan_run.h"
#include "../random_graph_run.h"
#include "mutate.h"
#include "sluice/check/checker.h"
#include "sluice/exe/fingerprint.h"
#include "sluice/exe/validate.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/compare.h"
#include "sluice/ops/reductions.h"
#include "sluice/ops/updates.h"
#include "sluice/transforms/loops/loops.h"

namespace sluice::property {
namespace {

/// Programs whose loops exit after 0 to 6 iterations, which the values of variables decide. Each
/// runs on two devices.
struct ExitProgram {
  explicit ExitProgram(int kind) {
    w = main.variable(HostTensor::of<float>({4}, f32, {0.5f, -1, 2, 0.25f}), "w");
    const Tensor zero = main.scalar(0, f32);
    const auto below = [](double limit) {
      return [limit](const LoopArguments& in) { return ops::greater(limit, in[0]); };
    };
    Tensors v{zero, w * 2.0f};
    v = ops::while_loop(
        main, below(kind == 0 ? 3.5 : 5.5), [&](Tensor i, Tensor t) { return step(kind, i, t); }, v,
        {}, 6);
    ops::add_(w, v[1]);
    // The order of these stores shows only if the second loop runs no iteration.
    main.remote_store(rows, 1, v[1]);
    main.remote_store(rows, 1, w);
    v = ops::while_loop(
        main, below(kind == 2 ? -1 : 2.5), [&](Tensor i, Tensor t) { return step(kind, i, t); },
        {zero, v[1]}, {}, 3);
    main.host_store(v[1] + w + main.remote_load(rows, 1), "out");
  }

  Tensors step(int kind, const Tensor& i, const Tensor& t) {
    Tensor there;
    {
      const DeviceScope on(main, 1);
      there = t * 0.5f + w;
      if (kind == 1) {
        const Tensors inner = ops::while_loop(
            main, [&](Tensor j, Tensor) { return ops::greater(i, j); },
            [&](Tensor j, Tensor u) {
              return Tensors{j + 1.0f, u * 0.75f + t};
            },
            {main.scalar(0, f32), there}, {}, 4);
        there = inner[1];
      }
    }
    ops::add_(w, there * 0.125f);
    if (kind == 2) {
      main.remote_store(rows, 0, there);
      there = main.remote_load(rows, 1) + there;
      main.remote_store(rows, 1, w);
    }
    return {i + 1.0f, there - t};
  }

  Ir ir;
  Graph& main = ir.main_graph();
  RemoteBuffer rows = ir.remote_buffer({{4}, f32, {}}, 2);
  Tensor w;
};
constexpr int kPrograms = 3;

struct Damage {
  std::string about;
  std::function<void(exe::Loop&)> act;
};

std::vector<Damage> damages(const exe::Loop& loop) {
  std::vector<Damage> all{
      {"exit renumbered", [](exe::Loop& l) { l.exit += 1; }},
      {"more trips", [](exe::Loop& l) { l.trips += 1; }},
      {"fewer trips", [](exe::Loop& l) { l.trips -= 1; }},
      {"condition dropped", [](exe::Loop& l) { l.condition = l.exit = -1; }},
  };
  const auto args = static_cast<int32_t>(loop.body.args.size());
  for (int32_t a = 0; a < args; ++a) {
    if (a == loop.condition) continue;
    all.push_back(
        {fmt::format("condition is argument {}", a), [a](exe::Loop& l) { l.condition = a; }});
    all.push_back({fmt::format("argument {} in a ring", a), [a](exe::Loop& l) {
                     exe::Address& at = l.body.args[static_cast<size_t>(a)].at;
                     at.depth = 2;
                     at.stride = 64;
                     at.slot = exe::IndexExpr::iteration();
                   }});
    all.push_back({fmt::format("argument {} without a name", a), [a](exe::Loop& l) {
                     l.body.args[static_cast<size_t>(a)].made = exe::kNoValue;
                   }});
  }
  for (size_t c = 0; c < loop.carried.size(); ++c)
    all.push_back({fmt::format("carry {} dropped", c), [c](exe::Loop& l) {
                     l.carried.erase(l.carried.begin() + static_cast<int64_t>(c));
                   }});
  return all;
}

/// A mutant that the checker accepts runs with the bits of the right plan.
class Judge {
 public:
  explicit Judge(const exe::Executable& right)
      : right_(right), runs_{run_plan(right, 0), run_plan(right, 1)} {}

  void judge(const exe::Executable& mutant, const std::string& about) {
    if (mutant == right_) return;
    if (!check::violations(mutant).empty()) {
      ++refused;
      return;
    }
    if (is_another_program(about)) {
      ++others;
      EXPECT_NE(exe::fingerprint(mutant), exe::fingerprint(right_)) << about;
      return;
    }
    ++alike;
    for (size_t seed = 0; seed < 2; ++seed) EXPECT_EQ(run_plan(mutant, seed), runs_[seed]) << about;
  }

  int refused = 0, alike = 0, others = 0;

 private:
  // A loop of one device with other trips or without its condition is a right plan of another
  // program. The fingerprint tells them apart.
  static bool is_another_program(const std::string& about) {
    return about.find("trips") == 0 || about.find("more trips") == 0 ||
           about.find("fewer trips") == 0 || about.find("condition dropped") == 0;
  }

  const exe::Executable& right_;
  const RunBytes runs_[2];
};

TEST(ExitMutants, AreRefusedOrChangeNoBit) {
  int refused = 0, alike = 0;
  for (int kind = 0; kind < kPrograms; ++kind) {
    SCOPED_TRACE(fmt::format("program {}", kind));
    const ExitProgram program(kind);
    const exe::Executable right = compiled(program.ir, 2).executable;
    ASSERT_TRUE(check::violations(right).empty()) << check::violations(right)[0].message;
    Judge judge(right);
    for (size_t f = 0; f < right.functions.size(); ++f) {
      for (size_t s = 0; s < right.functions[f].steps.size(); ++s) {
        const auto* loop = std::get_if<exe::Loop>(&right.functions[f].steps[s].body);
        if (loop == nullptr || loop->condition < 0) continue;
        exe::Executable unsynced = right;
        unsynced.functions[f].steps[s].sync = false;
        EXPECT_FALSE(check::violations(unsynced).empty()) << "a loop without its barrier";
        for (const Damage& d : damages(*loop)) {
          exe::Executable mutant = right;
          d.act(std::get<exe::Loop>(mutant.functions[f].steps[s].body));
          const auto problems = exe::validate(mutant);
          if (problems.empty()) judge.judge(mutant, d.about);
        }
      }
    }
    for (const Mutant& m : mutate(right, 11, 6)) judge.judge(m.plan, m.kind + " at " + m.about);
    refused += judge.refused;
    alike += judge.alike;
  }
  std::printf("%d mutants refused, %d run alike\n", refused, alike);
  EXPECT_GT(refused, 200);
}

}  // namespace
}  // namespace sluice::property
