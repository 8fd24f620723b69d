#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "sluice/exe/executable.h"

namespace sluice::runtime {

/// Where the replicas of a group meet on a device, and where their operands lie while they do.
class Meeting {
 public:
  Meeting(size_t members, int64_t strands) : inputs(members), outputs(members), strands_(strands) {}

  std::vector<std::byte*> inputs;   ///< By member: each writes its own before it comes.
  std::vector<std::byte*> outputs;  ///< The same as the inputs, if they are updated.

  /// One worker of a replica comes to a collective, and is done with its part of it: in turn, and only when all have
  /// come, or are done.
  void come() { arrived_.fetch_add(1, std::memory_order_acq_rel); }
  void be_done() { come(); }
  /// All workers of all members have come to the collective of this number, from 0; are done with it.
  bool all_came(int64_t number) const { return arrivals() >= (2 * number + 1) * strands_; }
  bool all_done(int64_t number) const { return arrivals() >= (2 * number + 2) * strands_; }
  void reset() { arrived_ = 0; }

 private:
  int64_t arrivals() const { return arrived_.load(std::memory_order_acquire); }

  int64_t strands_;  ///< Workers of all members.
  alignas(64) std::atomic<int64_t> arrived_{0};
};

/// A replica's place in a group.
struct Membership {
  Meeting* meeting = nullptr;
  int member = 0;
};

/// How the replicas of an executable come together for collectives: here those of one process, in its memory. Nobody
/// ever blocks: who comes looks whether all have come.
class Communicator {
 public:
  explicit Communicator(const exe::Executable& executable);

  Membership membership(int device, int32_t group, int replica) {
    return memberships_[(static_cast<size_t>(device) * groups_ + static_cast<size_t>(group)) *
                            replicas_ +
                        static_cast<size_t>(replica)];
  }
  /// Before a run: nobody has come anywhere.
  void reset();

 private:
  size_t replicas_;
  size_t groups_;
  std::vector<std::unique_ptr<Meeting>> meetings_;
  std::vector<Membership> memberships_;  ///< By device, group, replica.
};

}  // namespace sluice::runtime
