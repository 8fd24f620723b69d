#include "sluice/runtime/communicator.h"

#include <map>

namespace sluice::runtime {

Communicator::Communicator(const exe::Executable& executable)
    : replicas_(static_cast<size_t>(executable.replicas)), groups_(executable.groups.size()) {
  for (const exe::Device& device : executable.devices) {
    for (const exe::ReplicaGroup& group : executable.groups) {
      std::map<int32_t, Meeting*> by_group;
      const int32_t block = group.stride * group.size;
      for (int32_t r = 0; r < executable.replicas; ++r) {
        Meeting*& meeting = by_group[r / block * group.stride + r % group.stride];
        if (meeting == nullptr) {
          meetings_.push_back(std::make_unique<Meeting>(static_cast<size_t>(group.size),
                                                        int64_t{group.size} * device.workers));
          meeting = meetings_.back().get();
        }
        memberships_.push_back({meeting, r % block / group.stride});
      }
    }
  }
}

void Communicator::reset() {
  for (const auto& meeting : meetings_) meeting->reset();
}

}  // namespace sluice::runtime
