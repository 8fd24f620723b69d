#pragma once
#include "tools/options.h"

namespace sluice::tool {

class Flags;

/// Adds the budgets, and the tensors that leave the device.
void add_memory(Flags flags, ToolOptions& options);
/// Adds the strategy, devices and processes of a program.
void add_strategy(Flags flags, ToolOptions& options);
/// Adds the shards of weights and the recomputation of activations, which a training has.
void add_gradients(Flags flags, ToolOptions& options);
/// Adds the options of the compiler that every command with a model has.
void add_compiler(Flags flags, ToolOptions& options);

}  // namespace sluice::tool
