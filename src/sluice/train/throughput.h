#pragma once
#include <cstdint>
#include <string>

#include "sluice/session/session.h"

namespace sluice::train {

/// Speed of a program.
struct Throughput {
  double mean_seconds = 0;  ///< Mean time of one run in seconds.
  double samples_per_second = 0;
};

/// Runs a program `runs` times on arrays of ones and measures the time. `samples_per_step` is the
/// number of samples in one run. Variables keep their values: they are copied to host memory first
/// and restored at the end. Error{kUsage} if `samples_per_step` or `runs` is below 1, or if the
/// program does not exist.
Throughput evaluate_throughput(Session& session, int64_t samples_per_step, int runs = 5,
                               const std::string& program = "main");

/// Formats it as "Mean duration: 0.00125 s Throughput: 6400.0 samples/s ".
std::string to_string(const Throughput& throughput);

}  // namespace sluice::train
