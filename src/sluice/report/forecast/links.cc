#include "sluice/report/forecast/links.h"

#include <algorithm>
#include <set>

#include "sluice/base/error.h"
#include "sluice/report/traffic.h"

namespace sluice::report {

Links::Links(const Rates& rates, int replicas, int devices)
    : rates_(rates), replicas_(replicas), devices_(devices) {
  const Cluster& cluster = *rates.cluster;
  const int64_t used = int64_t{replicas} * devices;
  require(cluster.devices == 0 || used <= cluster.devices,
          "devices of all replicas: must be at most {}, the 'devices' of the machine's 'cluster', "
          "got {}",
          cluster.devices, used);
  std::set<int64_t> sizes;
  for (const LinkPair& pair : cluster.pairs) {
    const auto [low, high] = std::minmax(pair.first, pair.second);
    pairs_[{pair.devices, low, high}] = &pair;
    sizes.insert(pair.devices);
  }
  pair_sizes_.assign(sizes.begin(), sizes.end());
}

int64_t Links::position(int replica, int device) const {
  return rates_.cluster->order == Cluster::Order::kReplicas ? int64_t{replica} * devices_ + device
                                                            : int64_t{device} * replicas_ + replica;
}

// A group of a level consists of whole groups of the previous level.
void Links::add_link(int64_t a, int64_t b, SlowestLink& slowest) const {
  const auto add = [&](double messages, double latency) {
    slowest = {std::min(slowest.messages, messages), std::max(slowest.latency, latency)};
  };
  for (const int64_t size : pair_sizes_) {
    const auto [low, high] = std::minmax({a / size, b / size});
    const auto found = pairs_.find({size, low, high});
    if (found != pairs_.end()) return add(found->second->messages, found->second->latency);
  }
  const std::vector<LinkLevel>& levels = rates_.cluster->links;
  const auto joined = std::find_if(levels.begin(), levels.end(), [&](const LinkLevel& level) {
    return a / level.devices == b / level.devices;
  });
  if (joined == levels.begin()) return add(rates_.messages, rates_.latency);
  add(std::prev(joined)->messages, std::prev(joined)->latency);
}

const Links::SlowestLink& Links::link_of_message(int from, int to) const {
  const auto [found, is_new] = message_links_.try_emplace({from, to});
  for (int r = 0; is_new && r < replicas_; ++r)
    add_link(position(r, from), position(r, to), found->second);
  return found->second;
}

const Links::SlowestLink& Links::link_of_group(int device, const exe::ReplicaGroup& group) const {
  const auto [found, is_new] = group_links_.try_emplace({device, group.stride, group.size});
  const int span = group.stride * (group.size - 1);
  for (int r = 0; is_new && r < replicas_; ++r) {
    const bool is_last = r / group.stride % group.size == group.size - 1;
    const int next = is_last ? r - span : r + group.stride;
    if (next >= 0 && next < replicas_ && next != r)
      add_link(position(r, device), position(next, device), found->second);
  }
  return found->second;
}

double Links::transfer_seconds(int from, int to, int64_t bytes) const {
  return static_cast<double>(bytes) / link_of_message(from, to).messages;
}

double Links::latency(int from, int to) const { return link_of_message(from, to).latency; }

double Links::collective_seconds(int device, const exe::ReplicaGroup& group,
                                 const exe::Collective& collective) const {
  const int64_t exchanged = exchanged_bytes(collective, group.size);
  if (exchanged == 0) return 0;
  const SlowestLink& link = link_of_group(device, group);
  const double bytes = static_cast<double>(exchanged) / group.size;
  return (is_all_reduce(collective) ? 2 : 1) * link.latency + bytes / link.messages;
}

}  // namespace sluice::report
