#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "sluice/train/pipeline/pipeline_times.h"

namespace sluice::train {

/// A stage of a step, where it runs and what it costs for a micro-batch.
struct StagePlan {
  std::vector<std::string> blocks;
  DeviceId device{0};
  /// Maximum number of micro-batches between their forward and backward tasks.
  int64_t in_flight = 1;
  StageTimes times;              ///< Indexed by Options::rates.
  int64_t activation_bytes = 0;  ///< Bytes that it keeps for each micro-batch in flight.
  int64_t parameters = 0;        ///< Elements of its weights. A tied weight counts where its first
                                 ///< use is.
};

/// Bytes that a device sends to another one for each micro-batch.
struct MessageBytes {
  DeviceId from{0};
  DeviceId to{0};
  int64_t forward = 0;   ///< Values of the network.
  int64_t backward = 0;  ///< Their gradients.
};

/// The stages of a step and the order of its micro-batches.
struct PipelinePlan {
  Schedule schedule = Schedule::kGrouped;  ///< As asked for; sharded stages are sequential.
  Ids<StageId, StagePlan> stages;
  PipelineOrder order;
  std::vector<MessageBytes> messages;  ///< Sorted by pair of devices, ascending.
  DeviceRates rates;                   ///< Options::rates, from which the times follow.
  PipelineTimes times;                 ///< Forecast for the micro-batches of a step.
};

}  // namespace sluice::train
