#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sluice/exe/executable.h"

namespace sluice::check {

/// Computes exe::RemoteTrace while a program runs in the order of its plan. A transfer is known by
/// its token and its activation, an activation by the calls that lead to it. So plans in which
/// loads come earlier and stores later than in the graphs have one trace, as long as every load
/// finds the same store.
class RemoteLedger {
 public:
  using Activation = uint64_t;
  /// Before a run an entry holds the variable that lives there. Keeps no reference to the
  /// executable.
  explicit RemoteLedger(const exe::Executable& executable);
  static Activation entry(int32_t device);
  /// The activation that call number `call` of `caller` begins in an iteration: 0 outside loops, 1
  /// for an else-arm. Calls, loops and branches of a function are numbered together.
  static Activation callee(Activation caller, int64_t call, int64_t iteration);

  /// Records a load or store of an entry; none: data decide which one.
  void move(const exe::Issue& issue, std::optional<int64_t> entry, Activation by);

  /// The contents of a buffer's entries.
  struct Buffer {
    std::unordered_map<int64_t, uint64_t> entries;  ///< Entries that a store has named.
    uint64_t others = 0;                            ///< Digest of the stores that named none.
  };
  using Contents = std::map<int32_t, Buffer>;
  /// Both arms of a conditional begin with the same contents. Copy `contents` before the first arm,
  /// give them to `start_with` before the second one, then `join` with those that the first arm
  /// left.
  const Contents& contents() const { return contents_; }
  void start_with(Contents contents) { contents_ = std::move(contents); }
  void join(const Contents& then);

  /// The traces of all buffers that a transfer has used, in order.
  std::vector<exe::RemoteTrace> traces() const;

 private:
  uint64_t first(int32_t buffer, int64_t entry) const;
  uint64_t at(int32_t buffer, const Buffer& contents, int64_t entry) const;
  uint64_t all(int32_t buffer, const Buffer& contents) const;

  Contents contents_;
  std::map<int32_t, exe::RemoteTrace> moved_;  ///< So far; `found` is the sum over loads.
  std::map<std::pair<int32_t, int64_t>, uint64_t>
      homes_;  ///< Homes of variables, by buffer and entry.
};

}  // namespace sluice::check
