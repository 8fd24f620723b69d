// Transfers on an I/O queue. The compiler does not put stream transfers on I/O queues, so the tests
// rewrite the plans of sessions.

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <numeric>

#include "../support/mlp.h"
#include "../support/thread_sanitizer.h"
#include "sluice/check/checker.h"
#include "sluice/cpu/device/cpu.h"
#include "sluice/exe/visit_step.h"
#include "sluice/runtime/executor.h"
#include "thread_start.h"

namespace sluice::test {
namespace {

enum class Waits { kAtOnce, kBeforeUse };

bool touches(const exe::Step& step, const exe::Operand& memory) {
  bool found = false;
  exe::for_each_operand(step, [&](const exe::Operand& o) {
    found |= o.at.base == memory.at.base && o.at.index == memory.at.index &&
             o.at.offset < memory.at.offset + memory.bytes &&
             memory.at.offset < o.at.offset + o.bytes;
  });
  return found;
}

// Puts every transfer of the entry functions on queue 1 and adds a wait. The wait is next to the
// issue or before the first step that touches its bytes.
exe::Executable on_io_queue(exe::Executable plan, Waits waits) {
  plan.devices[exe::DeviceId(0)].queues.push_back({"io"});
  for (const exe::Start& start : plan.programs[0].starts) {
    exe::Function& function = plan.functions[start.function];
    function.buffers.clear();  // Buffers refer to step numbers, which change here.
    auto& steps = function.steps;
    std::vector<exe::Step> out;
    std::vector<exe::Issue> flying;
    const auto wait = [&](const exe::Issue& issue) {
      exe::Step step;
      step.body = exe::Wait{1, issue.token};
      out.push_back(step);
    };
    for (exe::Step& step : steps) {
      std::erase_if(flying, [&](const exe::Issue& issue) {
        if (!touches(step, issue.memory)) return false;
        wait(issue);
        step.sync = true;  // Only worker 0 has waited.
        return true;
      });
      out.push_back(step);
      if (auto* issue = std::get_if<exe::Issue>(&out.back().body)) {
        issue->queue = 1;
        const exe::Issue copy = *issue;
        if (waits == Waits::kAtOnce) {
          wait(copy);
        } else {
          flying.push_back(copy);
        }
      }
    }
    for (const exe::Issue& issue : flying) wait(issue);
    steps = std::move(out);
  }
  return plan;
}

TEST(IoQueue, GivesTheBitsOfTheComputeQueue) {
  Ir ir;
  Graph& main = ir.main_graph();
  constexpr int64_t kEntries = 5;
  const TensorSpec spec = f32_spec({40, 500});
  const H2dStream in = ir.h2d_stream(spec, "in");
  const D2hStream out = ir.d2h_stream(spec, "out");
  Tensor carried = main.host_load(in);
  for (int64_t i = 1; i < kEntries; ++i) {
    const Tensor next = main.host_load(in);
    main.host_store(out, carried);
    carried = ops::tanh(carried + next);
  }
  main.host_store(out, carried);
  HostTensor entries(f32_spec({kEntries, 40, 500}));
  for (size_t i = 0; i < entries.as<float>().size(); ++i)
    entries.as<float>()[i] = random_unit(Seed{1, 1}, i) - 0.5f;
  Session session(ir, {.device = cpu_device({.threads = 1})});
  const HostTensors want = session.run({{in, entries}});

  for (const Waits waits : {Waits::kAtOnce, Waits::kBeforeUse}) {
    for (const int threads : {1, 3}) {
      const Session planned(ir, {.device = cpu_device({.threads = threads})});
      const exe::Executable plan = on_io_queue(planned.executable(), waits);
      const auto violations = check::violations(plan);
      ASSERT_TRUE(violations.empty()) << violations[0].rule << ": " << violations[0].message;
      runtime::Executor executor(plan, {cpu::make_device()},
                                 {.threads = threads, .usable_cores = 1});
      runtime::HostStreams streams(plan);
      HostTensor result(want[out].spec());
      streams.bind(exe::StreamId(in.id), entries.bytes().data());
      streams.bind(exe::StreamId(out.id), result.bytes().data());
      const exe::Program& program = executor.executable().program("main");
      for (int i = 0; i < 10; ++i) {
        std::fill(result.bytes().begin(), result.bytes().end(), std::byte{0xff});
        executor.run(program, streams);
        ASSERT_TRUE(result.same_bits(want[out])) << threads << " threads";
      }
      for (uint64_t seed = 0; seed < 10; ++seed) {
        std::fill(result.bytes().begin(), result.bytes().end(), std::byte{0xff});
        executor.run_interleaved(program, streams, seed);
        ASSERT_TRUE(result.same_bits(want[out])) << "seed " << seed;
      }
    }
  }
}

TEST(IoQueue, RunsNoFurtherTransferAfterAStop) {
  std::atomic<bool> stop{true};
  runtime::IoQueue queue(4, stop);
  std::array<std::byte, 2> from{std::byte{1}, std::byte{2}}, to{};
  for (size_t i = 0; i < 2; ++i) {
    runtime::Transfer t;
    t.memory = &to[i];
    t.other = &from[i];
    t.bytes = 1;
    EXPECT_EQ(queue.issue(t), static_cast<int64_t>(i));
  }
  EXPECT_TRUE(queue.advance());
  EXPECT_TRUE(queue.done(0));
  EXPECT_TRUE(queue.pending());
  EXPECT_EQ(to[1], std::byte{});
  stop = false;
  EXPECT_TRUE(queue.advance());
  EXPECT_FALSE(queue.pending());
}

// An io thread serves its queues once when it starts. If it started after the constructor, it could
// take a transfer of an interleaved run. That run would then make no progress until the transfer
// ends. SLUICE_STARTS sets the number of executors.
TEST(IoQueue, AThreadThatStartsLateTakesNoTransfer) {
  Ir ir;
  Graph& main = ir.main_graph();
  const TensorSpec spec = f32_spec({1000, 500});
  const H2dStream in = ir.h2d_stream(spec, "in");
  const D2hStream out = ir.d2h_stream(spec, "out");
  const D2hStream second = ir.d2h_stream(spec, "beside");
  // The kernel runs while the load is pending. The load takes longer than an interleaved run waits
  // for progress.
  const Tensor loaded = main.host_load(in);
  const Tensor w = main.variable(spec, Initializer::constant(1), "w");
  main.host_store(second, ops::tanh(w));
  main.host_store(out, loaded);
  const Session session(ir, {.device = cpu_device({.threads = 1})});
  const exe::Executable plan = on_io_queue(session.executable(), Waits::kBeforeUse);
  const char* const given = std::getenv("SLUICE_STARTS");
  const uint64_t usual = test::kThreadSanitizer ? 50 : 1000;
  const uint64_t starts = given == nullptr ? usual : std::strtoull(given, nullptr, 10);
  HostTensor entry(spec), result(spec), other(spec);
  const auto values = entry.as<float>();
  std::iota(values.begin(), values.end(), 0.0f);
  runtime::HostStreams streams(plan);
  streams.bind(exe::StreamId(in.id), entry.bytes().data());
  streams.bind(exe::StreamId(out.id), result.bytes().data());
  streams.bind(exe::StreamId(second.id), other.bytes().data());
  const DelayedThreadStarts delays(400, 1);
  for (uint64_t seed = 0; seed < starts; ++seed) {
    runtime::Executor executor(plan, {cpu::make_device()}, {.threads = 1, .usable_cores = 1});
    const exe::Program& program = executor.executable().program("main");
    result.as<float>()[0] = -1;
    ASSERT_NO_THROW(executor.run_interleaved(program, streams, seed)) << "start " << seed;
    ASSERT_TRUE(result.same_bits(entry)) << "start " << seed;
    if (seed % 2 == 0) continue;
    result.as<float>()[0] = -1;
    executor.run(program, streams);
    ASSERT_TRUE(result.same_bits(entry)) << "start " << seed;
  }
  EXPECT_GE(DelayedThreadStarts::count(), static_cast<int64_t>(starts));
}

}  // namespace
}  // namespace sluice::test
