// Damage to loops that exit: the checker refuses it, or it changes no bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "../damage.h"
#include "../plan_run.h"
#include "../random_graph_run.h"
#include "mutate.h"
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

/// Damages one loop. Changes of its arguments need not be defects.
std::vector<Damage> damages_of(const exe::Executable& right, size_t f, size_t s) {
  std::vector<Damage> all;
  const auto add = [&](const std::string& kind, auto act) {
    all.push_back({kind,
                   fmt::format("'{}' step {}", right.functions[exe::FunctionId(f)].name, s),
                   {},
                   [f, s, act](exe::Executable& e) {
                     act(std::get<exe::Loop>(e.functions[exe::FunctionId(f)].steps[s].body));
                     return std::string();
                   }});
  };
  add("exit renumbered", [](exe::Loop& l) { l.exit += 1; });
  add("more trips", [](exe::Loop& l) { l.trips += 1; });
  add("fewer trips", [](exe::Loop& l) { l.trips -= 1; });
  add("condition dropped", [](exe::Loop& l) {
    l.condition = exe::ParamId();
    l.exit = -1;
  });
  const auto& loop = std::get<exe::Loop>(right.functions[exe::FunctionId(f)].steps[s].body);
  for (const exe::ParamId a : loop.body.args.ids()) {
    if (a == loop.condition) continue;
    add(fmt::format("condition is argument {}", a), [a](exe::Loop& l) { l.condition = a; });
    add(fmt::format("argument {} in a ring", a), [a](exe::Loop& l) {
      exe::Address& at = l.body.args[a].at;
      at.depth = 2;
      at.stride = 64;
      at.slot = exe::IndexExpr::iteration();
    });
    add(fmt::format("argument {} without a name", a),
        [a](exe::Loop& l) { l.body.args[a].made = exe::kNoValue; });
  }
  for (size_t c = 0; c < loop.carried.size(); ++c)
    add(fmt::format("carry {} dropped", c),
        [c](exe::Loop& l) { l.carried.erase(l.carried.begin() + static_cast<int64_t>(c)); });
  all.push_back({"barrier dropped", "", {}, [f, s](exe::Executable& e) {
                   e.functions[exe::FunctionId(f)].steps[s].sync = false;
                   return std::string("a loop with an exit begins with a barrier");
                 }});
  return all;
}

/// Kinds of damage that make a right plan of another program. The fingerprint tells them apart.
const std::set<std::string> kOtherPrograms{"trips off by one", "more trips", "fewer trips",
                                           "condition dropped"};

TEST(ExitMutants, AreRefusedOrChangeNoBit) {
  Tally tally;
  for (int kind = 0; kind < kPrograms; ++kind) {
    SCOPED_TRACE(fmt::format("program {}", kind));
    const ExitProgram program(kind);
    const exe::Executable right = compiled(program.ir, 2).executable;
    std::vector<Damage> damages = mutations(right, 11, 6);
    for (size_t f = 0; f < right.functions.size(); ++f) {
      for (size_t s = 0; s < right.functions[exe::FunctionId(f)].steps.size(); ++s) {
        const auto* loop =
            std::get_if<exe::Loop>(&right.functions[exe::FunctionId(f)].steps[s].body);
        if (loop == nullptr || loop->condition < 0) continue;
        std::ranges::move(damages_of(right, f, s), std::back_inserter(damages));
      }
    }
    for (Damage& d : damages) {
      if (kOtherPrograms.contains(d.kind)) d.fingerprint_holds = same_fingerprint(right);
    }
    tally += judge({.right = right, .runs = plan_runs(right)}, damages);
  }
  print(tally);
  EXPECT_GT(tally.count(Verdict::kDefect) + tally.count(Verdict::kChecker), 700);
  for (const std::string& kind : kOtherPrograms)
    EXPECT_FALSE(tally.by_kind[kind].contains(Verdict::kAlike)) << kind;
}

}  // namespace
}  // namespace sluice::property
