#include "tools/data/divide.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "sluice/base/error.h"
#include "sluice/data/files/shown.h"

namespace sluice::tool {
namespace {

constexpr uint64_t kOrderSeed = 0;  // The order in which samples are divided.
constexpr double kUsualValidation = 0.1;
constexpr int64_t kMaxHeldBytes = int64_t{16} << 20;

// Error{kUsage} unless the training samples have two classes, so that there is something to learn.
void check_several_classes(const LabelRange& labels, const UserData& data) {
  if (!labels.first) return;
  require(labels.several,
          "--target: must have at least 2 classes to train on, got class {} alone in {} samples",
          data.schema && !data.schema->labels.empty()
              ? data::printable(at(data.schema->labels, *labels.first))
              : std::to_string(*labels.first),
          data.train.size);
}

}  // namespace

void LabelRange::add(int32_t label, bool trains) {
  largest = std::max<int64_t>(largest, label);
  if (!trains) return;
  if (!first) first = label;
  several = several || label != *first;
}

Parts divide(int64_t all, const DataChoice& choice) {
  const double share = choice.test_all ? 1 : choice.validation.value_or(kUsualValidation);
  const auto tests = static_cast<int64_t>(std::llround(static_cast<double>(all) * share));
  require(choice.test_all || (tests >= 1 && tests < all),
          "--validation: must leave samples to train and to test on, got {} of {} samples to test",
          tests, all);
  if (choice.test_all) return {};
  Parts parts{data::shuffled_rows(kOrderSeed, all), all - tests};
  parts.trains.resize(static_cast<size_t>(all));
  for (int64_t k = 0; k < parts.trained; ++k) parts.trains[at(*parts.order, k)] = true;
  return parts;
}

UserSamples user_samples(const data::Dataset& samples) {
  const int64_t size = samples.size().value_or(0);
  int64_t bytes = 0;
  const data::ElementSpecs specs = *samples.element_specs();
  for (const TensorSpec& spec : specs.arrays) bytes += spec.bytes();
  const bool is_small = size == 0 || bytes <= kMaxHeldBytes / size;
  return {is_small ? data::hold_rows(samples) : samples, size};
}

void set_parts(const data::Dataset& all, const Parts& parts, UserData& data) {
  if (parts.order == nullptr) {
    data.test = user_samples(all);
    return;
  }
  const int64_t rows = std::ssize(*parts.order);
  data.train = user_samples(data::choose_rows(all, parts.order, 0, parts.trained));
  data.test = user_samples(data::choose_rows(all, parts.order, parts.trained, rows));
}

void count_classes(const DataChoice& choice, const LabelRange& labels, UserData& data) {
  if (choice.loss == models::Loss::kMeanSquaredError) {
    data.classes =
        data.test.size == 0 ? 0 : data.test.dataset->element_specs()->arrays[1].elements();
    require(data.classes >= 1, "--target: must have at least one number for each sample, got none");
    return;
  }
  const int64_t all = data.train.size + data.test.size;
  data.classes = std::max(data.classes, labels.largest + 1);
  if (data.schema) data.classes = std::max(data.classes, data.schema->classes);
  require(data.classes <= all || choice.schema,
          "--target: labels must be below the number of samples, {}, got {}", all,
          data.classes - 1);
  if (choice.trains) check_several_classes(labels, data);
}

}  // namespace sluice::tool
