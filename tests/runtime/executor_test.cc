// Tests of the runtime without a session, or through one: interleavings, two devices and a channel,
// floating-point mode, counters.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "../support/mlp.h"
#include "sluice/base/checked.h"
#include "sluice/base/flush_to_zero.h"
#include "sluice/check/checker.h"
#include "sluice/cpu/device/cpu.h"
#include "sluice/exe/text.h"
#include "sluice/interp/interpreter.h"
#include "sluice/runtime/executor.h"
#include "thread_start.h"

namespace sluice::test {
namespace {

using testing::HasSubstr;

TEST(Interleavings, OfAnMlpGiveTheSameBits) {
  const MlpProgram p({.layers = 2, .width = 160, .style = Layers::kOutlined});
  Session reference(p.ir, {.device = cpu_device({.threads = 1})});
  const std::vector<float> want = train(reference, p, 3);
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Session session(p.ir, {.device = cpu_device({.threads = 1 + static_cast<int>(seed % 4)})});
    HostTensor loss(p.loss.spec);
    for (uint64_t step = 0; step < 3; ++step) {
      const Batch batch(p.options, step);
      Binding binding = session.bind({{p.image, batch.image}, {p.labels, batch.labels}},
                                     {{p.loss, loss}}, "train");
      session.run_interleaved(binding, seed * 10 + step);
      EXPECT_EQ(loss.as<float>()[0], want[step]) << "seed " << seed;
    }
    EXPECT_EQ(all_bytes(session), all_bytes(reference)) << "seed " << seed;
  }
}

// Threads without a core hold up no run: the thread that calls continues with their strands. Their
// start is delayed here. That a run has not waited for them shows in a count.
TEST(LateWorkers, TheCallerGoesOnWithTheirStrands) {
  const MlpProgram p({.layers = 2, .width = 160, .style = Layers::kOutlined});
  Session reference(p.ir, {.device = cpu_device({.threads = 1})});
  const std::vector<float> want = train(reference, p, 3);
  EXPECT_EQ(reference.counters().moved, 0);
  const DelayedThreadStarts delays(400'000, 1);
  Session session(p.ir, {.device = cpu_device({.threads = 4})});
  EXPECT_EQ(train(session, p, 3), want);
  EXPECT_GE(session.counters().moved, 1);
  EXPECT_EQ(all_bytes(session), all_bytes(reference));
}

// Device 0 computes y, device 1 uses y, and device 0 uses the result.
struct TwoDevices {
  TwoDevices() {
    Graph& main = ir.main_graph();
    main.set_device(0);
    const Tensor x = main.host_load(in);
    const Tensor y = ops::tanh(x);
    main.set_device(1);
    const Tensor w = main.variable(f32_spec({3, 3}), Initializer::constant(0.5), "w");
    const Tensor z = ops::matmul(y, w);
    ops::scaled_add_(w, z, 1.0, 0.25);
    main.set_device(0);
    main.host_store(out, z + y);
  }
  Ir ir;
  H2dStream in = ir.h2d_stream(f32_spec({3, 3}), "in");
  D2hStream out = ir.d2h_stream(f32_spec({3, 3}), "out");
};

SessionOptions two_cpus(int threads) {
  return {.device = cpu_device({.threads = threads}),
          .more_devices = {cpu_device({.threads = threads})}};
}

TEST(TwoDevices, RunThroughChannels) {
  const TwoDevices p;
  HostTensor x(p.in.spec);
  for (size_t i = 0; i < 9; ++i) x.as<float>()[i] = 0.1f * static_cast<float>(i) - 0.3f;
  Interpreter interpreter(p.ir);
  const Tensor w = p.ir.graph(GraphId(0)).variables()[0];
  const HostTensor want1 = interpreter.run({{p.in, x}})[p.out];
  const HostTensor want2 = interpreter.run({{p.in, x}})[p.out];
  for (const int threads : {1, 2, 3}) {
    Session session(p.ir, two_cpus(threads));
    const exe::Executable& plan = session.executable();
    EXPECT_TRUE(check::violations(plan).empty());
    EXPECT_EQ(plan.devices.size(), 2u);
    EXPECT_EQ(plan.channels.size(), 2u);
    EXPECT_EQ(exe::parse_text(exe::to_text(plan), "plan"), plan);
    for (int d = 0; d < 2; ++d) EXPECT_EQ(session.planned_bytes(d), session.measured_bytes(d));
    EXPECT_TRUE(session.run({{p.in, x}})[p.out].same_bits(want1)) << threads << " threads";
    EXPECT_TRUE(session.run({{p.in, x}})[p.out].same_bits(want2));
    EXPECT_TRUE(session.read(w).same_bits(interpreter.read(w)));
  }
}

TEST(TwoDevices, AnyInterleavingEndsTheSame) {
  const TwoDevices p;
  const HostTensor x(p.in.spec);
  HostTensor out(p.out.spec);
  HostTensor want(p.out.spec);
  {
    Session session(p.ir, two_cpus(1));
    Binding b = session.bind({{p.in, x}}, {{p.out, want}});
    for (int i = 0; i < 50; ++i) session.run_into(b);
  }
  Session session(p.ir, two_cpus(2));
  Binding b = session.bind({{p.in, x}}, {{p.out, out}});
  for (uint64_t seed = 0; seed < 50; ++seed) session.run_interleaved(b, seed);
  EXPECT_TRUE(out.same_bits(want));
}

TEST(TwoDevices, EachHasItsOwnBudget) {
  const TwoDevices p;
  SessionOptions options = two_cpus(1);
  const int64_t needed = Session(p.ir, options).planned_bytes(1);
  options.more_devices[0].memory = needed;
  Session fits(p.ir, options);
  options.more_devices[0].memory = needed - 1;
  EXPECT_THAT(error_of(ErrorKind::kDoesNotFit, [&] { Session session(p.ir, options); }),
              HasSubstr("device 1"));
  EXPECT_THAT(error_of(ErrorKind::kUsage, [&] { Session session(p.ir, {.device = cpu_device()}); }),
              HasSubstr("no device 1"));
}

TEST(TwoDevices, ShareStreamsAndVariablesByMessages) {
  TwoDevices p;
  Graph& main = p.ir.main_graph();
  main.set_device(1);
  const Tensor w = main.variables()[0];
  main.host_store(p.out, w);
  main.set_device(0);
  ops::relu_(w);
  HostTensor x(p.in.spec);
  x.as<float>()[0] = -1;
  Interpreter interpreter(p.ir);
  const HostTensor last = interpreter.run({{p.in, x}})[p.out];
  Session session(p.ir, two_cpus(2));
  const HostTensor got = session.run({{p.in, x}})[p.out];
  ASSERT_EQ(got.shape(), (Shape{2, 3, 3}));
  for (size_t i = 0; i < 9; ++i) EXPECT_EQ(got.as<float>()[9 + i], last.as<float>()[i]);
  EXPECT_TRUE(session.read(w).same_bits(interpreter.read(w)));
}

// Returns whether this thread flushes denormals to zero.
bool flushes() {
  volatile float tiny = 0x1p-126f;
  return tiny * 0.5f == 0.0f;
}

// A function that is entered at one address has fixed argument addresses. This function is entered
// at two.
TEST(Programs, ThatEnterOneFunctionAtTwoPlacesGiveTheSame) {
  Ir ir;
  Graph& main = ir.main_graph();
  const H2dStream in = ir.h2d_stream(f32_spec({40}), "in");
  const Tensor y = ops::exp(main.host_load(in));
  main.host_store(y + ops::mean(y), "out");
  exe::Executable plan = Session(ir, {.device = cpu_device({.threads = 1})}).executable();
  exe::Program moved = plan.programs[0];
  moved.name = "moved";
  exe::Address& frame = moved.starts[0].frame;
  const int64_t distance = round_up(plan.functions.back().frame_bytes, 64);
  frame.offset += distance;
  plan.arenas[exe::ArenaId(frame.index)].bytes += distance;
  plan.programs.push_back(moved);
  ASSERT_TRUE(check::violations(plan).empty());
  runtime::Executor executor(plan, {cpu::make_device()}, {.threads = 1});
  runtime::HostStreams streams(plan);
  float value = 0;
  for (int run = 0; run < 2; ++run) {
    for (const exe::Program& program : plan.programs) {
      std::vector<float> x(40, value += 0.5f), result(40);
      streams.bind(exe::StreamId(0), reinterpret_cast<std::byte*>(x.data()));
      streams.bind(exe::StreamId(1), reinterpret_cast<std::byte*>(result.data()));
      executor.run(program, streams);
      EXPECT_NEAR(result[7], 2 * std::exp(x[0]), 1e-4) << program.name;
    }
  }
}

TEST(FlushToZero, HoldsInARunAndIsRestored) {
  Ir ir;
  Graph& main = ir.main_graph();
  const H2dStream in = ir.h2d_stream(f32_spec({64}), "in");
  const D2hStream out = main.host_store(main.host_load(in) * 0.5, "out");
  HostTensor tiny(f32_spec({64}));
  for (float& x : tiny.as<float>()) x = 0x1p-126f;  // Half of this is denormal.
  Session session(ir, {.device = cpu_device({.threads = 1})});
  HostTensor result(out.spec);
  Binding b = session.bind({{in, tiny}}, {{out, result}});
  const auto run_all_ways = [&] {
    const bool before = flushes();
    EXPECT_EQ(session.run({{in, tiny}})[out].as<float>()[0], 0.0f);
    EXPECT_EQ(flushes(), before);
    session.run_interleaved(b, 1);
    EXPECT_EQ(result.as<float>()[0], 0.0f);
    EXPECT_EQ(flushes(), before);
  };
  EXPECT_FALSE(flushes());
  run_all_ways();
  const FlushToZero flush;
  EXPECT_TRUE(flushes());
  run_all_ways();
}

TEST(Counters, CountWorkOnceWhateverTheThreads) {
  const MlpProgram p({.layers = 2, .width = 128});
  runtime::Counters first;
  for (const int threads : {1, 3}) {
    Session session(p.ir, {.device = cpu_device({.threads = threads})});
    train(session, p, 4);
    const runtime::Counters c = session.counters();
    if (threads == 1) first = c;
    EXPECT_EQ(c.kernels, first.kernels);
    EXPECT_EQ(c.bytes, first.bytes);
    EXPECT_EQ(c.flops, first.flops);
    EXPECT_GT(c.flops, 4 * 6.0 * 8 * 128 * 128);
    EXPECT_EQ(c.barriers == 0, threads == 1);
  }
}

}  // namespace
}  // namespace sluice::test
