#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <latch>
#include <stdexcept>
#include <thread>

#include "sluice/base/test_refusals.h"
#include "sluice/data/test_elements.h"
#include "sluice/data/test_wait.h"

namespace sluice::data {
namespace {

using test::count_to;
using test::read_all;
using test::values;
using Values = std::vector<float>;

/// A map whose calls take times that do not grow with the element's number.
Element slow_square(Element e) {
  float& x = e[0].as<float>()[0];
  std::this_thread::sleep_for(std::chrono::microseconds((static_cast<int>(x) * 7919) % 300));
  x *= x;
  return e;
}

TEST(Parallel, TheOrderDoesNotDependOnWorkersOrDepth) {
  const Dataset input = count_to(100).shuffle(3, 40).repeat(2);
  const Values expected = values(input.map(slow_square));
  for (const int workers : {0, 1, 4, 16}) {
    for (const int64_t depth : {1, 3, 500}) {
      EXPECT_EQ(values(input.parallel_map(slow_square, workers).prefetch(depth)), expected)
          << workers << " workers, depth " << depth;
    }
  }
  // The threads of one combinator read from the threads of another one.
  EXPECT_EQ(values(input.prefetch(2).parallel_map(slow_square, 4).prefetch(1).batch(7).prefetch(3)),
            values(input.map(slow_square).batch(7)));
}

TEST(Parallel, FunctionsRunAtTheSameTime) {
  std::latch all(4);
  const auto wait = [&](Element e) {
    all.arrive_and_wait();  // Returns only if four calls run at once.
    return e;
  };
  EXPECT_EQ(values(count_to(4).parallel_map(wait, 4)).size(), 4U);
}

TEST(Parallel, ThreadsReadAheadByALimitedNumberOfElements) {
  // The maximum number of elements that are made and not yet read.
  const auto expect_ahead = [](int64_t max, const std::function<Dataset(Dataset)>& with_threads) {
    sluice::test::LimitedCount made(max);
    const Dataset counted = from_function(kForever, [&](int64_t k) {
      made.add();
      return HostTensor::scalar(static_cast<float>(k));
    });
    Iterator iterator = with_threads(counted).iterate();
    for (int64_t read = 0; read < 50; ++read) {
      ASSERT_TRUE(made.reaches_limit()) << made.count() << " made, " << read << " read";
      made.limit(max + read + 1);
      iterator.next();
    }
  };
  expect_ahead(5, [](const Dataset& d) { return d.prefetch(5); });
  expect_ahead(6, [](const Dataset& d) { return d.parallel_map(slow_square, 3); });
}

TEST(Parallel, IteratorsMayEndInFlight) {
  const Dataset forever =
      from_function(kForever, [](int64_t k) { return HostTensor::scalar(static_cast<float>(k)); });
  for (int64_t read = 0; read < 40; ++read) {
    const Dataset d = forever.prefetch(1 + read % 3)
                          .parallel_map(slow_square, static_cast<int>(1 + read % 8))
                          .batch(2)
                          .prefetch(2);
    EXPECT_EQ(static_cast<int64_t>(values(d, read % 5).size()), read % 5);
  }
}

TEST(Parallel, SeveralThreadsMayReadOneDataset) {
  const Dataset d = count_to(50).cache().parallel_map(slow_square, 2).shuffle(1, 8);
  const Values expected = values(d);
  std::vector<Values> found(4);
  {
    std::vector<std::jthread> threads;
    for (Values& v : found) threads.emplace_back([&] { v = values(d); });
  }
  for (const Values& v : found) EXPECT_EQ(v, expected);
}

/// A function that fails at element `number`, by an Error or by another exception.
Dataset::Map failing(float number, bool is_error) {
  return [=](Element e) {
    if (e[0].as<float>()[0] == number && is_error) fail(ErrorKind::kDiverged, "mine");
    if (e[0].as<float>()[0] == number) throw std::runtime_error("yours");
    return e;
  };
}

TEST(Parallel, ErrorsArriveOnceWithTheNumberOfTheElement) {
  const auto same = [](Element e) { return e; };
  for (const int64_t k : {0, 1, 10, 29}) {
    const float number = static_cast<float>(k);
    for (const int workers : {0, 1, 4, 16}) {
      const Dataset d = count_to(30).parallel_map(failing(number, true), workers);
      const std::string expected = fmt::format("mine\n  while map computed element {}", k);
      EXPECT_EQ(read_all(d), std::pair(k, expected)) << workers;
      EXPECT_EQ(read_all(d.prefetch(4)), std::pair(k, expected));
      EXPECT_EQ(read_all(d.parallel_map(same, workers)), std::pair(k, expected));
      EXPECT_EQ(read_all(d.map(same).take(30).skip(0).repeat()), std::pair(k, expected));
      EXPECT_EQ(read_all(d.cache()), std::pair(k, expected));
      EXPECT_EQ(read_all(d.batch(1).prefetch(2)), std::pair(k, expected));
      EXPECT_EQ(read_all(zip({d, count_to(30)})), std::pair(k, expected));
      EXPECT_EQ(read_all(d.shuffle(1, 1)), std::pair(k, expected));
      EXPECT_EQ(read_all(d.shuffle(1, 99)), std::pair(int64_t{0}, expected));
      EXPECT_EQ(read_all(count_to(30).parallel_map(failing(number, false), workers)).second,
                fmt::format("map: the function for element {} must not throw, got the exception: "
                            "yours",
                            k));
    }
  }
}

TEST(Parallel, ErrorsOfSourcesArriveOnce) {
  const auto source = [](int64_t k) -> Element {
    if (k == 6) throw 42;  // NOLINT: any exception
    return HostTensor::scalar(1);
  };
  const Dataset d = from_function(9, source);
  const std::string expected =
      "from_function: the function for element 6 must not throw, got an exception";
  const auto same = [](Element e) { return e; };
  for (const Dataset& tested : {d, d.prefetch(3), d.parallel_map(same, 4),
                                d.prefetch(1).parallel_map(same, 16).prefetch(2)}) {
    EXPECT_EQ(read_all(tested), std::pair(int64_t{6}, expected));
  }
  const Dataset generated = from_generator([]() -> Generator { throw std::logic_error("make"); });
  EXPECT_EQ(read_all(generated.prefetch(1)).second,
            "from_generator: the function for element 0 must not throw, got the exception: make");
}

TEST(Parallel, AnErrorInOnePassLeavesTheDatasetUsable) {
  std::atomic<bool> fails = true;
  const Dataset d = count_to(8)
                        .parallel_map(
                            [&](Element e) {
                              if (fails) fail(ErrorKind::kUsage, "not yet");
                              return e;
                            },
                            4)
                        .cache();
  EXPECT_EQ(read_all(d).first, 0);
  fails = false;
  EXPECT_EQ(read_all(d), std::pair(int64_t{8}, std::string()));
}

}  // namespace
}  // namespace sluice::data
