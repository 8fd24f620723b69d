// Runs with feeds: ends of data, errors, deadlines, stops, and runs on a thread of their own.

#include <gmock/gmock.h>

#include "feed_programs.h"

namespace sluice::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Mode = data::OutfeedQueue::Mode;

constexpr int64_t kLongRun = 1'000'000;

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
    EXPECT_TRUE(wait_until([&] { return taken() >= position * replicas; }));
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

TEST(FeedRuns, ItsErrorNestsTheException) {
  struct Refusal : std::runtime_error {
    Refusal() : std::runtime_error("closed") {}
  };
  struct Failing : FeedSource {
    bool next(std::span<const ArrayView>) override { throw Refusal(); }
  };
  const Sums p({3});
  Session session(p.ir, with(2));
  session.bind_feed(p.in, std::make_shared<Failing>());
  session.bind_feed(p.out, std::make_shared<Numbers>());
  for (int run = 0; run < 2; ++run) {
    try {
      session.run({}, "3");
      ADD_FAILURE() << "must throw";
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::kUsage);
      EXPECT_THROW(std::rethrow_if_nested(e), Refusal);
    }
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
      const auto source = std::make_shared<Blocking>(3);
      session.bind_feed(p.in, source);
      session.bind_feed(p.out, std::make_shared<Numbers>());
      AsyncRun run = session.run_async({}, "3");
      if (replicas == 1) {
        run.wait();  // The first three elements are all that it needs.
        run = session.run_async({}, "3");
      }
      EXPECT_TRUE(wait_until([&] {
        const report::FeedReport in = session.feed_statistics()[0];
        return source->blocks && in.occupancy[0] > 0 && in.used == 3 / replicas * replicas;
      }));
      EXPECT_FALSE(run.wait_for(0.001));
      EXPECT_FALSE(run.done());
      // A run that continues waits for its source without an end.
      EXPECT_TRUE(run.stop());
      EXPECT_THAT(error_text(ErrorKind::kStopped, [&] { run.wait(); }), HasSubstr("stop()"));
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

// The thread of an outfeed polls after an element. An element that comes then is not forgotten.
TEST(FeedRuns, ElementsArriveWhileTheProgramWaits) {
  for (const int depth : {1, 2, 3, 64}) {
    const Sums p({20}, {4, 4}, 1, depth);
    Session session(p.ir, with(2));
    for (int i = 0; i < 20; ++i) {
      const auto source = std::make_shared<Blocking>(10);
      const auto numbers = std::make_shared<Numbers>();
      session.bind_feed(p.in, source);
      session.bind_feed(p.out, numbers);
      AsyncRun run = session.run_async({}, "20");
      EXPECT_TRUE(wait_until([&] { return numbers->field(0).size() == 10; })) << depth;
      source->release();
      run.wait();
      EXPECT_EQ(numbers->field(0).size(), 20u);
    }
  }
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
  // Two groups are in the queue, three in the ring.
  const auto stored = [&] { return run.progress()[1].second; };
  int64_t taken = 0;
  while (taken < 20) {
    EXPECT_TRUE(wait_until([&] { return stored() >= std::min<int64_t>(taken + 5, 20); }));
    EXPECT_LE(stored(), std::min<int64_t>(taken + 5, 20));
    ASSERT_TRUE(wait_until([&] { return queue->size() > 0; }));
    taken += queue->dequeue()[0].array.shape().dim(0);
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
    const Sums p({kLongRun});
    std::optional<AsyncRun> run;
    {
      Session session(p.ir, trusted(2));
      session.bind_feed(p.in, i % 2 == 0
                                  ? std::shared_ptr<FeedSource>(std::make_shared<Blocking>(2))
                                  : std::make_shared<Counting>(10));
      session.bind_feed(p.out, std::make_shared<Numbers>());
      run = session.run_async({}, std::to_string(kLongRun));
      if (i % 3 == 0) {
        EXPECT_TRUE(wait_until([&] { return run->progress()[1].second > 0; }));
      }
    }
    error_text(ErrorKind::kStopped, [&] { run->wait(); });
    EXPECT_TRUE(run->progress().empty());
  }
  const Sums p({kLongRun});
  Session session(p.ir, trusted(2));
  session.bind_feed(p.in, std::make_shared<Counting>(10));
  session.bind_feed(p.out,
                    std::make_shared<data::OutfeedQueue>(data::OutfeedQueueOptions{.depth = 1}));
  const AsyncRun discarded = session.run_async({}, std::to_string(kLongRun));
}

// The object that is bound again begins anew; nothing of the earlier binding reaches it.
TEST(FeedRuns, ABindingMayBeRepeated) {
  const Sums p({3});
  Session session(p.ir, with(2));
  const auto queue = std::make_shared<data::OutfeedQueue>();
  for (int i = 0; i < 20; ++i) {
    session.bind_feed(p.in, std::make_shared<Counting>(100));
    session.bind_feed(p.out, queue);
    p.reset(session);
    session.run({}, "3");
    const HostTensor sums = queue->dequeue()[0].array;
    ASSERT_EQ(sums.shape(), Shape({3, 4, 4}));
    EXPECT_EQ(sums.as<float>()[2 * 16], 3);
  }
  struct Picky : Counting {
    Picky() : Counting(100) {}
    void open(const FeedLayout&) override { require(opens++ == 0, "picky: must be opened once"); }
    int opens = 0;
  };
  const auto picky = std::make_shared<Picky>();
  picky->opens = 1;
  error_text(ErrorKind::kUsage, [&] { session.bind_feed(p.in, picky); });
  p.reset(session);
  session.run({}, "3");  // The earlier source continues.
  EXPECT_EQ(p.value(session), 3 + 4 + 5);
  picky->opens = 0;
  session.bind_feed(p.in, picky);
  error_text(ErrorKind::kUsage, [&] { session.bind_feed(p.in, picky); });
  EXPECT_THAT(error_text(ErrorKind::kUsage, [&] { session.run({}, "3"); }),
              HasSubstr("got unbound 'x'"));
}

TEST(FeedRuns, AFeedCannotBindItself) {
  struct Binding : Counting {
    explicit Binding(std::function<void()> bind) : Counting(100), bind(std::move(bind)) {}
    bool next(std::span<const ArrayView> fields) override {
      bind();
      return Counting::next(fields);
    }
    const std::function<void()> bind;
  };
  const Sums p({3});
  Session session(p.ir, with(1));
  std::atomic<bool> idle{false}, refused{false};
  const auto bind = [&] {
    while (!idle) std::this_thread::yield();
    try {
      session.bind_feed(p.in, std::make_shared<Counting>(1));
    } catch (const Error&) {
      refused = true;
      throw;
    }
  };
  session.bind_feed(p.in, std::make_shared<Binding>(bind));
  session.bind_feed(p.out, std::make_shared<Numbers>());
  AsyncRun run = session.run_async({}, "3");
  run.stop();
  error_text(ErrorKind::kStopped, [&] { run.wait(); });
  idle = true;
  EXPECT_TRUE(wait_until([&] { return refused.load(); }));
  EXPECT_THAT(error_text(ErrorKind::kUsage, [&] { session.run({}, "3"); }),
              HasSubstr("the source or sink of feed 'x' must not bind its own feed"));
}

// A sink that takes nothing delays only the runs that use it.
TEST(FeedRuns, AFullQueueDoesNotDelayOtherPrograms) {
  const Sums p({kLongRun, 0});
  Session session(p.ir, trusted(2));
  session.bind_feed(p.in, std::make_shared<Counting>(10));
  const auto queue = std::make_shared<data::OutfeedQueue>(data::OutfeedQueueOptions{.depth = 1});
  session.bind_feed(p.out, queue);
  AsyncRun run = session.run_async({}, std::to_string(kLongRun));
  ASSERT_TRUE(queue->wait_for(20));
  run.stop();
  error_text(ErrorKind::kStopped, [&] { run.wait(); });
  run = session.run_async({}, "0");
  EXPECT_TRUE(run.wait_for(20));
}

// A sink that fails ends a run that waits for its source. Both errors are reported, each by a run.
TEST(FeedRuns, ASinkAndASourceFail) {
  struct FailingSink : Numbers {
    void take(std::span<const ConstArrayView> fields) override {
      if (++calls == 2) fail(ErrorKind::kIo, "the disk is full");
      Numbers::take(fields);
    }
    int calls = 0;
  };
  struct FailingSource : Counting {
    FailingSource() : Counting(100) {}
    bool next(std::span<const ArrayView> fields) override {
      if (made == 3 && !thrown) {
        thrown = true;
        EXPECT_TRUE(wait_until([&] { return first_run_ended.load(); }));
        fail(ErrorKind::kBadFile, "element 3 is bad");
      }
      return Counting::next(fields);
    }
    std::atomic<bool> first_run_ended{false};
    bool thrown = false;
  };
  const Sums p({4, 2});
  Session session(p.ir, with(2));
  const auto source = std::make_shared<FailingSource>();
  session.bind_feed(p.in, source);
  session.bind_feed(p.out, std::make_shared<FailingSink>());
  EXPECT_THAT(error_text(ErrorKind::kIo, [&] { session.run({}, "4"); }),
              HasSubstr("while taking element 1 of feed 'sums'"));
  source->first_run_ended = true;
  EXPECT_THAT(error_text(ErrorKind::kBadFile, [&] { session.run({}, "2"); }),
              HasSubstr("while making element 3 of feed 'x'"));
  session.run({}, "2");
}

// One of two feeds ends. The other one continues after its last element.
TEST(FeedRuns, OneOfTwoFeedsEnds) {
  Ir ir;
  const Infeed a = ir.infeed("a", {{"x", f32_of({2})}}), b = ir.infeed("b", {{"x", f32_of({2})}});
  Graph& body = ir.create_empty_graph("body");
  const Tensor v = body.input(f32_of({2}), "v");
  const Tensor x = body.dequeue(a)[0];
  body.add_output(v + x + body.dequeue(b)[0] * 100.0);
  Graph& main = ir.main_graph();
  const Tensor zero = main.constant(HostTensor(f32_of({2})), "zero");
  const D2hStream out = main.host_store(ops::repeat(main, body, 4, {zero})[0], "out");
  for (const int threads : {1, 2}) {
    Session session(ir, with(threads));
    session.bind_feed(a, std::make_shared<Counting>(100));
    session.bind_feed(b, std::make_shared<Counting>(100, 6));
    EXPECT_EQ(session.run()[out].as<float>()[0], 606);
    for (int i = 0; i < 2; ++i) {
      EXPECT_THAT(
          error_text(ErrorKind::kUsage, [&] { session.run(); }),
          HasSubstr(fmt::format("feed 'b': requested {} elements, produced 6", i == 0 ? 8 : 10)));
    }
    // The failed runs have read elements 4 to 6 of feed a, then element 7.
    session.bind_feed(b, std::make_shared<Counting>(1));
    EXPECT_EQ(session.run()[out].as<float>()[0], 8 + 9 + 10 + 11);
  }
}

TEST(FeedRuns, AnAsyncRunMayBeMoved) {
  const Sums p({kLongRun, 2});
  Session first(p.ir, trusted(1)), second(p.ir, trusted(1));
  for (Session* session : {&first, &second}) {
    session->bind_feed(p.in, std::make_shared<Blocking>(2));
    session->bind_feed(p.out, std::make_shared<Numbers>());
  }
  AsyncRun run = first.run_async({}, std::to_string(kLongRun));
  AsyncRun other = second.run_async({}, std::to_string(kLongRun));
  run = std::move(other);  // Ends the run of `first`.
  EXPECT_NO_THROW(p.value(first));
  EXPECT_FALSE(run.done());
  for (const auto& use : std::vector<std::function<void()>>{
           [&] { other.wait(); }, [&] { other.wait_for(1); }, [&] { other.done(); },
           [&] { other.stop(); }, [&] { other.progress(); }}) {
    EXPECT_THAT(error_text(ErrorKind::kUsage, use), HasSubstr("got one that was moved from"));
  }
  std::thread([moved = std::move(run)]() mutable {
    moved.stop();
    error_text(ErrorKind::kStopped, [&] { moved.wait(); });
  }).join();
  EXPECT_NO_THROW(p.value(second));
}

// A stop of a run that has ended does not reach the next run.
TEST(FeedRuns, AStopEndsItsOwnRunOnly) {
  const Sums p({1, 2});
  Session session(p.ir, with(1));
  session.bind_feed(p.in, std::make_shared<Counting>(10));
  session.bind_feed(p.out, std::make_shared<Numbers>());
  for (int i = 0; i < 100; ++i) {
    AsyncRun run = session.run_async({}, "1");
    std::thread stopper([&] {
      while (!run.done()) run.stop();
    });
    while (!run.done()) std::this_thread::yield();
    EXPECT_NO_THROW(session.run({}, "2"));
    stopper.join();
  }
}

}  // namespace
}  // namespace sluice::test
