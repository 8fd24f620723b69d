#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/exe/executable.h"

namespace sluice::report {

/// Rate of one worker in kernels of an op whose operations and bytes have this relation.
struct KernelRate {
  double intensity = 0;  ///< Floating-point operations per byte of the operands.
  double flops = 0;      ///< Floating-point operations per second.
  bool operator==(const KernelRate&) const = default;
};

/// Rate of one worker that copies what a cache holds.
struct CacheRate {
  int64_t bytes = 0;  ///< Bytes that are read and written again and again.
  double copies = 0;  ///< Bytes copied per second.
  bool operator==(const CacheRate&) const = default;
};

/// A level of links between devices in different groups of this level, such as hosts.
struct LinkLevel {
  int64_t devices = 0;  ///< Consecutive devices in a group; a multiple of the previous level's.
  double messages = 0;  ///< Bytes per second; at most the previous level's.
  double latency = 0;   ///< Seconds; at least the previous level's.
  bool operator==(const LinkLevel&) const = default;
};

/// The link between two groups of devices, which replaces that of their level. A pair of smaller
/// groups has precedence over a pair of larger ones.
struct LinkPair {
  int64_t devices = 1;  ///< Consecutive devices in a group: 1, or LinkLevel::devices of a level.
  int64_t first = 0;    ///< Index of a group.
  int64_t second = 0;   ///< Index of the other group.
  double messages = 0;  ///< Bytes per second.
  double latency = 0;   ///< Seconds.
  bool operator==(const LinkPair&) const = default;
};

/// A machine in which each device of each replica has workers and remote memory of its own.
struct Cluster {
  /// The order of the devices of all replicas, in which groups of links are consecutive.
  enum class Order : uint8_t {
    kReplicas,  ///< All devices of replica 0, then all of replica 1, and so on.
    kDevices,   ///< Device 0 of all replicas, then device 1, and so on.
  };
  Order order = Order::kReplicas;
  /// From the innermost level on. Inside the first level's groups, links have Rates::messages and
  /// Rates::latency.
  std::vector<LinkLevel> links = {};
  int64_t devices = 0;               ///< Devices of the machine; 0 for any number.
  std::vector<LinkPair> pairs = {};  ///< In any order; `devices` must then be set.
  bool operator==(const Cluster&) const = default;
};

/// Rates of a machine, per second.
struct Rates {
  int threads = 1;        ///< Workers of the pool that runs all replicas.
  double flops = 1e11;    ///< Floating-point operations of one worker.
  double copies = 1e10;   ///< Bytes that one worker copies. A copy of one byte reads a byte and
                          ///< writes a byte.
  double remote = 1e10;   ///< Bytes that remote memory moves, for all replicas together.
  double messages = 5e9;  ///< Bytes of messages between two devices.
  double latency = 2e-6;  ///< Latency of a message in seconds, without the time of its bytes.
  /// Launch overhead of a kernel in seconds, without the time of its work.
  double kernel_begin = 0;
  double together = 1;  ///< Share of its rate that a worker keeps while all of them work.
  /// Measured rates of kernels whose operands are in caches, by kernel_class(), ascending by
  /// intensity. Kernels of other classes have the rate `flops`.
  std::map<std::string, std::vector<KernelRate>> kernels = {};
  /// Rates of copies, ascending by bytes. Larger copies have the rate `copies`.
  std::vector<CacheRate> caches = {};
  /// Absent: one pool of workers and one remote memory serve all devices and replicas.
  std::optional<Cluster> cluster = {};
  bool operator==(const Rates&) const = default;

  /// Returns the operations per second of kernels of a class; 0 if they were not measured. Between
  /// two measured intensities, the logarithm of the rate is linear in the logarithm of the
  /// intensity; beyond them the nearest rate counts.
  double flops_of(const std::string& kernel_class, double intensity) const;
  /// Returns the rate of a copy if `bytes` bytes are touched from one touch of its operand to the
  /// next.
  double copies_of(double bytes) const;
};

/// Returns the class of kernels that have similar rates: "MatMul", "MatMul lhs transposed", "Conv",
/// "Conv narrow". The class of a fused kernel names its first op. The class of a convolution
/// specifies whether it makes fewer channels than a vector has elements.
std::string kernel_class(const exe::Kernel& kernel);

/// Formats the description of a machine as JSON.
std::string to_json(const Rates& rates);

/// Reads the description of a machine. Error{kBadFile} for other text, for another version, for
/// fields that are missing or unknown, for rates that are not positive, and for levels of links
/// that are not nested or are faster than the level inside them. Pairs of links must have two
/// different groups of the machine, and no two pairs the same.
Rates read_rates(std::string_view json, const std::string& path);

}  // namespace sluice::report
