#include "sluice/train/devices.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>

#include "sluice/base/ids/ids_format.h"
#include "sluice/compiler/compile.h"
#include "sluice/session/session.h"
#include "sluice/train/pipeline/pipeline_plan.h"

namespace sluice::train {
namespace {

// The bytes of activations in flight on each device of a plan.
Ids<DeviceId, int64_t> bytes_in_flight(const PipelinePlan& plan, size_t devices) {
  Ids<DeviceId, int64_t> bytes(devices);
  for (const StagePlan& s : plan.stages) bytes[s.device] += s.in_flight * s.activation_bytes;
  return bytes;
}

Ids<DeviceId, int64_t> budgets_of(const SessionOptions& session) {
  Ids<DeviceId, int64_t> budgets{session.device.memory};
  for (const DeviceChoice& d : session.more_devices) budgets.push_back(d.memory);
  return budgets;
}

// The bytes that each device needs.
Ids<DeviceId, int64_t> needed_bytes(SessionOptions session, const Ir& ir) {
  session.print_after.clear();
  const Compiled compiled = compile(ir, compile_options(session));
  Ids<DeviceId, int64_t> needed(session.more_devices.size() + 1);
  for (const exe::MemoryNeeds& m : compiled.memories) {
    if (m.device.valid()) needed[m.device] = m.total_bytes;
  }
  return needed;
}

using Build = std::function<Training(Ir ir, const PipelinedExecution&)>;

// Finds the bytes that each device has for activations: its budget less all other bytes of a plan.
// The other bytes vary a little with the depths, so plans are made until one fits.
Ids<DeviceId, int64_t> activation_budgets(const SessionOptions& session, int replicas,
                                          PipelinedExecution execution, const Build& build) {
  const Ids<DeviceId, int64_t> budgets = budgets_of(session);
  Ids<DeviceId, int64_t> needed, used;
  const auto plan = [&] {
    Ir ir(replicas);
    const Training training = build(ir, execution);
    needed = needed_bytes(session, ir);
    used = bytes_in_flight(*training.pipeline, budgets.size());
  };
  execution.schedule = Schedule::kInterleaved;
  plan();
  const Ids<DeviceId, int64_t> min = used;
  Ids<DeviceId, int64_t> result(budgets.size(), std::numeric_limits<int64_t>::max());
  for (const DeviceId d : budgets.ids()) {
    if (budgets[d] >= 0) result[d] = std::max(min[d], used[d] + budgets[d] - needed[d]);
  }
  execution.schedule = Schedule::kAuto;
  for (bool fits = false; !fits;) {
    execution.activation_budgets = result.items();
    plan();
    fits = true;
    for (const DeviceId d : budgets.ids()) {
      if (budgets[d] < 0 || needed[d] <= budgets[d] || used[d] == min[d]) continue;
      result[d] = std::max(min[d], used[d] - 1);
      fits = false;
    }
  }
  return result;
}

}  // namespace

SessionOptions with_devices(SessionOptions session, int devices) {
  const auto more = static_cast<size_t>(devices) - 1;
  require(session.more_devices.empty() || session.more_devices.size() >= more,
          "devices: a replica must have {} for its stages, got {}; name them all or device 0 alone",
          devices, session.more_devices.size() + 1);
  if (session.more_devices.size() < more) session.more_devices.resize(more, session.device);
  return session;
}

Training build_training_for(const SessionOptions& session, Ir ir, const Network& network,
                            const nn::Optimizer& optimizer, const Options& options,
                            const Options& inference) {
  const auto* pipelined =
      options.strategy ? std::get_if<PipelinedExecution>(&*options.strategy) : nullptr;
  const bool chooses = pipelined != nullptr && pipelined->schedule == Schedule::kAuto &&
                       pipelined->activation_budgets.empty();
  if (!chooses) return build_training(ir, network, optimizer, options, inference);
  Options step = options;
  const Build build = [&](Ir into, const PipelinedExecution& execution) {
    step.strategy = execution;
    return build_training(into, network, optimizer, step, inference);
  };
  PipelinedExecution execution = *pipelined;
  const Ids<DeviceId, int64_t> budgets = budgets_of(session);
  if (std::any_of(budgets.begin(), budgets.end(), [](int64_t b) { return b >= 0; })) {
    Ir scratch(ir.replication());
    const int devices = build(scratch, {pipelined->stages, Schedule::kInterleaved}).devices;
    execution.activation_budgets =
        activation_budgets(with_devices(session, devices), ir.replication(), execution, build)
            .items();
  }
  return build(ir, execution);
}

Training build_inference_for(Ir ir, const Network& network, const Options& options) {
  return build_inference(
      ir, network,
      {.strategy = options.strategy,
       .rates = options.rates,
       .accumulate = options.device_iterations,
       .replicas = options.replicas,
       .output = options.output,
       .infeed = options.infeed,
       .outfeed = options.outfeed,
       .locations = {.weights = options.locations.weights,
                     .min_elements_off_device = options.locations.min_elements_off_device},
       .offload = options.offload,
       .io_mode = options.io_mode,
       .seed = options.seed,
       .session = options.session});
}

Session open_session(const Ir& ir, const Training& training, const SessionOptions& session,
                     const std::shared_ptr<Compiled>& compiled) {
  try {
    const SessionOptions options = with_devices(session, training.devices);
    if (compiled != nullptr) return Session(ir, std::move(*compiled), options);
    return Session(ir, options);
  } catch (Error& e) {
    note_stages(training, e);
    note_watch(training, e);
    throw;
  }
}

void note_stages(const Training& training, Error& error) {
  const bool lost = error.kind() == ErrorKind::kPeerLost;
  if ((error.kind() != ErrorKind::kDoesNotFit && !lost) || !training.pipeline) return;
  std::string text;
  for (const StageId s : training.pipeline->stages.ids()) {
    const StagePlan& stage = training.pipeline->stages[s];
    text += fmt::format("{}stage {} ({}) on device {}", s == 0 ? "" : ", ", s,
                        fmt::join(stage.blocks, "+"), stage.device);
  }
  error.note((lost ? "running " : "planning ") + text);
}

void note_watch(const Training& training, Error& error) {
  const bool watches = !training.watched_gradients.empty() || !training.watched_values.empty();
  if (error.kind() != ErrorKind::kDoesNotFit || !watches) return;
  error.note("planning a program for watched tensors, too; fewer of them need less memory");
}

}  // namespace sluice::train
