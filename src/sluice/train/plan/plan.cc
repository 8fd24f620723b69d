#include "sluice/train/plan/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "sluice/compiler/compile.h"
#include "sluice/session/fit.h"
#include "sluice/train/devices.h"

namespace sluice::train {
namespace {

/// The part of a plan that depends on whether the programs train.
struct PlanBuilder {
  std::function<Training(Ir ir, const Options& options)> build;
  bool trains = true;
  bool has_state = false;  ///< Whether updates keep state of the optimizer or averages.
};

/// The options of a rung, and its name.
struct OffloadRung {
  std::string name;
  Options options;
};

/// A rung that was built.
struct Built {
  Options options;
  Training training;
};

bool is_phased(const Options& options) {
  return options.strategy && std::holds_alternative<PhasedExecution>(*options.strategy);
}

bool has_budget(const SessionOptions& session) {
  const auto& more = session.more_devices;
  return session.device.memory >= 0 ||
         std::any_of(more.begin(), more.end(), [](const auto& d) { return d.memory >= 0; });
}

// Whether kAutomatic may add a kind after the first rung. The weights of a resident step stay: each
// block would load them twice a micro-batch.
bool may_leave(const OffloadKind& kind, const Options& options, const PlanBuilder& builder) {
  if (options.locations.*kind.location == Location::kRemote) return false;
  if (kind.location == &TensorLocations::weights) return !builder.trains;
  if (!builder.trains) return false;
  if (kind.location == &TensorLocations::optimizer) return builder.has_state;
  if (kind.location == &TensorLocations::accumulators)
    return is_phased(options) || options.accumulate > 1;
  return true;
}

std::vector<OffloadRung> offload_rungs(Options options, const PlanBuilder& builder) {
  const bool chooses = options.offload == Offload::kAutomatic;
  options.offload = Offload::kGiven;
  if (chooses && is_phased(options)) {
    options.locations.weights = options.locations.activations = Location::kRemote;
    if (builder.has_state) options.locations.optimizer = Location::kRemote;
  }
  std::vector<OffloadRung> rungs{{to_string(options.locations), options}};
  if (!chooses || !has_budget(options.session)) return rungs;
  for (const OffloadKind& kind : offload_kinds()) {
    if (!may_leave(kind, options, builder)) continue;
    options.locations.*kind.location = Location::kRemote;
    rungs.push_back({std::string(kind.word), options});
  }
  return rungs;
}

// Returns rungs of the same step in phases on one device. An error may name them if no other rung
// fits.
std::vector<OffloadRung> phased_rungs(const Options& options, const PlanBuilder& builder) {
  if (options.offload != Offload::kAutomatic || !builder.trains || is_phased(options)) return {};
  Options phases = options;
  phases.strategy = phased();
  phases.rates = {};
  phases.session.more_devices.clear();
  phases.session.print_after.clear();
  return offload_rungs(phases, builder);
}

// Returns a rung that adds what it built to `built`.
Rung rung_of(const OffloadRung& from, const PlanBuilder& builder, std::vector<Built>& built) {
  return {from.name, [&from, &builder, &built] {
            RungProgram program{Ir(from.options.replicas), {}};
            built.push_back({from.options, builder.build(program.ir, from.options)});
            program.session = with_devices(from.options.session, built.back().training.devices);
            return program;
          }};
}

OffloadReason reason_of(const Options& options, const Fit& fit) {
  if (options.offload == Offload::kGiven) return OffloadReason::kGiven;
  if (!has_budget(options.session)) return OffloadReason::kNoBudget;
  return fit.chosen == size_t{0} ? OffloadReason::kFits : OffloadReason::kNeeded;
}

PlannedPrograms plan(const Options& options, const PlanBuilder& builder,
                     const ForecastRates& rates) {
  const std::vector<OffloadRung> rungs = offload_rungs(options, builder);
  const std::vector<OffloadRung> advice = phased_rungs(options, builder);
  std::vector<Built> built, unused;
  Ladder ladder{.program = builder.trains ? "train" : "eval", .rates = rates};
  for (const OffloadRung& r : rungs) ladder.rungs.push_back(rung_of(r, builder, built));
  for (const OffloadRung& r : advice) ladder.advice.push_back(rung_of(r, builder, unused));
  Fit fit = find_fit(ladder);
  Built& chosen = built[fit.chosen.value_or(0)];
  OffloadDecision decision{.locations = chosen.options.locations,
                           .reason = reason_of(options, fit),
                           .fits = fit.chosen.has_value(),
                           .tried = std::move(fit.tried),
                           .updates = builder.trains ? options.device_iterations : 0};
  if (fit.advised) decision.phased = advice[*fit.advised].options.locations;
  return {std::move(fit.program.ir), std::move(chosen.training), std::move(chosen.options),
          std::move(decision), std::move(fit.compiled)};
}

}  // namespace

PlannedPrograms plan_training(const Network& network, const nn::Optimizer& optimizer,
                              const Options& options, const Options& inference,
                              const ForecastRates& rates) {
  const auto build = [&](Ir ir, Options o) {
    o.loss_sums = true;
    return build_training_for(o.session, ir, network, optimizer, o, inference);
  };
  const bool has_state = optimizer.has_state() || options.ema_decay.has_value();
  return plan(options, {build, true, has_state}, rates);
}

PlannedPrograms plan_inference(const Network& network, const Options& options,
                               const ForecastRates& rates) {
  const auto build = [&](Ir ir, const Options& o) { return build_inference_for(ir, network, o); };
  return plan(options, {build, false, false}, rates);
}

DoesNotFit refusal_of(const PlannedPrograms& planned) {
  const Compiled& compiled = *planned.compiled;
  auto refusal = exe::find_excess(compiled.executable, compiled.memories);
  SLUICE_CHECK(refusal.has_value());
  note_stages(planned.training, *refusal);
  note_watch(planned.training, *refusal);
  return *std::move(refusal);
}

Session open_session(PlannedPrograms& planned) {
  try {
    return open_session(planned.ir, planned.training, planned.options.session,
                        std::exchange(planned.compiled, nullptr));
  } catch (const DoesNotFit& e) {
    if (!planned.offload.phased) throw;
    throw e.with_remedy(fmt::format("strategy phased with {} in remote memory",
                                    to_string(*planned.offload.phased)));
  }
}

}  // namespace sluice::train
