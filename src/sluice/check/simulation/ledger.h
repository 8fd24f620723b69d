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
  /// Before a run, the entry of a variable holds that variable. Keeps no reference to the
  /// executable.
  explicit RemoteLedger(const exe::Executable& executable);
  static Activation entry(exe::DeviceId device);
  /// Returns the activation that call number `call` of `caller` begins. `iteration` is 0 outside
  /// loops and in long loops, and 1 for an else-arm. Calls, loops and branches of a function are
  /// numbered together.
  static Activation callee(Activation caller, int64_t call, int64_t iteration);

  /// Records a load or store of an entry. `entry` is empty if data select the entry at run time.
  void move(const exe::Issue& issue, exe::DeviceId device, std::optional<int64_t> entry,
            Activation by);

  /// Long loops of a device nest: each call concerns the innermost one that runs. Returns how many
  /// long loops now run on the device.
  size_t begin_long_loop(exe::DeviceId device);
  void end_iteration(exe::DeviceId device);
  void end_long_loop(exe::DeviceId device);

  /// Content of an entry.
  struct EntryState {
    uint64_t digest = 0;
    exe::DeviceId device{0};  ///< Device that has set it.
    /// Number of long loops around it that run, and the iteration of the innermost one.
    int32_t depth = 0;
    int64_t iteration = 0;
    bool operator==(const EntryState&) const = default;
  };
  /// Contents of the entries of a buffer.
  struct Buffer {
    std::unordered_map<int64_t, EntryState> entries;  ///< Entries that a store has named.
    uint64_t others = 0;  ///< Digest of all stores that did not name an entry.
  };
  using Contents = std::map<exe::BufferId, Buffer>;
  /// Both arms of a conditional begin with the same contents. Copy `contents` before the first arm
  /// and pass the copy to `start_with` before the second arm. Then pass the contents that the first
  /// arm left to `join`. `device` runs the conditional.
  const Contents& contents() const { return contents_; }
  void start_with(Contents contents) { contents_ = std::move(contents); }
  void join(const Contents& then, exe::DeviceId device);
  /// Joins the contents of these buffers before a loop that may exit with those after it.
  void join(const Contents& before, const std::set<exe::BufferId>& buffers, exe::DeviceId device);

  /// Counts and sums so far.
  struct Progress {
    struct Sum {
      uint64_t ended = 0;  ///< Sum over the iterations that have ended.
      uint64_t open = 0;   ///< Sum over the loads of the iteration that runs.
      bool operator==(const Sum&) const = default;
    };
    struct LongLoop {
      int64_t iteration = 0;
      std::map<exe::BufferId, Sum> sums;
    };
    std::map<exe::BufferId, exe::RemoteTrace> moved;  ///< `found` is the sum outside of long loops.
    std::map<exe::DeviceId, std::vector<LongLoop>> loops;  ///< From the outermost loop.
  };
  const Progress& progress() const { return progress_; }
  /// A long loop that has run some iterations more.
  struct Advance {
    exe::DeviceId device{0};
    size_t depth = 0;  ///< Number of long loops up to this one; 0: it is not long.
    int64_t iterations = 0;
  };
  /// Appends the contents as seen by loads, which is the same in each iteration that finds the same
  /// stores the same number of iterations ago.
  void serialise(std::vector<int64_t>& out) const;
  /// Returns whether progress since `before` repeats with the loops: no sums but those of ended
  /// iterations of the loops in `advances` have changed.
  bool repeats(const Progress& before, const std::vector<Advance>& advances) const;
  /// Adds `periods` times the progress since `before`. Requires equal contents, as serialised, and
  /// `repeats`.
  void skip(const Progress& before, const std::vector<Advance>& advances, int64_t periods);

  /// Returns the traces of all buffers that a transfer has used, in ascending order of buffers.
  std::vector<exe::RemoteTrace> traces() const;

 private:
  uint64_t first(exe::BufferId buffer, int64_t entry) const;
  EntryState at(exe::BufferId buffer, const Buffer& contents, int64_t entry) const;
  uint64_t seen(const EntryState& content) const;
  EntryState set_now(uint64_t digest, exe::DeviceId device) const;
  uint64_t all(exe::BufferId buffer, const Buffer& contents) const;
  void add(exe::DeviceId device, exe::BufferId buffer, uint64_t found);

  Contents contents_;
  Progress progress_;
  /// Digest of the variable that an entry holds before a run, keyed by buffer and entry.
  std::map<std::pair<exe::BufferId, int64_t>, uint64_t> initial_;
};

}  // namespace sluice::check
