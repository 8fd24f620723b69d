// Programs with feeds compute what their elements determine.

#include <gmock/gmock.h>

#include "feed_programs.h"

namespace sluice::test {
namespace {

using testing::Each;
using testing::ElementsAre;

constexpr int64_t kTwenty = 20;

TEST(Feeds, ALoopAddsElements) {
  for (const int threads : {1, 2}) {
    const Sums p({kTwenty, 10});
    Session session(p.ir, with(threads));
    session.bind_feed(p.in, std::make_shared<Counting>(10));
    session.bind_feed(p.out, std::make_shared<Numbers>());
    HostTensor one(f32_of({4, 4}));
    for (float& v : one.as<float>()) v = 1;
    session.write(p.total, one);
    session.run({}, "20");
    EXPECT_EQ(all_equal(session.read(p.total)), 91);

    session.bind_feed(p.in, std::make_shared<Counting>(10, 10));
    session.write(p.total, one);
    session.run({}, "10");
    EXPECT_EQ(p.value(session), 46);
  }
}

TEST(Feeds, FieldsGoByOrderAndByName) {
  Ir ir;
  const Infeed in = ir.infeed("pairs", {{"a", f32_of({2})}, {"b", f32_of({2})}});
  Graph& ordered = ir.create_empty_graph("ordered");
  {
    const Tensor v = ordered.input(f32_of({2}), "v");
    const Tensors element = ordered.dequeue(in);
    ordered.add_output(v + element[0] + element[1]);
  }
  Graph& named = ir.create_empty_graph("named");
  {
    const Tensor v1 = named.input(f32_of({2}), "v1"), v2 = named.input(f32_of({2}), "v2");
    const std::map<std::string, Tensor> element = named.dequeue_named(in);
    named.set_outputs({v1 + element.at("a"), v2 + element.at("b")});
  }
  Graph& first = ir.entry_graph("ordered");
  const Tensor zero = first.constant(HostTensor(f32_of({2})), "zero");
  const D2hStream sum = first.host_store(ops::repeat(first, ordered, 5, {zero})[0], "sum");
  Graph& second = ir.entry_graph("named");
  const Tensor nil = second.constant(HostTensor(f32_of({2})), "nil");
  const Tensors both = ops::repeat(second, named, 5, {nil, nil});
  const D2hStream a = second.host_store(both[0], "a"), b = second.host_store(both[1], "b");
  Session session(ir, with(2));
  expect_sums_of_pairs(session, in, sum, a, b);
}

TEST(Feeds, ASecondLoopGoesOn) {
  Ir ir;
  const Infeed in = ir.infeed("x", {{"x", f32_of({3})}});
  Graph& body = ir.create_empty_graph("body");
  body.add_output(body.input(f32_of({3}), "v") + body.dequeue(in)[0]);
  Graph& main = ir.main_graph();
  const Tensor zero = main.constant(HostTensor(f32_of({3})), "zero");
  const Tensor once = ops::repeat(main, body, 5, {zero})[0];
  const D2hStream out = main.host_store(ops::repeat(main, body, 5, {once})[0], "out");
  Session session(ir, with(1));
  session.bind_feed(in, std::make_shared<Counting>(2));
  EXPECT_EQ(all_equal(session.run()[out]), 5);
}

TEST(Feeds, ThePositionSurvivesRunsAndPrograms) {
  const Sums p({0, 2});
  Session session(p.ir, with(2));
  session.bind_feed(p.in, std::make_shared<Counting>(10));
  const auto sums = std::make_shared<Numbers>();
  session.bind_feed(p.out, sums);
  std::vector<float> results;
  for (const char* program : {"0", "2", "2", "2"}) {
    p.reset(session);
    session.run({}, program);
    results.push_back(p.value(session));
  }
  EXPECT_THAT(results, ElementsAre(0, 1, 5, 9));
  EXPECT_THAT(sums->field(0), ElementsAre(0, 1, 2, 5, 4, 9));
}

TEST(Feeds, TwoFeedsAdvanceApart) {
  Ir ir;
  const Infeed feeds[] = {ir.infeed("a", {{"x", f32_of({2})}}),
                          ir.infeed("b", {{"x", f32_of({2})}})};
  std::vector<D2hStream> out;
  for (const Infeed& feed : feeds) {
    Graph& body = ir.create_empty_graph("body");
    body.add_output(body.input(f32_of({2}), "v") + body.dequeue(feed)[0]);
    Graph& main = ir.entry_graph(feed.name);
    const Tensor zero = main.constant(HostTensor(f32_of({2})), "zero");
    out.push_back(main.host_store(ops::repeat(main, body, 5, {zero})[0], "out"));
  }
  Session session(ir, with(1));
  session.bind_feed(feeds[0], std::make_shared<Counting>(20));
  session.bind_feed(feeds[1], std::make_shared<Counting>(3));
  std::vector<float> results;
  for (int i = 0; i < 4; ++i)
    results.push_back(all_equal(session.run({}, i % 2 == 0 ? "a" : "b")[out[size_t(i % 2)]]));
  EXPECT_THAT(results, ElementsAre(10, 4, 35, 5));
}

TEST(Feeds, ReplicasGetTheirElements) {
  for (const int threads : {1, 2}) {
    const Sums p({5}, {4, 4}, 2);
    Session session(p.ir, with(threads));
    session.bind_feed(p.in, std::make_shared<Counting>(3));
    const auto queue = std::make_shared<data::OutfeedQueue>();
    session.bind_feed(p.out, queue);
    session.run({}, "5");
    EXPECT_EQ(p.value(session), 48);
    expect_sums_of_replicas(queue->dequeue()[0].array);
  }
}

TEST(Feeds, ReplicasFillAQueue) {
  const Sums p({kTwenty}, {4, 4}, 2);
  Session session(p.ir, with(2));
  const auto all = std::make_shared<data::OutfeedQueue>();
  session.bind_feed(p.in, std::make_shared<Counting>(3));
  session.bind_feed(p.out, all);
  session.run({}, "20");
  EXPECT_EQ(all->dequeue()[0].array.shape(), Shape({20, 2, 4, 4}));
  const auto last = std::make_shared<data::OutfeedQueue>(
      data::OutfeedQueueOptions{.mode = data::OutfeedQueue::Mode::kLast});
  session.bind_feed(p.out, last);
  session.run({}, "20");
  EXPECT_EQ(last->dequeue()[0].array.shape(), Shape({2, 4, 4}));
}

// The documented example: a counter, and the sum and difference of two equal vectors.
TEST(Feeds, DocumentedExample) {
  Ir ir;
  const TensorSpec vec = f32_of({800});
  const Infeed in = ir.infeed("ones", {{"x1", vec}, {"x2", vec}});
  const Outfeed out = ir.outfeed("results", {{"d1", vec}, {"d2", vec}});
  Graph& body = ir.create_empty_graph("body");
  const Tensor counter = body.input({{}, i32, {}}, "counter");
  const Tensors x = body.dequeue(in);
  body.enqueue(out, {{"d2", x[0] - x[1]}, {"d1", x[0] + x[1]}});
  body.add_output(counter + body.scalar(1, i32, "one"));
  Graph& main = ir.main_graph();
  const Tensor zero = main.scalar(0, i32, "zero");
  const D2hStream count = main.host_store(ops::repeat(main, body, 10, {zero})[0], "count");
  Session session(ir, with(2));
  session.bind_feed(in,
                    std::make_shared<Counting>(1, INT64_MAX, [](size_t, int64_t) { return 1.0f; }));
  const auto queue = std::make_shared<data::OutfeedQueue>();
  session.bind_feed(out, queue);
  EXPECT_EQ(session.run()[count].as<int32_t>()[0], 10);
  const std::vector<NamedArray> results = queue->dequeue();
  EXPECT_EQ(results[0].name, "d1");
  EXPECT_EQ(results[0].array.shape(), Shape({10, 800}));
  EXPECT_THAT(results[0].array.as<float>(), Each(2.0f));
  EXPECT_EQ(results[1].array.shape(), Shape({10, 800}));
  EXPECT_THAT(results[1].array.as<float>(), Each(0.0f));
}

// All images of a step, then all labels: labels lag behind.
struct Lagging {
  explicit Lagging(int64_t n, int depth, int devices = 1) {
    feed = ir.infeed("train", {{"image", f32_of({8})}, {"label", f32_of({8})}},
                     {.prefetch_depth = depth});
    sums = ir.outfeed("sums", {{"image", f32_of({8})}, {"label", f32_of({8})}}, {.depth = depth});
    Graph& main = ir.main_graph();
    for (size_t field = 0; field < 2; ++field) {
      const DeviceScope on(main, field == 0 ? 0 : devices - 1);
      Graph& body = ir.create_empty_graph("body");
      const Tensor v = body.input(f32_of({8}), "v");
      const Tensor sum = v + body.host_load(feed.streams[field]);
      body.host_store(sums.streams[field], sum);
      body.add_output(sum);
      const Tensor zero = main.constant(HostTensor(f32_of({8})), "zero");
      out.push_back(main.host_store(ops::repeat(main, body, n, {zero})[0], "sum"));
    }
  }
  Ir ir;
  Infeed feed;
  Outfeed sums;
  std::vector<D2hStream> out;
};

TEST(Feeds, AFieldMayLagBehind) {
  for (const int depth : {1, 3}) {
    for (const int devices : {1, 2}) {
      constexpr int64_t kSteps = 16;
      const Lagging p(kSteps, depth, devices);
      Session session(p.ir, with(2, devices));
      const auto& rings = session.executable().feeds[exe::FeedId(0)].rings;
      EXPECT_EQ(rings[0].slots, depth);
      EXPECT_EQ(rings[1].slots, kSteps - 1 + depth);
      const auto& out_rings = session.executable().feeds[exe::FeedId(1)].rings;
      EXPECT_EQ(out_rings[0].slots, kSteps - 1 + depth);
      EXPECT_EQ(out_rings[1].slots, depth);
      session.bind_feed(p.feed, std::make_shared<Counting>(1000));
      const auto sums = std::make_shared<Numbers>();
      session.bind_feed(p.sums, sums);
      for (int run = 0; run < 3; ++run) {
        const HostTensors results = session.run();
        // The sum of the numbers from kSteps * run on.
        const auto expected =
            static_cast<float>(kSteps * (kSteps * run) + kSteps * (kSteps - 1) / 2);
        EXPECT_EQ(all_equal(results[p.out[0]]), expected);
        EXPECT_EQ(all_equal(results[p.out[1]]), expected);
      }
      EXPECT_EQ(sums->taken.size(), static_cast<size_t>(3 * kSteps));
      EXPECT_EQ(sums->field(0), sums->field(1));
    }
  }
}

TEST(Feeds, AnyInterleavingGivesTheSame) {
  for (const int devices : {1, 2}) {
    const Lagging p(7, 1, devices);
    Session session(p.ir, with(2, devices));
    session.bind_feed(p.sums, std::make_shared<Numbers>());
    HostTensor images(f32_of({8})), labels(f32_of({8}));
    Binding bound = session.bind({}, {{p.out[0], images}, {p.out[1], labels}});
    for (uint64_t seed = 0; seed < 20; ++seed) {
      session.bind_feed(p.feed, std::make_shared<Counting>(1000));
      session.run_interleaved(bound, seed);
      EXPECT_EQ(all_equal(images), 21);
      EXPECT_EQ(all_equal(labels), 21);
    }
  }
}

TEST(Feeds, FourReplicasWithShortRings) {
  const Sums p({kTwenty}, {3}, 4, 1);
  for (const int threads : {1, 2, 4}) {
    Session session(p.ir, with(threads));
    session.bind_feed(
        p.in, std::make_shared<Counting>(1, INT64_MAX, [](size_t, int64_t) { return 0.0f; }));
    const auto queue = std::make_shared<data::OutfeedQueue>();
    session.bind_feed(p.out, queue);
    for (int run = 0; run < 2; ++run) session.run({}, "20");
    EXPECT_EQ(queue->dequeue()[0].array.shape(), Shape({40, 4, 3}));
  }
}

}  // namespace
}  // namespace sluice::test
