#include "sluice/report/forecast/links.h"

#include <algorithm>

#include "sluice/report/traffic.h"

namespace sluice::report {

int64_t Links::position(int replica, int device) const {
  return rates_.cluster->order == Cluster::Order::kReplicas ? int64_t{replica} * devices_ + device
                                                            : int64_t{device} * replicas_ + replica;
}

// A group of a level consists of whole groups of the previous level.
size_t Links::level_of(int64_t a, int64_t b) const {
  const std::vector<LinkLevel>& levels = rates_.cluster->links;
  const auto joined = std::find_if(levels.begin(), levels.end(), [&](const LinkLevel& level) {
    return a / level.devices == b / level.devices;
  });
  return static_cast<size_t>(joined - levels.begin());
}

size_t Links::level_of_message(int from, int to) const {
  const auto [found, is_new] = message_levels_.try_emplace({from, to}, 0);
  for (int r = 0; is_new && r < replicas_; ++r)
    found->second = std::max(found->second, level_of(position(r, from), position(r, to)));
  return found->second;
}

// The first and the last member are as far apart as any two.
size_t Links::level_of_group(int device, const exe::ReplicaGroup& group) const {
  const auto [found, is_new] = group_levels_.try_emplace({device, group.stride, group.size}, 0);
  const int span = group.stride * (group.size - 1);
  for (int first = 0; is_new && first + span < replicas_; ++first) {
    if (first / group.stride % group.size != 0) continue;
    found->second =
        std::max(found->second, level_of(position(first, device), position(first + span, device)));
  }
  return found->second;
}

double Links::messages_at(size_t level) const {
  return level == 0 ? rates_.messages : rates_.cluster->links[level - 1].messages;
}

double Links::latency_at(size_t level) const {
  return level == 0 ? rates_.latency : rates_.cluster->links[level - 1].latency;
}

double Links::transfer_seconds(int from, int to, int64_t bytes) const {
  return static_cast<double>(bytes) / messages_at(level_of_message(from, to));
}

double Links::latency(int from, int to) const { return latency_at(level_of_message(from, to)); }

double Links::collective_seconds(int device, const exe::ReplicaGroup& group,
                                 const exe::Collective& collective) const {
  const int64_t exchanged = exchanged_bytes(collective, group.size);
  if (exchanged == 0) return 0;
  const size_t level = level_of_group(device, group);
  const double bytes = static_cast<double>(exchanged) / group.size;
  return (is_all_reduce(collective) ? 2 : 1) * latency_at(level) + bytes / messages_at(level);
}

}  // namespace sluice::report
