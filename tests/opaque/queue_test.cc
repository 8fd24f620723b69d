// Tests that a queue of the opaque device grants only what runtime/queue.h promises.
#include <random>

#include "opaque_test_util.h"
#include "sluice/data/test_wait.h"

namespace sluice::opaque {
namespace {

class OpaqueQueue : public testing::TestWithParam<Mode> {};
INSTANTIATE_TEST_SUITE_P(Modes, OpaqueQueue, testing::Values(Mode::kThreads, Mode::kLazy),
                         mode_name);

TEST_P(OpaqueQueue, CopiesUpWithinAndDown) {
  Rig rig(GetParam());
  const auto q = rig.queue();
  std::fill_n(rig.host(), 64, std::byte{7});
  q->upload(rig.memory(), rig.host(), 64);
  q->copy(rig.memory() + 64, rig.memory(), 64);
  q->download(rig.host() + 128, rig.memory() + 64, 64);
  q->drain();
  EXPECT_EQ(std::vector(rig.host() + 128, rig.host() + 192), bytes(64, 7));
  EXPECT_EQ(q->begun(), 3);
}

TEST_P(OpaqueQueue, RefusesACopyOntoItself) {
  Rig rig(GetParam());
  const auto q = rig.queue();
  EXPECT_NO_THROW(q->copy(rig.memory() + 64, rig.memory(), 64));
  EXPECT_THROW(q->copy(rig.memory() + 63, rig.memory(), 64), Error);
}

TEST_P(OpaqueQueue, CopiesArgumentsAndPoisonsThoseOfTheCaller) {
  Rig rig(GetParam(), {}, true);
  const auto q = rig.queue();
  const auto neg = elementwise(rig.family(), "Neg", 4);
  const float x[] = {1, -2, 3, 0};
  rig.device().write(rig.memory(), {{4}, f32, {}}, "row", 0, std::as_bytes(std::span(x)));
  std::vector<DeviceAddress> operands{rig.memory(), rig.memory() + 64};
  const std::vector<DeviceAddress> before = operands;
  q->launch({neg.state.get(), operands, rig.memory() + 512, {}});
  EXPECT_NE(operands[0], before[0]);
  EXPECT_NE(operands[1], before[1]);
  rig.release();
  q->drain();
  float y[4];
  rig.device().read(before[1], {{4}, f32, {}}, "row", 0, std::as_writable_bytes(std::span(y)));
  for (int i = 0; i < 4; ++i) EXPECT_EQ(y[i], -x[i]);
}

TEST_P(OpaqueQueue, PoisonsScalars) {
  Rig rig(GetParam(), {}, true);
  const auto q = rig.queue();
  exe::Kernel index;
  index.key = "opaque.index";
  index.op = "Index";
  index.operands.emplace_back().spec = {{}, i32, {}};
  index.operands[0].bytes = 4;
  index.operands[0].access = exe::Access::kWrite;
  index.scalars.emplace_back();
  const auto bound = rig.family().bind(index);
  std::vector<DeviceAddress> operands{rig.memory()};
  std::vector<int64_t> scalars{42};
  q->launch({bound.state.get(), operands, {}, scalars});
  EXPECT_NE(scalars[0], 42);
  rig.release();
  q->drain();
  EXPECT_EQ(rig.read(0, rig.memory(), 4)[0], std::byte{42});
}

TEST_P(OpaqueQueue, ReplaysARecordingWithTheArgumentsThatItHad) {
  std::vector<std::string> names;
  Options options;
  options.hook = [&](int, int64_t, std::string_view name) { names.emplace_back(name); };
  Rig rig(GetParam(), options);
  const auto neg = elementwise(rig.family(), "Neg", 1);
  std::unique_ptr<runtime::Recording> recording;
  const auto q = rig.queue();
  const float one = 1;
  rig.device().write(rig.memory(), {{1}, f32, {}}, "row", 0, std::as_bytes(std::span(&one, 1)));
  q->begin_recording();
  launch(*q, neg, {rig.memory(), rig.memory() + 64}, rig.memory() + 512);
  launch(*q, neg, {rig.memory() + 64, rig.memory()}, rig.memory() + 512);
  launch(*q, neg, {rig.memory(), rig.memory() + 128}, rig.memory() + 512);
  recording = q->end_recording();
  q->drain();
  EXPECT_EQ(q->begun(), 0);
  EXPECT_EQ(rig.read(0, rig.memory() + 128, 4), bytes(4, 0xff));
  for (int run = 1; run <= 2; ++run) {
    q->replay(*recording);
    q->drain();
    EXPECT_EQ(q->begun(), 3 * run);
    float y = 0;
    rig.device().read(rig.memory() + 128, {{1}, f32, {}}, "row", 0,
                      std::as_writable_bytes(std::span(&y, 1)));
    EXPECT_EQ(y, -1);
  }
  EXPECT_EQ(names, std::vector<std::string>(6, "replayed launch opaque.elementwise"));
}

TEST_P(OpaqueQueue, RecordsLaunchesOnly) {
  for (int which = 0; which < 9; ++which) {
    Rig rig(GetParam());
    const auto q = rig.queue(), other = rig.queue();
    const int64_t mark = q->mark(), others = other->mark();
    q->begin_recording();
    const std::string error = error_of([&] {
      if (which == 0) q->copy(rig.memory() + 64, rig.memory(), 64);
      if (which == 1) q->upload(rig.memory(), rig.host(), 64);
      if (which == 2) q->download(rig.host(), rig.memory(), 64);
      if (which == 3) q->copy_from(rig.device(1), rig.memory(), rig.memory(1), 64);
      if (which == 4) q->mark();
      if (which == 5) q->wait(*other, others);
      if (which == 6) q->passed(mark);
      if (which == 7) q->drain();
      if (which == 8) q->begin_recording();
    });
    EXPECT_NE(error.find("only launches may be recorded"), std::string::npos) << which << error;
  }
}

TEST_P(OpaqueQueue, ReplaysOnlyItsOwnRecordings) {
  Rig rig(GetParam());
  const auto q = rig.queue(), other = rig.queue();
  q->begin_recording();
  const auto recording = q->end_recording();
  EXPECT_NO_THROW(q->replay(*recording));
  EXPECT_NE(error_of([&] { other->replay(*recording); }).find("its own recordings"),
            std::string::npos);
  EXPECT_THROW(rig.queue()->end_recording(), Error);
}

TEST_P(OpaqueQueue, KeepsNoRecordingAlive) {
  Rig rig(GetParam(), {}, true);
  const auto neg = elementwise(rig.family(), "Neg", 1);
  const auto q = rig.queue();
  q->begin_recording();
  launch(*q, neg, {rig.memory(), rig.memory() + 64}, rig.memory() + 512);
  auto recording = q->end_recording();
  q->replay(*recording);
  recording.reset();
  rig.release();
  EXPECT_NE(error_of([&] { q->drain(); }).find("must live until it has run"), std::string::npos);
}

TEST_P(OpaqueQueue, ReadsSourcesLate) {
  Rig rig(GetParam(), {}, true);
  const auto q = rig.queue();
  rig.fill(1);
  q->upload(rig.memory(), rig.host(), 64);
  rig.fill(2);
  rig.release();
  q->drain();
  EXPECT_EQ(rig.read(0, rig.memory(), 64), bytes(64, 2));
}

TEST_P(OpaqueQueue, WritesDestinationsLate) {
  Rig rig(GetParam(), {}, true);
  const auto q = rig.queue();
  q->download(rig.host(), rig.memory(), 64);
  EXPECT_EQ(std::vector(rig.host(), rig.host() + 64), bytes(64, 0));
  rig.release();
  poll(*q, q->mark());
  EXPECT_EQ(std::vector(rig.host(), rig.host() + 64), bytes(64, 0xff));
}

TEST_P(OpaqueQueue, CopiesOnlyPinnedMemory) {
  for (int which = 0; which < 3; ++which) {
    Rig rig(GetParam());
    const auto q = rig.queue();
    std::byte other[64];
    const std::string error = error_of([&] {
      if (which == 0) q->upload(rig.memory(), other, 64);
      if (which == 1) q->download(other, rig.memory(), 64);
      if (which == 2) q->download(rig.host() + Rig::kBytes - 32, rig.memory(), 64);
    });
    EXPECT_NE(error.find("must be pinned"), std::string::npos) << error;
  }
}

TEST_P(OpaqueQueue, PassesMarksInTheirOrder) {
  Rig rig(GetParam(), {}, true);
  const auto q = rig.queue();
  q->upload(rig.memory(), rig.host(), 64);
  EXPECT_EQ(q->mark(), 1);
  q->upload(rig.memory(), rig.host(), 64);
  EXPECT_EQ(q->mark(), 2);
  EXPECT_FALSE(q->passed(2));
  rig.release(1);
  poll(*q, 1);
  EXPECT_FALSE(q->passed(2));
  rig.release();
  poll(*q, 2);
  EXPECT_TRUE(q->passed(1));
}

// With two events, mark 3 takes the event of mark 1.
TEST_P(OpaqueQueue, ReusesEvents) {
  for (const int events : {2, 4}) {
    Rig rig(GetParam(), {.events = events}, true);
    const auto q = rig.queue();
    for (int i = 0; i < 3; ++i) {
      q->upload(rig.memory(), rig.host(), 64);
      q->mark();
    }
    rig.release(2);
    if (GetParam() == Mode::kThreads) {
      while (q->begun() < 3) std::this_thread::yield();
    } else {
      for (int i = 0; i < 4; ++i) q->passed(3);  // Each question runs one command or mark.
    }
    EXPECT_EQ(q->passed(1), events == 4);
    rig.release();
    poll(*q, 1);
  }
}

TEST_P(OpaqueQueue, WaitsForMarksOfOtherQueues) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    std::vector<int> order;
    Options options{.seed = seed};
    options.hook = [&](int queue, int64_t, std::string_view) { order.push_back(queue); };
    Rig rig(GetParam(), options);
    const auto a = rig.queue();
    const auto b = rig.queue(1);
    a->upload(rig.memory(), rig.host(), 64);
    b->wait(*a, a->mark());
    b->copy_from(rig.device(0), rig.memory(1), rig.memory(), 64);
    b->drain();
    EXPECT_EQ(order, (std::vector<int>{0, 1}));
  }
}

TEST_P(OpaqueQueue, PassesAMarkThatWasNotMade) {
  int overtaken = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    std::atomic<int> last{-1};
    Options options{.seed = seed, .delay = std::chrono::milliseconds(1), .eagerness = 0};
    options.hook = [&](int queue, int64_t, std::string_view) { last = queue; };
    Rig rig(GetParam(), options);
    const auto a = rig.queue();
    const auto b = rig.queue();
    b->wait(*a, 1);
    a->upload(rig.memory(), rig.host(), 64);
    EXPECT_EQ(a->mark(), 1);
    b->upload(rig.memory() + 64, rig.host(), 64);
    a->drain();
    b->drain();
    overtaken += last == 0;
  }
  EXPECT_GT(overtaken, 0);
}

TEST_P(OpaqueQueue, WaitsForRoom) {
  Rig rig(GetParam(), {.ring = 4}, true);
  const auto q = rig.queue();
  const auto upload = [&] { q->upload(rig.memory(), rig.host(), 64); };
  for (int i = 0; i < 4; ++i) upload();
  if (GetParam() == Mode::kLazy) {
    EXPECT_EQ(q->begun(), 0);
    upload();
    EXPECT_EQ(q->begun(), 1);
    return;
  }
  std::atomic<bool> done{false};
  std::thread other([&] {
    upload();
    done = true;
  });
  EXPECT_TRUE(sluice::test::wait_until([&] { return done || blocked_calls(rig.family()) > 0; }));
  EXPECT_FALSE(done);
  rig.release(1);
  other.join();
  rig.release();
}

TEST(OpaqueQueueThreads, RefuseTwoCallersAtATime) {
  Rig rig(Mode::kThreads, {.ring = 1, .error_lag = 0}, true);
  const auto q = rig.queue();
  q->upload(rig.memory(), rig.host(), 64);
  std::string first;
  std::thread other([&] {
    first = error_of([&] {
      for (;;) q->upload(rig.memory(), rig.host(), 64);
    });
  });
  std::string second;
  while (second.empty()) second = error_of([&] { q->check(); });
  EXPECT_NE(second.find("two threads use one queue"), std::string::npos) << second;
  rig.release();
  other.join();
  EXPECT_NE(first.find("two threads use one queue"), std::string::npos) << first;
}

TEST_P(OpaqueQueue, DrainsWhenItIsDestroyed) {
  Rig rig(GetParam());
  rig.fill(5);
  rig.queue()->upload(rig.memory(), rig.host(), 64);
  EXPECT_EQ(rig.read(0, rig.memory(), 64), bytes(64, 5));
}

TEST_P(OpaqueQueue, RefusesAddressesOfAnotherDevice) {
  for (int which = 0; which < 4; ++which) {
    Rig rig(GetParam());
    const auto q = rig.queue();
    const auto neg = elementwise(rig.family(), "Neg", 4);
    const DeviceAddress own = rig.memory(), other = rig.memory(1);
    const std::string error = error_of([&] {
      if (which == 0) q->copy(own, other, 64);
      if (which == 1) q->upload(other, rig.host(), 64);
      if (which == 2) launch(*q, neg, {own, other}, own + 256);
      if (which == 3) q->copy_from(rig.device(1), own, own, 64);
    });
    EXPECT_NE(error.find("must lie in one allocation of this device"), std::string::npos)
        << which << " " << error;
  }
}

TEST_P(OpaqueQueue, ExchangesDataInOneFamilyOnly) {
  Rig rig(GetParam()), stranger(GetParam());
  const auto q = rig.queue();
  EXPECT_THROW(q->copy_from(stranger.device(), rig.memory(), stranger.memory(), 64), Error);
  const auto p = rig.queue(1);
  const auto theirs = stranger.queue();
  EXPECT_THROW(p->wait(*theirs, theirs->mark()), Error);
}

TEST_P(OpaqueQueue, RefusesCallsFromCommands) {
  Queue* called = nullptr;
  std::string error;
  Options options;
  options.hook = [&](int, int64_t, std::string_view) { error = error_of([&] { called->mark(); }); };
  Rig rig(GetParam(), options);
  const auto q = rig.queue();
  called = q.get();
  q->upload(rig.memory(), rig.host(), 64);
  q->drain();
  EXPECT_NE(error.find("must not call"), std::string::npos) << error;
}

TEST_P(OpaqueQueue, FlushesDenormals) {
  Rig rig(GetParam());
  const auto q = rig.queue();
  const auto mul = elementwise(rig.family(), "Mul", 1);
  const float small = 1e-20f;  // Its square is not 0 unless it is flushed.
  rig.device().write(rig.memory(), {{1}, f32, {}}, "row", 0, std::as_bytes(std::span(&small, 1)));
  launch(*q, mul, {rig.memory(), rig.memory(), rig.memory() + 64}, rig.memory() + 512);
  q->drain();
  EXPECT_EQ(rig.read(0, rig.memory() + 64, 4), bytes(4, 0));
}

// Returns the order in which commands of three queues run.
std::vector<int> order_of(uint64_t seed, int eagerness) {
  std::vector<int> order;
  Options options{.seed = seed, .eagerness = eagerness};
  options.hook = [&](int queue, int64_t, std::string_view) { order.push_back(queue); };
  Rig rig(Mode::kLazy, options);
  std::vector<std::unique_ptr<Queue>> queues;
  for (int q = 0; q < 3; ++q) queues.push_back(rig.queue());
  for (int i = 0; i < 5; ++i) {
    for (int q = 0; q < 3; ++q)
      queues[static_cast<size_t>(q)]->upload(rig.memory() + 64 * q, rig.host(), 64);
  }
  const size_t early = order.size();
  EXPECT_EQ(early > 0, eagerness > 0);
  for (const auto& q : queues) q->drain();
  EXPECT_EQ(order.size(), 15u);
  return order;
}

TEST(OpaqueQueueLazy, RunsInAnOrderOfTheSeed) {
  EXPECT_EQ(order_of(1, 3), order_of(1, 3));
  EXPECT_NE(order_of(1, 3), order_of(2, 3));
  EXPECT_EQ(order_of(1, 0), order_of(1, 0));
}

// The thread sanitizer reports host code that does not ask whether a command has ended, and
// commands of two queues without a wait, although they do not run at the same time.
TEST(OpaqueQueueThreads, ShowMissingWaitsToTheThreadSanitizer) {
  if (!kThreadsAreWatched)
    GTEST_SKIP() << "requires a build with the thread sanitizer, which reports the race";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto race = [](bool of_host) {
    Rig rig(Mode::kThreads);
    const auto a = rig.queue(), b = rig.queue();
    a->download(rig.host(), rig.memory(), 64);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    if (of_host) {
      a->upload(rig.memory() + 64, rig.host() + 64, 64);  // The call orders nothing.
      rig.host()[0] = std::byte{1};
    } else {
      b->upload(rig.memory() + 64, rig.host(), 64);
      b->drain();
    }
    std::exit(0);
  };
  EXPECT_EXIT(race(true), testing::ExitedWithCode(66), "data race");
  EXPECT_EXIT(race(false), testing::ExitedWithCode(66), "data race");
}

TEST(OpaqueQueueThreads, SleepBeforeAQuarterOfTheCommands) {
  for (const int delay : {0, 100}) {
    Rig rig(Mode::kThreads, {.delay = std::chrono::microseconds(delay)});
    const auto q = rig.queue();
    for (int i = 0; i < 400; ++i) q->upload(rig.memory(), rig.host(), 64);
    q->drain();
    // The seed selects the commands.
    EXPECT_GE(delayed_commands(rig.family()), delay == 0 ? 0 : 50);
    EXPECT_LE(delayed_commands(rig.family()), delay == 0 ? 0 : 200);
  }
}

}  // namespace
}  // namespace sluice::opaque
