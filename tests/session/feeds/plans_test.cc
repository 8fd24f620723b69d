// Plans with feeds: slots, bytes, text, and mutants that the checker must refuse.

#include <gmock/gmock.h>

#include <random>

#include "feed_programs.h"
#include "sluice/check/checker.h"
#include "sluice/compiler/compile.h"
#include "sluice/exe/fingerprint.h"
#include "sluice/exe/text.h"
#include "sluice/report/summary.h"
#include "sluice/runtime/executor.h"

namespace sluice::test {
namespace {

using exe::Executable;
using testing::HasSubstr;

exe::Executable plan_of(const Ir& ir, SessionOptions options = with(1)) {
  return compile(ir, compile_options(options)).executable;
}

std::string faults(const Executable& e) {
  std::string text;
  for (const check::Violation& v : check::violations(e))
    text += fmt::format("[{}] {}\n", v.rule, v.message);
  return text;
}

// Loads `ahead` images before the first label, then both in turn, then the other labels.
struct Skewed {
  explicit Skewed(int64_t ahead, int depth = 1) {
    feed = ir.infeed("train", {{"image", f32_of({4})}, {"label", f32_of({4})}},
                     {.prefetch_depth = depth});
    Graph& images = ir.create_empty_graph("images");
    images.add_output(images.input(f32_of({4}), "v") + images.host_load(feed.streams[0]));
    Graph& labels = ir.create_empty_graph("labels");
    labels.add_output(labels.input(f32_of({4}), "v") + labels.host_load(feed.streams[1]));
    Graph& both = ir.create_empty_graph("both");
    {
      const Tensor v = both.input(f32_of({4}), "v");
      const Tensors element = both.dequeue(feed);
      both.add_output(v + element[0] + element[1]);
    }
    Graph& main = ir.main_graph();
    Tensor v = main.constant(HostTensor(f32_of({4})), "zero");
    v = ops::repeat(main, images, ahead, {v})[0];
    v = ops::repeat(main, both, 1000, {v})[0];
    v = ops::repeat(main, labels, ahead, {v})[0];
    main.host_store(v, "out");
  }
  Ir ir;
  Infeed feed;
};

TEST(FeedPlans, ARingOneSlotShortIsRefused) {
  for (const int64_t ahead : {1, 5, 40}) {
    const Skewed p(ahead);
    Executable e = plan_of(p.ir);
    EXPECT_EQ(e.feeds[exe::FeedId(0)].rings[0].slots, 1);
    EXPECT_EQ(e.feeds[exe::FeedId(0)].rings[1].slots, ahead + 1);
    EXPECT_EQ(faults(e), "");
    --e.feeds[exe::FeedId(0)].rings[1].slots;
    EXPECT_THAT(faults(e),
                HasSubstr(fmt::format("waits to load entry {} of field 'train.image' of feed "
                                      "'train': the {} slots of 'train.label' are full until entry "
                                      "0 of field 'train.label' is loaded",
                                      ahead, ahead)));
    EXPECT_THAT(faults(e), HasSubstr("[deadlock]"));
  }
}

TEST(FeedPlans, Mutants) {
  const Executable plan = plan_of(Skewed(3).ir);
  const auto refused = [&](const char* part, const std::function<void(Executable&)>& damage) {
    Executable e = plan;
    damage(e);
    EXPECT_THAT(faults(e), HasSubstr(part));
  };
  refused("ascending order of streams", [](Executable& e) {
    std::swap(e.feeds[exe::FeedId(0)].rings[0], e.feeds[exe::FeedId(0)].rings[1]);
  });
  refused("ascending order of streams", [](Executable& e) {
    std::swap(e.feeds[exe::FeedId(0)].rings[0].stream, e.feeds[exe::FeedId(0)].rings[1].stream);
  });
  refused("is listed twice",
          [](Executable& e) { e.feeds[exe::FeedId(0)].rings[1].stream = exe::StreamId(0); });
  refused("must be an output stream", [](Executable& e) { e.feeds[exe::FeedId(0)].input = false; });
  refused("must have slots of at least 16 bytes",
          [](Executable& e) { e.feeds[exe::FeedId(0)].rings[0].slot_bytes = 0; });
  refused("must be inside the", [](Executable& e) { ++e.feeds[exe::FeedId(0)].rings[1].slots; });
  refused("share bytes of", [](Executable& e) {
    e.feeds[exe::FeedId(0)].rings[0].arena = e.feeds[exe::FeedId(0)].rings[1].arena;
  });
  refused("must be in an arena of rings",
          [](Executable& e) { e.feeds[exe::FeedId(0)].rings[0].arena = exe::ArenaId(0); });
  refused("'rings' must not be in 'pinned' memory", [](Executable& e) {
    e.arenas[e.feeds[exe::FeedId(0)].rings[0].arena].space = exe::Space::kPinned;
  });
  refused("must use 1003 entries as 'train.image', got 1002",
          [](Executable& e) { --e.programs[0].streams[1].entries; });
  refused("two feeds have the name", [](Executable& e) {
    exe::Feed copy = e.feeds[exe::FeedId(0)];
    e.feeds.push_back(copy);
  });
  refused("must be at least 1, got 0",
          [](Executable& e) { e.feeds[exe::FeedId(0)].rings[0].slots = 0; });
  refused("stream 9 does not exist",
          [](Executable& e) { e.feeds[exe::FeedId(0)].rings[0].stream = exe::StreamId(9); });
  refused("at least 1 field", [](Executable& e) { e.feeds[exe::FeedId(0)].rings.clear(); });
  refused("must be on queue 0", [](Executable& e) {
    e.devices[exe::DeviceId(0)].queues.push_back({"io"});
    for (exe::Function& f : e.functions) {
      for (exe::Step& s : f.steps) {
        auto* i = std::get_if<exe::Issue>(&s.body);
        if (i != nullptr && i->object == 0 && i->kind == exe::TransferKind::kStreamIn) i->queue = 1;
      }
    }
  });
}

TEST(FeedPlans, OutfeedRingsHoldTheLead) {
  Ir ir;
  const Outfeed out = ir.outfeed("out", {{"a", f32_of({2})}, {"b", f32_of({2})}}, {.depth = 1});
  Graph& main = ir.main_graph();
  const Tensor t = main.constant(HostTensor(f32_of({2})), "t");
  for (const size_t field : {0, 0, 0, 1, 1, 1}) main.host_store(out.streams[field], t + 1.0);
  Executable e = plan_of(ir);
  EXPECT_EQ(e.feeds[exe::FeedId(0)].rings[0].slots, 3);
  EXPECT_EQ(e.feeds[exe::FeedId(0)].rings[1].slots, 1);
  EXPECT_EQ(faults(e), "");
  --e.feeds[exe::FeedId(0)].rings[0].slots;
  EXPECT_THAT(faults(e), HasSubstr("waits to store entry 2 of field 'out.a' of feed 'out': the 2 "
                                   "slots of 'out.a' are full until entry 0 of field 'out.b' is "
                                   "stored"));
}

TEST(FeedPlans, TextAndFingerprint) {
  const Executable e = plan_of(Sums({2, 3}).ir);
  const std::string text = exe::to_text(e);
  EXPECT_THAT(text, HasSubstr("feed 0 \"x\" in depth 3 field 0 slots 3 arena "));
  EXPECT_EQ(exe::parse_text(text, "plan"), e);
  Executable other = e;
  other.feeds[exe::FeedId(0)].name = "y";
  EXPECT_NE(exe::fingerprint(other), exe::fingerprint(e));
  other = e;
  other.feeds[exe::FeedId(0)].rings[0].slots = 9;
  EXPECT_EQ(exe::fingerprint(other), exe::fingerprint(e));
  EXPECT_THAT(report::summary(e),
              HasSubstr("feeds: x in: x 3 slots; sums out: sum 3 slots;\n"
                        "  assumes that no source or sink of a feed blocks forever\n"));
}

TEST(FeedPlans, PlannedBytesAreMeasured) {
  const Sums p({2}, {5}, 2);
  const Executable e = plan_of(p.ir);
  const int64_t planned = exe::planned_bytes(e, exe::DeviceId(-1), exe::Space::kHost);
  EXPECT_EQ(planned, 2 * 3 * 64);
  const SessionOptions options = with(1);
  const runtime::Executor executor(e, {options.device.device}, {});
  for (const int replica : {0, 1})
    EXPECT_EQ(executor.measured_bytes(replica, exe::DeviceId(), exe::Space::kHost), planned);
  SessionOptions small = with(1);
  small.remote_memory = 2 * planned - 1;
  EXPECT_THAT(error_text(ErrorKind::kDoesNotFit, [&] { Session(p.ir, small); }),
              HasSubstr("tier host needs 768 bytes, its budget is 767"));
}

// Random programs of nested loops: the slots are those that the order needs, and not one more.
TEST(FeedPlans, RandomOrders) {
  std::mt19937 random(3);
  for (int i = 0; i < 60; ++i) {
    Ir ir;
    const size_t fields = 2 + random() % 2;
    std::vector<FeedField> names;
    for (size_t f = 0; f < fields; ++f)
      names.push_back({std::string(1, char('a' + f)), f32_of({1})});
    const Infeed feed = ir.infeed("x", names, {.prefetch_depth = 1});
    std::vector<size_t> order;
    // Each part loads each field once per iteration, in an order of its own, apart or together.
    Graph& main = ir.main_graph();
    Tensor v = main.constant(HostTensor(f32_of({1})), "zero");
    for (int part = 0; part < 3; ++part) {
      const auto trips = static_cast<int64_t>(random() % 5);
      std::vector<size_t> permutation(fields);
      for (size_t f = 0; f < fields; ++f) permutation[f] = f;
      std::shuffle(permutation.begin(), permutation.end(), random);
      const bool together = random() % 2 == 0;
      const size_t repeated = 1 + random() % 2;
      std::vector<std::vector<size_t>> bodies(1);
      for (const size_t f : permutation) {
        for (size_t n = 0; n < repeated; ++n) bodies.back().push_back(f);
        if (!together) bodies.emplace_back();
      }
      for (const auto& loads : bodies) {
        Graph& body = ir.create_empty_graph("body");
        Tensor sum = body.input(f32_of({1}), "v");
        for (const size_t f : loads) sum = sum + body.host_load(feed.streams[f]);
        body.add_output(sum);
        v = ops::repeat(main, body, trips, {v})[0];
        for (int64_t t = 0; t < trips; ++t) order.insert(order.end(), loads.begin(), loads.end());
      }
    }
    main.host_store(v, "out");
    std::vector<int64_t> count(fields, 0), slots(fields, 1);
    for (const size_t f : order) {
      for (size_t g = 0; g < fields; ++g) slots[g] = std::max(slots[g], count[f] - count[g] + 1);
      ++count[f];
    }
    Session session(ir, with(1));
    Executable e = session.executable();
    ASSERT_EQ(faults(e), "");
    for (size_t g = 0; g < fields; ++g) {
      exe::FeedRing& ring = e.feeds[exe::FeedId(0)].rings[g];
      ASSERT_EQ(ring.slots, slots[g]);
      if (ring.slots == 1) continue;
      --ring.slots;
      EXPECT_THAT(faults(e), HasSubstr("[deadlock]"));
      ++ring.slots;
    }
    session.bind_feed(feed, std::make_shared<Counting>(1000));
    EXPECT_EQ(session.run().size(), 1u);
  }
}

}  // namespace
}  // namespace sluice::test
