#include "sluice/train/step_arrays.h"

#include <algorithm>
#include <cstring>

#include "sluice/base/checked.h"
#include "sluice/base/numbers/slices.h"
#include "sluice/base/rng.h"

namespace sluice::train {

StepArrays::StepArrays(const Training& t) : updates(t.device_iterations) {
  const int64_t entries = checked_mul(t.accumulate, t.device_iterations);
  const auto of = [&](const TensorSpec& entry, int64_t count) {
    return HostTensor({entries_shape(entry.shape, count, t.replicas), entry.dtype, {}});
  };
  const auto array = [&](const TensorSpec& entry) { return of(entry, entries); };
  const auto result = [&](const D2hStream& s) {
    const auto found = t.entries.find(s.name);
    return of(s.spec, found == t.entries.end() ? entries : found->second);
  };
  if (!t.infeed) {
    for (const H2dStream& s : t.fields) fields.push_back(array(s.spec));
  }
  seeds = array({{2}, u32, {}});
  for (const H2dStream& s : t.inputs)
    once.emplace_back(TensorSpec{entries_shape(s.spec.shape, 1, t.replicas), s.spec.dtype});
  if (!t.outfeed) {
    for (const D2hStream& s : t.losses) losses.push_back(result(s));
    for (const D2hStream& s : t.loss_sums) loss_sums.push_back(result(s));
    for (const D2hStream& s : t.predictions) predictions.push_back(result(s));
  }
  if (t.learning_rate)
    learning_rate =
        HostTensor({entries_shape({}, t.rates_of_run, t.replicas), t.learning_rate->spec.dtype});
  coefficients = coefficient_arrays(t);
}

void fill_seeds(HostTensor& seeds, uint64_t run_seed, int64_t update, int64_t updates) {
  const Seed run{static_cast<uint32_t>(run_seed >> 32), static_cast<uint32_t>(run_seed)};
  const Slices of_updates(seeds.as<uint32_t>(), updates);
  for (int64_t u = 0; u < updates; ++u) {
    const Seed key = fold(fold(run, "update"), static_cast<uint64_t>(update + u));
    const auto words = of_updates[u];  // Two for each micro-batch.
    for (size_t w = 0; w < words.size(); w += 2) {
      const Seed micro_batch = fold(key, w / 2);
      words[w] = micro_batch.hi;
      words[w + 1] = micro_batch.lo;
    }
  }
}

void StepArrays::fill(const data::Element& samples) {
  for (size_t i = 0; i < fields.size(); ++i) {
    const HostTensor& from = samples[i];
    require(from.dtype() == fields[i].dtype() && from.elements() == fields[i].elements(),
            "step: array {} must have the elements of {}, got {}", i, to_string(fields[i].spec()),
            to_string(from.spec()));
    std::memcpy(fields[i].bytes().data(), from.bytes().data(), from.bytes().size());
  }
}

void StepArrays::seed(uint64_t run_seed, int64_t update) {
  fill_seeds(seeds, run_seed, update, updates);
}

void StepArrays::set_learning_rate(double rate) {
  for (float& entry : learning_rate.as<float>()) entry = static_cast<float>(rate);
}

void fill_rates(HostTensor& rates, std::span<const double> updates) {
  const auto entries = rates.as<float>();
  const size_t replicas = entries.size() / updates.size();
  for (size_t i = 0; i < entries.size(); ++i)
    entries[i] = static_cast<float>(updates[i / replicas]);
}

std::vector<HostTensor> coefficient_arrays(const Training& t) {
  std::vector<HostTensor> arrays;
  for (const CoefficientStream& c : t.coefficients) {
    arrays.emplace_back(TensorSpec{entries_shape({}, t.device_iterations, t.replicas), f32, {}});
    std::ranges::fill(arrays.back().as<float>(), static_cast<float>(c.coefficient.value));
  }
  return arrays;
}

std::vector<StreamInput> StepArrays::inputs(const Training& t) const {
  std::vector<StreamInput> result;
  for (size_t i = 0; i < fields.size(); ++i) result.push_back({t.fields[i], fields[i]});
  for (size_t i = 0; i < once.size(); ++i) result.push_back({t.inputs[i], once[i]});
  if (t.learning_rate) result.push_back({*t.learning_rate, learning_rate});
  for (size_t i = 0; i < coefficients.size(); ++i)
    result.push_back({t.coefficients[i].stream, coefficients[i]});
  if (t.seed) result.push_back({*t.seed, seeds});
  return result;
}

std::vector<StreamOutput> StepArrays::outputs(const Training& t) {
  std::vector<StreamOutput> result;
  for (size_t i = 0; i < losses.size(); ++i) result.push_back({t.losses[i], losses[i]});
  for (size_t i = 0; i < loss_sums.size(); ++i) result.push_back({t.loss_sums[i], loss_sums[i]});
  for (size_t i = 0; i < predictions.size(); ++i)
    result.push_back({t.predictions[i], predictions[i]});
  return result;
}

data::Element completed(const data::Element& item, int64_t rows) {
  data::Element whole;
  whole.names = item.names;
  for (const HostTensor& array : item.arrays) {
    std::vector<int64_t> dims = array.shape().dims();
    dims[0] = rows;
    HostTensor& t =
        whole.arrays.emplace_back(TensorSpec{Shape(std::move(dims)), array.dtype(), {}});
    const auto from = array.bytes();
    for (size_t done = 0; done < t.bytes().size(); done += from.size()) {
      const size_t bytes = std::min(from.size(), t.bytes().size() - done);
      std::memcpy(t.bytes().data() + done, from.data(), bytes);
    }
  }
  return whole;
}

}  // namespace sluice::train
