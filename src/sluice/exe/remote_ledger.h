#pragma once
#include <cstdint>
#include <map>
#include <set>
#include <unordered_map>
#include <vector>

#include "sluice/exe/executable.h"

namespace sluice::exe {

/// Which store every load of a run finds, and which is the last of each entry, whatever order the transfers are told in
/// that leaves this alone. A transfer is known by its token and its activation, an activation by the calls that lead to
/// it, so that plans in which loads come earlier and stores later than in the graphs have one trace.
class RemoteLedger {
 public:
  using Activation = uint64_t;
  /// Before a run an entry holds the variable that lives there; the executable must outlive the ledger's making only.
  explicit RemoteLedger(const Executable& executable);
  static Activation entry(int32_t device);
  /// What call number `call` of an activation makes in an iteration (0 outside loops). Calls, loops and branches of a
  /// function are numbered together.
  static Activation callee(Activation caller, int64_t call, int64_t iteration);

  /// A load or store of the entry.
  void move(const Issue& issue, int64_t entry, Activation by);
  /// Data decide which entries of the buffer are moved, or whether.
  void open(int32_t buffer) { open_.insert(buffer); }
  bool is_open(int32_t buffer) const { return open_.contains(buffer); }

  /// Of every buffer that was moved and is not open, in order.
  std::vector<RemoteTrace> traces() const;

 private:
  uint64_t first(int32_t buffer, int64_t entry) const;

  struct Buffer {
    int64_t loads = 0;
    int64_t stores = 0;
    uint64_t found = 0;
    std::unordered_map<int64_t, uint64_t> entries;  ///< The last store of each.
  };
  std::map<int32_t, Buffer> buffers_;
  std::map<std::pair<int32_t, int64_t>, uint64_t> homes_;  ///< Of variables, by buffer and entry.
  std::set<int32_t> open_;
};

}  // namespace sluice::exe
