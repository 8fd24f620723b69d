#pragma once
#include <cstdint>
#include <map>
#include <tuple>

#include "sluice/exe/executable.h"
#include "sluice/report/forecast/rates.h"

namespace sluice::report {

/// The links between the devices of a cluster that runs `replicas` replicas of `devices` devices.
class Links {
 public:
  /// `rates` must have a cluster and must outlive this object.
  Links(const Rates& rates, int replicas, int devices)
      : rates_(rates), replicas_(replicas), devices_(devices) {}

  /// Returns the seconds that the bytes of a message take on the link between two devices of a
  /// replica, in the replica with the slowest link.
  double transfer_seconds(int from, int to, int64_t bytes) const;
  /// Returns the latency of that link in seconds.
  double latency(int from, int to) const;
  /// Returns the seconds of a collective's messages on the slowest link between members of one
  /// group. Each member sends exchanged_bytes() / members. An all-reduce has two rounds of messages
  /// with the latency of the link, any other collective has one.
  double collective_seconds(int device, const exe::ReplicaGroup& group,
                            const exe::Collective& collective) const;

 private:
  int64_t position(int replica, int device) const;
  /// Returns the number of levels whose groups separate two positions: 0 inside a host.
  size_t level_of(int64_t a, int64_t b) const;
  size_t level_of_message(int from, int to) const;
  size_t level_of_group(int device, const exe::ReplicaGroup& group) const;
  double messages_at(size_t level) const;
  double latency_at(size_t level) const;

  const Rates& rates_;
  int replicas_;
  int devices_;
  mutable std::map<std::pair<int, int>, size_t> message_levels_;
  mutable std::map<std::tuple<int, int32_t, int32_t>, size_t> group_levels_;
};

}  // namespace sluice::report
