#include "sluice/report/forecast/rates.h"

#include <gtest/gtest.h>

#include <cmath>

#include "sluice/base/error.h"
#include "sluice/exe/test_plans.h"
#include "sluice/report/forecast/forecast.h"

namespace sluice::report {
namespace {

Rates measured() {
  Rates r{.threads = 2,
          .flops = 40e9,
          .copies = 6e9,
          .remote = 1e9,
          .messages = 3e9,
          .latency = 1e-6,
          .kernel_begin = 2e-7,
          .together = 0.75};
  r.kernels["MatMul"] = {{1, 4e9}, {100, 16e9}};
  r.caches = {{1 << 15, 48e9}, {1 << 20, 24e9}};
  r.cluster = Cluster{Cluster::Order::kDevices, {{8, 2e9, 2e-6}, {64, 1e9, 3e-6}}, 20};
  r.cluster->pairs = {{1, 19, 3, 5e8, 4e-6}, {8, 0, 2, 6e8, 5e-6}};
  return r;
}

TEST(Rates, KernelsHaveTheRateOfTheirIntensity) {
  const Rates r = measured();
  EXPECT_DOUBLE_EQ(r.flops_of("MatMul", 1), 4e9);
  EXPECT_DOUBLE_EQ(r.flops_of("MatMul", 100), 16e9);
  // The geometric mean of the intensities has the geometric mean of the rates.
  EXPECT_NEAR(r.flops_of("MatMul", 10), 8e9, 1);
  EXPECT_DOUBLE_EQ(r.flops_of("MatMul", 0), 4e9);
  EXPECT_DOUBLE_EQ(r.flops_of("MatMul", 1e9), 16e9);
  EXPECT_EQ(r.flops_of("Add", 1), 0);
}

TEST(Rates, AClassIsTheFirstOpWithItsTransposesOrFewChannels) {
  exe::Kernel kernel{.op = "MatMul+Add", .stages = {{.op = "MatMul"}, {.op = "Add"}}};
  kernel.operands.push_back({.spec = {{8, 4}, f32, {}}});
  EXPECT_EQ(kernel_class(kernel), "MatMul");
  kernel.stages[0].attrs.items = {{"lhs_transposed", false}, {"rhs_transposed", true}};
  EXPECT_EQ(kernel_class(kernel), "MatMul rhs transposed");
  exe::Kernel conv{.op = "Conv"};
  conv.operands.push_back({.spec = {{40, 15, 8, 8}, f32, {}}});
  EXPECT_EQ(kernel_class(conv), "Conv narrow");
  conv.operands[0].spec.shape = {8, 16, 8, 8};
  EXPECT_EQ(kernel_class(conv), "Conv");
  conv.op = "ConvWeightGrad";
  EXPECT_EQ(kernel_class(conv), "ConvWeightGrad narrow");
}

TEST(Rates, CopiesHaveTheRateOfTheSmallestCacheThatHoldsThem) {
  const Rates r = measured();
  EXPECT_EQ(r.copies_of(1 << 15), 48e9);
  EXPECT_EQ(r.copies_of((1 << 15) + 1), 24e9);
  EXPECT_EQ(r.copies_of(1 << 21), 6e9);
  EXPECT_EQ(r.copies_of(HUGE_VAL), 6e9);
}

TEST(Rates, AFileHasAllRates) {
  Rates rates = measured();
  EXPECT_EQ(read_rates(to_json(rates), "m"), rates);
  rates.cluster = Cluster{};
  EXPECT_EQ(read_rates(to_json(rates), "m"), rates);
  rates.cluster.reset();
  EXPECT_EQ(read_rates(to_json(rates), "m"), rates);
}

// Replaces a part of the file and returns the error.
std::string error_with(const std::string& part, const std::string& other) {
  std::string text = to_json(measured());
  const size_t at = text.find(part);
  EXPECT_NE(at, std::string::npos) << part;
  text.replace(at, part.size(), other);
  try {
    read_rates(text, "m.json");
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kBadFile);
    return e.what();
  }
  return "";
}

TEST(Rates, DamagedFilesAreRefused) {
  const auto expect = [](const char* part, const char* other, const char* why) {
    EXPECT_NE(error_with(part, other).find(why), std::string::npos) << error_with(part, other);
  };
  expect("{", "[", "not the description of a machine");
  expect("sluice machine", "other", "not the description of a machine");
  expect("\"version\": 1", "\"version\": 2", "version must be 1");
  expect("\"flops\": 40", "\"flop\": 40", "no field 'flops'");
  expect("\"latency\"", "\"more\": 1, \"latency\"", "unknown field 'more'");
  expect("\"copies\": 6", "\"copies\": -6", "'copies' must be from");
  expect("\"together\": 0.75", "\"together\": 1.5", "'together' must be from 0.001 to 1, got 1.5");
  expect("\"threads\": 2", "\"threads\": 2.5", "whole number");
  expect("\"threads\": 2", "\"threads\": \"2\"", "'threads' must be a number");
  expect("\"intensity\": 1.0", "\"intensity\": 100.0", "'MatMul' must ascend by 'intensity'");
  expect("\"bytes\": 32768", "\"bytes\": 1048576", "'caches' must ascend by 'bytes'");
  expect("\"order\": \"devices\"", "\"order\": 1",
         "'order' must be \"replicas\" or \"devices\", got 1");
  expect("\"order\"", "\"orders\"", "cluster has no field 'order'");
  expect("\"devices\": 64", "\"devices\": 60", "of a level must be a larger multiple of 8, got 60");
  expect("\"devices\": 64", "\"devices\": 8", "of a level must be a larger multiple of 8, got 8");
  expect("\"devices\": 8,", "\"devices\": 1,", "'devices' must be from 2 to 1e+09, got 1");
  expect("\"messages\": 1000000000.0", "\"messages\": 2000000001.0",
         "must not be faster than the level inside it: 2e+09 B/s and 2e-06 s, got 2e+09 B/s");
  expect("\"latency\": 3e-06", "\"latency\": 1e-06", "must not be faster than the level inside");
  expect("\"devices\": 8,", "\"devices\": 8.5,", "'devices' must be a whole number, got 8.5");
  expect("\"devices\": 20", "\"devices\": 0", "'devices' must be from 1 to 1e+09, got 0");
  expect("\"devices\": 20,", "", "cluster has no field 'devices'");
  expect("\"pairs\": [", "\"pairs\": [1,", "'pairs' must have objects");
  expect("\"devices\": 1,", "\"devices\": 2,", "must be 1 or those of a level of 'links', got 2");
  expect("19,\n", "20,\n", "two indices from 0 to 19 of groups of 1 devices, got [20,3]");
  expect("19,\n", "-1,\n", "two indices from 0 to 19 of groups of 1 devices, got [-1,3]");
  expect("19,\n", "1.5,\n", "two indices from 0 to 19 of groups of 1 devices, got [1.5,3]");
  expect("19,\n", "\n", "two indices from 0 to 19 of groups of 1 devices, got [3]");
  expect("19,\n", "3,\n", "'between' must be two different indices, got [3,3]");
  const std::string pair = R"({"devices": 1, "messages": 1, "latency": 0, "between": [3, 19]},)";
  expect("\"pairs\": [", ("\"pairs\": [" + pair).c_str(), "[19,3] of groups of 1 devices twice");
  expect("\"messages\": 500000000.0", "\"messages\": 0", "'messages' must be from 0.001");
  expect("\"latency\": 4e-06", "\"latency\": -1", "'latency' must be from 0 to");
  expect("\"links\": [", "\"links\": [1,", "'links' must have objects");
}

// A kernel of the plan reads 64 bytes and writes 64 bytes; each has been touched 128 bytes before.
TEST(Rates, AForecastKnowsCachesAndTheBeginOfAKernel) {
  const exe::Executable e = exe::plans::plan(exe::plans::overlapped_loop());
  Rates rates{.threads = 2, .flops = 1e30, .copies = 64, .remote = 1e30};
  const double cold = forecast(e, rates)[0].seconds;
  rates.caches = {{1 << 20, 128}};
  const double warm = forecast(e, rates)[0].seconds;
  EXPECT_NEAR(cold, 6 * 0.5, 1e-9);
  EXPECT_NEAR(warm, 6 * 0.25, 1e-9);
  rates.kernel_begin = 1;
  EXPECT_NEAR(forecast(e, rates)[0].seconds, warm + 6, 1e-9);
  rates.kernel_begin = 0;
  rates.together = 0.5;  // Two workers share each kernel.
  EXPECT_NEAR(forecast(e, rates)[0].seconds, 2 * warm, 1e-9);
}

}  // namespace
}  // namespace sluice::report
