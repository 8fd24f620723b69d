#pragma once
#include <algorithm>
#include <string>
#include <vector>

#include "sluice/exe/executable.h"
#include "sluice/report/forecast/rates.h"

namespace sluice::report {

/// Forecast of the transfers of a run between devices and one other memory.
struct TransferForecast {
  std::string memory;          ///< Name of that memory: "streams" or "tier NAME".
  int64_t bytes = 0;           ///< Bytes moved in all replicas.
  double seconds = 0;          ///< Seconds that the transfers take.
  double exposed_seconds = 0;  ///< Seconds in which a device only waits for them.

  double hidden_seconds() const { return std::max(0.0, seconds - exposed_seconds); }
};

/// Forecast of the time of a device in one run of a program.
struct DeviceForecast {
  exe::DeviceId device{0};
  double seconds = 0;             ///< Until the end of its program.
  double message_wait = 0;        ///< Seconds in which it waits for a message of another device.
  double collective_seconds = 0;  ///< Seconds of collectives.
};

/// Forecast of the time of one run of a program.
struct ProgramForecast {
  std::string program;
  double seconds = 0;
  /// Indexed by memory; memories without transfers are left out.
  std::vector<TransferForecast> transfers;
  std::vector<DeviceForecast> devices;
  bool in_cluster = false;  ///< Whether devices wait for the messages of others (Rates::cluster).

  /// Returns the share of the run in which a device waits for messages or has ended: the mean over
  /// the devices.
  double bubble() const;
};

/// Forecasts the time of each program. Walks its steps with a clock for computing, a clock for each
/// I/O queue and a clock for remote memory. All replicas share the bandwidth of remote memory.
///
/// Steps take the times of StepTimes. A transfer on the compute queue is exposed. A transfer on an
/// I/O queue starts at its issue or at the end of the previous transfer of that queue. Its exposed
/// time is the time that a wait step waits for it. The slower arm of a branch counts. The workers
/// run devices without queues one after another, so the times of these devices add up.
///
/// In a cluster, devices run concurrently. A receive waits until the message has passed the link
/// between the two devices: messages pass one after another, each its bytes and then its latency. A
/// send waits until a slot of its channel is free. Of a loop with messages and more than 128
/// iterations, the others take the mean time of the last 64.
///
/// The forecast ignores other processes of the machine, so a run may be slower than its forecast.
/// Caches and the fixed time of a kernel are ignored too, unless the rates have them. A run is
/// faster than its forecast where one replica computes while another one waits.
std::vector<ProgramForecast> forecast(const exe::Executable& executable, const Rates& rates);

/// Formats one line for each program and for each memory with transfers.
std::string summary(const std::vector<ProgramForecast>& programs);

}  // namespace sluice::report
