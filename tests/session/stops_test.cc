// Runs that another thread stops.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <limits>
#include <thread>

#include "../support/mlp.h"
#include "../support/thread_sanitizer.h"
#include "sluice/base/test_refusals.h"
#include "sluice/sluice.h"

namespace sluice::test {
namespace {

using testing::HasSubstr;

constexpr int64_t kEndless = 1'000'000'000;  // Iterations that take hours.
constexpr int64_t kLong = 1'000'000;         // Iterations that take seconds.
constexpr int64_t kSize = 300;

// Each iteration computes t = tanh(t + x) and adds t, summed over the replicas, to a variable. If
// there are two devices, they alternate. Each entry graph has its own number of iterations.
struct Loops {
  explicit Loops(int devices = 1, int replicas = 1) : ir(replicas), replicas(replicas) {
    Graph& body = ir.create_empty_graph("turn");
    const Tensor t = body.input(f32_spec({kSize}), "t");
    const Tensor x = body.input(f32_spec({kSize}), "x");
    const Tensor sum = body.input(f32_spec({kSize}), "sum", Pass::kByReference);
    const Tensor far = [&] {
      const DeviceScope on(body, devices - 1);
      const Tensor y = ops::tanh(t + x);
      return replicas > 1 ? ops::replicated_all_reduce(y) * 0.5 : y;
    }();
    const DeviceScope near(body, 0);
    ops::add_(sum, far);
    body.add_output(far * 0.5);
    for (const auto& [name, trips] :
         {std::pair{"short", int64_t{3}}, {"middle", int64_t{300}}, {"long", kEndless}}) {
      Graph& main = ir.entry_graph(name);
      total = !total.valid() ? main.variable(f32_spec({kSize}), Initializer::constant(0), "total")
                             : ir.share_variable(total, main);
      in.push_back(ir.h2d_stream(f32_spec({kSize}), std::string("x of ") + name));
      const Tensor first = main.host_load(in.back());
      out.push_back(main.host_store(ops::repeat(main, body, trips, {first, first, total})[0], "y"));
    }
  }
  enum Entry : size_t { kShort, kMiddle, kLong };
  HostTensor run(Session& session, Entry entry) const {
    static constexpr const char* kNames[] = {"short", "middle", "long"};
    HostTensor x(TensorSpec{entries_shape({kSize}, 1, replicas), f32, {}});
    for (float& value : x.as<float>()) value = 0.25f;
    return session.run({{in[entry], x}}, kNames[entry])[out[entry]];
  }

  Ir ir;
  int replicas;
  Tensor total;
  std::vector<H2dStream> in;
  std::vector<D2hStream> out;
};

SessionOptions with(int threads, int devices = 1) {
  // The proof refuses programs that are so long.
  SessionOptions options{.device = cpu_device({.threads = threads}),
                         .proof = SessionOptions::Proof::kTrust};
  for (int d = 1; d < devices; ++d)
    options.more_devices.push_back(cpu_device({.threads = threads}));
  return options;
}

// Calls stop() until a run is in progress, and then after `pause` once more.
class Stopper {
 public:
  explicit Stopper(Session& session, std::chrono::microseconds pause = {})
      : thread_([&session, pause] {
          std::this_thread::sleep_for(pause);
          while (!session.stop()) std::this_thread::yield();
        }) {}
  ~Stopper() { thread_.join(); }

 private:
  std::thread thread_;
};

void expect_stopped(const std::function<void()>& run) {
  EXPECT_EQ(error_of(ErrorKind::kStopped, run),
            "run: stopped by a call of stop(); variables hold what this run has left");
}

TEST(Stops, EndALoopAndTheSessionRunsAgain) {
  for (const int devices : {1, 2}) {
    const Loops p(devices);
    for (const int threads : {1, 2, 4}) {
      Session fresh(p.ir, with(threads, devices));
      const HostTensor y = p.run(fresh, Loops::kShort), total = fresh.read(p.total);
      Session session(p.ir, with(threads, devices));
      for (const int pause : {0, 3000, 20000}) {
        {
          const Stopper stopper(session, std::chrono::microseconds(pause));
          expect_stopped([&] { p.run(session, Loops::kLong); });
        }
        session.write(p.total, HostTensor(f32_spec({kSize})));
        EXPECT_TRUE(p.run(session, Loops::kShort).same_bits(y));
        EXPECT_TRUE(session.read(p.total).same_bits(total)) << threads << " threads";
      }
    }
  }
}

TEST(Stops, EndALoopOfTransfersOnAnyQueue) {
  for (const IoMode mode : {IoMode::kCompute, IoMode::kIo, IoMode::kIoOverlapped}) {
    Ir ir;
    Graph& main = ir.main_graph();
    const RemoteBuffer buffer = ir.remote_buffer(f32_spec({kSize}), 2);
    Graph& body = ir.create_empty_graph("turn");
    const Graph::IoScope scope(body, mode);
    const Tensor t = body.input(f32_spec({kSize}), "t");
    body.remote_store(buffer, 1, body.remote_load(buffer, 0) + t);
    body.add_output(body.remote_load(buffer, 1) * 0.5);
    const H2dStream in = ir.h2d_stream(f32_spec({kSize}), "x");
    main.host_store(ops::repeat(main, body, kLong, {main.host_load(in)})[0], "y");
    for (const int threads : {1, 3}) {
      Session session(ir, with(threads));
      const Stopper stopper(session, std::chrono::milliseconds(5));
      expect_stopped([&] { session.run({{in, HostTensor(f32_spec({kSize}))}}); });
    }
  }
}

// Without the stop, each transfer would take days: a run that does not end at once hangs.
TEST(Stops, EndASlowTransfer) {
  for (const IoMode mode : {IoMode::kCompute, IoMode::kIo, IoMode::kIoOverlapped}) {
    for (const int replicas : {1, 2}) {
      Ir ir(replicas);
      Graph& main = ir.main_graph();
      const H2dStream in = ir.h2d_stream(f32_spec({}), "x");
      const Tensor x = main.host_load(in);
      const Graph::IoScope io(main, mode);
      const RemoteBuffer buffer = ir.remote_buffer(f32_spec({30000}), 4);
      Tensor sum = x;
      for (int k = 0; k < 4; ++k) {
        main.remote_store(buffer, k, main.remote_load(buffer, k) + x);
        sum = sum + ops::sum(main.remote_load(buffer, k));
      }
      main.host_store(sum, "sum");
      SessionOptions options = with(2);
      options.remote_bandwidth = 1;
      Session session(ir, options);
      const HostTensor inputs(TensorSpec{entries_shape({}, 1, replicas), f32, {}});
      for (const int pause : {0, 20}) {
        const Stopper stopper(session, std::chrono::milliseconds(pause));
        expect_stopped([&] { session.run({{in, inputs}}); });
      }
    }
  }
}

TEST(Stops, OutsideOfRunsHaveNoEffect) {
  const Loops p;
  Session fresh(p.ir, with(2));
  const HostTensor y = p.run(fresh, Loops::kShort);
  Session session(p.ir, with(2));
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(session.stop());
    EXPECT_TRUE(p.run(session, Loops::kShort).same_bits(y));
  }
  // Neither does a run that cannot begin count as one in progress.
  error_of(ErrorKind::kUsage, [&] { session.run({}, "short"); });
  EXPECT_FALSE(session.stop());
  EXPECT_TRUE(p.run(session, Loops::kShort).same_bits(y));
}

// A run throws exactly if a call of stop() was in time. Otherwise its results are right.
TEST(Stops, AtAnyMomentByAnyThread) {
  for (const auto& [devices, replicas] : {std::pair{1, 1}, {2, 1}, {1, 2}}) {
    const Loops p(devices, replicas);
    Session fresh(p.ir, with(2, devices));
    const HostTensor y = p.run(fresh, Loops::kMiddle), total = fresh.read(p.total);
    const auto begin = std::chrono::steady_clock::now();
    fresh.write(p.total, HostTensor(f32_spec({kSize})));
    p.run(fresh, Loops::kMiddle);
    const std::chrono::duration<double> run_time = std::chrono::steady_clock::now() - begin;
    Session session(p.ir, with(2, devices));
    int stopped = 0;
    const uint64_t rounds = test::kThreadSanitizer ? 25 : 70;
    // On a busy machine a thread may begin after the run: then more rounds follow.
    for (uint64_t round = 0; round < rounds || (stopped == 0 && round < 20 * rounds); ++round) {
      std::atomic<int> in_time{0};
      std::vector<std::thread> stoppers;
      for (uint64_t s = 0; s < 3; ++s) {
        stoppers.emplace_back([&, pause = 1.5 * run_time * random_unit(Seed{5, 6}, 3 * round + s)] {
          std::this_thread::sleep_for(pause);
          in_time += session.stop();
        });
      }
      bool threw = false;
      HostTensor got;
      try {
        got = p.run(session, Loops::kMiddle);
      } catch (const Error& e) {
        EXPECT_EQ(e.kind(), ErrorKind::kStopped) << e.what();
        threw = true;
      }
      for (std::thread& s : stoppers) s.join();
      EXPECT_EQ(threw, in_time > 0) << "round " << round << ", " << replicas << " replicas";
      if (!threw) {
        EXPECT_TRUE(got.same_bits(y) && session.read(p.total).same_bits(total));
      }
      stopped += threw;
      session.write(p.total, HostTensor(f32_spec({kSize})));
    }
    EXPECT_GT(stopped, 0);
    EXPECT_TRUE(p.run(session, Loops::kMiddle).same_bits(y));
  }
}

// A request that comes while the run is being prepared is not lost.
TEST(Stops, AtTheBeginOfARun) {
  const Loops p(2);
  Session session(p.ir, with(2, 2));
  for (int round = 0; round < 200; ++round) {
    std::atomic<bool> ready{false};
    std::thread stopper([&] {
      ready = true;
      while (!session.stop()) continue;
    });
    while (!ready) continue;
    expect_stopped([&] { p.run(session, Loops::kLong); });
    stopper.join();
  }
}

TEST(Stops, EndInterleavedRuns) {
  const Loops p(2);
  Session session(p.ir, with(2, 2));
  HostTensor x(f32_spec({kSize})), y(f32_spec({kSize})), want(f32_spec({kSize}));
  want = p.run(session, Loops::kShort);
  for (float& value : x.as<float>()) value = 0.25f;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    {
      const Stopper stopper(session, std::chrono::milliseconds(2));
      Binding binding = session.bind({{p.in[Loops::kLong], x}}, {{p.out[Loops::kLong], y}}, "long");
      expect_stopped([&] { session.run_interleaved(binding, seed); });
    }
    Binding binding =
        session.bind({{p.in[Loops::kShort], x}}, {{p.out[Loops::kShort], y}}, "short");
    session.run_interleaved(binding, seed);
    EXPECT_TRUE(y.same_bits(want));
  }
}

TEST(Stops, RefuseADeadlineOutOfRange) {
  const Loops p;
  const auto refused = [&](double seconds, const char* text) {
    SessionOptions options = with(1);
    options.stop_deadline = seconds;
    EXPECT_THAT(error_of(ErrorKind::kUsage, [&] { Session(p.ir, options); }), HasSubstr(text));
  };
  refused(-0.5, "session: stop_deadline: must be a finite number from 0 to 1000000, got '-0.5'");
  refused(std::numeric_limits<double>::infinity(), "got 'inf'");
  refused(std::numeric_limits<double>::quiet_NaN(), "got 'nan'");
}

}  // namespace
}  // namespace sluice::test
