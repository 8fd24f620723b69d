#include "tools/data/divide.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "sluice/base/numbers/slices.h"
#include "sluice/data/dataset.h"
#include "sluice/data/files/shown.h"

namespace sluice::tool {
namespace {

constexpr uint64_t kOrderSeed = 0;  // The order in which samples are divided.
constexpr double kUsualValidation = 0.1;

// The rows of an array, in this order.
HostTensor gathered(const HostTensor& array, std::span<const int64_t> rows) {
  const std::vector<int64_t>& dims = array.shape().dims();
  HostTensor result(
      {with_rows(std::ssize(rows), Shape({dims.begin() + 1, dims.end()})), array.dtype(), {}});
  const Slices from(array.bytes(), dims[0]);
  auto to = result.bytes().begin();
  for (const int64_t row : rows) to = std::ranges::copy(from[row], to).out;
  return result;
}

HostTensor joined(const HostTensor& a, const HostTensor& b) {
  std::vector<int64_t> dims = a.shape().dims();
  dims[0] += b.shape()[0];
  HostTensor result({Shape(std::move(dims)), a.dtype(), {}});
  const auto middle = std::copy(a.bytes().begin(), a.bytes().end(), result.bytes().begin());
  std::copy(b.bytes().begin(), b.bytes().end(), middle);
  return result;
}

// Error{kUsage} unless the training samples have two classes, so that there is something to learn.
void check_several_classes(const UserData& data) {
  const auto labels = data.train.labels.as<int32_t>();
  if (labels.empty()) return;
  const bool several =
      std::any_of(labels.begin(), labels.end(), [&](int32_t label) { return label != labels[0]; });
  require(several,
          "--target: must have at least 2 classes to train on, got class {} alone in {} samples",
          data.schema && !data.schema->labels.empty()
              ? data::printable(at(data.schema->labels, labels[0]))
              : std::to_string(labels[0]),
          labels.size());
}

}  // namespace

Shape with_rows(int64_t rows, const Shape& sample) {
  std::vector<int64_t> dims{rows};
  dims.insert(dims.end(), sample.begin(), sample.end());
  return Shape(std::move(dims));
}

data::Samples gathered(const data::Samples& samples, std::span<const int64_t> rows) {
  return {gathered(samples.images, rows), gathered(samples.labels, rows), samples.source};
}

data::Samples joined(const data::Samples& a, const data::Samples& b) {
  return {joined(a.images, b.images), joined(a.labels, b.labels), a.source};
}

Parts divide(int64_t all, const DataChoice& choice) {
  const data::Dataset rows =
      data::from_function(all, [](int64_t k) { return HostTensor::of<int64_t>({}, i64, {k}); });
  const double share = choice.test_all ? 1 : choice.validation.value_or(kUsualValidation);
  const auto tests = static_cast<int64_t>(std::llround(static_cast<double>(all) * share));
  require(choice.test_all || (tests >= 1 && tests < all),
          "--validation: must leave samples to train and to test on, got {} of {} samples to test",
          tests, all);
  Parts parts;
  for (const data::Element& e : choice.test_all ? rows : rows.shuffle(kOrderSeed, all)) {
    const bool trains = std::ssize(parts.train) < all - tests;
    (trains ? parts.train : parts.test).push_back(e[0].as<int64_t>()[0]);
  }
  return parts;
}
void count_classes(const DataChoice& choice, UserData& data) {
  const int64_t all = data.train.size() + data.test.size();
  if (choice.loss == models::Loss::kMeanSquaredError) {
    const data::Samples& samples = data.test;
    data.classes = samples.size() == 0 ? 0 : samples.labels.elements() / samples.size();
    require(data.classes >= 1, "--target: must have at least one number for each sample, got none");
    return;
  }
  for (const data::Samples* part : {&data.train, &data.test}) {
    for (const int32_t label : part->labels.as<int32_t>())
      data.classes = std::max<int64_t>(data.classes, label + 1);
  }
  if (data.schema) data.classes = std::max(data.classes, data.schema->classes);
  require(data.classes <= all || choice.schema,
          "--target: labels must be below the number of samples, {}, got {}", all,
          data.classes - 1);
  if (choice.trains) check_several_classes(data);
}

}  // namespace sluice::tool
