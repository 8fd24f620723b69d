// Several threads that call one session.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <thread>

#include "../support/mlp.h"
#include "../support/thread_sanitizer.h"
#include "sluice/base/test_refusals.h"
#include "sluice/sluice.h"

namespace sluice::test {
namespace {

using testing::HasSubstr;

constexpr int kCallers = 8;
constexpr int kCallsOfEach = kThreadSanitizer ? 10 : 100;  // Number of calls of each thread.
constexpr int64_t kElements = 64;

// Returns 2 x + 1 and adds 1 to each element of a variable.
struct CountedRuns {
  CountedRuns() {
    Graph& main = ir.main_graph();
    in = ir.h2d_stream({{kElements}, f32}, "x");
    total = main.variable({{kElements}, f32}, Initializer::constant(0), "total");
    out = main.host_store(main.host_load(in) * 2.0 + 1.0, "y");
    ops::add_(total, main.constant(HostTensor::of<float>({}, f32, {1})));
  }
  Ir ir;
  H2dStream in;
  D2hStream out;
  Tensor total;
};

HostTensor elements_of(float value) {
  HostTensor t({{kElements}, f32});
  std::fill(t.as<float>().begin(), t.as<float>().end(), value);
  return t;
}

void in_all_callers(const std::function<void(int)>& run) {
  std::vector<std::thread> threads;
  for (int t = 0; t < kCallers; ++t) threads.emplace_back(run, t);
  for (std::thread& t : threads) t.join();
}

TEST(Threads, RunsQueueAndEachGetsItsResults) {
  const CountedRuns p;
  Session session(p.ir, {.device = cpu_device({.threads = 2})});
  std::atomic<int> wrong{0};
  in_all_callers([&](int t) {
    const HostTensor x = elements_of(static_cast<float>(t)),
                     y = elements_of(static_cast<float>(2 * t + 1));
    HostTensor bound({{kElements}, f32});
    Binding binding = session.bind({{p.in, x}}, {{p.out, bound}});
    for (int i = 0; i < kCallsOfEach; i += 2) {
      if (!session.run({{p.in, x}})[p.out].same_bits(y)) ++wrong;
      session.run_into(binding);
      if (!bound.same_bits(y)) ++wrong;
    }
  });
  EXPECT_EQ(wrong, 0);
  EXPECT_TRUE(session.read(p.total).same_bits(elements_of(kCallers * kCallsOfEach)));
}

// A reader never sees a run's variables halfway.
TEST(Threads, AccessToVariablesQueuesWithRuns) {
  const CountedRuns p;
  Session session(p.ir, {.device = cpu_device({.threads = 2})});
  std::atomic<int> torn{0};
  in_all_callers([&](int t) {
    for (int i = 0; i < kCallsOfEach; ++i) {
      if (t % 2 == 0) {
        session.run({{p.in, elements_of(1)}});
        continue;
      }
      const HostTensor total = session.read(p.total);
      if (!total.same_bits(elements_of(total.as<float>()[0]))) ++torn;
      if (i % 8 == 0) session.write(p.total, elements_of(static_cast<float>(t)));
    }
  });
  EXPECT_EQ(torn, 0);
}

// The thread that holds the queue may make further calls.
TEST(Threads, AVisitorOfVariablesMayReadThem) {
  const CountedRuns p;
  Session session(p.ir, {.device = cpu_device({.threads = 1})});
  int seen = 0;
  session.each_variable([&](const std::string&, const HostTensor& value) {
    seen += session.read(p.total).same_bits(value);
  });
  EXPECT_EQ(seen, 1);
}

// A run waits for its sinks, so a sink must not wait for the session.
TEST(Threads, ASinkThatCallsItsSessionIsRefused) {
  Ir ir;
  Graph& main = ir.main_graph();
  const Outfeed feed = ir.outfeed("feed", {{"x", {{kElements}, f32}}});
  const Tensor total = main.variable({{kElements}, f32}, Initializer::constant(0), "total");
  main.enqueue(feed, Tensors{total * 2.0});
  Session session(ir, {.device = cpu_device({.threads = 1})});
  struct Sink : FeedSink {
    void take(std::span<const ConstArrayView>) override {
      refusal = error_of(ErrorKind::kUsage, [&] { session->read(*variable); });
    }
    Session* session = nullptr;
    const Tensor* variable = nullptr;
    std::string refusal;
  };
  const auto sink = std::make_shared<Sink>();
  sink->session = &session;
  sink->variable = &total;
  session.bind_feed(feed, sink);
  session.run();
  EXPECT_THAT(sink->refusal, HasSubstr("read: the session must have no run in progress"));
}

// Returns the exit code of act() in a child process of fork(), which ends it after 20 seconds.
int exit_code_in_child(const std::function<void()>& act) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    act();
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(Threads, AChildProcessMayOnlyEndASession) {
  if (kThreadSanitizer)
    GTEST_SKIP()
        << "requires a build without the thread sanitizer, which refuses threads after fork()";
  const CountedRuns p;
  auto session = std::make_unique<Session>(
      p.ir, SessionOptions{.device = cpu_device({.threads = 2}), .more_devices = {}});
  const HostTensor x = elements_of(1);
  session->run({{p.in, x}});
  const auto in_child = [&] {
    for (const auto& call : std::vector<std::function<void()>>{[&] {
                                                                 session->run({{p.in, x}});
                                                               },
                                                               [&] { session->read(p.total); },
                                                               [&] { session->write(p.total, x); },
                                                               [&] { session->stop(); },
                                                               [&] {
                                                                 session->run_async({{p.in, x}});
                                                               }})
      EXPECT_THAT(error_of(ErrorKind::kUsage, call), HasSubstr("make the session after fork()"));
    session.reset();
    Session own(p.ir, {.device = cpu_device({.threads = 2})});
    EXPECT_EQ(own.run({{p.in, x}})[p.out].as<float>()[0], 3);
  };
  EXPECT_EQ(exit_code_in_child(in_child), 0);
  session->run({{p.in, x}});
  EXPECT_EQ(session->read(p.total).as<float>()[0], 2);
  AsyncRun run = session->run_async({{p.in, x}});
  run.wait();
  EXPECT_EQ(exit_code_in_child([&] { session.reset(); }), 0);
}

}  // namespace
}  // namespace sluice::test
