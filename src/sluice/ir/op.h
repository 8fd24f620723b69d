#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sluice/base/attrs.h"
#include "sluice/ir/tensor.h"

namespace sluice {

struct OpDef;
struct Provenance;

/// How an op accesses the storage of an operand.
enum class Mode : uint8_t {
  kRead,    ///< Reads it.
  kUpdate,  ///< Reads and writes it: the storage gets a new version.
  kWrite,   ///< Overwrites all of it without reading.
};

/// An input of an op: the tensor, and the versions of its storage that the op reads and makes.
struct Operand {
  TensorId tensor;
  Mode mode = Mode::kRead;
  Version version{0};   ///< Version of the storage before this op.
  Version new_version;  ///< Version that this op makes; -1 if it only reads.
};

/// Where a transfer between device memory and a stream or remote buffer runs, and whether other ops
/// run at the same time. The mode does not change results.
enum class IoMode : uint8_t {
  kCompute,       ///< On the compute queue, at its position in program order.
  kIo,            ///< On an I/O queue; the ops after it wait until it ends.
  kIoOverlapped,  ///< On an I/O queue, issued as early and waited for as late as the order allows.
};

/// Access of an op to something outside the tensors of the graph. Effects happen in program order.
struct Effect {
  enum class Action : uint8_t { kStreamRead, kStreamWrite, kRemoteLoad, kRemoteStore, kPrint };
  Action kind;
  int32_t id = 0;  ///< Stream or remote buffer.
  /// Position among the effects of this graph of the same kind on the same object. For a stream, it
  /// is the number of the entry.
  int64_t order = 0;
  int64_t entry = -1;            ///< Remote entry if constant, -1 if an operand holds it.
  IoMode io = IoMode::kCompute;  ///< Mode of a transfer.
  bool operator==(const Effect&) const = default;
};

/// The op has no device; it runs on the device of its caller.
inline constexpr int kInheritDevice = -1;

/// A node of a graph.
struct Op {
  OpId id;
  const OpDef* def = nullptr;
  Attrs attrs;
  std::vector<Operand> inputs;
  std::vector<TensorId> outputs;
  std::vector<Effect> effects;
  std::vector<GraphId> callees;  ///< Call: 1; Loop: 1 (the wrapper); If: then, else.
  int device = kInheritDevice;
  std::shared_ptr<const Provenance> provenance;  ///< Never null in a graph.

  /// Returns type and id: "MatMul.100".
  std::string label() const;
};

}  // namespace sluice
