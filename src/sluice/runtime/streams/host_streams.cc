#include "sluice/runtime/streams/host_streams.h"

namespace sluice::runtime {

HostStreams::HostStreams(const exe::Executable& executable)
    : replicas_(executable.replicas), base_(executable.streams.size(), nullptr) {
  for (const exe::StreamPort& port : executable.streams) bytes_.push_back(port.spec.bytes());
}

}  // namespace sluice::runtime
