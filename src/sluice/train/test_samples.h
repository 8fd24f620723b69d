#pragma once
#include <cmath>

#include "sluice/data/dataset.h"
#include "sluice/train/options.h"
#include "sluice/transforms/autodiff.h"

/// Samples that tests of trainings share: `kFeatures` features and one of `kClasses` labels.
namespace sluice::test {

inline constexpr int64_t kMicroBatch = 2, kFeatures = 6, kClasses = 3;

/// Returns samples [first, first + n) as the fields "input" and "labels".
inline data::Element samples(int64_t n, int64_t first = 0) {
  HostTensor x({{n, kFeatures}, f32, {}}), labels({{n}, i32, {}});
  auto next = static_cast<float>(first * kFeatures);
  for (float& v : x.as<float>()) v = std::sin(next += 1);
  for (int64_t i = 0; i < n; ++i)
    at(labels.as<int32_t>(), i) = static_cast<int32_t>((first + i) % kClasses);
  return {{"input", std::move(x)}, {"labels", std::move(labels)}};
}

/// Returns the first `n` samples as a dataset.
inline data::Dataset dataset(int64_t n) {
  const data::Element all = samples(n);
  return data::from_tensors({{"input", all["input"]}, {"labels", all["labels"]}});
}

inline constexpr train::Schedule kSchedules[] = {
    train::Schedule::kGrouped, train::Schedule::kInterleaved, train::Schedule::kSequential};
inline constexpr train::Accumulation kAccumulations[] = {
    train::Accumulation::kSum, train::Accumulation::kMean, train::Accumulation::kRunningMean};

}  // namespace sluice::test
