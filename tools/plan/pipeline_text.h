#pragma once
#include <string>
#include <vector>

#include "sluice/exe/executable.h"
#include "sluice/train/pipeline/pipeline_plan.h"
#include "sluice/train/training_step.h"
#include "tools/json_record.h"

namespace sluice::tool {

/// Formats the stages of a training program as a line for the pipeline and at most two for each
/// device: its stages with their forecast times and activations, and the bytes that it sends to
/// others for each micro-batch and each update.
std::vector<std::string> pipeline_lines(const train::Training& training,
                                        const exe::Executable& executable);

/// Formats the table of tasks by device and slot, and the slots of ramp-up, steady state and
/// ramp-down. If there are many micro-batches, the table shows only as many as all three parts
/// need.
std::string schedule_text(const train::Training& training);

/// Adds to a record the facts that the texts show: "pipeline_schedule" and the like, "stages" and
/// "messages".
void add_pipeline(const train::Training& training, const exe::Executable& executable,
                  JsonRecord& record);

}  // namespace sluice::tool
