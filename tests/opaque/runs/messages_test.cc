// Messages of opaque devices: where their slots are, and who waits for whom.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <thread>

#include "../device.h"
#include "../target.h"
#include "sluice/check/checker.h"
#include "sluice/data/test_wait.h"
#include "sluice/devices/cpu_device.h"
#include "sluice/exe/memory_needs.h"
#include "sluice/runtime/executor.h"
#include "sluice/sluice.h"

namespace sluice::opaque {
namespace {

using exe::SlotMemory;
using exe::Space;
using testing::HasSubstr;

DeviceChoice cpu() { return cpu_device({.threads = 1}); }
DeviceChoice opaque(Options options = {}) {
  return {make_target(), make_device(std::move(options)), -1, 1};
}
SessionOptions on(const DeviceChoice& first, const DeviceChoice& second) {
  return {.device = first, .more_devices = {second}};
}

/// Device 0 computes a value in each of `kIterations` iterations, and device 1 adds it to a sum.
/// The sum returns to device 0 at the end. No transfer holds up a host.
struct Sums {
  static constexpr int64_t kIterations = 40;

  Sums() {
    const Tensor a = body.input(f32_spec({100}), "a");
    const Tensor t = body.input(f32_spec({100}), "t");
    body.set_device(0);
    const Tensor next = ops::tanh(a * 2.0 + 0.125);
    body.set_device(1);
    body.set_outputs({next, ops::relu(t * 0.5 + next)});
    Graph& main = ir.main_graph();
    x = main.variable(f32_spec({100}), Initializer::normal(0, 1).keyed({1, 2}), "x");
    const Tensors last = ops::repeat(main, body, kIterations, {x, ops::relu(x)});
    ops::copy_var_update_(x, last[0] + last[1]);
  }
  exe::Executable plan(const DeviceChoice& first, const DeviceChoice& second) const {
    return Session(ir, on(first, second)).executable();
  }
  /// Returns the variable after some runs on CPUs.
  HostTensor after(int runs) const {
    Session session(ir, on(cpu(), cpu()));
    for (int i = 0; i < runs; ++i) session.run();
    return session.read(x);
  }

  Ir ir;
  Graph& body = ir.create_empty_graph("turn");
  Tensor x;
};

/// The channel to device 1, and its slots.
const exe::Channel& channel_of(const exe::Executable& e) {
  return *std::find_if(e.channels.begin(), e.channels.end(),
                       [](const exe::Channel& c) { return c.to == 1; });
}
exe::Arena& slots_of(exe::Executable& e) { return e.arenas[channel_of(e).arena]; }

TEST(Messages, HaveSlotsOnTheSenderBetweenQueuesOfOneKind) {
  const Sums p;
  const auto memory_of = [&](const DeviceChoice& first, const DeviceChoice& second) {
    exe::Executable e = p.plan(first, second);
    EXPECT_TRUE(check::violations(e).empty());
    const exe::Arena& slots = slots_of(e);
    EXPECT_EQ(slots.kind, exe::ArenaKind::kSlots);
    EXPECT_EQ(slots.bytes, channel_of(e).capacity * 448);  // 400 bytes rounded up to 64.
    return SlotMemory{slots.space, slots.device};
  };
  const DeviceChoice device = opaque();
  EXPECT_EQ(memory_of(device, device), (SlotMemory{Space::kDevice, exe::DeviceId(0)}));
  EXPECT_EQ(memory_of(device, cpu()), (SlotMemory{Space::kPinned, exe::DeviceId(1)}));
  EXPECT_EQ(memory_of(cpu(), device), (SlotMemory{Space::kPinned, exe::DeviceId(1)}));
  EXPECT_EQ(memory_of(cpu(), cpu()), (SlotMemory{Space::kDevice, exe::DeviceId(1)}));
  exe::Executable e = p.plan(device, device);
  e.devices[exe::DeviceId(1)].kind = "other";
  EXPECT_EQ(exe::slot_memory(e, exe::DeviceId(0), exe::DeviceId(1)),
            (SlotMemory{Space::kPinned, exe::DeviceId(1)}));
}

TEST(Messages, CountAgainstTheBudgetOfTheSender) {
  const Sums p;
  SessionOptions options = on(opaque(), {});
  options.more_devices[0] = options.device;
  Session session(p.ir, options);
  const std::vector<exe::MemoryNeeds> needs = exe::memory_needs(session.executable());
  for (int d = 0; d < 2; ++d) {
    const auto& need = needs[static_cast<size_t>(d)];
    EXPECT_EQ(need.slot_bytes, 448 * session.executable().channels[exe::ChannelId(d)].capacity);
    EXPECT_EQ(session.planned_bytes(d), session.measured_bytes(d));
    EXPECT_EQ(session.planned_bytes(d), need.total_bytes);
  }
  EXPECT_EQ(needs.back().name, "tier host");
  EXPECT_EQ(needs.back().slot_bytes, 0);
  options.device.memory = session.planned_bytes(0);
  EXPECT_NO_THROW(Session(p.ir, options));
  --options.device.memory;
  EXPECT_THROW(Session(p.ir, options), Error);
}

TEST(Messages, WithDamagedSlotsAreRefused) {
  const Sums p;
  const DeviceChoice device = opaque();
  const auto refused = [](exe::Executable e, const char* rule, const char* text, auto&& damage) {
    damage(e, slots_of(e));
    const auto found = check::violations(e);
    ASSERT_FALSE(found.empty()) << text;
    EXPECT_EQ(found[0].rule, rule);
    EXPECT_THAT(found[0].message, HasSubstr(text));
  };
  const exe::Executable good = p.plan(device, device), mixed = p.plan(cpu(), device);
  using exe::Arena;
  using exe::Executable;
  refused(good, "channel", "slots must be in device memory of device 0, got arena 'slots 0to1'",
          [](Executable&, Arena& a) { a.device = exe::DeviceId(1); });
  refused(good, "channel", "('slots' in pinned memory of device 0)",
          [](Executable&, Arena& a) { a.space = Space::kPinned; });
  refused(good, "channel", "('frames' in device memory of device 0)",
          [](Executable&, Arena& a) { a.kind = exe::ArenaKind::kFrames; });
  refused(good, "channel", "slots must be in pinned memory of device 1",
          [](Executable& e, Arena&) { e.devices[exe::DeviceId(1)].kind = "other"; });
  refused(good, "bounds", "channel '0to1' must be inside",
          [](Executable&, Arena& a) { --a.bytes; });
  refused(mixed, "channel", "slots must be in pinned memory of device 1, got",
          [](Executable&, Arena& a) { a.space = Space::kDevice; });
  refused(mixed, "channel", "slots must be in pinned memory of device 1, got",
          [](Executable&, Arena& a) { a.device = exe::DeviceId(0); });
  refused(p.plan(cpu(), cpu()), "channel", "slots must be in device memory of device 1, got",
          [](Executable&, Arena& a) { a.space = Space::kPinned; });
}

TEST(Messages, AreRefusedInOtherMemoryWithoutAProof) {
  const DeviceChoice device = opaque();
  exe::Executable e = Sums().plan(device, device);
  slots_of(e).space = Space::kPinned;
  try {
    runtime::Executor(e, {device.device, device.device}, {.threads = 1});
    ADD_FAILURE() << "an executor of a damaged plan";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("channel 0to1: slots must be in device memory of device 0, got "
                          "arena slots 0to1"));
  }
}

TEST(Messages, MayBeEmpty) {
  Ir ir;
  Graph& main = ir.main_graph();
  const D2hStream y = ir.d2h_stream(f32_spec({0, 3}), "y");
  Tensor t = main.variable(f32_spec({0, 3}), Initializer::constant(1), "x");
  for (int device : {1, 0}) {
    const DeviceScope there(main, device);
    t = ops::tanh(t);
  }
  main.host_store(y, t);
  const DeviceChoice device = opaque();
  for (const SessionOptions& options : {on(device, device), on(device, cpu()), on(cpu(), device)}) {
    Session session(ir, options);
    ASSERT_EQ(session.executable().channels.size(), 1U);
    EXPECT_EQ(session.executable().channels[exe::ChannelId(0)].slot_bytes, 0);
    EXPECT_EQ(session.run()[y].spec(), f32_spec({0, 3}));
  }
}

// While no command of device 0 runs, both hosts enqueue all commands of a run.
TEST(Messages, LetNoHostWaitForADevice) {
  const Sums p;
  std::atomic<bool> held{false};
  Options options{.mode = Mode::kThreads, .ring = 10000};
  options.hook = [&](int queue, int64_t, std::string_view) {
    while (queue == 0 && held) std::this_thread::sleep_for(std::chrono::microseconds(100));
  };
  const DeviceChoice device = opaque(options);
  Session session(p.ir, on(device, device));
  const auto enqueued = [&] { return enqueued_commands(*device.device); };
  session.run();
  const int64_t all = enqueued();
  EXPECT_GT(all, 4 * Sums::kIterations);
  EXPECT_LT(channel_of(session.executable()).capacity, Sums::kIterations / 2);
  held = true;
  std::future<void> run = std::async(std::launch::async, [&] { session.run(); });
  EXPECT_TRUE(test::wait_until([&] { return enqueued() >= 2 * all; }));
  EXPECT_EQ(enqueued(), 2 * all);
  EXPECT_EQ(run.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  held = false;
  run.get();
  EXPECT_TRUE(session.read(p.x).same_bits(p.after(2)));
}

/// Device 1 loads an entry of a remote buffer, whose number a stream gives, while device 0 sends it
/// the values of the iterations.
struct EntryAndSums : Sums {
  EntryAndSums() {
    Graph& main = ir.main_graph();
    const RemoteBuffer buffer = ir.remote_buffer(f32_spec({100}), 2);
    main.set_device(1);
    main.remote_store(buffer, 1, ops::relu(x));
    const Tensor loaded = main.remote_load(buffer, main.host_load(entry));
    main.set_device(0);
    ops::scaled_add_(x, ops::repeat(main, body, kIterations, {x, loaded})[1]);
  }
  void run(Session& session, int32_t number) const {
    session.run({{entry, HostTensor::of<int32_t>({}, i32, {number})}});
  }
  H2dStream entry = ir.h2d_stream({{}, i32, {}}, "entry");
};

// The host of one device ends a run while messages are on their way. The next run is not disturbed.
TEST(Messages, OfAStoppedRunAreForgotten) {
  const EntryAndSums p;
  for (const Mode mode : {Mode::kThreads, Mode::kLazy}) {
    const DeviceChoice device = opaque({.mode = mode});
    Session session(p.ir, on(device, device)), wanted(p.ir, on(cpu(), cpu()));
    for (int i = 0; i < 10; ++i) {
      EXPECT_THROW(p.run(session, 2 + i), Error);
      const HostTensor start = session.read(p.x);
      wanted.write(p.x, start);
      p.run(session, 1);
      p.run(wanted, 1);
      EXPECT_TRUE(session.read(p.x).same_bits(wanted.read(p.x)));
    }
  }
}

}  // namespace
}  // namespace sluice::opaque
