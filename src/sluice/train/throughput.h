#pragma once
#include <cstdint>
#include <string>

#include "sluice/session/session.h"

namespace sluice::train {

/// How fast a program runs.
struct Throughput {
  double mean_seconds = 0;  ///< Of a run.
  double samples_per_second = 0;
};

/// Runs a program `runs` times on arrays of ones. The variables are the same afterwards: they are copied to host memory
/// before and given back.
/// Errors (kUsage): `samples_per_step` or `runs` below 1; no such program.
Throughput evaluate_throughput(Session& session, int64_t samples_per_step, int runs = 5,
                               const std::string& program = "main");

/// "Mean duration: 0.00125 s Throughput: 6400.0 samples/s ".
std::string to_string(const Throughput& throughput);

}  // namespace sluice::train
