#pragma once
#include <memory>

#include "sluice/session/options.h"
#include "sluice/train/training_step.h"

namespace sluice {

struct Compiled;
class Session;

namespace train {

/// Returns options for a session of at least `devices` devices a replica. If the options name
/// device 0 alone, the others are like it. Error{kUsage} if they name several devices, but fewer.
SessionOptions with_devices(SessionOptions session, int devices);

/// As build_training(), for the devices of a session: a pipeline with Schedule::kAuto keeps its
/// activations within the budgets of the devices. with_devices() completes the devices of the
/// session. Depths are not below those of Schedule::kInterleaved, so the plan may still not fit.
Training build_training_for(const SessionOptions& session, Ir ir, const Network& network,
                            const nn::Optimizer& optimizer, const Options& options,
                            const Options& inference = {});

/// As build_inference(), with the options of an InferenceModel. Options of gradients and updates
/// have no effect. The `device_iterations` micro-batches of a run overlap in a pipeline, as those
/// of an update do.
Training build_inference_for(Ir ir, const Network& network, const Options& options);

/// Opens a session on the programs of `training`, with devices by with_devices(). `compiled` is
/// moved into it; null: the programs are compiled.
Session open_session(const Ir& ir, const Training& training, const SessionOptions& session,
                     const std::shared_ptr<Compiled>& compiled = nullptr);

/// Adds the stages and their devices to an Error{kDoesNotFit} or Error{kPeerLost} of a program in
/// stages.
void note_stages(const Training& training, Error& error);

/// Adds to an Error{kDoesNotFit} that one of the programs is for Options::watch, if it is.
void note_watch(const Training& training, Error& error);

}  // namespace train
}  // namespace sluice
