// Runs on opaque devices that another thread stops while commands are on their way.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "../device.h"
#include "../target.h"
#include "failure.h"
#include "sluice/base/failpoint.h"
#include "sluice/data/test_wait.h"
#include "sluice/sluice.h"

namespace sluice::opaque {
namespace {

using testing::HasSubstr;
using Seconds = std::chrono::duration<double>;

constexpr int64_t kSize = 64;

// Each iteration of a loop computes t = tanh(t + x) on the last device, sums it over the replicas,
// and moves it through a remote buffer on an I/O queue. The loop of entry "long" takes seconds.
struct Loops {
  explicit Loops(int devices, int replicas = 1) : ir(replicas), replicas(replicas) {
    Graph& body = ir.create_empty_graph("turn");
    const Graph::IoScope io(body, IoMode::kIoOverlapped);
    const RemoteBuffer buffer = ir.remote_buffer(f32_spec({kSize}), 1);
    const Tensor t = body.input(f32_spec({kSize}), "t");
    const Tensor x = body.input(f32_spec({kSize}), "x");
    const Tensor far = [&] {
      const DeviceScope on(body, devices - 1);
      return ops::tanh(t + x);
    }();
    const DeviceScope on(body, 0);
    body.remote_store(buffer, 0, replicas > 1 ? ops::replicated_all_reduce(far) : far);
    body.add_output(body.remote_load(buffer, 0) * 0.25);
    for (const auto& [name, trips] : {std::pair{"short", 3}, {"long", 100'000}}) {
      Graph& main = ir.entry_graph(name);
      in.push_back(ir.h2d_stream(f32_spec({kSize}), std::string("x of ") + name));
      const Tensor first = main.host_load(in.back());
      out.push_back(main.host_store(ops::repeat(main, body, trips, {first, first})[0], "y"));
    }
  }
  HostTensor run(Session& session, size_t entry) const {
    HostTensor x(TensorSpec{entries_shape({kSize}, 1, replicas), f32, {}});
    for (float& value : x.as<float>()) value = 0.25f;
    return session.run({{in[entry], x}}, entry == 0 ? "short" : "long")[out[entry]];
  }

  Ir ir;
  int replicas;
  std::vector<H2dStream> in;
  std::vector<D2hStream> out;
};

constexpr size_t kShort = 0, kLong = 1;

// Sessions whose commands of one queue, from some number on, begin only after release().
class Held {
 public:
  Held(Mode mode, int queue) {
    options.mode = mode;
    options.ring = 1024;
    options.may_begin = [this, queue](int q, int64_t command, std::string_view) {
      if (q != queue || command < 20 || !holds_) return true;
      is_reached_ = true;
      return false;
    };
  }
  ~Held() { release(); }
  void release() { holds_ = false; }
  bool is_released() const { return !holds_; }
  bool is_reached() const { return is_reached_; }

  SessionOptions session_options(int devices, double deadline) const {
    // The proof refuses programs that are so long.
    SessionOptions result{.device = {make_target(), make_device(options), -1, 1},
                          .stop_deadline = deadline,
                          .proof = SessionOptions::Proof::kTrust};
    for (int d = 1; d < devices; ++d) result.more_devices.push_back(result.device);
    return result;
  }

  Options options;

 private:
  std::atomic<bool> holds_{true}, is_reached_{false};
};

// Releases commands before a session ends that was made before it: it waits for them.
struct Release {
  Held& held;
  ~Release() { held.release(); }
};

struct Stopped {
  Failure failure;
  bool released = false;  // Whether the commands were released before the run ended.
  Seconds time{};         // From the stop to the end of the run.
};

// Runs the endless program, calls stop() once a command is held, and releases it after `pause`
// unless that is negative.
Stopped stopped_run(const Loops& p, Session& session, Held& held, Seconds pause) {
  std::chrono::steady_clock::time_point stop;
  std::thread stopper([&] {
    while (!held.is_reached()) std::this_thread::yield();
    stop = std::chrono::steady_clock::now();
    EXPECT_TRUE(session.stop());
    if (pause.count() < 0) return;
    std::this_thread::sleep_for(pause);
    held.release();
  });
  Failure failure = failure_of([&] { p.run(session, kLong); });
  const bool released = held.is_released();
  const auto end = std::chrono::steady_clock::now();
  stopper.join();
  return {std::move(failure), released, end - stop};
}

struct Case {
  Mode mode;
  int devices;
  int replicas;
  int queue;  // Index in the family. Each device of each replica has its queues in a row.
  const char* name;
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << (c.mode == Mode::kLazy ? "lazy, " : "threads, ") << c.devices << " devices, "
       << c.replicas << " replicas, queue " << c.queue;
}

class QueuedStops : public testing::TestWithParam<Case> {};

// One device: compute queue and I/O queue. Two devices: the second one has a compute queue only.
INSTANTIATE_TEST_SUITE_P(Held, QueuedStops,
                         testing::Values(Case{Mode::kLazy, 1, 1, 0, "device 0"},
                                         Case{Mode::kThreads, 1, 1, 0, "device 0"},
                                         Case{Mode::kLazy, 1, 1, 1, "device 0"},
                                         Case{Mode::kThreads, 1, 1, 1, "device 0"},
                                         Case{Mode::kLazy, 2, 1, 2, "device 1"},
                                         Case{Mode::kThreads, 2, 1, 2, "device 1"},
                                         Case{Mode::kLazy, 1, 2, 2, "device 0 of replica"},
                                         Case{Mode::kThreads, 1, 2, 2, "device 0 of replica"}));

TEST_P(QueuedStops, WaitForCommandsThatEndInTime) {
  const Loops p(GetParam().devices, GetParam().replicas);
  Held never(GetParam().mode, -1);
  Session fresh(p.ir, never.session_options(GetParam().devices, 10));
  const HostTensor want = p.run(fresh, kShort);
  Held held(GetParam().mode, GetParam().queue);
  Session session(p.ir, held.session_options(GetParam().devices, 60));
  const Release release{held};
  const auto [failure, released, time] = stopped_run(p, session, held, Seconds(0.2));
  EXPECT_EQ(failure.kind, ErrorKind::kStopped);
  EXPECT_EQ(failure.text,
            "run: stopped by a call of stop(); variables hold what this run has left");
  EXPECT_TRUE(released) << "the run did not wait for its commands";
  for (int run = 0; run < 2; ++run) EXPECT_TRUE(p.run(session, kShort).same_bits(want));
}

TEST_P(QueuedStops, DoNotWaitLongerThanTheDeadline) {
  const Loops p(GetParam().devices, GetParam().replicas);
  Held held(GetParam().mode, GetParam().queue);
  Session session(p.ir, held.session_options(GetParam().devices, 0.3));
  const Release release{held};
  const auto [failure, released, time] = stopped_run(p, session, held, Seconds(-1));
  EXPECT_EQ(failure.kind, ErrorKind::kPeerLost);
  // A device whose queue waits for that of the other one has not ended its commands either.
  EXPECT_THAT(failure.text,
              testing::StartsWith(GetParam().devices > 1 ? "device " : GetParam().name));
  EXPECT_THAT(failure.text,
              testing::EndsWith(": its commands have not ended within 0.3 s after the stop"));
  // The deadline is the contract, so that times are compared. That of other sessions is 10 s.
  EXPECT_GE(time, Seconds(0.3));
  EXPECT_LT(time, Seconds(10));
  // Whether or not the commands have ended now, the session refuses all runs.
  for (const bool released : {false, true}) {
    if (released) held.release();
    const Failure again = failure_of([&] { p.run(session, kShort); });
    EXPECT_EQ(again.kind, ErrorKind::kPeerLost);
    EXPECT_EQ(again.text, failure.text);
  }
}

class QueuedStop : public testing::TestWithParam<Mode> {};
INSTANTIATE_TEST_SUITE_P(Modes, QueuedStop, testing::Values(Mode::kThreads, Mode::kLazy));

TEST_P(QueuedStop, VariablesOfALostDeviceAreRefused) {
  Loops p(1);
  const Tensor v = p.ir.entry_graph("short").variable(f32_spec({4}), Initializer::constant(1), "v");
  Held held(GetParam(), 0);
  Session session(p.ir, held.session_options(1, 0.1));
  const Release release{held};
  EXPECT_EQ(session.read(v).as<float>()[0], 1);
  const Failure failure = stopped_run(p, session, held, Seconds(-1)).failure;
  EXPECT_EQ(failure_of([&] { session.read(v); }).text, failure.text);
  EXPECT_EQ(failure_of([&] { session.write(v, HostTensor(f32_spec({4}))); }).text, failure.text);
}

// The entry has eight pieces of the size of a slot.
TEST_P(QueuedStop, EndATransferBetweenItsPieces) {
  for (const IoMode mode : {IoMode::kCompute, IoMode::kIo}) {
    Ir ir;
    Graph& main = ir.main_graph();
    const Graph::IoScope io(main, mode);
    const RemoteBuffer buffer = ir.remote_buffer(f32_spec({2 << 20}), 1);
    main.host_store(ops::sum(main.remote_load(buffer, 0)), "y");
    SessionOptions options{.device = {make_target(), make_device({.mode = GetParam()}), -1, 1}};
    options.remote = "file:" + testing::TempDir();
    options.remote_bandwidth = 1000;
    Session session(ir, options);
    sys::set_failpoint(sys::parse_failpoint("pread@1000=EIO"));
    std::thread stopper([&] {
      while (sys::failpoint_calls() == 0) std::this_thread::yield();
      EXPECT_TRUE(session.stop());
    });
    EXPECT_EQ(failure_of([&] { session.run(); }).kind, ErrorKind::kStopped);
    stopper.join();
    EXPECT_LE(sys::failpoint_calls(), 2);
    sys::clear_failpoint();
  }
}

// A host that waits for room in a queue would not see a stop.
TEST_P(QueuedStop, EndAWalkThatIsFarAheadOfItsDevice) {
  Ir ir;
  Graph& main = ir.main_graph();
  const Tensor t = main.variable(f32_spec({kSize}), Initializer::constant(1), "t");
  Graph& body = ir.create_graph(
      "turn", [](Graph&, Tensor x) { return ops::tanh(x); }, f32_spec({kSize}));
  main.host_store(ops::repeat(main, body, 100'000, {t})[0], "y");
  Held held(GetParam(), 0);
  const SessionOptions options = held.session_options(1, 0.1);
  Session session(ir, options);
  const Release release{held};
  std::thread stopper([&] {
    const auto enqueued = [&] { return enqueued_commands(*options.device.device); };
    constexpr int64_t kAhead = runtime::Queue::kMaxOutstanding / 2;
    EXPECT_TRUE(test::wait_until([&] { return held.is_reached() && enqueued() >= kAhead; }));
    EXPECT_TRUE(session.stop());
  });
  EXPECT_THAT(failure_of([&] { session.run(); }).text, HasSubstr("have not ended within 0.1 s"));
  stopper.join();
}

TEST_P(QueuedStop, ReportACommandThatFailsAfterTheStop) {
  const Loops p(1);
  Held held(GetParam(), 0);
  held.options.hook = [&held](int queue, int64_t, std::string_view) {
    if (queue == 0 && held.is_reached()) fail(ErrorKind::kIo, "the unit is hot");
  };
  Session session(p.ir, held.session_options(1, 60));
  const Failure failure = stopped_run(p, session, held, Seconds(0.05)).failure;
  EXPECT_EQ(failure.kind, ErrorKind::kIo);
  EXPECT_THAT(failure.text, testing::StartsWith("the unit is hot\n  while running "));
  EXPECT_THAT(failure_of([&] { p.run(session, kShort); }).text, HasSubstr("the unit is hot"));
}

// Device 1 fails while commands of device 0 are held. The devices work on their own.
TEST_P(QueuedStop, AMissedDeadlineNamesTheErrorBeforeIt) {
  Ir ir;
  Graph& main = ir.main_graph();
  for (const int d : {0, 1}) {
    const DeviceScope on(main, d);
    Tensor t = main.variable(f32_spec({kSize}), Initializer::constant(1), fmt::format("t{}", d));
    for (int i = 0; i < 40; ++i) t = ops::tanh(t);
    main.host_store(t, "y");
  }
  Held held(GetParam(), 0);
  held.options.may_begin = [&held, asks = held.options.may_begin](int queue, int64_t command,
                                                                  std::string_view name) {
    return queue == 0 ? asks(queue, command, name) : held.is_reached();
  };
  held.options.hook = [](int queue, int64_t, std::string_view) {
    if (queue == 1) fail(ErrorKind::kIo, "the unit is hot");
  };
  SessionOptions options = held.session_options(2, 0.2);
  options.io_queues = 0;
  options.disable = {"fuse"};
  Session session(ir, options);
  const Release release{held};
  const Failure failure = failure_of([&] { session.run(); });
  EXPECT_EQ(failure.kind, ErrorKind::kPeerLost);
  EXPECT_THAT(failure.text, HasSubstr("device 0: its commands have not ended within 0.2 s after "
                                      "the stop\n  while ending the run after this error: the unit "
                                      "is hot\n  while running Tanh."));
  EXPECT_EQ(failure_of([&] { session.run(); }).text, failure.text);
}

}  // namespace
}  // namespace sluice::opaque
