// Runs with feeds: ends of data, errors, deadlines, stops, and runs on a thread of their own.

#include <gmock/gmock.h>

#include <random>

#include "feed_programs.h"

namespace sluice::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Clock = std::chrono::steady_clock;
using Mode = data::OutfeedQueue::Mode;

constexpr int64_t kLong = 1'000'000;

SessionOptions trusted(int threads) {
  SessionOptions options = with(threads);
  options.proof = SessionOptions::Proof::kTrust;
  return options;
}

void sleep_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

TEST(FeedRuns, EndOfData) {
  for (const int replicas : {1, 2}) {
    const Sums p({2}, {4}, replicas);
    Session session(p.ir, with(2));
    const auto sums = std::make_shared<Numbers>();
    const int64_t made = 2 * replicas + 1;  // One run and, with one replica, half of another one.
    session.bind_feed(p.in, std::make_shared<Counting>(100, made));
    session.bind_feed(p.out, sums);
    session.run({}, "2");
    const float before = p.value(session);
    EXPECT_THAT(
        error_text(ErrorKind::kUsage, [&] { session.run({}, "2"); }),
        HasSubstr(fmt::format("feed 'x': requested {} elements, produced {}; give more data",
                              4 * replicas, made)));
    EXPECT_EQ(p.value(session), before);
    const int64_t position = replicas == 1 ? 3 : 2;
    EXPECT_THAT(error_text(ErrorKind::kUsage, [&] { session.run({}, "2"); }),
                HasSubstr(fmt::format("requested {} elements, produced {}",
                                      (position + 2) * replicas, made)));
    // The sink may still be taking what the last run has stored.
    const auto taken = [&] { return static_cast<int64_t>(sums->field(0).size()); };
    for (int ms = 0; ms < 10000 && taken() < position * replicas; ++ms) sleep_ms(1);
    EXPECT_EQ(taken(), position * replicas);
  }
}

TEST(FeedRuns, ASourceFails) {
  struct Failing : Counting {
    Failing() : Counting(100) {}
    bool next(std::span<const ArrayView> fields) override {
      if (made == 4 && !thrown) {
        thrown = true;
        throw std::runtime_error("the file is gone");
      }
      return Counting::next(fields);
    }
    bool thrown = false;
  };
  for (const int threads : {1, 2}) {
    const Sums p({3});
    Session session(p.ir, with(threads));
    const auto source = std::make_shared<Failing>();
    session.bind_feed(p.in, source);
    session.bind_feed(p.out, std::make_shared<Numbers>());
    session.run({}, "3");  // Element 4 is made in advance; this run does not need it.
    EXPECT_EQ(p.value(session), 3);
    const std::string text = error_text(ErrorKind::kUsage, [&] { session.run({}, "3"); });
    EXPECT_THAT(
        text, AllOf(HasSubstr("the file is gone"), HasSubstr("while making element 4 of feed 'x'"),
                    HasSubstr("running HostLoad.")));
    p.reset(session);
    session.run({}, "3");  // Behind element 3, which the failed run has read.
    EXPECT_EQ(p.value(session), 4 + 5 + 6);
  }
}

TEST(FeedRuns, ASinkFails) {
  struct Failing : Numbers {
    void take(std::span<const ConstArrayView> fields) override {
      if (++calls == 2) fail(ErrorKind::kIo, "the disk is full");
      Numbers::take(fields);
    }
    int calls = 0;
  };
  for (const int64_t trips : {2, 30}) {
    const Sums p({trips, 1});
    Session session(p.ir, with(2));
    session.bind_feed(p.in, std::make_shared<Counting>(100));
    session.bind_feed(p.out, std::make_shared<Failing>());
    const std::string text =
        error_text(ErrorKind::kIo, [&] { session.run({}, std::to_string(trips)); });
    EXPECT_THAT(text, AllOf(HasSubstr("the disk is full"),
                            HasSubstr("while taking element 1 of feed 'sums'")));
    session.run({}, "1");
  }
}

TEST(FeedRuns, RefusedCalls) {
  const Sums p({3});
  Session session(p.ir, with(1));
  const auto source = std::make_shared<Counting>(10);
  EXPECT_THAT(
      error_text(ErrorKind::kUsage, [&] { session.run({}, "3"); }),
      HasSubstr("program '3': its feeds must be bound before a run, got unbound 'x', 'sums'"));
  Ir other;
  const Infeed foreign = other.infeed("x", {{"x", f32_of({4, 4})}});
  Ir copy = p.ir;
  const Infeed late = copy.infeed("late", {{"x", f32_of({4, 4})}});
  const HostTensor array(f32_of({3, 4, 4}));
  struct Picky : Counting {
    Picky() : Counting(1) {}
    void open(const FeedLayout& layout) override {
      EXPECT_EQ(layout.name, "x");
      EXPECT_EQ(layout.fields[0].name, "x");
      EXPECT_EQ(layout.replicas, 1);
      fail(ErrorKind::kUsage, "picky: must get two fields");
    }
  };
  expect_refused({
      {"foreign", [&] { session.bind_feed(foreign, source); }, "belongs to another Ir"},
      {"late", [&] { session.bind_feed(late, source); }, "must be made before the session"},
      {"null", [&] { session.bind_feed(p.in, std::shared_ptr<FeedSource>()); }, "null pointer"},
      {"picky", [&] { session.bind_feed(p.in, std::make_shared<Picky>()); }, "must get two fields"},
      {"array",
       [&] {
         session.run({{p.in.streams[0], array}}, "3");
       },
       "got feed 'x'"},
  });
  EXPECT_TRUE(session.expected_inputs("3").empty());
}

TEST(FeedRuns, RefusedFeeds) {
  Ir ir;
  const TensorSpec spec = f32_of({2});
  ir.infeed("taken", {{"a", spec}});
  const Outfeed out = ir.outfeed("out", {{"a", spec}, {"b", spec}});
  Graph& main = ir.main_graph();
  const Tensor t = main.constant(HostTensor(spec), "t");
  using Fields = std::map<std::string, Tensor>;
  expect_refused({
      {"depth 0",
       [&] {
         ir.infeed("f", {{"a", spec}}, {.prefetch_depth = 0});
       },
       "1 to 255, got 0"},
      {"depth 256",
       [&] {
         ir.outfeed("f", {{"a", spec}}, {.depth = 256});
       },
       "1 to 255, got 256"},
      {"size 0",
       [&] {
         ir.infeed("f", {{"a", f32_of({2, 0})}});
       },
       "at least 1, got shape (2, 0)"},
      {"dtype",
       [&] {
         ir.infeed("f", {{"a", {{2}, i64, {}}}});
       },
       "field 'a'"},
      {"no field", [&] { ir.infeed("f", {}); }, "at least 1 field"},
      {"same field",
       [&] {
         ir.infeed("f", {{"a", spec}, {"a", spec}});
       },
       "'a' twice"},
      {"same name",
       [&] {
         ir.outfeed("taken", {{"a", spec}});
       },
       "that of another feed"},
      {"few", [&] { main.enqueue(out, Tensors{t}); }, "must get 2 fields (a, b), got 1"},
      {"missing",
       [&] {
         main.enqueue(out, Fields{{"a", t}});
       },
       "must get field 'b', got none"},
      {"unknown",
       [&] {
         main.enqueue(out, Fields{{"a", t}, {"b", t}, {"c", t}});
       },
       "got 'c'"},
  });
  main.host_store(out.streams[0], t);
  EXPECT_THAT(error_text(ErrorKind::kUsage, [&] { Session session(ir, with(1)); }),
              HasSubstr("feed 'out': program 'main' must store all fields equally often, got "
                        "'out.a' 1, 'out.b' 0"));
}

TEST(FeedRuns, Deadline) {
  const Sums p({3});
  SessionOptions options = with(2);
  options.feed_deadline = 0.05;
  Session session(p.ir, options);
  const auto source = std::make_shared<Blocking>(1);
  session.bind_feed(p.in, source);
  session.bind_feed(p.out, std::make_shared<Numbers>());
  EXPECT_THAT(error_text(ErrorKind::kIo, [&] { session.run({}, "3"); }),
              HasSubstr("feed 'x': element 1 of field 'x' must be made within 0.05 s"));
  source->release();
  p.reset(session);
  session.run({}, "3");
  EXPECT_EQ(p.value(session), 1 + 2 + 3);
  options.feed_deadline = 0;
  EXPECT_THAT(error_text(ErrorKind::kUsage, [&] { Session none(p.ir, options); }),
              HasSubstr("feed_deadline"));
}

TEST(FeedRuns, AStopEndsAWait) {
  for (const int threads : {1, 2}) {
    for (const int replicas : {1, 2}) {
      const Sums p({3}, {4, 4}, replicas);
      Session session(p.ir, with(threads));
      session.bind_feed(p.in, std::make_shared<Blocking>(3));
      session.bind_feed(p.out, std::make_shared<Numbers>());
      AsyncRun run = session.run_async({}, "3");
      EXPECT_EQ(run.wait_for(replicas == 1 ? 60 : 0.02), replicas == 1);
      if (replicas == 1) {
        run.wait();
        run = session.run_async({}, "3");
        EXPECT_FALSE(run.wait_for(0.02));
      }
      EXPECT_FALSE(run.done());
      const auto begin = Clock::now();
      EXPECT_TRUE(run.stop());
      EXPECT_THAT(error_text(ErrorKind::kStopped, [&] { run.wait(); }), HasSubstr("stop()"));
      EXPECT_LT(Clock::now() - begin, std::chrono::seconds(5));
    }
  }
}

TEST(FeedRuns, ReadsWhileItRuns) {
  const Sums p({20});
  Session session(p.ir, with(2));
  const auto source = std::make_shared<Blocking>(10);
  session.bind_feed(p.in, source);
  const auto queue = std::make_shared<data::OutfeedQueue>();
  session.bind_feed(p.out, queue);
  EXPECT_THAT(error_text(ErrorKind::kUsage, [&] { queue->dequeue(); }),
              HasSubstr("outfeed 'sums' must have got an element"));
  AsyncRun run = session.run_async({}, "20");
  std::vector<float> sums;
  const auto drain = [&] {
    const HostTensor all = queue->dequeue()[0].array;
    for (int64_t i = 0; i < all.shape().dim(0); ++i)
      sums.push_back(all.as<float>()[static_cast<size_t>(i) * 16]);
  };
  while (sums.size() < 10) {
    ASSERT_TRUE(queue->wait_for(20));
    drain();
  }
  EXPECT_FALSE(run.done());
  EXPECT_EQ(run.progress()[0], std::pair(std::string("x"), int64_t{10}));
  expect_refused({
      {"second run", [&] { session.run({}, "20"); }, "must have no run in progress"},
      {"second async run", [&] { session.run_async({}, "20"); }, "must have no run in progress"},
      {"read", [&] { session.read(p.total); }, "read: the session must have no run in progress"},
      {"bind", [&] { session.bind_feed(p.in, source); }, "must have no run in progress"},
  });
  source->release();
  run.wait();
  EXPECT_FALSE(run.stop());
  drain();
  ASSERT_EQ(sums.size(), 20u);
  for (size_t i = 0; i < 20; ++i) EXPECT_EQ(sums[i], static_cast<float>(i * (i + 1) / 2));
  EXPECT_EQ(p.value(session), 190);
  EXPECT_EQ(queue->dequeue()[0].array.shape(), Shape({0, 4, 4}));
}

TEST(FeedRuns, AsyncRunReturnsItsArrays) {
  Ir ir;
  const H2dStream in = ir.h2d_stream(f32_of({2}), "in");
  Graph& main = ir.main_graph();
  const D2hStream out = main.host_store(main.host_load(in) * 2.0, "out");
  Session session(ir, with(2));
  const HostTensor x = HostTensor::of<float>({2}, f32, {1, 2});
  for (int i = 0; i < 20; ++i) {
    AsyncRun run = session.run_async({{in, x}});
    EXPECT_TRUE(run.wait()[out].same_bits(HostTensor::of<float>({2}, f32, {2, 4})));
    EXPECT_TRUE(run.done());
    EXPECT_TRUE(run.progress().empty());
  }
}

TEST(FeedRuns, AFullQueueBlocksTheDevice) {
  const Sums p({20});
  Session session(p.ir, with(2));
  session.bind_feed(p.in, std::make_shared<Counting>(1000));
  const auto queue = std::make_shared<data::OutfeedQueue>(
      data::OutfeedQueueOptions{.mode = Mode::kAll, .depth = 2});
  session.bind_feed(p.out, queue);
  AsyncRun run = session.run_async({}, "20");
  EXPECT_FALSE(run.wait_for(0.05));
  // Two groups are in the queue, three in the ring.
  EXPECT_LE(run.progress()[1].second, 6);
  int64_t taken = 0;
  while (!run.done() || queue->size() > 0) {
    if (queue->wait_for(0.01)) taken += queue->dequeue()[0].array.shape().dim(0);
  }
  run.wait();
  EXPECT_EQ(taken, 20);
}

TEST(FeedRuns, TheLastValue) {
  const Sums p({20});
  Session session(p.ir, with(1));
  session.bind_feed(p.in, std::make_shared<Counting>(1000));
  const auto queue =
      std::make_shared<data::OutfeedQueue>(data::OutfeedQueueOptions{.mode = Mode::kLast});
  session.bind_feed(p.out, queue);
  error_text(ErrorKind::kUsage, [&] { queue->dequeue(); });
  session.run({}, "20");
  for (int i = 0; i < 2; ++i) {
    const HostTensor last = queue->dequeue()[0].array;
    EXPECT_EQ(last.shape(), Shape({4, 4}));
    EXPECT_EQ(last.as<float>()[0], 190);
  }
}

TEST(FeedRuns, ASessionEndsInARun) {
  for (int i = 0; i < 20; ++i) {
    const Sums p({kLong});
    std::optional<AsyncRun> run;
    {
      Session session(p.ir, trusted(2));
      session.bind_feed(p.in, i % 2 == 0
                                  ? std::shared_ptr<FeedSource>(std::make_shared<Blocking>(2))
                                  : std::make_shared<Counting>(10));
      session.bind_feed(p.out, std::make_shared<Numbers>());
      run = session.run_async({}, std::to_string(kLong));
      if (i % 3 == 0) sleep_ms(2);
    }
    error_text(ErrorKind::kStopped, [&] { run->wait(); });
    EXPECT_TRUE(run->progress().empty());
  }
  const Sums p({kLong});
  Session session(p.ir, trusted(2));
  session.bind_feed(p.in, std::make_shared<Counting>(10));
  session.bind_feed(p.out,
                    std::make_shared<data::OutfeedQueue>(data::OutfeedQueueOptions{.depth = 1}));
  const AsyncRun discarded = session.run_async({}, std::to_string(kLong));
}

// Whenever the stop comes, the next run begins behind the elements that the stopped one has read,
// and the sink has no gap.
TEST(FeedRuns, StopsAtAnyMoment) {
  std::mt19937 random(7);
  for (int i = 0; i < 100; ++i) {
    const int replicas = 1 + i % 2, threads = 1 + i / 2 % 2, depth = 1 + i / 4 % 3;
    const Sums p({kLong, 4}, {4, 4}, replicas, depth);
    Session session(p.ir, trusted(threads));
    // Counts on, so that each element is different.
    const auto source = std::make_shared<Counting>(INT64_MAX);
    const auto sums = std::make_shared<Numbers>();
    session.bind_feed(p.in, source);
    session.bind_feed(p.out, sums);
    AsyncRun run = session.run_async({}, std::to_string(kLong));
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
    run.stop();
    error_text(ErrorKind::kStopped, [&] { run.wait(); });
    const int64_t read = run.progress()[0].second, stored = run.progress()[1].second;
    ASSERT_LE(stored, read);
    ASSERT_LE(read, stored + replicas);  // One replica may be a step ahead.
    p.reset(session);
    session.run({}, "4");
    float v = 0;
    for (int64_t k = 0; k < 4; ++k) {
      float sum = 0;
      for (int64_t r = 0; r < replicas; ++r)
        sum += v + static_cast<float>((read + k) * replicas + r);
      v = sum;
    }
    EXPECT_EQ(p.value(session), v);
    EXPECT_EQ(static_cast<int64_t>(sums->taken.size()), (stored + 4) * replicas);
    EXPECT_EQ(sums->field(0).back(), v);
    ASSERT_LE(source->made, (read + 4 + depth) * replicas);
  }
}

TEST(FeedRuns, EndsAndErrorsAtAnyMoment) {
  struct Failing : Counting {
    Failing(int64_t most, bool throws) : Counting(INT64_MAX, most), throws(throws) {}
    bool next(std::span<const ArrayView> fields) override {
      if (made == most && throws) fail(ErrorKind::kBadFile, "element {} is bad", most);
      return Counting::next(fields);
    }
    const bool throws;
  };
  std::mt19937 random(11);
  for (int i = 0; i < 100; ++i) {
    const int replicas = 1 + i % 2, threads = 1 + i / 2 % 2, depth = 1 + i / 4 % 3;
    const Sums p({40}, {4, 4}, replicas, depth);
    Session session(p.ir, with(threads));
    const auto most = static_cast<int64_t>(random() % 70);
    const bool throws = i % 3 == 0;
    const auto sums = std::make_shared<Numbers>();
    session.bind_feed(p.in, std::make_shared<Failing>(most, throws));
    session.bind_feed(p.out, sums);
    if (most / replicas >= 40) {
      session.run({}, "40");
      EXPECT_EQ(sums->taken.size(), 40u * static_cast<size_t>(replicas));
      continue;
    }
    const std::string text = error_text(throws ? ErrorKind::kBadFile : ErrorKind::kUsage,
                                        [&] { session.run({}, "40"); });
    EXPECT_THAT(text, HasSubstr(throws ? fmt::format("element {} is bad", most)
                                       : fmt::format("requested {} elements, produced {}",
                                                     40 * replicas, most)));
    EXPECT_EQ(text.find("while making") != std::string::npos, throws);
    EXPECT_EQ(text.find("while making"), text.rfind("while making")) << "the error has come twice";
    session.read(p.total);
  }
}

}  // namespace
}  // namespace sluice::test
