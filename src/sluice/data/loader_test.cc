#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <numeric>
#include <thread>

#include "sluice/base/test_refusals.h"
#include "sluice/data/loader.h"
#include "sluice/data/test_allocations.h"
#include "sluice/data/test_elements.h"
#include "sluice/data/test_wait.h"

namespace sluice::data {
namespace {

using testing::ElementsAre;

/// Sample k has label k and the image 10·k, 10·k + 1, ….
Samples numbered(int64_t n) {
  Samples set{.images = HostTensor({{n, 2, 3}, f32, {}}), .labels = HostTensor({{n}, i32, {}})};
  for (size_t k = 0; k < static_cast<size_t>(n); ++k) {
    set.labels.as<int32_t>()[k] = static_cast<int32_t>(k);
    for (size_t p = 0; p < 6; ++p) set.images.as<float>()[6 * k + p] = float(10 * k + p);
  }
  return set;
}

Dataset generated(int64_t n) {
  return from_generator([n] {
    return [n, k = int64_t{0}]() mutable -> std::optional<Element> {
      if (k == n) return std::nullopt;
      return HostTensor::scalar(static_cast<float>(k++));
    };
  });
}

/// The values of the samples of an epoch, by item.
using Items = std::vector<std::vector<float>>;
Items read(BatchLoader& loader) {
  Items items;
  while (const Element* item = loader.next()) {
    const std::vector<double> values = item->arrays[0].to_doubles();
    items.emplace_back(values.begin(), values.end());
  }
  return items;
}

Items epoch_of(const Dataset& dataset, const LoaderOptions& options, int64_t epoch = 0) {
  BatchLoader loader(dataset, options);
  loader.start_epoch(epoch);
  return read(loader);
}

// Item b of an epoch has the rows that the order names.
TEST(BatchLoader, ReadsSamplesInTheOrderOfTheEpoch) {
  const Samples set = numbered(101);
  for (const bool shuffle : {false, true}) {
    for (const int workers : {0, 1, 16}) {
      BatchLoader loader(from_samples(set), {.batch = 7,
                                             .shuffle = shuffle ? Shuffle::kYes : Shuffle::kNo,
                                             .seed = uint64_t{5} << 31,
                                             .workers = workers});
      EXPECT_EQ(loader.items(), 14);
      EXPECT_EQ(loader.dropped(), 3);
      EXPECT_EQ(loader.samples(), 101);
      EXPECT_EQ(to_string(loader.sample_specs()), "input (2, 3) float32, labels () int32");
      HostTensor images({{7, 2, 3}, f32, {}});
      HostTensor labels({{7}, i32, {}});
      for (const int64_t epoch : {0, 1, 2, 9}) {
        std::vector<uint32_t> order(101);
        std::iota(order.begin(), order.end(), 0u);
        if (shuffle) shuffled_order(uint64_t{5} << 31, epoch, order);
        if (epoch > 0) loader.start_epoch(epoch);
        EXPECT_EQ(loader.epoch(), epoch);
        for (int64_t b = 0; b < 14; ++b) {
          EXPECT_EQ(loader.position(), b);
          const Element* item = loader.next();
          ASSERT_NE(item, nullptr);
          for (size_t k = 0; k < 7; ++k) {
            const uint32_t row = order[7 * static_cast<size_t>(b) + k];
            std::memcpy(&images.as<float>()[6 * k], &set.images.as<float>()[6 * row], 24);
            labels.as<int32_t>()[k] = set.labels.as<int32_t>()[row];
          }
          EXPECT_TRUE((*item)["input"].same_bits(images));
          EXPECT_TRUE((*item)["labels"].same_bits(labels));
        }
        EXPECT_EQ(loader.next(), nullptr);
        EXPECT_EQ(loader.next(), nullptr);
        EXPECT_EQ(loader.position(), 14);
      }
    }
  }
}

// Digests of trainings depend on these numbers.
TEST(BatchLoader, TheOrderNeverChanges) {
  const auto order = [](uint64_t seed, int64_t epoch) {
    return epoch_of(test::count_to(8), {.batch = 8, .seed = seed}, epoch).at(0);
  };
  EXPECT_THAT(order(1, 0), ElementsAre(3, 5, 0, 6, 2, 1, 7, 4));
  EXPECT_THAT(order(1, 3), ElementsAre(3, 6, 7, 2, 1, 0, 5, 4));
  EXPECT_THAT(order(0x500000002, 0), ElementsAre(5, 3, 4, 0, 1, 7, 6, 2));
  EXPECT_THAT(order(0x500000002, 3), ElementsAre(6, 5, 7, 4, 3, 1, 2, 0));
}

TEST(BatchLoader, BytesDoNotDependOnWorkersOrDepth) {
  const auto slow = [](Element e) {
    const float v = e.arrays[0].as<float>()[0];
    std::this_thread::sleep_for(std::chrono::microseconds(static_cast<int>(v) * 37 % 100));
    return e;
  };
  const Dataset indexed = test::count_to(50).map(slow);
  struct Case {
    const char* name;
    Dataset dataset;
    bool in_order = false;  // The loader does not shuffle it.
  };
  const Case cases[] = {
      {"indexed", indexed},
      {"shuffled", indexed.shuffle(3, 10)},
      {"repeated", indexed.take(7).repeat(7)},
      {"cached", generated(50).map(slow).cache()},
      {"generated", generated(50).map(slow), true},
      {"parallel", generated(50).parallel_map(slow, 3), true},
  };
  for (const auto& [name, dataset, in_order] : cases) {
    for (const Shuffle shuffle : {Shuffle::kNo, Shuffle::kYes}) {
      if (in_order && shuffle == Shuffle::kYes) continue;
      for (const Remainder remainder : {Remainder::kDrop, Remainder::kKeep}) {
        LoaderOptions options{.batch = 4, .shuffle = shuffle, .seed = 2, .remainder = remainder};
        BatchLoader one(dataset, options);
        const Items first = read(one);
        one.start_epoch(1);
        const Items second = read(one);
        for (const int workers : {1, 2, 16}) {
          for (const int depth : {1, 3}) {
            options.workers = workers;
            options.depth = depth;
            BatchLoader loader(dataset, options);
            EXPECT_EQ(read(loader), first) << name << " " << workers << " " << depth;
            loader.start_epoch(1);
            EXPECT_EQ(read(loader), second) << name << " " << workers << " " << depth;
          }
        }
      }
    }
  }
}

// Counts that the documents give. Workers lose no samples, whether the dataset is indexed or not.
TEST(BatchLoader, CountsOfTheDocuments) {
  for (const Dataset& dataset : {test::count_to(101), generated(101)}) {
    const LoaderOptions options{.batch = 4, .shuffle = Shuffle::kNo, .workers = 7};
    EXPECT_EQ(epoch_of(dataset, options).size(), 25U);
  }
  const BatchLoader training(test::count_to(60000), {.batch = 40 * 10 * 10});
  EXPECT_EQ(training.items(), 15);
  EXPECT_EQ(training.dropped(), 0);
  const BatchLoader inference(test::count_to(10000), {.batch = 8 * 100});
  EXPECT_EQ(inference.items(), 12);
  EXPECT_EQ(inference.dropped(), 400);
}

TEST(BatchLoader, KeepsTheRemainder) {
  for (const int workers : {0, 3}) {
    for (const Dataset& dataset : {test::count_to(7), generated(7)}) {
      BatchLoader loader(
          dataset,
          {.batch = 3, .shuffle = Shuffle::kNo, .workers = workers, .remainder = Remainder::kKeep});
      EXPECT_THAT(read(loader),
                  ElementsAre(ElementsAre(0, 1, 2), ElementsAre(3, 4, 5), ElementsAre(6)));
      EXPECT_EQ(loader.dropped(), dataset.size() ? std::optional<int64_t>(0) : std::nullopt);
    }
  }
  const BatchLoader few(test::count_to(2), {.batch = 3, .remainder = Remainder::kKeep});
  EXPECT_EQ(few.items(), 1);
}

TEST(BatchLoader, StartsAnywhere) {
  for (const int workers : {0, 2}) {
    for (const Dataset& dataset : {test::count_to(20), generated(20)}) {
      LoaderOptions options{.batch = 3, .shuffle = Shuffle::kNo, .workers = workers};
      BatchLoader loader(dataset, options);
      loader.start_epoch(4, 4);
      EXPECT_EQ(loader.position(), 4);
      EXPECT_THAT(read(loader), ElementsAre(ElementsAre(12, 13, 14), ElementsAre(15, 16, 17)));
      loader.start_epoch(5);
      loader.next();
      loader.start_epoch(5, 5);
      EXPECT_THAT(read(loader), ElementsAre(ElementsAre(15, 16, 17)));
      loader.start_epoch(7, 6);
      EXPECT_EQ(loader.next(), nullptr);
      loader.start_epoch(8);
      EXPECT_EQ(read(loader).size(), 6u);
    }
    LoaderOptions options{.batch = 3, .seed = 8, .workers = workers};
    const Items whole = epoch_of(test::count_to(20), options, 6);
    BatchLoader loader(test::count_to(20), options);
    loader.start_epoch(6, 2);
    EXPECT_EQ(read(loader), Items(whole.begin() + 2, whole.end()));
  }
}

TEST(BatchLoader, EachEpochOfAnOrderedDatasetReadsItsPass) {
  const Dataset shuffled = test::count_to(8).shuffle(1, 8);
  for (const int workers : {0, 2}) {
    BatchLoader loader(shuffled, {.batch = 8, .shuffle = Shuffle::kNo, .workers = workers});
    for (uint64_t epoch = 0; epoch < 4; ++epoch) {
      if (epoch > 0) loader.start_epoch(static_cast<int64_t>(epoch));
      EXPECT_EQ(read(loader).at(0), test::values(shuffled, kForever, epoch));
    }
  }
}

TEST(BatchLoader, AnEpochMayHaveNoEnd) {
  for (const int workers : {0, 4}) {
    BatchLoader loader(test::count_to(5).repeat(),
                       {.batch = 4, .shuffle = Shuffle::kNo, .workers = workers});
    EXPECT_EQ(loader.items(), kForever);
    EXPECT_EQ(loader.dropped(), 0);
    for (int i = 0; i < 100; ++i) {
      EXPECT_EQ(loader.next()->arrays[0].as<float>()[1], static_cast<float>((4 * i + 1) % 5));
    }
  }
}

TEST(BatchLoader, ErrorsArriveOnceAndInOrder) {
  const auto failing = [](Element e) -> Element {
    const float v = e.arrays[0].as<float>()[0];
    if (v == 9 || v >= 11) fail(ErrorKind::kBadFile, "sample {} is bad", v);
    return e;
  };
  const std::pair<Dataset, const char*> datasets[] = {
      {test::count_to(40).map(failing), "map computed element 9"},
      {generated(40).map(failing), "map computed element 9"},
      {generated(40).parallel_map(failing, 2), "map computed element 9"},
      {test::count_to(40).batch(1).map(failing), "map computed element 9"},
  };
  for (const auto& [dataset, text] : datasets) {
    for (const int workers : {0, 1, 16}) {
      BatchLoader loader(dataset, {.batch = 4, .shuffle = Shuffle::kNo, .workers = workers});
      for (int epoch = 0; epoch < 2; ++epoch) {
        loader.start_epoch(epoch);
        EXPECT_NE(loader.next(), nullptr);
        EXPECT_NE(loader.next(), nullptr);
        try {
          loader.next();
          ADD_FAILURE() << "no error";
        } catch (const Error& e) {
          EXPECT_EQ(to_string(e.kind()), to_string(ErrorKind::kBadFile));
          EXPECT_EQ(std::string(e.what()),
                    fmt::format("sample 9 is bad\n  while {}\n  while making item 2 of epoch {}",
                                text, epoch));
        }
        EXPECT_EQ(loader.next(), nullptr);
        EXPECT_EQ(loader.next(), nullptr);
      }
    }
  }
}

TEST(BatchLoader, RefusesBadOptionsAndData) {
  const Dataset d = test::count_to(9);
  const auto make = [](const Dataset& dataset, LoaderOptions options) {
    return [=] { BatchLoader loader(dataset, options); };
  };
  const auto pair = [](int64_t k) {
    if (k < 2) return Element{HostTensor::scalar(0), HostTensor::scalar(1)};
    return Element{HostTensor::scalar(0)};
  };
  BatchLoader loader(d, {.batch = 2});
  expect_refused({
      {"batch", make(d, {.batch = 0}), "loader: batch must be at least 1 sample, got 0"},
      {"workers", make(d, {.workers = 257}), "loader: workers must be in [0, 256], got 257"},
      {"workers", make(d, {.workers = -1}), "loader: workers must be in [0, 256], got -1"},
      {"depth", make(d, {.depth = 0}), "loader: depth must be in [1, 65536] items, got 0"},
      {"few", make(d, {.batch = 10}), "0 full batches: an item has 10 samples, the dataset has 9"},
      {"factors", make(d, {.batch = 4000, .factors = "m x D x N x R = 4000"}),
       "0 full batches: m x D x N x R = 4000, the dataset has 9"},
      {"none", make(d.take(0), {.batch = 1, .remainder = Remainder::kKeep}),
       "0 full batches: an item has 1 samples, the dataset has 0"},
      {"unknown size",
       [&] {
         BatchLoader l(generated(3), {.batch = 4, .shuffle = Shuffle::kNo});
         l.next();
       },
       "0 full batches: an item has 4 samples, the dataset has 3"},
      {"no end", make(d.repeat(), {.batch = 1}),
       "loader: a dataset to shuffle must have an end, got one without; use take(n)"},
      {"generator", make(generated(9), {.batch = 1}),
       "loader: a dataset to shuffle must have a known size, got one without; use cache()"},
      {"huge", make(test::count_to(int64_t{1} << 32), {.batch = 1}),
       "loader: a dataset to shuffle must have at most 4294967295 samples, got 4294967296"},
      {"smaller batch", make(d.batch(2, Remainder::kKeep), {.batch = 1}),
       "loader: all elements must have one shape"},
      {"i64", make(from_tensors(HostTensor({{4}, i64, {}})), {.batch = 1}),
       "loader: array 0 must have a dtype that devices have"},
      {"arrays", [&] { epoch_of(from_function(4, pair), {.batch = 4}); },
       "must have 2 arrays, got 1"},
      {"epoch", [&] { loader.start_epoch(-1); }, "loader: epoch must be at least 0, got -1"},
      {"item", [&] { loader.start_epoch(0, 5); }, "loader: item must be in [0, 4], got 5"},
      {"item", [&] { loader.start_epoch(0, -1); }, "loader: item must be in [0, 4], got -1"},
  });
}

// A slot is not filled again before the consumer asks for the next item.
TEST(BatchLoader, AnItemIsValidUntilTheNextCall) {
  sluice::test::LimitedCount made;
  const Dataset counted = test::count_to(64).map([&](Element e) {
    made.add();
    return e;
  });
  BatchLoader loader(counted, {.batch = 2, .shuffle = Shuffle::kNo, .workers = 4, .depth = 3});
  const int64_t first = made.count();  // Number of calls that computed the specs.
  for (int i = 0; i < 32; ++i) {
    const int slots = i + 3;  // The end of the epoch takes one.
    made.limit(first + 2 * (slots > 32 ? slots - 1 : slots));
    const Element* item = loader.next();
    ASSERT_TRUE(made.reaches_limit()) << "all other slots are full";
    EXPECT_EQ(item->arrays[0].as<float>()[0], 2 * i);
    EXPECT_EQ(item->arrays[0].as<float>()[1], 2 * i + 1);
  }
}

TEST(BatchLoader, WorkersReadIntoTheNextEpoch) {
  sluice::test::LimitedCount calls;
  const Dataset counted = test::count_to(8).map([&](Element e) {
    calls.add();
    return e;
  });
  BatchLoader loader(counted, {.batch = 4, .workers = 1, .depth = 3});
  EXPECT_EQ(calls.count(), 1);  // The first sample, for its specs.
  calls.limit(1 + 8);
  loader.next();
  EXPECT_TRUE(calls.reaches_limit()) << calls.count();
  calls.limit(1 + 16);
  read(loader);
  EXPECT_TRUE(calls.reaches_limit()) << calls.count();
  loader.start_epoch(1);
  EXPECT_EQ(read(loader).size(), 2u);
}

TEST(BatchLoader, WorksOnTheConsumersThreadWithoutWorkers) {
  const auto me = std::this_thread::get_id();
  const Dataset here = test::count_to(8).map([&](Element e) {
    EXPECT_EQ(std::this_thread::get_id(), me);
    return e;
  });
  BatchLoader loader(here, {.batch = 4});
  EXPECT_EQ(read(loader).size(), 2u);
}

TEST(BatchLoader, EndsAtAnyMoment) {
  for (int i = 0; i < 200; ++i) {
    const Dataset indexed = test::count_to(1000).map([](Element e) { return e; });
    BatchLoader loader(i % 2 == 0 ? indexed : indexed.shuffle(1, 10),
                       {.batch = 100, .shuffle = Shuffle::kNo, .workers = 1 + i % 4});
    for (int k = 0; k < i % 12; ++k) loader.next();
    if (i % 3 == 0) loader.start_epoch(i % 5);
    if (i % 7 == 0) loader.next();
  }
  // A long item is left after the sample in work. Each sample is slow, so that the item is not
  // complete before the destructor begins.
  std::atomic<int> calls = 0;
  {
    const Dataset slow = test::count_to(1'000'000).map([&](Element e) {
      ++calls;
      std::this_thread::sleep_for(std::chrono::microseconds(100));
      return e;
    });
    BatchLoader loader(slow, {.batch = 1'000'000, .shuffle = Shuffle::kNo, .workers = 2});
    loader.start_epoch(0);
  }
  EXPECT_LT(calls, 1'000'000);
}

TEST(BatchLoader, SteadyStateAllocatesNothing) {
  const Samples set = numbered(64);
  const Dataset both = zip({from_samples(set).skip(3), from_tensors({{"x", set.images}})});
  for (const int workers : {0, 2}) {
    BatchLoader loader(both.repeat(2), {.batch = 8, .seed = 3, .workers = workers});
    while (loader.next() != nullptr) {
    }
    const int64_t before = test::allocations;
    for (int64_t epoch = 1; epoch < 4; ++epoch) {
      loader.start_epoch(epoch);
      while (loader.next() != nullptr) {
      }
    }
    EXPECT_EQ(test::allocations - before, 0);
  }
}

}  // namespace
}  // namespace sluice::data
