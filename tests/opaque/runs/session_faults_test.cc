// Sessions on opaque devices whose calls and commands fail.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "../../property/random_graph_run.h"
#include "../device.h"
#include "../target.h"
#include "failure.h"
#include "sluice/devices/cpu_device.h"
#include "sluice/exe/budget/does_not_fit.h"
#include "sluice/sluice.h"

namespace sluice::opaque {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

DeviceChoice choice(Options options) {
  return {make_target(), make_device(std::move(options)), -1, 1};
}

class SessionFaults : public testing::TestWithParam<Mode> {};
INSTANTIATE_TEST_SUITE_P(Modes, SessionFaults, testing::Values(Mode::kThreads, Mode::kLazy));

TEST_P(SessionFaults, AnyCallOfTheInterfaceMayFail) {
  int64_t calls = 0;
  for (const uint64_t seed : {3, 14, 15, 92}) {
    for (const int devices : {1, 2}) {
      const property::RandomProgram program = property::random_program({seed, {}, devices});
      // The first calls, then some of those that follow. Threads poll, so their calls are many.
      for (int64_t n = 1; n < 10000; n += 1 + n / 5) {
        const Failure failure = failure_of([&] {
          property::executed(program,
                             {.devices = devices,
                              .device = choice({.mode = GetParam(), .seed = seed, .fail_at = n})});
        });
        if (failure.text.empty()) break;
        EXPECT_TRUE(failure.kind == ErrorKind::kDoesNotFit || failure.kind == ErrorKind::kPeerLost)
            << failure.text;
        ++calls;
      }
    }
  }
  EXPECT_GT(calls, 60);
}

// The first call opens the device. A second one, which would allocate, fails in another way.
TEST(OpaqueMemoryOfADevice, IsRefusedBeforeItIsAllocated) {
  Ir ir;
  Graph& main = ir.main_graph();
  const Tensor w = main.variable(f32_spec({1000}), Initializer::constant(0), "w");
  ops::add_(w, w);
  const int64_t needed = Session(ir, {.device = choice({})}).planned_bytes();
  try {
    Session(ir, {.device = choice({.fail_at = 2, .memory = needed - 1})});
    FAIL() << "it fits";
  } catch (const DoesNotFit& e) {
    EXPECT_THAT(e.what(), HasSubstr(fmt::format("device 0 (opaque): memory must be at most {} "
                                                "bytes, which the device has available, got {}; ",
                                                needed - 1, needed)));
    EXPECT_EQ(e.memory().total_bytes, needed);
    EXPECT_EQ(e.memory().budget_bytes, needed - 1);
  }
  EXPECT_EQ(Session(ir, {.device = choice({.memory = needed})}).measured_bytes(), needed);
}

// Eight layers y = relu(2x + 1), each on the next device, and a variable that changes.
struct Program {
  explicit Program(int devices) {
    Graph& main = ir.main_graph();
    Tensor t = main.host_load(x);
    const Tensor sum = main.variable(f32_spec({64}), Initializer::constant(0), "sum");
    for (int i = 0; i < 8; ++i) {
      const DeviceScope on(main, i % devices);
      t = ops::relu(t * 2.0 + 1.0);
    }
    ops::add_(sum, t);
    main.host_store(y, t);
  }
  void run(Session& session) const { session.run({{x, HostTensor(f32_spec({64}))}}); }

  Ir ir;
  H2dStream x = ir.h2d_stream(f32_spec({64}), "x");
  D2hStream y = ir.d2h_stream(f32_spec({64}), "y");
};

TEST_P(SessionFaults, AKernelIsNamedAndLaterRunsAreRefused) {
  const Program p(1);
  int launches = 0;
  for (int failing = 1;; ++failing) {
    int seen = 0;
    Options options{.mode = GetParam()};
    options.hook = [&](int, int64_t, std::string_view name) {
      if (name.find("launch") != name.npos && ++seen == failing)
        fail(ErrorKind::kIo, "the unit is hot");
    };
    Session session(p.ir, {.device = choice(options)});
    const Failure first = failure_of([&] { p.run(session); });
    if (first.text.empty()) break;
    EXPECT_EQ(first.kind, ErrorKind::kIo);
    EXPECT_THAT(first.text, HasSubstr("the unit is hot"));
    EXPECT_THAT(first.text, HasSubstr("made at"));
    const Failure second = failure_of([&] { p.run(session); });
    EXPECT_EQ(second.kind, ErrorKind::kIo);
    EXPECT_THAT(second.text, HasSubstr("the unit is hot"));
    ++launches;
  }
  EXPECT_GE(launches, 2);
}

// The other device finds that its peer is lost, often before the error of the kernel appears.
TEST_P(SessionFaults, AKernelIsNamedAlsoIfAnotherDeviceFailsFirst) {
  const Program p(2);
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Options options{.mode = GetParam(), .seed = seed};
    options.hook = [=](int queue, int64_t command, std::string_view) {
      if (queue == 0 && command == static_cast<int64_t>(1 + seed % 5))
        fail(ErrorKind::kIo, "the unit is hot");
    };
    const DeviceChoice device = choice(options);
    Session session(p.ir, {.device = device, .more_devices = {device}});
    const Failure failure = failure_of([&] { p.run(session); });
    EXPECT_EQ(failure.kind, ErrorKind::kIo) << seed << failure.text;
    EXPECT_THAT(failure.text, HasSubstr("the unit is hot"));
    EXPECT_THAT(failure.text,
                AnyOf(HasSubstr("made at"), HasSubstr("running Send: message to device 1"),
                      HasSubstr("running Receive: message from device 1")));
  }
}

TEST_P(SessionFaults, ALostDeviceStopsTheOthers) {
  const Program p(2);
  for (int64_t command = 1; command < 12; ++command) {
    for (const bool cpu_first : {false, true}) {
      Options options{.mode = GetParam()};
      options.hook = [=](int, int64_t c, std::string_view) {
        if (c == command) fail(ErrorKind::kPeerLost, "the device is gone");
      };
      std::array<DeviceChoice, 2> devices{choice(options), cpu_device({.threads = 1})};
      if (cpu_first) std::swap(devices[0], devices[1]);
      Session session(p.ir, {.device = devices[0], .more_devices = {devices[1]}});
      const Failure failure = failure_of([&] { p.run(session); });
      EXPECT_EQ(failure.kind, ErrorKind::kPeerLost) << command;
      EXPECT_THAT(failure.text, HasSubstr("the device is gone"));
    }
  }
}

TEST_P(SessionFaults, ALostDeviceStopsOthersOfItsKind) {
  const Program p(2);
  for (int64_t command = 1; command < 12; ++command) {
    for (const int lost : {0, 1}) {
      Options options{.mode = GetParam()};
      options.hook = [=](int queue, int64_t c, std::string_view) {
        if (queue == lost && c == command) fail(ErrorKind::kPeerLost, "the device is gone");
      };
      const DeviceChoice device = choice(options);
      Session session(p.ir, {.device = device, .more_devices = {device}});
      for (int run = 0; run < 2; ++run)
        EXPECT_EQ(failure_of([&] { p.run(session); }).kind, ErrorKind::kPeerLost) << command;
    }
  }
}

}  // namespace
}  // namespace sluice::opaque
