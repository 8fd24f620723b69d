#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sluice/exe/executable.h"

namespace sluice::check {

/// Computes exe::RemoteTrace while a program runs in the order of its plan. A token and an
/// activation identify a transfer, and a chain of calls identifies an activation. A plan may load
/// earlier or store later than the graphs. Its trace is the same as long as every load finds the
/// same store.
class RemoteLedger {
 public:
  using Activation = uint64_t;
  /// Before a run, the home entry of a variable holds that variable. Keeps no reference to the
  /// executable.
  explicit RemoteLedger(const exe::Executable& executable);
  static Activation entry(int32_t device);
  /// Returns the activation that call number `call` of `caller` begins. `iteration` is 0 outside
  /// loops and 1 for an else-arm. Calls, loops and branches of a function are numbered together.
  static Activation callee(Activation caller, int64_t call, int64_t iteration);

  /// Records a load or store of an entry. `entry` is empty if data select the entry at run time.
  void move(const exe::Issue& issue, std::optional<int64_t> entry, Activation by);

  /// Digests of the contents of a buffer's entries.
  struct Buffer {
    /// By entry: digest of its content, if a store has named the entry.
    std::unordered_map<int64_t, uint64_t> entries;
    uint64_t others = 0;  ///< Digest of all stores that did not name an entry.
  };
  using Contents = std::map<int32_t, Buffer>;
  /// Both arms of a conditional begin with the same contents. Copy `contents` before the first arm
  /// and pass the copy to `start_with` before the second arm. Then pass the contents that the first
  /// arm left to `join`.
  const Contents& contents() const { return contents_; }
  void start_with(Contents contents) { contents_ = std::move(contents); }
  void join(const Contents& then);
  /// Joins the contents of these buffers before a loop that may exit with those after it.
  void join(const Contents& before, const std::set<int32_t>& buffers);

  /// Returns the traces of all buffers that a transfer has used, in ascending order of buffers.
  std::vector<exe::RemoteTrace> traces() const;

 private:
  uint64_t first(int32_t buffer, int64_t entry) const;
  uint64_t at(int32_t buffer, const Buffer& contents, int64_t entry) const;
  uint64_t all(int32_t buffer, const Buffer& contents) const;

  Contents contents_;
  std::map<int32_t, exe::RemoteTrace> moved_;  ///< Counts so far; `found` is the sum over loads.
  /// By buffer and entry: digest of the variable whose home it is.
  std::map<std::pair<int32_t, int64_t>, uint64_t> homes_;
};

}  // namespace sluice::check
