#pragma once
#include <cmath>
#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "sluice/exe/executable.h"
#include "sluice/report/forecast/rates.h"

namespace sluice::report {

/// The links between the devices of a cluster that runs `replicas` replicas of `devices` devices.
class Links {
 public:
  /// `rates` must have a cluster and must outlive this object. Error{kUsage} if the cluster has
  /// fewer devices than the replicas have together.
  Links(const Rates& rates, int replicas, int devices);

  /// Returns the seconds that the bytes of a message take on the link between two devices of a
  /// replica, in the replica with the slowest link.
  double transfer_seconds(int from, int to, int64_t bytes) const;
  /// Returns the latency of that link in seconds, in the replica with the highest latency.
  double latency(int from, int to) const;
  /// Returns the seconds of a collective's messages. The members of a group form a ring in the
  /// order of replicas, and the ring's slowest link counts. Each member sends exchanged_bytes() /
  /// members. An all-reduce has two rounds of messages with the highest latency of these links, any
  /// other collective has one.
  double collective_seconds(int device, const exe::ReplicaGroup& group,
                            const exe::Collective& collective) const;

 private:
  /// The lowest rate and the highest latency of links.
  struct SlowestLink {
    double messages = HUGE_VAL;  ///< Bytes per second.
    double latency = 0;          ///< Seconds.
  };

  int64_t position(int replica, int device) const;
  void add_link(int64_t a, int64_t b, SlowestLink& slowest) const;
  const SlowestLink& link_of_message(int from, int to) const;
  const SlowestLink& link_of_group(int device, const exe::ReplicaGroup& group) const;

  const Rates& rates_;
  int replicas_;
  int devices_;
  /// By devices of a group, index of a group and larger index of a group.
  std::map<std::tuple<int64_t, int64_t, int64_t>, const LinkPair*> pairs_;
  std::vector<int64_t> pair_sizes_;  ///< Devices of the groups in pairs, ascending.
  mutable std::map<std::pair<int, int>, SlowestLink> message_links_;
  mutable std::map<std::tuple<int, int32_t, int32_t>, SlowestLink> group_links_;
};

}  // namespace sluice::report
