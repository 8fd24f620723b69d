// Events of a run: what each worker and I/O queue did, and when.

#include <gmock/gmock.h>

#include <algorithm>

#include "feed_programs.h"
#include "sluice/runtime/events.h"

namespace sluice::test {
namespace {

using testing::HasSubstr;

SessionOptions recording(int64_t events, int threads = 1) {
  SessionOptions options = with(threads);
  options.events = events;
  return options;
}

// The events of all lanes that are steps (waits: no step).
int64_t steps_of(const Session& session) {
  int64_t count = 0;
  for (const runtime::Lane& lane : session.lanes()) {
    for (const runtime::Event& e : lane.ring.events()) count += e.waits ? 0 : 1;
  }
  return count;
}

int64_t lost(const Session& session) {
  int64_t count = 0;
  for (const runtime::Lane& lane : session.lanes()) count += lane.ring.lost();
  return count;
}

TEST(Events, AreThoseOfTheLastRunInOrder) {
  const Sums p({5});
  Session session(p.ir, recording(1000));
  session.bind_feed(p.in, std::make_shared<Counting>(10));
  session.bind_feed(p.out, std::make_shared<Numbers>());
  int64_t steps = 0;
  for (int run = 0; run < 2; ++run) {
    const int64_t before = runtime::EventRing::now();
    session.run({}, "5");
    const int64_t after = runtime::EventRing::now();
    ASSERT_EQ(session.lanes().size(), 1u);
    for (const runtime::Lane& lane : session.lanes()) {
      int64_t end = before;
      for (const runtime::Event& e : lane.ring.events()) {
        EXPECT_NE(e.step, nullptr);
        EXPECT_LE(end, e.begin);
        EXPECT_LE(e.begin, e.end);
        end = e.end;
      }
      EXPECT_LE(end, after);
    }
    // Each iteration loads, adds, stores; other steps come once.
    if (run == 0) steps = steps_of(session);
    EXPECT_EQ(steps_of(session), steps);
    EXPECT_GE(steps, 15);
    EXPECT_EQ(lost(session), 0);
  }
}

TEST(Events, TheOldestAreLostAndCounted) {
  const Sums p({50});
  Session whole(p.ir, recording(100'000)), few(p.ir, recording(16));
  for (Session* session : {&whole, &few}) {
    session->bind_feed(p.in, std::make_shared<Counting>(10));
    session->bind_feed(p.out, std::make_shared<Numbers>());
    session->run({}, "50");
  }
  EXPECT_EQ(lost(whole), 0);
  int64_t all = 0, kept = 0;
  for (const runtime::Lane& lane : whole.lanes())
    all += static_cast<int64_t>(lane.ring.events().size());
  for (const runtime::Lane& lane : few.lanes())
    kept += static_cast<int64_t>(lane.ring.events().size());
  EXPECT_EQ(kept, 16);
  // The two runs may wait differently often.
  EXPECT_GE(kept + lost(few), steps_of(whole));
  EXPECT_GE(all, steps_of(whole));
}

// A wait lasts from the end of the previous step to the last resume() before the step.
TEST(Events, AWaitEndsWhereItsStepBegins) {
  const exe::Step steps[2] = {};
  runtime::EventRing ring(10);
  ring.resume();
  const int64_t before = runtime::EventRing::now();
  ring.end(&steps[0]);
  const int64_t blocked = runtime::EventRing::now();
  for (int attempt = 0; attempt < 2; ++attempt) {
    ring.block();
    ring.resume();
  }
  const int64_t resumed = runtime::EventRing::now();
  ring.block();
  ring.resume();
  const int64_t begun = runtime::EventRing::now();
  ring.end(&steps[1]);
  const std::vector<runtime::Event> events = ring.events();
  ASSERT_EQ(events.size(), 3u);
  const runtime::Event &wait = events[1], &step = events[2];
  EXPECT_TRUE(wait.waits);
  EXPECT_EQ(wait.step, &steps[1]);
  EXPECT_GE(wait.begin, before);
  EXPECT_LE(wait.begin, blocked);
  EXPECT_GE(wait.end, resumed);
  EXPECT_LE(wait.end, begun);
  EXPECT_FALSE(step.waits);
  EXPECT_EQ(step.step, &steps[1]);
  EXPECT_EQ(step.begin, wait.end);
  EXPECT_GE(step.end, begun);
}

// A strand reads the clock, then finds that the element is there. So a pause of the thread between
// both belongs to the step after the wait.
TEST(Events, AWaitForAFeedIsSeen) {
  const Sums p({4});
  for (const int threads : {1, 2}) {
    Session session(p.ir, recording(1000, threads));
    const auto source = std::make_shared<Late>(session, "x", 4);
    session.bind_feed(p.in, source);
    session.bind_feed(p.out, std::make_shared<Numbers>());
    session.run({}, "4");
    const std::vector<runtime::Event> events = session.lanes()[0].ring.events();
    size_t waits = 0;
    for (size_t i = 0; i < events.size(); ++i) {
      const runtime::Event& wait = events[i];
      const auto* issue = std::get_if<exe::Issue>(&wait.step->body);
      if (!wait.waits || issue == nullptr || issue->kind != exe::TransferKind::kStreamIn) continue;
      ASSERT_LT(waits, source->ready.size());
      ASSERT_LT(i + 1, events.size());
      const runtime::Event& load = events[i + 1];
      EXPECT_LE(wait.begin, source->seen[waits]);
      EXPECT_LE(wait.begin, wait.end);
      EXPECT_FALSE(load.waits);
      EXPECT_EQ(load.step, wait.step);
      EXPECT_EQ(load.begin, wait.end);
      EXPECT_GE(load.end, source->ready[waits]);
      ++waits;
    }
    EXPECT_EQ(waits, 4u);
  }
}

TEST(Events, AnIoQueueHasALaneOfItsOwn) {
  Ir ir;
  Graph& main = ir.main_graph();
  const Tensor w = main.variable(f32_of({64}), Initializer::constant(1), "w");
  const RemoteBuffer rows = ir.remote_buffer(f32_of({64}), 2);
  {
    const Graph::IoScope io(main, IoMode::kIo);
    main.remote_store(rows, 0, w);
    ops::add_(w, main.remote_load(rows, 0));
  }
  Session session(ir, recording(100));
  session.run();
  int64_t transfers = 0;
  for (const runtime::Lane& lane : session.lanes()) {
    if (lane.queue == 0) continue;
    for (const runtime::Event& e : lane.ring.events()) {
      EXPECT_TRUE(std::holds_alternative<exe::Issue>(e.step->body));
      ++transfers;
    }
  }
  // A device with queues runs its transfers without the host.
  EXPECT_EQ(transfers, session.executable().devices[exe::DeviceId(0)].queued ? 0 : 2);
}

TEST(Events, NoneWithoutAsking) {
  const Sums p({2});
  Session session(p.ir, with(2));
  session.bind_feed(p.in, std::make_shared<Counting>(10));
  session.bind_feed(p.out, std::make_shared<Numbers>());
  session.run({}, "2");
  EXPECT_TRUE(session.lanes().empty());
  for (const int64_t wrong : {int64_t{-1}, int64_t{100'000'001}}) {
    EXPECT_THAT(error_text(ErrorKind::kUsage, [&] { Session refused(p.ir, recording(wrong)); }),
                HasSubstr("session: events: must be an integer from 0 to 100000000, got"));
  }
}

}  // namespace
}  // namespace sluice::test
