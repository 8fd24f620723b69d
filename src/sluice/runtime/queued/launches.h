#pragma once
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "sluice/runtime/loaded_program.h"
#include "sluice/runtime/queued/commands.h"

namespace sluice::runtime {

/// Kernels that are batched before they are enqueued. A step for which the host does more than
/// launch flushes them. Then they are recorded and replayed with one call. If the same kernels with
/// the same arguments gather again, in this run or a later one, that recording is replayed again.
class Launches {
 public:
  /// `workspace` is the workspace of all kernels.
  Launches(Commands& commands, const StackNeeds& needs, DeviceAddress workspace);

  /// Forgets the kernels of a run that was stopped.
  void restart() { gathered_.clear(); }
  /// Adds a kernel with its arguments.
  void add(const LoadedKernel& kernel, const DeviceAddress* operands, const int64_t* scalars);
  /// Enqueues the kernels that have gathered. A step that ends a recording calls this before its
  /// own command.
  void flush();

 private:
  /// Kernels in their order, with the arguments of all of them.
  struct Batch {
    std::vector<const LoadedKernel*> kernels;
    std::vector<DeviceAddress> operands;
    std::vector<int64_t> scalars;

    bool operator==(const Batch&) const = default;
    void clear();
    uint64_t hash() const;
  };
  struct Recorded {
    Batch batch;
    std::unique_ptr<Recording> recording;
  };

  const Recorded* find(uint64_t hash) const;
  void launch_all();

  Commands& commands_;
  DeviceAddress workspace_;
  Batch gathered_;
  std::unordered_multimap<uint64_t, Recorded> recorded_;  ///< Keyed by hash of the batch.
  std::vector<DeviceAddress> operands_;                   ///< Arguments of one launch.
  std::vector<int64_t> scalars_;
};

}  // namespace sluice::runtime
