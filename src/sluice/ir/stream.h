#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "sluice/base/feed.h"
#include "sluice/base/host_tensor.h"
#include "sluice/ir/tensor.h"

namespace sluice {

/// A handle to a host stream of an Ir. The type determines the direction.
template <int Direction>
struct Stream {
  uint64_t ir = 0;
  int32_t id = -1;
  std::string name = {};
  TensorSpec spec = {};
  bool operator==(const Stream& other) const { return ir == other.ir && id == other.id; }
};

using H2dStream = Stream<0>;  ///< Host to device: an input of the program.
using D2hStream = Stream<1>;  ///< Device to host: an output.

/// An input stream and the array of the entries that a run reads. The axes of the array are the
/// entries (a single entry may omit this axis), the replicas, if there are several, and the axes of
/// an entry. HostTensor::stack() joins entries to such an array.
struct StreamInput {
  H2dStream stream = {};
  ConstArrayView array = {};
};

/// A handle to a remote buffer: slots ("entries") of one spec in remote memory. Every replica has
/// its own slots. The Ir stores the number of entries.
struct RemoteBuffer {
  uint64_t ir = 0;
  int32_t id = -1;  ///< Number of the buffer, from 1.
  TensorSpec spec = {};
  bool operator==(const RemoteBuffer& other) const { return ir == other.ir && id == other.id; }
};

/// An entry of a remote buffer: a number, or a scalar i32 or u32 tensor.
class RemoteEntry {
 public:
  RemoteEntry(int64_t constant) : constant_(constant) {}      // NOLINT: implicit
  RemoteEntry(Tensor tensor) : tensor_(std::move(tensor)) {}  // NOLINT: implicit

  /// The index of the entry, or -1 if a tensor holds it.
  int64_t constant() const { return constant_; }
  const Tensor* tensor() const { return tensor_.valid() ? &tensor_ : nullptr; }

 private:
  int64_t constant_ = -1;
  Tensor tensor_;
};

/// A handle to an infeed of an Ir: a sequence of elements from the host. Each field of an element
/// has a stream. Entry k of all its streams belongs to element k.
struct Infeed {
  uint64_t ir = 0;
  int32_t id = -1;
  std::string name = {};
  std::vector<FeedField> fields = {};
  std::vector<H2dStream> streams = {};  ///< Keyed by field.
};

/// A handle to an outfeed of an Ir: a sequence of elements for the host.
struct Outfeed {
  uint64_t ir = 0;
  int32_t id = -1;
  std::string name = {};
  std::vector<FeedField> fields = {};
  std::vector<D2hStream> streams = {};  ///< Keyed by field.
};

struct InfeedOptions {
  /// Elements, 1 to 255, that the host makes in advance for each replica.
  int prefetch_depth = 3;
};

struct OutfeedOptions {
  /// Elements, 1 to 255, of each replica that may be queued for the host.
  int depth = 3;
};

}  // namespace sluice

template <int Direction>
struct std::hash<sluice::Stream<Direction>> {
  size_t operator()(const sluice::Stream<Direction>& s) const {
    return std::hash<uint64_t>{}(s.ir * 0x9e3779b97f4a7c15u + static_cast<uint64_t>(s.id));
  }
};
