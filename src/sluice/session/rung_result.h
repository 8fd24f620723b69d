#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "sluice/exe/memory_needs.h"

namespace sluice {

/// The figures of one of several programs that were compiled to find one that fits (session/fit.h).
struct RungResult {
  std::string name;  ///< Name of the rung.
  /// Bytes needed in each memory, with their budgets and the largest objects.
  std::vector<exe::MemoryNeeds> memories = {};
  double build_seconds = 0;  ///< Time that building and compiling took.
  bool fits = false;         ///< Whether all budgets are met.
  int64_t device_bytes = 0;  ///< Bytes of the device with the largest need.
  /// Bytes of `device_bytes` fewer than those of the rung before; 0 for the first rung.
  int64_t saved_bytes = 0;
  /// Seconds by which the forecast of a run exceeds that of the rung before, at least 0. 0 unless a
  /// rung after the first was chosen.
  double added_seconds = 0;
};

}  // namespace sluice
