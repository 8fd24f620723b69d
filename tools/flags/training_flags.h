#pragma once
#include "tools/options.h"

namespace sluice::tool {

class Flags;

/// Adds --replicas to the group of `flags`.
void add_replicas(Flags& flags, const char* help, ToolOptions& options);
/// Adds the micro-batches of an evaluation to the group of `flags`.
void add_test_batch(Flags& flags, ToolOptions& options);
/// Adds the options that a program's step depends on, whether it runs or not.
void add_step(Flags flags, ToolOptions& options);
/// Adds the learning rate of commands whose program trains.
void add_rate(Flags flags, ToolOptions& options);
/// Adds the updates of a call of commands whose program trains.
void add_device_iterations(Flags flags, ToolOptions& options);
/// Adds the results that a call of the training program returns.
void add_output_mode(Flags flags, ToolOptions& options);
/// Adds the options of `sluice train` alone.
void add_training(Flags flags, ToolOptions& options);

}  // namespace sluice::tool
