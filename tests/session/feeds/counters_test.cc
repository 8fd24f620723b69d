// Counts of feeds: elements, rates, occupancy, and who waited for whom.

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <numeric>

#include "feed_programs.h"

namespace sluice::test {
namespace {

using report::FeedReport;

constexpr double kHeld = 0.02;  // Seconds that a source or sink at least blocks in these tests.

FeedReport counts(const Session& session, const std::string& name) {
  for (FeedReport& f : session.feed_statistics()) {
    if (f.name == name) return std::move(f);
  }
  ADD_FAILURE() << "no feed " << name;
  return {};
}

int64_t entries(const FeedReport& f) {
  return std::accumulate(f.occupancy.begin(), f.occupancy.end(), int64_t{0});
}

void await(const std::function<bool()>& holds) { EXPECT_TRUE(wait_until(holds)); }

void hold() { std::this_thread::sleep_for(std::chrono::duration<double>(kHeld)); }

/// Blocks a source or sink until it is released.
struct Gate {
  void block() {
    std::unique_lock hold(lock);
    blocks = true;
    wake.wait(hold, [&] { return open; });
  }
  void release() {
    const std::lock_guard hold(lock);
    open = true;
    wake.notify_all();
  }
  std::atomic<bool> blocks{false};
  bool open = false;
  std::mutex lock;
  std::condition_variable wake;
};

/// Blocks in next() at element `at`, until it is released.
struct BlockingSource : Counting {
  explicit BlockingSource(int64_t at) : Counting(100), at(at) {}
  bool next(std::span<const ArrayView> fields) override {
    if (made == at) gate.block();
    return Counting::next(fields);
  }
  void cancel() override { gate.release(); }
  const int64_t at;
  Gate gate;
};

/// Blocks in take() at element `at`, until it is released.
struct BlockingSink : Numbers {
  explicit BlockingSink(size_t at) : at(at) {}
  void take(std::span<const ConstArrayView> fields) override {
    if (field(0).size() == at) gate.block();
    Numbers::take(fields);
  }
  void cancel() override { gate.release(); }
  const size_t at;
  Gate gate;
};

TEST(FeedCounters, ElementsAreThoseOfTheSourceAndTheSink) {
  constexpr int64_t kDepth = 2, kBytes = 4 * 4 * 4;
  for (const int threads : {1, 2}) {
    for (const int64_t replicas : {1, 2}) {
      const Sums p({5, 3}, {4, 4}, static_cast<int>(replicas), kDepth);
      Session session(p.ir, with(threads));
      const auto source = std::make_shared<Counting>(100);
      const auto sink = std::make_shared<Numbers>();
      session.bind_feed(p.in, source);
      session.bind_feed(p.out, sink);
      for (const char* program : {"5", "3", "5"}) session.run({}, program);

      const int64_t used = 13 * replicas;
      // The source makes elements until the ring is full.
      const int64_t made = used + kDepth * replicas;
      await([&] { return counts(session, "x").moved == made; });
      const FeedReport in = counts(session, "x");
      EXPECT_EQ(source->made, made);
      EXPECT_TRUE(in.input);
      EXPECT_EQ(in.depth, kDepth);
      EXPECT_EQ(in.slots, kDepth);
      EXPECT_EQ(in.used, used);
      EXPECT_EQ(in.bytes, made * kBytes);
      EXPECT_EQ(entries(in), used);
      // It waits for each entry that is not ready, and for no other one.
      ASSERT_EQ(in.occupancy.size(), 3u);
      EXPECT_EQ(in.occupancy[0], in.waits_for_host.count);
      EXPECT_EQ(in.waits_at_end.count, 0);
      EXPECT_GT(in.elements_per_second(), 0);

      const FeedReport out = counts(session, "sums");
      EXPECT_FALSE(out.input);
      EXPECT_EQ(out.used, used);
      EXPECT_EQ(out.moved, used);
      EXPECT_EQ(sink->field(0).size(), static_cast<size_t>(used));
      EXPECT_EQ(out.bytes, used * kBytes);
      EXPECT_EQ(entries(out), used);
      ASSERT_EQ(out.occupancy.size(), 3u);
      EXPECT_EQ(out.occupancy[kDepth], out.waits_for_host.count);
      EXPECT_LE(out.waits_at_end.count, 3);

      // A feed that is bound again counts from zero, and the other one continues.
      session.bind_feed(p.in, std::make_shared<Counting>(100));
      const FeedReport fresh = counts(session, "x");
      EXPECT_EQ(fresh.moved + fresh.used + fresh.bytes + entries(fresh), 0);
      EXPECT_EQ(fresh.host_seconds + fresh.run_seconds + fresh.waits_for_host.seconds, 0);
      EXPECT_EQ(fresh.waits_for_host.count + fresh.waits_for_program.count, 0);
      session.run({}, "3");
      EXPECT_EQ(counts(session, "x").used, 3 * replicas);
      EXPECT_EQ(counts(session, "sums").moved, used + 3 * replicas);
    }
  }
}

TEST(FeedCounters, ASlowSourceHasItsRateAndIsWaitedFor) {
  const Sums p({40});
  for (const int threads : {1, 2}) {
    Session session(p.ir, with(threads));
    session.bind_feed(p.in, std::make_shared<Late>(session, "x", 40));
    session.bind_feed(p.out, std::make_shared<Numbers>());
    session.run({}, "40");
    const FeedReport in = counts(session, "x");
    EXPECT_EQ(in.waits_for_host.count, 40);
    EXPECT_EQ(in.occupancy[0], 40);
    // Each wait contains the pause of the source.
    const double pauses = 40 * std::chrono::duration<double>(Late::kPause).count();
    EXPECT_GE(in.host_seconds, pauses);
    EXPECT_GT(in.elements_per_second(), 0);
    EXPECT_LE(in.elements_per_second(), 40 / pauses);
    EXPECT_GE(in.waits_for_host.seconds, pauses);
    EXPECT_LE(in.waits_for_host.seconds, in.run_seconds);
    EXPECT_LE(in.waits_for_program.seconds, in.run_seconds - pauses);
  }
}

TEST(FeedCounters, AProgramWaitsForItsSource) {
  for (const int threads : {1, 2}) {
    const Sums p({4});
    Session session(p.ir, with(threads));
    const auto source = std::make_shared<BlockingSource>(2);
    session.bind_feed(p.in, source);
    session.bind_feed(p.out, std::make_shared<Numbers>());
    AsyncRun run = session.run_async({}, "4");
    // The wait in progress counts.
    await([&] {
      return counts(session, "x").waits_for_host.seconds >= kHeld &&
             counts(session, "sums").waits_for_program.seconds >= kHeld;
    });
    await([&] { return counts(session, "x").used == 2; });
    await([&] { return counts(session, "sums").moved == 2; });
    const FeedReport in = counts(session, "x"), out = counts(session, "sums");
    EXPECT_EQ(in.moved, 2);
    EXPECT_GE(in.occupancy[0], 1);
    // The ring of the infeed was never full, nor was that of the outfeed.
    EXPECT_EQ(in.waits_for_program.count, 0);
    EXPECT_EQ(out.waits_for_host.count, 0);
    EXPECT_EQ(out.occupancy[3], 0);
    EXPECT_EQ(out.waits_at_end.count, 0);
    await([&] { return source->gate.blocks.load(); });
    hold();
    source->gate.release();
    run.wait();
    EXPECT_EQ(counts(session, "x").used, 4);
    EXPECT_GE(counts(session, "x").waits_for_host.seconds, in.waits_for_host.seconds);
    EXPECT_GE(counts(session, "x").host_seconds, kHeld);
  }
}

TEST(FeedCounters, ASourceAndAProgramWaitForASink) {
  for (const int threads : {1, 2}) {
    const Sums p({20}, {4, 4}, 1, 2);
    Session session(p.ir, with(threads));
    const auto sink = std::make_shared<BlockingSink>(1);
    session.bind_feed(p.in, std::make_shared<Counting>(100));
    session.bind_feed(p.out, sink);
    AsyncRun run = session.run_async({}, "20");
    await([&] {
      return counts(session, "sums").waits_for_host.seconds >= kHeld &&
             counts(session, "x").waits_for_program.seconds >= kHeld;
    });
    // The sink has taken element 0, and two more are in the ring. The program waits with a fourth.
    await([&] {
      const FeedReport in = counts(session, "x"), out = counts(session, "sums");
      return out.moved == 1 && out.used == 3 && in.used == 4 && in.moved == 6;
    });
    await([&] { return sink->gate.blocks.load(); });
    hold();
    EXPECT_EQ(counts(session, "sums").used, 3);
    EXPECT_EQ(counts(session, "x").moved, 6);
    sink->gate.release();
    run.wait();
    const FeedReport last = counts(session, "sums");
    EXPECT_EQ(last.moved, 20);
    EXPECT_GE(last.host_seconds, kHeld);
    EXPECT_GE(last.occupancy[2], 1);
    // The sink waits for element 0, but not while it takes element 1.
    EXPECT_LE(last.waits_for_program.seconds, last.run_seconds - kHeld);
    EXPECT_EQ(last.occupancy[2], last.waits_for_host.count);

    // Between runs, the time of waits stands still. The source fills the ring, and then waits.
    await([&] { return counts(session, "x").moved == 22; });
    const FeedReport before = counts(session, "x");
    hold();
    const FeedReport after = counts(session, "x");
    EXPECT_GE(before.run_seconds, kHeld);
    EXPECT_EQ(after.run_seconds, before.run_seconds);
    EXPECT_EQ(after.waits_for_program.seconds, before.waits_for_program.seconds);
    EXPECT_EQ(after.waits_for_host.seconds, before.waits_for_host.seconds);
  }
}

TEST(FeedCounters, ARunWaitsAtItsEndForItsSink) {
  const Sums p({3});
  Session session(p.ir, with(1));
  const auto sink = std::make_shared<BlockingSink>(2);
  session.bind_feed(p.in, std::make_shared<Counting>(100));
  session.bind_feed(p.out, sink);
  AsyncRun run = session.run_async({}, "3");
  await([&] { return counts(session, "sums").waits_at_end.seconds >= kHeld; });
  sink->gate.release();
  run.wait();
  const FeedReport out = counts(session, "sums");
  EXPECT_EQ(out.waits_at_end.count, 1);
  EXPECT_LE(out.waits_at_end.seconds, out.run_seconds);
  EXPECT_EQ(out.waits_for_host.count, 0);  // The ring has three slots.
  EXPECT_EQ(out.moved, 3);
}

TEST(FeedCounters, AfterTheEndOfDataTheyAddUp) {
  for (const int replicas : {1, 2}) {
    const Sums p({2}, {4}, replicas);
    Session session(p.ir, with(2));
    const int64_t made = 3 * replicas + (replicas - 1);  // Half a group is left over.
    const auto source = std::make_shared<Counting>(100, made);
    session.bind_feed(p.in, source);
    session.bind_feed(p.out, std::make_shared<Numbers>());
    session.run({}, "2");
    error_text(ErrorKind::kUsage, [&] { session.run({}, "2"); });
    EXPECT_EQ(source->made, made);
    const FeedReport in = counts(session, "x");
    EXPECT_EQ(in.moved, made);
    EXPECT_GE(in.used, 2 * replicas);
    EXPECT_LE(in.used, 3 * replicas);
    await([&] { return counts(session, "sums").moved == counts(session, "sums").used; });
    EXPECT_EQ(counts(session, "x").waits_for_host.seconds, in.waits_for_host.seconds);
  }
}

TEST(FeedCounters, AfterAStopAnElementIsNotCountedTwice) {
  const Sums p({6, 2});
  Session session(p.ir, with(1));
  const auto source = std::make_shared<BlockingSource>(3);
  session.bind_feed(p.in, source);
  session.bind_feed(p.out, std::make_shared<Numbers>());
  AsyncRun run = session.run_async({}, "6");
  await([&] { return counts(session, "x").used == 3; });
  await([&] { return entries(counts(session, "x")) == 4; });  // It waits for element 3.
  run.stop();
  error_text(ErrorKind::kStopped, [&] { run.wait(); });
  const FeedReport stopped = counts(session, "x");
  hold();
  EXPECT_EQ(counts(session, "x").waits_for_host.seconds, stopped.waits_for_host.seconds);
  EXPECT_EQ(stopped.used, 3);
  EXPECT_EQ(stopped.moved, 3);
  run = session.run_async({}, "2");
  await([&] { return counts(session, "x").waits_for_host.count > stopped.waits_for_host.count; });
  source->gate.release();
  run.wait();
  EXPECT_EQ(counts(session, "x").used, 5);
  EXPECT_EQ(entries(counts(session, "x")), 5);
  EXPECT_EQ(counts(session, "sums").used, 5);
}

// All images come before the first label, so the ring of the labels has three slots more.
TEST(FeedCounters, TheFieldWithTheFewestSlotsCounts) {
  Ir ir;
  const Infeed in =
      ir.infeed("pairs", {{"label", f32_of({})}, {"image", f32_of({3})}}, {.prefetch_depth = 2});
  Graph& main = ir.main_graph();
  Tensor sum = main.constant(HostTensor(f32_of({3})), "zero");
  for (int i = 0; i < 4; ++i) sum = sum + main.host_load(in.streams[1]);
  for (int i = 0; i < 4; ++i) sum = sum + main.host_load(in.streams[0]);
  const D2hStream out = main.host_store(sum, "out");
  Session session(ir, with(1));
  session.bind_feed(in, std::make_shared<Counting>(1));
  for (int run = 1; run <= 3; ++run) {
    session.run();
    const FeedReport counted = counts(session, "pairs");
    EXPECT_EQ(counted.depth, 2);
    EXPECT_EQ(counted.slots, 2);
    EXPECT_EQ(counted.used, 4 * run);
    EXPECT_EQ(entries(counted), 4 * run);
    EXPECT_EQ(counted.occupancy[0], counted.waits_for_host.count);
  }
}

TEST(FeedCounters, AnyThreadMayReadThem) {
  for (const int replicas : {1, 2}) {
    const Sums p({50}, {4, 4}, replicas, 2);
    Session session(p.ir, with(2));
    session.bind_feed(p.in, std::make_shared<Counting>(100));
    session.bind_feed(p.out, std::make_shared<Numbers>());
    std::atomic<bool> ends{false};
    std::thread reader([&] {
      FeedReport before;
      while (!ends) {
        const FeedReport in = counts(session, "x"), out = counts(session, "sums");
        EXPECT_GE(in.moved, in.used);
        EXPECT_LE(out.moved, out.used);
        EXPECT_GE(in.used, before.used);
        EXPECT_GE(in.run_seconds, before.run_seconds);
        EXPECT_LE(in.waits_for_program.seconds, in.run_seconds);
        EXPECT_LE(in.mean_occupancy(), 2);
        before = in;
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
    });
    for (int run = 0; run < 8; ++run) session.run({}, "50");
    ends = true;
    reader.join();
    EXPECT_EQ(counts(session, "x").used, 8 * 50 * replicas);
    EXPECT_EQ(counts(session, "sums").moved, 8 * 50 * replicas);
  }
}

}  // namespace
}  // namespace sluice::test
