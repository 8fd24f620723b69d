#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "sluice/exe/executable.h"

namespace sluice::runtime {

/// Host side of a program's streams. An entry of a stream has one array for each replica, in order.
/// The caller binds the arrays before a run.
class HostStreams {
 public:
  explicit HostStreams(const exe::Executable& executable);

  /// `data` holds all entries of a run of the stream, in order, each with the arrays of all
  /// replicas.
  void bind(exe::StreamId stream, std::byte* data) { base_[stream] = data; }
  std::byte* entry(exe::StreamId stream, int64_t k, int replica) const {
    return base_[stream] + (k * replicas_ + replica) * bytes_[stream];
  }

 private:
  int64_t replicas_;
  Ids<exe::StreamId, std::byte*> base_;
  Ids<exe::StreamId, int64_t> bytes_;
};

}  // namespace sluice::runtime
