#include "sluice/base/checked.h"
#include "sluice/train/model_state.h"
#include "sluice/train/step_arrays.h"

namespace sluice::train::internal {

void ModelCalls::set_coefficients(const std::vector<std::vector<double>>& values) {
  SLUICE_CHECK(values.size() == coefficients_.size());
  for (size_t i = 0; i < values.size(); ++i) fill_rates(coefficients_[i], values[i]);
}

std::vector<double> ModelState::coefficients_of(const char* caller,
                                                const nn::Optimizer& optimizer) const {
  require(optimizer_.has_value(),
          "{}: the optimizer is a constant of programs that exist; build a model with "
          "training_model(network, options, optimizer)",
          caller);
  require(optimizer.rules() == optimizer_->rules(),
          "{}: the update rules must be those of the model, {}, got {}; only the learning rate and "
          "coefficients of nn::streamed() may change",
          caller, optimizer_->rules(), optimizer.rules());
  std::vector<double> values;
  for (const nn::StreamedCoefficient& c : optimizer.streamed()) values.push_back(c.value);
  return values;
}

void ModelState::set_coefficients(ModelCalls& calls, const OptimizerFunction& optimizers) {
  std::vector<std::vector<double>> all;
  for (const double value : coefficients_) all.push_back({value});
  for (int64_t u = 0; optimizers != nullptr && u < options_.device_iterations; ++u) {
    coefficients_ = coefficients_of("fit: optimizer", optimizers(run_.updates + u));
    if (u == 0) all.assign(coefficients_.size(), {});
    for (size_t i = 0; i < all.size(); ++i) all[i].push_back(coefficients_[i]);
  }
  if (!all.empty()) calls.set_coefficients(all);
}

void ModelState::set_optimizer(const nn::Optimizer& optimizer, double rate) {
  const auto lock = next_call();
  const std::vector<double> values = coefficients_of("set_optimizer", optimizer);
  set_learning_rate(rate);
  coefficients_ = values;
}

}  // namespace sluice::train::internal
