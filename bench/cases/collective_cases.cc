#include <fmt/core.h>

#include <memory>

#include "bench/figure.h"
#include "sluice/sluice.h"

namespace sluice::bench {
namespace {

constexpr int kReplicas = 2;
constexpr int kReduceSamples = 2;
constexpr double kReduceSeconds = 3e-2;
constexpr double kReduceGoal = 0.4;

// A gradient that the replicas of a process average in place, and memory for a copy of equal size.
struct RunningReduce {
  RunningReduce(int64_t bytes, int threads) : from(kReplicas * bytes), to(kReplicas * bytes) {
    Graph& main = ir.main_graph();
    const Tensor gradient =
        main.variable(f32_spec({bytes / 4}), Initializer::uniform(-1, 1).keyed({5, 6}), "gradient");
    ops::replicated_all_reduce_(gradient, ops::CollectiveOp::kMean);
    session =
        std::make_unique<Session>(ir, SessionOptions{.device = cpu_device({.threads = threads})});
    binding = session->bind({}, {});
  }

  Ir ir{kReplicas};
  std::unique_ptr<Session> session;
  Binding binding;
  Memory from, to;
};

Case all_reduce(Machine& machine, int64_t bytes, int threads) {
  const auto all = static_cast<double>(kReplicas * bytes);
  return {.group = "collective",
          .name = fmt::format("all-reduce-{}-replicas-{}-MiB", kReplicas, bytes >> 20),
          .threads = threads,
          .unit = Unit::kGigabytes,
          .work = all,
          .goals = {{Goal::Of::kPart, kReduceGoal}},
          .start = [&machine, bytes, threads]() -> std::function<Round()> {
            auto running = std::make_shared<RunningReduce>(bytes, threads);
            return [&machine, running, bytes, threads] {
              std::vector<double> seconds, limits;
              for (int i = 0; i < kReduceSamples; ++i) {
                limits.push_back(machine.copy_seconds(CopyWith::kMemcpy, running->from, running->to,
                                                      kReplicas * bytes, threads, kReduceSeconds));
                seconds.push_back(seconds_a_call(
                    kReduceSeconds, [&] { running->session->run_into(running->binding); }));
              }
              return Round{median(seconds), median(limits)};
            };
          }};
}

}  // namespace

std::vector<Case> collective_cases(Machine& machine) {
  std::vector<Case> cases;
  for (const int64_t mib : {1, 16, 64}) {
    for (int threads = 1; threads <= kMaxThreads; ++threads)
      cases.push_back(all_reduce(machine, mib << 20, threads));
  }
  return cases;
}

}  // namespace sluice::bench
