#include "tools/optimizers.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "sluice/base/error.h"

namespace sluice::tool {
namespace {

/// Coefficients on the command line. Absent: the optimizer's default.
struct Coefficients {
  std::optional<double> beta1 = {};
  std::optional<double> beta2 = {};
  std::optional<double> weight_decay = {};
};

nn::AdamOptions adam_options(const Coefficients& c) {
  nn::AdamOptions options;
  if (c.beta1) options.beta1 = *c.beta1;
  if (c.beta2) options.beta2 = *c.beta2;
  if (c.weight_decay) options.weight_decay = *c.weight_decay;
  return options;
}

nn::SgdOptions sgd_options(const Coefficients& c, nn::SgdOptions options = {}) {
  if (c.weight_decay) options.weight_decay = *c.weight_decay;
  return options;
}

struct NamedOptimizer {
  std::string_view name;
  bool has_betas;
  bool has_decay;
  nn::Optimizer (*make)(const Coefficients&);
};

using nn::Optimizer;
constexpr NamedOptimizer kOptimizers[] = {
    {"sgd", false, true, [](const Coefficients& c) { return Optimizer::sgd(sgd_options(c)); }},
    {"momentum", false, true,
     [](const Coefficients& c) { return Optimizer::sgd(sgd_options(c, {.momentum = 0.9})); }},
    {"nesterov", false, true,
     [](const Coefficients& c) {
       return Optimizer::sgd(sgd_options(c, {.momentum = 0.9, .form = nn::SgdForm::kNesterov}));
     }},
    {"adam", true, true, [](const Coefficients& c) { return Optimizer::adam(adam_options(c)); }},
    {"adam-f16", false, false, [](const Coefficients&) { return Optimizer::adam_f16(); }},
    {"adamw", true, true, [](const Coefficients& c) { return Optimizer::adamw(adam_options(c)); }},
    {"adamax", true, true,
     [](const Coefficients& c) { return Optimizer::adamax(adam_options(c)); }},
    {"lamb", true, true, [](const Coefficients& c) { return Optimizer::lamb(adam_options(c)); }},
    {"rmsprop", false, true,
     [](const Coefficients& c) {
       return Optimizer::rmsprop({.weight_decay = c.weight_decay.value_or(0)});
     }},
};

const NamedOptimizer& optimizer_of(const ToolOptions& o) {
  return *std::find_if(std::begin(kOptimizers), std::end(kOptimizers),
                       [&](const NamedOptimizer& row) { return row.name == o.train.optimizer; });
}

// The optimizers that have a coefficient: "adam, adamw".
std::string names_with(bool NamedOptimizer::*coefficient) {
  std::string names;
  for (const NamedOptimizer& row : kOptimizers) {
    if (row.*coefficient) names += (names.empty() ? "" : ", ") + std::string(row.name);
  }
  return names;
}

}  // namespace

TextForm<std::string> optimizers() {
  forms::Words<std::string> names;
  for (const NamedOptimizer& row : kOptimizers)
    names.emplace_back(std::string(row.name), std::string(row.name));
  return forms::words(names);
}

std::string default_rates() {
  std::string text;
  for (const NamedOptimizer& row : kOptimizers)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", row.name,
                        row.make({}).default_learning_rate());
  return text;
}

double default_rate(const ToolOptions& o) {
  return optimizer_of(o).make({}).default_learning_rate();
}

bool has_optimizer_state(const ToolOptions& o) {
  return optimizer_of(o).make({}).has_state() || o.step.ema_decay.has_value();
}

nn::Optimizer make_optimizer(const ToolOptions& o, const train::Network& network) {
  const NamedOptimizer& row = optimizer_of(o);
  const TrainOptions& t = o.train;
  require(row.has_betas || (!t.beta1 && !t.beta2),
          "--beta1 and --beta2 require --optimizer of {} (it is {})",
          names_with(&NamedOptimizer::has_betas), row.name);
  require(row.has_decay || !t.weight_decay, "--weight-decay requires --optimizer of {} (it is {})",
          names_with(&NamedOptimizer::has_decay), row.name);
  Coefficients c{t.beta1, t.beta2, t.weight_decay};
  if (!t.weight_decay) return row.make(c);
  std::vector<std::string> decayed, others;
  const train::NetworkGraph graph = network.build(Ir(), nn::RunMode::kTrain);
  graph.factories.for_each([&](const std::string& key, const nn::VariableFactory& variable) {
    if (variable.role() != nn::Role::kWeight) return;
    (variable.spec().shape.rank() >= 2 ? decayed : others).push_back(key);
  });
  require(!decayed.empty(), "--weight-decay: the model has no variable with two axes");
  if (others.empty()) return row.make(c);
  nn::Optimizer decaying = row.make(c);
  c.weight_decay = 0;
  return nn::Optimizer::grouped(
      {{nn::keys_like(decayed), std::move(decaying)}, {nn::keys_like(others), row.make(c)}});
}

}  // namespace sluice::tool
