#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "sluice/base/shape.h"

namespace sluice {

/// A handle on a host stream of an Ir. Direction is in the type.
template <int Direction>
struct Stream {
  uint64_t ir = 0;
  int32_t id = -1;
  std::string name;
  TensorSpec spec;
  bool operator==(const Stream& other) const { return ir == other.ir && id == other.id; }
};

using H2dStream = Stream<0>;  ///< Host to device: an input of the program.
using D2hStream = Stream<1>;  ///< Device to host: an output.

/// `entries` slots of one spec in remote memory; every replica has its own.
struct RemoteBuffer {
  uint64_t ir = 0;
  int32_t id = -1;  ///< From 1.
  TensorSpec spec;
  int64_t entries = 1;
  bool operator==(const RemoteBuffer& other) const { return ir == other.ir && id == other.id; }
};

}  // namespace sluice

template <int Direction>
struct std::hash<sluice::Stream<Direction>> {
  size_t operator()(const sluice::Stream<Direction>& s) const {
    return std::hash<uint64_t>{}(s.ir * 0x9e3779b97f4a7c15u + static_cast<uint64_t>(s.id));
  }
};
