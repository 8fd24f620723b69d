// Sessions whose feeds read datasets through data::InfeedQueue.

#include <gmock/gmock.h>

#include "feed_programs.h"

namespace sluice::test {
namespace {

using data::Dataset;
using data::Element;
using data::InfeedQueue;
using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

HostTensor array_of(const Shape& shape, double value) {
  HostTensor array(f32_of(shape));
  for (float& v : array.as<float>()) v = static_cast<float>(value);
  return array;
}

/// The dataset inc(k): arrays of 0, 1, …, k - 1 in each pass.
Dataset inc(int64_t k, const Shape& shape = {4, 4}) {
  return data::from_function(k, [shape](int64_t i) { return array_of(shape, double(i)); });
}

std::shared_ptr<InfeedQueue> queue_of(const Dataset& dataset) {
  return std::make_shared<InfeedQueue>(dataset);
}

float only_value(const HostTensor& array) {
  EXPECT_THAT(array.as<float>(), Each(array.as<float>()[0]));
  return array.as<float>()[0];
}

/// Programs, one for each of `trips`, that start from 0 and add n elements of a feed to it.
struct Adds {
  Adds(Ir& ir, const Infeed& feed, std::initializer_list<int64_t> trips) {
    for (const int64_t n : trips) {
      const std::string name = fmt::format("{}{}", feed.name, n);
      Graph& body = ir.create_empty_graph("body");
      Tensor sum = body.input(feed.fields[0].spec, "v");
      for (const Tensor& x : body.dequeue(feed)) sum = sum + x;
      body.add_output(sum);
      Graph& main = ir.entry_graph(name);
      const Tensor zero = main.constant(HostTensor(feed.fields[0].spec), "zero");
      outputs[name] = main.host_store(ops::repeat(main, body, n, {zero})[0], "sum");
    }
  }
  float run(Session& session, const std::string& name) const {
    return only_value(session.run({}, name)[outputs.at(name)]);
  }
  std::map<std::string, D2hStream> outputs;
};

TEST(FeedDatasets, ALoopAddsElements) {
  for (const int threads : {1, 2}) {
    const Sums p({20, 10});
    Session session(p.ir, with(threads));
    session.bind_feed(p.out, std::make_shared<data::OutfeedQueue>());
    session.bind_feed(p.in, queue_of(inc(10)
                                         .map([](Element e) {
                                           return Element{{"x", e.arrays[0]}};
                                         })
                                         .repeat()));
    session.write(p.total, array_of({4, 4}, 1));
    session.run({}, "20");
    EXPECT_EQ(only_value(session.read(p.total)), 91);
    // A dataset without names has its fields in the order of the feed.
    session.bind_feed(p.in, queue_of(inc(10)));
    session.write(p.total, array_of({4, 4}, 1));
    session.run({}, "10");
    EXPECT_EQ(only_value(session.read(p.total)), 46);
  }
}

TEST(FeedDatasets, ATupleGoesByOrder) {
  const auto pairs = queue_of(inc(3, {2})
                                  .map([](Element e) {
                                    const double x = e.arrays[0].as<float>()[0];
                                    return Element{e.arrays[0], array_of({2}, (x + 10) / 2)};
                                  })
                                  .repeat());
  Ir ir;
  const Infeed in = ir.infeed("pairs", pairs->fields(), {.prefetch_depth = pairs->depth()});
  EXPECT_EQ(in.fields[0].name, "0");
  const Adds p(ir, in, {5});
  Session session(ir, with(2));
  session.bind_feed(in, pairs);
  EXPECT_EQ(p.run(session, "pairs5"), 31);
}

TEST(FeedDatasets, FieldsGoByName) {
  const auto named =
      queue_of(inc(3, {2})
                   .map([](Element e) {
                     const double x = e.arrays[0].as<float>()[0];
                     return Element{{"a", e.arrays[0]}, {"b", array_of({2}, (x + 10) / 2)}};
                   })
                   .repeat());
  Ir ir;
  const Infeed in = ir.infeed("named", {named->fields()[1], named->fields()[0]});
  ASSERT_EQ(in.fields[0].name, "b");
  Graph& body = ir.create_empty_graph("body");
  const Tensor v1 = body.input(f32_of({2}), "v1"), v2 = body.input(f32_of({2}), "v2");
  const std::map<std::string, Tensor> element = body.dequeue_named(in);
  body.set_outputs({v1 + element.at("a"), v2 + element.at("b")});
  Graph& main = ir.main_graph();
  const Tensor zero = main.constant(HostTensor(f32_of({2})), "zero");
  const Tensors both = ops::repeat(main, body, 5, {zero, zero});
  const D2hStream a = main.host_store(both[0], "a"), b = main.host_store(both[1], "b");
  Session session(ir, with(2));
  session.bind_feed(in, named);
  const HostTensors results = session.run();
  EXPECT_EQ(only_value(results[a]), 4);
  EXPECT_EQ(only_value(results[b]), 27);
}

TEST(FeedDatasets, ASecondLoopGoesOn) {
  const auto queue = queue_of(inc(2, {3}).repeat());
  Ir ir;
  const Infeed in = ir.infeed("x", queue->fields());
  Graph& body = ir.create_empty_graph("body");
  body.add_output(body.input(f32_of({3}), "v") + body.dequeue(in)[0]);
  Graph& main = ir.main_graph();
  const Tensor zero = main.constant(HostTensor(f32_of({3})), "zero");
  const Tensor once = ops::repeat(main, body, 5, {zero})[0];
  const D2hStream out = main.host_store(ops::repeat(main, body, 5, {once})[0], "out");
  Session session(ir, with(1));
  session.bind_feed(in, queue);
  EXPECT_EQ(only_value(session.run()[out]), 5);
}

TEST(FeedDatasets, ThePositionSurvivesRunsAndPrograms) {
  const auto queue = queue_of(inc(10).repeat());
  Ir ir;
  const Infeed in = ir.infeed("x", queue->fields(), {.prefetch_depth = queue->depth()});
  const Adds p(ir, in, {0, 2});
  Session session(ir, with(2));
  for (int time = 0; time < 2; ++time) {  // A queue that is bound again begins at element 0.
    session.bind_feed(in, queue);
    std::vector<float> sums;
    for (const char* name : {"x0", "x2", "x2", "x2"}) sums.push_back(p.run(session, name));
    EXPECT_THAT(sums, ElementsAre(0, 1, 5, 9));
    EXPECT_GE(queue->position(), 6);
    EXPECT_LE(queue->position(), 6 + queue->depth());
  }
}

TEST(FeedDatasets, TwoFeedsAdvanceApart) {
  const auto first = queue_of(inc(20, {2}).repeat()), second = queue_of(inc(3, {2}).repeat());
  Ir ir;
  const Infeed a = ir.infeed("a", first->fields()), b = ir.infeed("b", second->fields());
  const Adds of_a(ir, a, {5}), of_b(ir, b, {5});
  Session session(ir, with(1));
  session.bind_feed(a, first);
  session.bind_feed(b, second);
  std::vector<float> sums;
  for (int i = 0; i < 2; ++i) {
    sums.push_back(of_a.run(session, "a5"));
    sums.push_back(of_b.run(session, "b5"));
  }
  EXPECT_THAT(sums, ElementsAre(10, 4, 35, 5));
}

TEST(FeedDatasets, ReplicasGetTheirElements) {
  for (const int threads : {1, 2}) {
    const Sums p({5}, {4, 4}, 2);
    Session session(p.ir, with(threads));
    session.bind_feed(p.in, queue_of(inc(3).repeat()));
    const auto sums = std::make_shared<data::OutfeedQueue>();
    session.bind_feed(p.out, sums);
    session.run({}, "5");
    EXPECT_EQ(p.value(session), 48);
    expect_sums_of_replicas(sums->dequeue()[0].array);
  }
}

// The documented example: a vector of ones as a pair, repeated.
TEST(FeedDatasets, DocumentedExample) {
  const auto ones = queue_of(data::from_tensors(array_of({1, 800}, 1))
                                 .map([](Element e) {
                                   return Element{e.arrays[0], e.arrays[0]};
                                 })
                                 .repeat());
  Ir ir;
  const TensorSpec vec = f32_of({800});
  const Infeed in = ir.infeed("ones", ones->fields(), {.prefetch_depth = ones->depth()});
  const Outfeed out = ir.outfeed("results", {{"d1", vec}, {"d2", vec}});
  Graph& body = ir.create_empty_graph("body");
  const Tensor counter = body.input({{}, i32, {}}, "counter");
  const Tensors x = body.dequeue(in);
  body.enqueue(out, {{"d1", x[0] + x[1]}, {"d2", x[0] - x[1]}});
  body.add_output(counter + body.scalar(1, i32, "one"));
  Graph& main = ir.main_graph();
  const Tensor zero = main.scalar(0, i32, "zero");
  const D2hStream count = main.host_store(ops::repeat(main, body, 10, {zero})[0], "count");
  Session session(ir, with(2));
  session.bind_feed(in, ones);
  const auto results = std::make_shared<data::OutfeedQueue>();
  session.bind_feed(out, results);
  EXPECT_EQ(session.run()[count].as<int32_t>()[0], 10);
  const std::vector<NamedArray> d = results->dequeue();
  EXPECT_EQ(d[0].array.shape(), Shape({10, 800}));
  EXPECT_THAT(d[0].array.as<float>(), Each(2.0f));
  EXPECT_EQ(d[1].array.shape(), Shape({10, 800}));
  EXPECT_THAT(d[1].array.as<float>(), Each(0.0f));
}

TEST(FeedDatasets, TheEndOfDataLeavesTheWeights) {
  for (const int replicas : {1, 2}) {
    const Sums p({2}, {4}, replicas);
    Session session(p.ir, with(2));
    const int64_t made = 3 * replicas + (replicas - 1);  // The last group is not whole.
    const auto queue = queue_of(inc(made, {4}));
    session.bind_feed(p.in, queue);
    session.bind_feed(p.out, std::make_shared<Numbers>());
    session.run({}, "2");
    const float before = p.value(session);
    EXPECT_THAT(
        error_text(ErrorKind::kUsage, [&] { session.run({}, "2"); }),
        HasSubstr(fmt::format("feed 'x': requested {} elements, produced {}; give more data",
                              4 * replicas, made)));
    EXPECT_EQ(p.value(session), before);
    p.reset(session);
    session.bind_feed(p.in, queue);
    session.run({}, "2");
    EXPECT_EQ(p.value(session), before);
  }
}

TEST(FeedDatasets, AnErrorOfTheUserArrivesOnce) {
  const auto failing = queue_of(inc(100).map([](Element e) {
    if (e.arrays[0].as<float>()[0] == 4) throw std::runtime_error("the picture is torn");
    return e;
  }));
  for (const int threads : {1, 2}) {
    const Sums p({2});
    Session session(p.ir, with(threads));
    session.bind_feed(p.in, failing);
    session.bind_feed(p.out, std::make_shared<Numbers>());
    session.run({}, "2");
    session.run({}, "2");
    EXPECT_EQ(p.value(session), 6);
    const std::string text = error_text(ErrorKind::kUsage, [&] { session.run({}, "2"); });
    EXPECT_THAT(text, AllOf(HasSubstr("map: the function for element 4 must not throw, got the "
                                      "exception: the picture is torn"),
                            HasSubstr("while making element 4 of feed 'x'")));
    EXPECT_EQ(p.value(session), 6);
    EXPECT_THAT(error_text(ErrorKind::kUsage, [&] { session.run({}, "2"); }),
                AllOf(HasSubstr("produced 4"), testing::Not(HasSubstr("torn"))));
  }
}

TEST(FeedDatasets, OneSessionUsesAQueue) {
  const Sums p({2}), q({2});
  const auto queue = queue_of(inc(10).repeat());
  const auto other = queue_of(inc(10).repeat());
  const auto sums = std::make_shared<Numbers>();
  Session second(q.ir, with(1));
  second.bind_feed(q.out, sums);
  second.bind_feed(q.in, other);
  {
    Session first(p.ir, with(1));
    first.bind_feed(p.out, sums);
    first.bind_feed(p.in, queue);
    EXPECT_THAT(error_text(ErrorKind::kUsage, [&] { second.bind_feed(q.in, queue); }),
                HasSubstr("InfeedQueue: one feed must use the queue at a time, got feed 'x' "
                          "and feed 'x'"));
    second.run({}, "2");  // A refused source leaves the one before it.
    EXPECT_EQ(q.value(second), 1);
    first.bind_feed(p.in, std::make_shared<Counting>(10));
    second.bind_feed(q.in, queue);  // The first session has released it.
    q.reset(second);
    second.run({}, "2");
    EXPECT_EQ(q.value(second), 1);
    first.bind_feed(p.in, other);
    first.run({}, "2");
  }
  second.bind_feed(q.in, other);  // The first session has ended.
  q.reset(second);
  second.run({}, "2");
  EXPECT_EQ(q.value(second), 1);
}

TEST(FeedDatasets, AFeedWithOtherFieldsIsRefused) {
  const Sums p({2});
  Session session(p.ir, with(1));
  EXPECT_THAT(
      error_text(ErrorKind::kUsage, [&] { session.bind_feed(p.in, queue_of(inc(3, {4}))); }),
      HasSubstr("InfeedQueue: feed 'x' must have the fields of the dataset (0 (4,) "
                "float32), got (x (4, 4) float32)"));
}

// A sink that is bound again takes elements: the cancel of the earlier use does not reach it.
TEST(FeedDatasets, AnOutfeedQueueIsBoundAgain) {
  const Sums p({2});
  Session session(p.ir, with(1));
  const auto sums = std::make_shared<data::OutfeedQueue>();
  session.bind_feed(p.in, queue_of(inc(10).repeat()));
  for (int time = 0; time < 3; ++time) {
    session.bind_feed(p.out, sums);
    session.run({}, "2");
    EXPECT_EQ(sums->size(), 2);
  }
}

TEST(FeedDatasets, PrefetchedDatasetsEndAtAnyMoment) {
  for (int i = 0; i < 30; ++i) {
    const Sums p({1000});
    Session session(p.ir, with(2));
    const Dataset ahead = inc(10).repeat().parallel_map([](Element e) { return e; }, 3).prefetch(2);
    session.bind_feed(p.in, queue_of(ahead));
    session.bind_feed(p.out, std::make_shared<Numbers>());
    AsyncRun run = session.run_async({}, "1000");
    std::this_thread::sleep_for(std::chrono::microseconds(i * 100));
    if (i % 2 == 0) continue;  // The session ends with the run.
    if (run.stop()) {
      error_text(ErrorKind::kStopped, [&] { run.wait(); });
    } else {
      run.wait();
    }
  }
}

}  // namespace
}  // namespace sluice::test
