#include <algorithm>

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
  for (const double value : run_.coefficients) all.push_back({value});
  for (int64_t u = 0; optimizers != nullptr && u < options_.device_iterations; ++u) {
    run_.coefficients = coefficients_of("fit: optimizer", optimizers(run_.updates + u));
    if (u == 0) all.assign(run_.coefficients.size(), {});
    for (size_t i = 0; i < all.size(); ++i) all[i].push_back(run_.coefficients[i]);
  }
  if (!all.empty()) calls.set_coefficients(all);
}

void ModelState::set_optimizer(const nn::Optimizer& optimizer, double rate) {
  const auto lock = next_call();
  const std::vector<double> values = coefficients_of("set_optimizer", optimizer);
  set_learning_rate(rate);
  run_.coefficients = values;
}

const ModelCalls& ModelState::train(const data::Element& samples,
                                    const LearningRateSchedule* schedule,
                                    const OptimizerFunction& optimizers) {
  const auto lock = next_call();
  ModelCalls& calls = this->calls(ModelCalls::Use::kTrain);
  rates_.resize(static_cast<size_t>(options_.device_iterations));
  for (size_t u = 0; schedule != nullptr && u < rates_.size(); ++u) {
    set_learning_rate(schedule->at(run_.updates + static_cast<int64_t>(u), run_.plateau));
    rates_[u] = *rate_;
  }
  require(rate_.has_value(),
          "train: a model with a StreamedRate must have a rate; call set_learning_rate() before "
          "the first call");
  if (schedule == nullptr) std::fill(rates_.begin(), rates_.end(), *rate_);
  const Training& t = programs_->training;
  if (t.learning_rate && t.rates_of_run == 1) {
    require(std::count(rates_.begin(), rates_.end(), rates_[0]) == options_.device_iterations,
            "train: a rate that is the field '{}' must be the same for all {} updates of a call, "
            "got a schedule; use StreamedRate{{}} without a field, or device_iterations 1",
            t.learning_rate->name, options_.device_iterations);
    rates_.resize(1);
  }
  set_coefficients(calls, optimizers);
  const bool watches =
      !options_.watch.empty() && run_.calls % options_.watch.every == options_.watch.every - 1;
  if (watches) watched_ = {};  // A run that fails may overwrite some of its arrays.
  calls.run(samples, rates_, run_.updates, watches);
  const int64_t samples_of_call = calls.size().samples();
  run_.updates += options_.device_iterations;
  ++run_.calls;
  run_.micro_batches += samples_of_call / calls.size().micro_batch;
  run_.samples += samples_of_call;
  run_.epoch_samples += samples_of_call;
  if (watches) {
    watched_.calls = run_.calls;
    watched_.updates = run_.updates;
  }
  return calls;
}

}  // namespace sluice::train::internal
