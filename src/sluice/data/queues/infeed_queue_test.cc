#include <gtest/gtest.h>

#include <atomic>

#include "sluice/base/test_refusals.h"
#include "sluice/data/feed_queues.h"
#include "sluice/data/test_elements.h"

namespace sluice::data {
namespace {

Dataset pairs() {
  return from_tensors({{"a", test::filled({6, 2}, 1)}, {"b", HostTensor({{6}, i32, {}})}});
}

TEST(InfeedQueue, HasTheFieldsOfTheDataset) {
  const InfeedQueue named(pairs(), {.prefetch_depth = 7});
  ASSERT_EQ(named.fields().size(), 2U);
  EXPECT_EQ(named.fields()[0].name, "a");
  EXPECT_EQ(to_string(named.fields()[0].spec), "(2,) float32");
  EXPECT_EQ(named.fields()[1].name, "b");
  EXPECT_EQ(to_string(named.fields()[1].spec), "() int32");
  EXPECT_EQ(named.depth(), 7);
  const InfeedQueue tuple(from_tensors({test::filled({6, 2}, 1), test::filled({6}, 1)}));
  EXPECT_EQ(tuple.fields()[0].name, "0");
  EXPECT_EQ(tuple.fields()[1].name, "1");
  EXPECT_EQ(tuple.depth(), 3);
}

TEST(InfeedQueue, RefusesDatasetsThatNoFeedCanHave) {
  const auto make = [](const Dataset& dataset, int depth = 3) {
    return [=] { const InfeedQueue queue(dataset, {.prefetch_depth = depth}); };
  };
  expect_refused({
      {"static shapes", make(pairs().batch(4, Remainder::kKeep)),
       "InfeedQueue: all elements must have one shape, got a (4, 2) float32, b (4,) int32 and "
       "possibly a smaller last batch; drop the remainder with batch(n, Remainder::kDrop)"},
      {"size 0", make(from_tensors({{"x", HostTensor({{3, 0}, f32, {}})}})),
       "InfeedQueue: field 'x': dimensions must be at least 1, got (0,) float32"},
      {"i64", make(from_tensors({HostTensor({{3}, f32, {}}), HostTensor({{3}, i64, {}})})),
       "InfeedQueue: array 1 must have a dtype that devices have, got () int64; cast the array "
       "with HostTensor::cast"},
      {"f64", make(from_tensors({{"x", HostTensor({{3}, f64, {}})}})),
       "InfeedQueue: field 'x' must have a dtype that devices have, got () float64"},
      {"no element", make(pairs().take(0)), "InfeedQueue: must have elements, got none"},
      {"no array", make(from_function(3, [](int64_t) { return Element(); })),
       "an element must have at least one array, got none"},
      {"depth 0", make(pairs(), 0), "InfeedQueue: prefetch_depth must be 1 to 255, got 0"},
      {"depth 256", make(pairs(), 256), "InfeedQueue: prefetch_depth must be 1 to 255, got 256"},
  });
  // The dtypes that devices have.
  for (const DType dtype : {f32, f16, bf16, i32, u32, u8, boolean})
    make(from_tensors(HostTensor({{3}, dtype, {}})))();
}

TEST(InfeedQueue, RefusesFeedsWithOtherFields) {
  InfeedQueue named(pairs());
  InfeedQueue tuple(from_tensors({test::filled({6, 2}, 1), test::filled({6}, 1)}));
  const TensorSpec two{{2}, f32, {}}, f{{}, f32, {}}, i{{}, i32, {}};
  const auto open = [](InfeedQueue& queue, std::vector<FeedField> fields) {
    return [&queue, fields] { queue.open({.name = "train", .fields = fields}); };
  };
  const char* rest = "; make it with ir.infeed(name, queue.fields())";
  expect_refused({
      {"name", open(named, {{"a", two}, {"c", i}}),
       fmt::format("InfeedQueue: feed 'train' must have the fields of the dataset (a (2,) float32, "
                   "b () int32), got (a (2,) float32, c () int32){}",
                   rest)},
      {"shape", open(named, {{"a", f}, {"b", i}}), "got (a () float32, b () int32)"},
      {"dtype", open(named, {{"a", two}, {"b", f}}), "got (a (2,) float32, b () float32)"},
      {"few", open(named, {{"a", two}}), "got (a (2,) float32)"},
      {"many", open(tuple, {{"x", two}, {"y", f}, {"z", f}}),
       "(0 (2,) float32, 1 () float32), got (x (2,) float32, y () float32, z () float32)"},
      {"order", open(tuple, {{"1", f}, {"0", two}}), "got (1 () float32, 0 (2,) float32)"},
  });
  open(named, {{"b", i}, {"a", two}})();
  open(tuple, {{"x", two}, {"y", f}})();
  expect_refused({{"second feed", open(named, {{"a", two}, {"b", i}}),
                   "InfeedQueue: one feed must use the queue at a time, got feed 'train' and "
                   "feed 'train'; make a queue for each feed"}});
  named.cancel();
  open(named, {{"a", two}, {"b", i}})();
}

TEST(InfeedQueue, GivesOnePassAndBeginsAgain) {
  InfeedQueue queue(test::count_to(3));
  HostTensor x = HostTensor::scalar(-1);
  const ArrayView views[] = {x};
  for (int time = 0; time < 2; ++time) {
    queue.open({.name = "x", .fields = queue.fields()});
    EXPECT_EQ(queue.position(), 0);
    for (int k = 0; k < 3; ++k) {
      EXPECT_TRUE(queue.next(views));
      EXPECT_EQ(x.as<float>()[0], k);
      EXPECT_EQ(queue.position(), k + 1);
    }
    EXPECT_FALSE(queue.next(views));
    queue.cancel();
  }
}

TEST(InfeedQueue, AnErrorArrivesOnce) {
  const auto bad = [](int64_t k) {
    if (k == 2) fail(ErrorKind::kBadFile, "bad");
    return Element{HostTensor::scalar(1)};
  };
  const auto wide = [](int64_t k) { return Element{test::filled(k == 2 ? Shape{2} : Shape{}, 1)}; };
  HostTensor x = HostTensor::scalar(-1);
  const ArrayView views[] = {x};
  const auto check = [&](const Dataset& dataset, ErrorKind kind, const char* text) {
    InfeedQueue queue(dataset);
    queue.open({.name = "x", .fields = queue.fields()});
    EXPECT_TRUE(queue.next(views));
    EXPECT_TRUE(queue.next(views));
    expect_refused({{text, [&] { queue.next(views); }, text, kind}});
    EXPECT_FALSE(queue.next(views));
    EXPECT_EQ(queue.position(), 2);
  };
  check(from_function(9, bad), ErrorKind::kBadFile,
        "bad\n  while from_function computed element 2");
  check(from_function(9, wide), ErrorKind::kUsage,
        "InfeedQueue: element 2 must be () float32 like the first one, got (2,) float32");
}

// A queue that is bound again begins empty, also after a part of a group.
TEST(OutfeedQueue, BeginsAgain) {
  for (const OutfeedQueue::Mode mode : {OutfeedQueue::Mode::kAll, OutfeedQueue::Mode::kLast}) {
    OutfeedQueue queue({.mode = mode});
    const FeedLayout layout{.name = "y", .fields = {{"y", {{}, f32, {}}}}, .replicas = 2};
    const auto take = [&](float value) {
      const HostTensor y = HostTensor::scalar(value);
      const ConstArrayView views[] = {y};
      queue.take(views);
    };
    queue.open(layout);
    for (const float value : {1.F, 2.F, 3.F}) take(value);
    EXPECT_EQ(queue.size(), 1);
    queue.cancel();
    take(4);  // Is left out.
    EXPECT_EQ(queue.size(), 1);
    queue.open(layout);
    EXPECT_EQ(queue.size(), 0);
    expect_refused({{"none yet", [&] { queue.dequeue(); }, "must have got an element, got none"}});
    take(5);
    EXPECT_EQ(queue.size(), 0);
    take(6);
    EXPECT_EQ(queue.size(), 1);
    EXPECT_EQ(queue.dequeue()[0].array.to_doubles(), (std::vector<double>{5, 6}));
  }
}

// The newest element replaces the previous one, so that a device never blocks.
TEST(OutfeedQueue, TheLastElementNeedsNoRoom) {
  OutfeedQueue queue({.mode = OutfeedQueue::Mode::kLast, .depth = 1});
  queue.open({.name = "y", .fields = {{"y", {{}, f32, {}}}}});
  for (const float value : {1.F, 2.F, 3.F}) {
    const HostTensor y = HostTensor::scalar(value);
    const ConstArrayView views[] = {y};
    queue.take(views);
  }
  EXPECT_EQ(queue.dequeue()[0].array.to_doubles(), (std::vector<double>{3}));
}

TEST(OutfeedQueue, RefusesANegativeDepth) {
  expect_refused({{"depth", [] { const OutfeedQueue queue({.depth = -1}); },
                   "OutfeedQueue: depth must be at least 0, got -1"}});
}

}  // namespace
}  // namespace sluice::data
