#pragma once
#include <memory>

#include "sluice/runtime/strand.h"

namespace sluice::cpu {

/// Creates the strand of a worker of a CPU device. The workers of a replica run its kernels as a
/// team: each runs a part of the tasks. Worker 0 alone runs the steps that are no kernels.
std::unique_ptr<runtime::Strand> make_strand(runtime::RunState& run, exe::DeviceId device,
                                             int worker);

}  // namespace sluice::cpu
