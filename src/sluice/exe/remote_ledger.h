#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>
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

  /// A load or store of the entry; of one that data decide, without.
  void move(const Issue& issue, std::optional<int64_t> entry, Activation by);

  /// What the entries of a buffer hold.
  struct Buffer {
    std::unordered_map<int64_t, uint64_t> entries;  ///< Of those that a store has named.
    uint64_t others = 0;  ///< What stores that named none may have left in the others.
  };
  using Contents = std::map<int32_t, Buffer>;
  /// Both arms of a conditional begin with what entries hold before it; afterwards they hold what either has left:
  /// keep `contents` and start anew with them, then join what one arm left with what the other has.
  const Contents& contents() const { return contents_; }
  void start_with(Contents contents) { contents_ = std::move(contents); }
  void join(const Contents& then);

  /// Of every buffer that was moved, in order.
  std::vector<RemoteTrace> traces() const;

 private:
  uint64_t first(int32_t buffer, int64_t entry) const;
  uint64_t at(int32_t buffer, const Buffer& contents, int64_t entry) const;
  uint64_t all(int32_t buffer, const Buffer& contents) const;

  Contents contents_;
  std::map<int32_t, RemoteTrace> moved_;                   ///< What loads have found so far.
  std::map<std::pair<int32_t, int64_t>, uint64_t> homes_;  ///< Of variables, by buffer and entry.
};

}  // namespace sluice::exe
