#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "sluice/exe/executable.h"

namespace sluice::runtime {

/// Host side of a program's streams: entry k of stream s lies at base[s] + k * bytes[s]. Bound by the caller for a run.
class HostStreams {
 public:
  explicit HostStreams(const exe::Executable& executable);

  /// `data` holds all entries of a run of the stream, in order.
  void bind(int32_t stream, std::byte* data) { base_[static_cast<size_t>(stream)] = data; }
  std::byte* entry(int32_t stream, int64_t k) const {
    return base_[static_cast<size_t>(stream)] + k * bytes_[static_cast<size_t>(stream)];
  }
  int64_t entry_bytes(int32_t stream) const { return bytes_[static_cast<size_t>(stream)]; }

 private:
  std::vector<std::byte*> base_;
  std::vector<int64_t> bytes_;
};

}  // namespace sluice::runtime
