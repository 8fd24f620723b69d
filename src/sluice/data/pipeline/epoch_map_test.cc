// A map that reads the epoch has the results of one loop over (epoch, index, seed), wherever it is.

#include <gtest/gtest.h>

#include <chrono>
#include <set>
#include <thread>

#include "sluice/base/test_refusals.h"
#include "sluice/data/pipeline/test_indexed.h"

namespace sluice::data {
namespace {

using Numbers = std::vector<int64_t>;

/// The numbers of element `value`: the reference of noted().
Numbers noted_numbers(int64_t value, int64_t epoch, int64_t index, uint32_t seed) {
  const Seed key = fold(fold(fold(Seed{0, seed}, "map"), static_cast<uint64_t>(epoch)),
                        static_cast<uint64_t>(index));
  return {value, epoch, index, static_cast<int32_t>(random_bits(key, 0))};
}

/// Adds to an element its epoch, its index and a random word. Sleeps for different times.
Element noted(Element e, const ElementContext& c) {
  std::this_thread::sleep_for(std::chrono::microseconds(random_bits(c.key, 1) % 60));
  const auto value = static_cast<int32_t>(e[0].to_doubles()[0]);
  const auto word = static_cast<int32_t>(random_bits(c.key, 0));
  return HostTensor::of<int32_t>(
      {4}, i32, {value, static_cast<int32_t>(c.epoch), static_cast<int32_t>(c.index), word});
}

Numbers numbers_of(const HostTensor& array) {
  const auto values = array.as<int32_t>();
  return {values.begin(), values.end()};
}

/// The numbers of a pass of elements that noted() made, one after the other.
Numbers noted_pass(const Dataset& dataset, uint64_t pass = 0, int64_t max = kForever) {
  Numbers all;
  Iterator iterator = dataset.iterate(pass);
  while (iterator.position() < max) {
    const std::optional<Element> element = iterator.next();
    if (!element) break;
    const Numbers numbers = numbers_of((*element)[0]);
    all.insert(all.end(), numbers.begin(), numbers.end());
  }
  return all;
}

/// The numbers of epochs `first` to first + epochs - 1 of n elements.
Numbers expected_epochs(int64_t n, int64_t first, int64_t epochs, uint32_t seed) {
  Numbers all;
  for (int64_t epoch = first; epoch < first + epochs; ++epoch) {
    for (int64_t k = 0; k < n; ++k) {
      const Numbers numbers = noted_numbers(k, epoch, k, seed);
      all.insert(all.end(), numbers.begin(), numbers.end());
    }
  }
  return all;
}

TEST(EpochMap, APassIsItsEpoch) {
  for (const int workers : {0, 1, 4}) {
    const Dataset mapped = test::count_to(9).parallel_map(noted, workers, {.seed = 5});
    for (const int64_t pass : {0, 1, 7}) {
      const auto p = static_cast<uint64_t>(pass);
      EXPECT_EQ(noted_pass(mapped, p), expected_epochs(9, pass, 1, 5));
      EXPECT_EQ(noted_pass(mapped.prefetch(2), p), expected_epochs(9, pass, 1, 5));
      EXPECT_EQ(noted_pass(mapped.repeat(3), p), expected_epochs(9, 3 * pass, 3, 5));
      EXPECT_EQ(noted_pass(mapped.repeat(3).repeat(2), p), expected_epochs(9, 6 * pass, 6, 5));
      EXPECT_EQ(noted_pass(mapped.repeat(), p, 36), expected_epochs(9, pass, 4, 5));
    }
    EXPECT_NE(noted_pass(mapped), noted_pass(test::count_to(9).map(noted, {.seed = 6})));
  }
  // The index counts the elements of the map's input: those that a buffer shuffled, or batches.
  Numbers batches;
  for (const int64_t k : {0, 1, 2}) {
    for (const int64_t number : noted_numbers(2 * k, 1, k, 0)) batches.push_back(number);
  }
  EXPECT_EQ(noted_pass(test::count_to(6).batch(2).map(noted), 1), batches);
  const Numbers skipped = noted_pass(test::count_to(6).skip(4).map(noted, {.seed = 2}), 3);
  Numbers expected = noted_numbers(4, 3, 0, 2);
  for (const int64_t number : noted_numbers(5, 3, 1, 2)) expected.push_back(number);
  EXPECT_EQ(skipped, expected);
}

// Two maps with one key would draw equal numbers; the key depends on all that it names.
TEST(EpochMap, KeysDiffer) {
  std::set<int64_t> words;
  for (const uint64_t seed : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 32}) {
    const Dataset mapped = test::count_to(10).map(noted, {.seed = seed}).repeat(10);
    const Numbers all = noted_pass(mapped);
    for (size_t i = 3; i < all.size(); i += 4) words.insert(all[i]);
  }
  EXPECT_EQ(words.size(), 300u);
}

TEST(EpochMap, ElementsOfAnyPassAreMadeByTheirNumbers) {
  const Dataset mapped = test::count_to(7).map(noted, {.seed = 3});
  const Dataset other = test::count_to(9).map([](Element e) { return e; });
  const Dataset datasets[] = {
      mapped,
      mapped.repeat(3),
      mapped.repeat(2).repeat(2).skip(3).take(20),
      mapped.parallel_map(noted, 2),
      zip({mapped, other}),
      mapped.batch(3, Remainder::kKeep),
      mapped.prefetch(2),
  };
  for (const Dataset& dataset : datasets) {
    EXPECT_TRUE(dataset.node()->varies_by_epoch());
    test::expect_indexed("epoch map", dataset, {0, 1, 4});
  }
}

/// The numbers of all samples of an epoch of a loader, from item `item`.
Numbers noted_epoch(BatchLoader& loader, int64_t epoch, int64_t item = 0) {
  Numbers all;
  loader.start_epoch(epoch, item);
  while (const Element* made = loader.next()) {
    const Numbers numbers = numbers_of(made->arrays[0]);
    all.insert(all.end(), numbers.begin(), numbers.end());
  }
  return all;
}

// The epoch of a loader reaches the map, whatever the workers, the items in memory and the item
// that the epoch starts at.
TEST(EpochMap, ALoaderNumbersTheEpochs) {
  const Dataset indexed = test::count_to(25).map(noted, {.seed = 4});
  for (const int workers : {0, 1, 4}) {
    for (const int depth : {1, 3}) {
      for (const Shuffle shuffle : {Shuffle::kNo, Shuffle::kYes}) {
        BatchLoader loader(
            indexed,
            {.batch = 4, .shuffle = shuffle, .seed = 9, .workers = workers, .depth = depth});
        for (const auto& [epoch, item] :
             {std::pair{0, 0}, {1, 0}, {2, 0}, {7, 2}, {1, 5}, {2, 0}}) {
          std::vector<uint32_t> order(25);
          for (uint32_t k = 0; k < 25; ++k) order[k] = k;
          if (shuffle == Shuffle::kYes) shuffled_order(9, epoch, order);
          Numbers expected;
          for (size_t k = 4 * static_cast<size_t>(item); k < 24; ++k) {
            const Numbers numbers = noted_numbers(order[k], epoch, order[k], 4);
            expected.insert(expected.end(), numbers.begin(), numbers.end());
          }
          EXPECT_EQ(noted_epoch(loader, epoch, item), expected) << epoch << " " << item;
        }
      }
    }
  }
}

TEST(EpochMap, ALoaderInOrderReadsThePassOfADatasetThatIsNotIndexed) {
  const Dataset shuffled = test::count_to(8).shuffle(1, 8).map(noted);
  for (const int workers : {0, 2}) {
    BatchLoader loader(shuffled, {.batch = 4, .shuffle = Shuffle::kNo, .workers = workers});
    for (const int64_t epoch : {0, 1, 5})
      EXPECT_EQ(noted_epoch(loader, epoch), noted_pass(shuffled, static_cast<uint64_t>(epoch)));
  }
  BatchLoader endless(test::count_to(4).map(noted).repeat(),
                      {.batch = 2, .shuffle = Shuffle::kNo, .workers = 2});
  Numbers read;
  for (int i = 0; i < 6; ++i) {
    const Numbers numbers = numbers_of(endless.next()->arrays[0]);
    read.insert(read.end(), numbers.begin(), numbers.end());
  }
  EXPECT_EQ(read, expected_epochs(4, 0, 3, 0));
}

TEST(EpochMap, RefusesToStoreElementsOfOneEpoch) {
  const Dataset mapped = test::count_to(8).map(noted);
  const auto throwing = [](Element e, const ElementContext& c) {
    if (c.epoch == 1 && c.index == 2) throw std::runtime_error("two");
    return e;
  };
  ElementSpecs wrong = {.arrays = {{{2}, f32, {}}}};
  expect_refused({
      {"cache", [&] { mapped.batch(2).cache(); },
       "cache: must store elements that all epochs share, got a map that reads the epoch"},
      {"loader", [&] { BatchLoader loader(mapped.shuffle(1, 8), {.batch = 2}); },
       "loader: a dataset to shuffle must be indexed if a map reads the epoch"},
      {"empty", [&] { mapped.map(Dataset::EpochMap()); }, "map: the function must be callable"},
      {"no workers", [&] { mapped.parallel_map(noted, -1); }, "must be in [0, 256], got -1"},
      {"no arrays", [&] { mapped.map(noted, {.specs = ElementSpecs{}}); }, "at least one array"},
      {"specs", [&] { noted_pass(mapped.map(noted, {.specs = wrong})); },
       "element: must be (2,) float32, got (4,) int32"},
      {"throws", [&] { noted_pass(mapped.map(throwing).repeat()); },
       "map: the function for element 2 must not throw, got the exception: two"},
  });
  EXPECT_EQ(mapped.map(noted, {.specs = wrong}).element_specs(), wrong);
}

}  // namespace
}  // namespace sluice::data
