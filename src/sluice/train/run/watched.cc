#include <algorithm>

#include "sluice/base/numbers/slices.h"
#include "sluice/train/model_state.h"
#include "sluice/train/step_arrays.h"

namespace sluice::train::internal {
namespace {

void add(data::Element& element, const std::string& name, HostTensor array) {
  element.names.push_back(name);
  element.arrays.push_back(std::move(array));
}

}  // namespace

Binding ModelCalls::bind(const std::vector<ConstArrayView>& fields, bool watches) {
  const Training& t = programs_.training;
  std::vector<StreamInput> inputs;
  for (size_t i = 0; i < fields_.size(); ++i) inputs.push_back({fields_[i].stream, fields[i]});
  if (use_ == Use::kTrain && t.learning_rate) inputs.push_back({*t.learning_rate, rates_});
  for (size_t i = 0; i < coefficients_.size(); ++i)
    inputs.push_back({t.coefficients[i].stream, coefficients_[i]});
  if (use_ == Use::kTrain && t.seed) inputs.push_back({*t.seed, seeds_});
  std::vector<StreamOutput> outputs;
  for (size_t i = 0; i < results_.size(); ++i) outputs.push_back({results_[i], arrays_[i]});
  for (size_t i = 0; i < loss_sums_.size(); ++i) outputs.push_back({t.loss_sums[i], loss_sums_[i]});
  if (!watches) return programs_.session.bind(inputs, outputs, program_);
  // The arrays exist from the first watched call on.
  const auto add_watched = [&](const D2hStream& s, std::vector<HostTensor>& arrays, size_t i) {
    if (i == arrays.size())
      arrays.emplace_back(TensorSpec{
          entries_shape(s.spec.shape, t.entries.at(s.name), t.replicas), s.spec.dtype, {}});
    outputs.push_back({s, arrays[i]});
  };
  gradients_.reserve(t.watched_gradients.size());
  values_.reserve(t.watched_values.size());
  for (size_t i = 0; i < t.watched_gradients.size(); ++i)
    add_watched(t.watched_gradients[i].stream, gradients_, i);
  for (size_t i = 0; i < t.watched_values.size(); ++i)
    add_watched(t.watched_values[i].stream, values_, i);
  return programs_.session.bind(inputs, outputs, "watch");
}

Watched ModelCalls::watched() const {
  const Training& t = programs_.training;
  const int64_t updates = size_.device_iterations;
  Watched watched;
  for (size_t i = 0; i < gradients_.size(); ++i) {
    const auto& [stream, weights] = t.watched_gradients[i];
    const Slices from(gradients_[i].bytes(), t.entries.at(stream.name) * t.replicas);
    for (size_t k = 0; k < weights.size(); ++k) {
      if (weights[k].empty()) continue;
      HostTensor gradient({entries_shape(stream.spec.shape, updates, 1), stream.spec.dtype, {}});
      const Slices to(gradient.bytes(), updates);
      for (int64_t u = 0; u < updates; ++u) {
        const int64_t entry = u * std::ssize(weights) + static_cast<int64_t>(k);
        std::ranges::copy(from[entry * t.replicas], to[u].begin());
      }
      add(watched.gradients, weights[k], std::move(gradient));
    }
  }
  for (size_t i = 0; i < values_.size(); ++i) {
    const auto& [stream, name] = t.watched_values[i];
    HostTensor value(
        {joined(stream.spec.shape, t.entries.at(stream.name) * t.replicas), stream.spec.dtype, {}});
    std::ranges::copy(values_[i].bytes(), value.bytes().begin());
    add(watched.values, name, std::move(value));
  }
  return watched;
}

Watched ModelState::watched() const {
  const auto lock = next_call();
  if (watched_.calls == 0) return {};
  Watched watched = train_->watched();
  watched.calls = watched_.calls;
  watched.updates = watched_.updates;
  return watched;
}

}  // namespace sluice::train::internal
