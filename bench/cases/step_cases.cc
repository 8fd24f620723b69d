#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>

#include "bench/figure.h"
#include "bench/program.h"
#include "bench/steps.h"
#include "sluice/base/sys.h"

namespace sluice::bench {
namespace {

// Only the best peak of a round counts: the first calls of a team may share a core.
constexpr int kStepPeaks = 40;
// For each parameter: weights are read twice and written, two moments are read and written.
constexpr double kAdamBytes = 28;

struct Step {
  const char* name;
  std::vector<int64_t> sizes;
  int64_t batch;
  Update update;
  int threads;
  int64_t steps;  // Steps of a round.
  std::vector<Goal> goals;
};

std::vector<Step> steps() {
  using enum Update;
  using enum Goal::Of;
  const std::vector<int64_t> mlp{784, 512, 512, 512, 10};
  std::vector<int64_t> wide(8, 2048);
  wide.push_back(10);
  const std::vector<int64_t> tiny(9, 8);
  return {
      {"batch 8, SGD", mlp, 8, kSgd, 1, 300, {{kPyTorch, 2.5}}},
      {"batch 8, SGD", mlp, 8, kSgd, 2, 300, {{kPyTorch, 3}}},
      {"batch 8, Adam", mlp, 8, kAdam, 1, 300, {{kPyTorch, 4}}},
      {"batch 8, Adam", mlp, 8, kAdam, 2, 300, {{kPyTorch, 4}}},
      {"batch 64, SGD", mlp, 64, kSgd, 2, 150, {{kPyTorch, 1.4}, {kPart, 0.7}}},
      {"batch 64, Adam", mlp, 64, kAdam, 2, 150, {{kPyTorch, 1.8}, {kPart, 0.7}}},
      {"batch 256, SGD", mlp, 256, kSgd, 2, 50, {{kPart, 0.8}}},
      {"2048 wide, 8 layers, batch 64, Adam", wide, 64, kAdam, 2, 8, {{kPyTorch, 1.3}}},
      {"inference, batch 1", mlp, 1, kNone, 2, 500, {{kPyTorch, 3}}},
      {"inference, batch 8", mlp, 8, kNone, 2, 500, {{kPyTorch, 2}}},
      {"inference, batch 80", mlp, 80, kNone, 2, 300, {{kPyTorch, 1.3}}},
      {"8 layers of 8x8, batch 8, SGD", tiny, 8, kSgd, 2, 2000, {{kAtMost, 20}}},
  };
}

const char* word_for(Update update) {
  return update == Update::kNone ? "none" : update == Update::kSgd ? "sgd" : "adam";
}

// A program with its session and binding.
struct RunningStep {
  explicit RunningStep(const Step& s)
      : program(Mlp(s.sizes), s.batch, s.sizes.front(), s.update),
        session(program.ir(), {.device = cpu_device({.threads = s.threads})}),
        binding(program.bind(session)) {}

  Program program;
  Session session;
  Binding binding;
};

Case step_case(Machine& machine, const Step& s) {
  return {.group = "step",
          .name = s.name,
          .threads = s.threads,
          .goals = s.goals,
          .pytorch = fmt::format("step {} {} {} {} {}", fmt::join(s.sizes, ","), s.batch, s.threads,
                                 word_for(s.update), s.steps),
          .start = [&machine, s]() -> std::function<Round()> {
            auto running = std::make_shared<RunningStep>(s);
            return [&machine, s, running] {
              double peak = 0;
              for (int i = 0; i < kStepPeaks; ++i) peak = std::max(peak, machine.peak(s.threads));
              const StepTimes times = time_steps(running->session, running->binding, s.steps);
              return Round{times.median_seconds, times.flops / peak};
            };
          }};
}

// Compares the bytes that a step of Adam moves for each parameter with the bytes that the algorithm
// requires.
Case bytes_case(const Step& s) {
  return {.group = "step",
          .name = fmt::format("{}: bytes a parameter", s.name),
          .threads = s.threads,
          .unit = Unit::kBytes,
          .goals = {{Goal::Of::kAtMost, 1.15 * kAdamBytes}},
          .start = [s]() -> std::function<Round()> {
            auto running = std::make_shared<RunningStep>(s);
            return [running] {
              const StepTimes times = time_steps(running->session, running->binding, 1);
              return Round{times.bytes / static_cast<double>(running->program.parameters()),
                           kAdamBytes};
            };
          }};
}

/// Keeps every core busy while it exists, as other processes do.
class BusyCores {
 public:
  BusyCores() {
    for (int i = 0; i < sys::usable_cores(); ++i) {
      threads_.emplace_back([this] {
        while (!quit_.load(std::memory_order_relaxed)) {
        }
      });
    }
  }
  ~BusyCores() {
    quit_ = true;
    for (std::thread& t : threads_) t.join();
  }
  BusyCores(const BusyCores&) = delete;
  BusyCores& operator=(const BusyCores&) = delete;

 private:
  std::atomic<bool> quit_{false};
  std::vector<std::thread> threads_;
};

// Compares the mean time of a step on busy cores with that of one thread on the same busy cores, in
// alternating runs of `steps` steps.
Case busy_case(const Step& s) {
  return {.group = "step",
          .name = fmt::format("busy cores: {}", s.name),
          .threads = s.threads,
          .goals = {{Goal::Of::kPart, 0.5}},
          .start = [s]() -> std::function<Round()> {
            Step alone = s;
            alone.threads = 1;
            auto one = std::make_shared<RunningStep>(alone);
            auto several = std::make_shared<RunningStep>(s);
            return [s, one, several] {
              const BusyCores busy;
              const auto seconds_a_step = [&](RunningStep& running) {
                const double begin = seconds_now();
                for (int64_t i = 0; i < s.steps; ++i) running.session.run_into(running.binding);
                return (seconds_now() - begin) / static_cast<double>(s.steps);
              };
              std::vector<double> own, limit;
              for (int iteration = 0; iteration < 5; ++iteration) {
                limit.push_back(seconds_a_step(*one));
                own.push_back(seconds_a_step(*several));
              }
              return Round{median(own), median(limit)};
            };
          }};
}

}  // namespace

std::vector<Case> step_cases(Machine& machine) {
  std::vector<Case> cases;
  for (const Step& s : steps()) {
    cases.push_back(step_case(machine, s));
    if (s.update == Update::kAdam && s.sizes.front() == 2048) cases.push_back(bytes_case(s));
  }
  const std::vector<int64_t> mlp{784, 512, 512, 512, 10}, tiny(9, 8);
  cases.push_back(busy_case({"batch 8, SGD", mlp, 8, Update::kSgd, 2, 100, {}}));
  cases.push_back(busy_case({"batch 8, layers of 8x8, SGD", tiny, 8, Update::kSgd, 2, 2000, {}}));
  return cases;
}

}  // namespace sluice::bench
