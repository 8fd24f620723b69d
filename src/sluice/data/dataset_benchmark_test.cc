#include <gtest/gtest.h>

#include "sluice/base/test_refusals.h"
#include "sluice/data/test_elements.h"

namespace sluice::data {
namespace {

TEST(DatasetBenchmark, MeasuresEachEpoch) {
  const Dataset d = from_tensors({test::filled({8, 4, 4}, 1), test::filled({8}, 2)}).repeat();
  for (const bool copy : {false, true}) {
    const BenchmarkResult result =
        dataset_benchmark(d, {.epochs = 10, .elements = 100, .copy = copy});
    EXPECT_EQ(result.requested, 1000);
    EXPECT_EQ(result.produced, 1000);
    ASSERT_EQ(result.epochs.size(), 10U);
    for (const BenchmarkEpoch& epoch : result.epochs) {
      EXPECT_EQ(epoch.elements_processed, 100);
      EXPECT_EQ(epoch.total_bytes_processed, 100 * (64 + 4));
      EXPECT_GT(epoch.time_elapsed, 0);
      EXPECT_GT(epoch.elements_per_second, 0);
      EXPECT_GT(epoch.bandwidth, 0);
      EXPECT_LE(epoch.p50, epoch.p99);
      EXPECT_LE(epoch.p99, epoch.time_elapsed);
    }
  }
}

TEST(DatasetBenchmark, ReportsDataThatIsShort) {
  const BenchmarkResult result = dataset_benchmark(test::count_to(7), {.epochs = 4, .elements = 5});
  EXPECT_EQ(result.requested, 20);
  EXPECT_EQ(result.produced, 7);
  ASSERT_EQ(result.epochs.size(), 4U);
  EXPECT_EQ(result.epochs[1].elements_processed, 2);
  EXPECT_EQ(result.epochs[2].elements_processed, 0);
  EXPECT_EQ(result.epochs[2].bandwidth, 0);
}

TEST(DatasetBenchmark, WritesTheDocumentedNames) {
  BenchmarkResult result;
  EXPECT_EQ(result.to_json(), "{\"epochs\": [], \"requested\": 0, \"produced\": 0}");
  result = {.epochs = {{10, 640, 0.5, 20, 1.28e-6, 0, 0}, {}}, .requested = 20, .produced = 10};
  EXPECT_EQ(result.to_json(),
            "{\"epochs\": [{\"elements_processed\": 10, \"total_bytes_processed\": 640, "
            "\"time_elapsed\": 0.5, \"elements_per_second\": 20, \"bandwidth\": 1.28e-06}, "
            "{\"elements_processed\": 0, \"total_bytes_processed\": 0, \"time_elapsed\": 0, "
            "\"elements_per_second\": 0, \"bandwidth\": 0}], \"requested\": 20, "
            "\"produced\": 10}");
}

TEST(DatasetBenchmark, RefusesBadOptionsAndEmptyArrays) {
  const Dataset d = test::count_to(7);
  expect_refused({
      {"epochs", [&] { dataset_benchmark(d, {.epochs = 0}); },
       "epochs must be in [1, 1000000], got 0"},
      {"elements", [&] { dataset_benchmark(d, {.elements = 0}); },
       "elements must be at least 1, got 0"},
      {"product", [&] { dataset_benchmark(d, {.epochs = 3, .elements = kForever}); },
       "must fit 63 bits"},
      {"zero",
       [&] {
         dataset_benchmark(from_tensors(HostTensor({{2, 0}, f32, {}})));
       },
       "dimensions must be at least 1, got (0,) float32"},
      {"user", [&] { dataset_benchmark(d.map([](Element) -> Element { throw 1; })); }, "element 0"},
  });
}

}  // namespace
}  // namespace sluice::data
