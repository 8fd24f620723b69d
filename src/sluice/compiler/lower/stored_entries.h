#pragma once
#include <vector>

#include "sluice/compiler/analysis/indices.h"
#include "sluice/exe/executable.h"

namespace sluice::compiler {

/// The values that the stores of a body have left in entries of remote buffers. They are known
/// because only one device uses a buffer.
class StoredEntries {
 public:
  /// Returns the value in an entry; kNoValue if it is not known.
  exe::ValueId find(exe::BufferId buffer, const exe::IndexExpr& entry) const {
    for (const Stored& s : stored_) {
      if (s.buffer == buffer && s.entry == entry) return s.value;
    }
    return exe::kNoValue;
  }

  /// Sets the value that a load must find, or records a store. A store ends what is known about
  /// entries that it may overwrite.
  void track(exe::Issue& issue) {
    const bool known = !issue.entry_from;
    if (issue.kind == exe::TransferKind::kRemoteLoad) {
      if (known) issue.found = find(issue.buffer(), issue.entry);
      return;
    }
    std::erase_if(stored_, [&](const Stored& s) {
      return s.buffer == issue.buffer() && !(known && differ(s.entry, issue.entry));
    });
    if (known) stored_.push_back({issue.buffer(), issue.entry, issue.memory.value});
  }

  /// Forgets the entries of a buffer to which a callee may store.
  void forget(exe::BufferId buffer) {
    std::erase_if(stored_, [&](const Stored& s) { return s.buffer == buffer; });
  }

 private:
  struct Stored {
    exe::BufferId buffer;
    exe::IndexExpr entry;
    exe::ValueId value;
  };
  std::vector<Stored> stored_;
};

}  // namespace sluice::compiler
