#pragma once
#include <functional>
#include <memory>

#include "sluice/exe/budget/does_not_fit.h"
#include "sluice/ir/ir.h"
#include "sluice/report/forecast/rates.h"
#include "sluice/session/session.h"
#include "sluice/train/model.h"
#include "sluice/train/plan/offload.h"
#include "sluice/train/training_step.h"

namespace sluice::train {

/// The programs of a network, compiled for the budgets of a session.
struct PlannedPrograms {
  Ir ir;
  Training training;
  /// Options of the programs: `locations` are the chosen ones, and `offload` is kGiven.
  Options options;
  OffloadDecision offload;
  std::shared_ptr<Compiled> compiled;  ///< Null after open_session().
};

/// Returns the rates of a forecast. Null: assumed rates.
using ForecastRates = std::function<report::Rates()>;

/// Builds and compiles the programs of build_training_for() and build_inference_for(), with the
/// locations that Options::offload asks for. A training has Options::loss_sums. Each program that
/// is tried is compiled once. If none fits the budgets, the result is the first one, with
/// OffloadDecision::fits false. Errors of building and compiling.
PlannedPrograms plan_training(const Network& network, const nn::Optimizer& optimizer,
                              const Options& options, const Options& inference = {},
                              const ForecastRates& rates = nullptr);
PlannedPrograms plan_inference(const Network& network, const Options& options,
                               const ForecastRates& rates = nullptr);

/// Returns the error of programs that do not fit, with the stages. `planned.offload.fits` must be
/// false.
DoesNotFit refusal_of(const PlannedPrograms& planned);

/// Make a model of the programs for `network` that plan_training() or plan_inference() returned,
/// without compiling them again. A rate that is a number is a constant of the programs. DoesNotFit
/// if they do not fit.
TrainingModel open_training(const Network& network, PlannedPrograms programs);
InferenceModel open_inference(const Network& network, PlannedPrograms programs);

/// Opens a session on the programs, with devices by with_devices(), and moves `planned.compiled`
/// into it. DoesNotFit if the programs do not fit; the error names the phased program that does.
Session open_session(PlannedPrograms& planned);

}  // namespace sluice::train
