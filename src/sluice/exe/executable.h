#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "sluice/base/attrs.h"
#include "sluice/base/host_tensor.h"
#include "sluice/base/shape.h"
#include "sluice/exe/index_expr.h"

/// The compiled artefact: plain data, self-contained, printable. It knows neither the graphs it came from nor the code
/// that made it.
namespace sluice::exe {

/// Index into Executable::values.
using ValueId = int32_t;
inline constexpr ValueId kNoValue = -1;

/// One value of one tensor: what a read must find. Values are static names; an activation of a function (and an
/// iteration of a loop) has its own instance of each value that it makes.
struct Value {
  std::string tensor;   ///< "fc1.weight", "Linear_subgraph(0)/matmul_100".
  int64_t version = 0;  ///< Version of the tensor's storage.
  bool operator==(const Value&) const = default;
};

enum class Space : uint8_t { kDevice, kPinned, kHost, kFile };

/// What an arena is for. Workspace arenas hold one slice of `stride` bytes per worker. A file tier with a staging arena
/// goes past the system's page cache, by way of that; one with checksums has each piece of an entry checked when it is read.
enum class ArenaKind : uint8_t {
  kPersistent,
  kFrames,
  kWorkspace,
  kSlots,
  kTier,
  kStaging,
  kChecksums
};

struct Arena {
  std::string name;
  ArenaKind kind = ArenaKind::kPersistent;
  Space space = Space::kDevice;
  int32_t device = 0;  ///< Owner; -1 for arenas of the machine.
  int64_t bytes = 0;
  int64_t stride = 0;  ///< Workspace: bytes a worker may use; bytes >= workers * stride.
  bool operator==(const Arena&) const = default;
};

/// base + offset + (slot mod depth) * stride. depth 0: no ring. The frame is the running activation's.
struct Address {
  enum class Base : uint8_t { kArena, kFrame, kParam };
  Base base = Base::kFrame;
  int32_t index = 0;  ///< Arena or parameter; 0 for the frame.
  int64_t offset = 0;
  int64_t depth = 0;
  int64_t stride = 0;
  IndexExpr slot;
  bool operator==(const Address&) const = default;
};

enum class Access : uint8_t { kRead, kWrite, kUpdate };

/// Memory that a step touches, and the values it finds and makes there.
struct Operand {
  Address at;
  int64_t bytes = 0;
  Access access = Access::kRead;
  ValueId value = kNoValue;  ///< Read, update: the value found. Write: the value made.
  ValueId made = kNoValue;   ///< Update: the value made.
  TensorSpec spec;
  std::string layout = "row";  ///< "row": row-major in logical order.
  /// Task t of the step touches bytes [t * task_stride, (t + 1) * task_stride) of the operand; 0: every task all of it.
  int64_t task_stride = 0;
  /// If not 0, the operand is rows of this many bytes, and the cut is one of each row: of columns, not of rows.
  int64_t task_pitch = 0;
  bool operator==(const Operand&) const = default;
};

/// One op of a kernel that fuses several, by the type of its operator.
using Stage = OpStageOf<std::string>;

/// Runs a kernel: inputs, then outputs, of the op it came from.
struct Kernel {
  std::string key;  ///< The kernel at the target, "cpu.gemm".
  std::string op;   ///< OpDef::type; of a fused kernel, those of its stages joined by '+'.
  Attrs attrs;
  std::vector<Stage> stages;  ///< What a fused kernel means; empty: `op` with `attrs`.
  std::vector<Operand> operands;
  std::vector<IndexExpr> scalars;  ///< Scalar arguments (micro-batch, step).
  /// (input operand, output operand) that may be exactly the same bytes.
  std::vector<std::pair<int32_t, int32_t>> may_coincide;
  int64_t tasks = 1;  ///< Task t runs on any worker; tasks of one kernel never need each other.
  int64_t workspace_bytes =
      0;  ///< Per worker, at the start of the worker's slice of the device's workspace arena.
  bool operator==(const Kernel&) const = default;
};

/// Runs a function on the caller's addresses.
struct Call {
  int32_t function = 0;
  std::vector<Operand> args;          ///< One per parameter, with the parameter's access.
  std::vector<IndexExpr> index_args;  ///< One per index parameter.
  Address frame;                      ///< Where the callee's frame lies.
  bool operator==(const Call&) const = default;
};

/// A result of one iteration that is an argument of the next.
struct Carry {
  int32_t in = 0;  ///< Argument that reads it. Iteration 0 finds the argument's `value`.
  int32_t out =
      0;  ///< Argument that makes it; the same one if it is updated in place. After the loop: its value.
  bool operator==(const Carry&) const = default;
};

/// Calls a function `trips` times; addresses and index arguments may use the iteration.
struct Loop {
  Call body;
  int64_t trips = 0;
  std::vector<Carry> carried;
  bool operator==(const Loop&) const = default;
};

/// Calls one of two functions by a scalar bool in device memory.
struct Branch {
  Operand condition;
  Call then_call;
  Call else_call;
  bool operator==(const Branch&) const = default;
};

enum class TransferKind : uint8_t { kStreamIn, kStreamOut, kRemoteLoad, kRemoteStore };

/// Starts a transfer between device memory and a host stream or a remote buffer. On queue 0 (compute) it is done when
/// the step is; on another queue it is done when a wait for its token has passed.
struct Issue {
  TransferKind kind = TransferKind::kStreamIn;
  int32_t object = 0;  ///< Index into streams or remote buffers.
  IndexExpr entry;     ///< Entry of the stream's order, or of the buffer.
  std::optional<Operand>
      entry_from;  ///< Instead, a scalar in device memory, bounds-checked at run time.
  Operand memory;  ///< Device side: written by loads, read by stores.
  int32_t queue = 0;
  int32_t token = 0;  ///< Unique in its function.
  ValueId found =
      kNoValue;  ///< Remote load: the value that the entry holds, where this function knows it.
  bool operator==(const Issue&) const = default;
};

/// Compute queue waits until the transfer last issued under the token has ended.
struct Wait {
  int32_t queue = 0;
  int32_t token = 0;
  bool operator==(const Wait&) const = default;
};

/// Puts a value into slot (message mod capacity) of a channel; waits for the slot to be free. Messages of a channel are
/// numbered from 0 in the order sent.
struct Send {
  int32_t channel = 0;
  IndexExpr message;
  Operand operand;
  bool operator==(const Send&) const = default;
};

/// Takes message `message` out of a channel; waits for it.
struct Receive {
  int32_t channel = 0;
  IndexExpr message;
  Operand operand;
  bool operator==(const Receive&) const = default;
};

/// Runs an op of the replicas of a group together: nobody goes on before all have arrived, nobody leaves before all are
/// done, and in between each may read and write the operands of all. So it is a barrier of its workers too.
struct Collective {
  std::string op;  ///< OpDef::type.
  Attrs attrs;
  int32_t group = 0;
  IndexExpr sequence;             ///< Collectives of this grouping that the device has run before.
  std::vector<Operand> operands;  ///< Input and output, or one that is updated.
  std::vector<std::pair<int32_t, int32_t>> may_coincide;  ///< As of kernels.
  bool operator==(const Collective&) const = default;
};

struct Step {
  std::variant<Kernel, Call, Loop, Branch, Issue, Wait, Send, Receive, Collective> body;
  /// All workers have finished what came before in this program before any begins this step. A single-task step is run
  /// by worker 0, in order with the other single-task steps.
  bool sync = false;
  int64_t origin = -1;  ///< Op id.
  std::string where;    ///< Module path and source line.
  bool operator==(const Step&) const = default;
};

struct Param {
  std::string name;
  Access access = Access::kRead;
  int64_t bytes = 0;
  TensorSpec spec;
  std::string layout = "row";
  ValueId value = kNoValue;  ///< Read, update: the value on entry. Write: the value on return.
  ValueId made = kNoValue;   ///< Update: the value on return.
  bool operator==(const Param&) const = default;
};

/// A buffer of a frame, for reports: steps [begin, end).
struct FrameBuffer {
  std::string name;
  int64_t offset = 0;
  int64_t bytes = 0;
  int64_t begin = 0;
  int64_t end = 0;
  bool operator==(const FrameBuffer&) const = default;
};

struct Function {
  std::string name;
  std::string
      memo;  ///< Graph, device, clobbered inputs, used outputs, layouts: what makes it this function.
  int32_t device = 0;
  std::vector<Param> params;
  int32_t index_params = 0;
  int64_t frame_bytes = 0;
  int64_t frame_bound = 0;  ///< Live-set bound of the frame, looking through calls.
  std::vector<FrameBuffer> buffers;
  std::vector<Step> steps;
  bool operator==(const Function&) const = default;
};

struct Queue {
  std::string name;  ///< "compute", "io", "collectives".
  bool operator==(const Queue&) const = default;
};

struct Device {
  std::string kind;            ///< "cpu".
  std::string isa;             ///< "avx512".
  int64_t memory_budget = -1;  ///< Bytes; -1: none.
  int32_t workers = 1;
  std::vector<Queue> queues;  ///< [0] is compute.
  bool operator==(const Device&) const = default;
};

/// Memory outside the devices, with a budget for the machine.
struct Tier {
  std::string name;  ///< "host", "file".
  Space space = Space::kHost;
  int64_t budget = -1;
  bool operator==(const Tier&) const = default;
};

struct StreamPort {
  std::string name;
  bool input = true;
  TensorSpec spec;
  bool operator==(const StreamPort&) const = default;
};

struct RemoteBufferPlan {
  std::string name;
  TensorSpec spec;
  int64_t entries = 1;
  int32_t arena = 0;  ///< A tier arena.
  int64_t offset = 0;
  int64_t entry_stride = 0;  ///< Bytes from entry to entry (padded for files).
  bool operator==(const RemoteBufferPlan&) const = default;
};

/// Bytes of an entry that share a checksum.
inline constexpr int64_t kChecksumPiece = 64 << 10;
/// Checksums of one entry.
int64_t checksums_of_entry(const RemoteBufferPlan& buffer);

struct VariablePlan {
  std::string path;
  TensorSpec spec;
  int32_t arena = 0;
  int64_t offset = 0;
  int64_t bytes = 0;
  std::string layout = "row";
  ValueId value = kNoValue;  ///< The value there before a program runs.
  int32_t shard = 0;         ///< Chunk count, 0 if whole.
  int32_t group = -1;        ///< Replica group, -1: all replicas.
  int32_t buffer = -1;       ///< Remote buffer and entry of a variable that lives there.
  int64_t entry = 0;
  std::string initializer;
  bool operator==(const VariablePlan&) const = default;
};

struct ConstantPlan {
  std::string name;
  TensorSpec spec;
  int32_t arena = 0;
  int64_t offset = 0;
  ValueId value = kNoValue;
  std::vector<std::byte> data;
  bool operator==(const ConstantPlan&) const = default;
};

struct Channel {
  std::string name;
  int32_t from = 0;  ///< Devices.
  int32_t to = 0;
  int64_t capacity = 1;
  int32_t arena = 0;  ///< Slot s is at offset + s * slot_bytes.
  int64_t offset = 0;
  int64_t slot_bytes = 0;
  bool operator==(const Channel&) const = default;
};

/// A partition of the replicas: group i begins at its first replica that is in none before, and has `size` replicas
/// that are `stride` apart.
struct ReplicaGroup {
  int32_t stride = 1;
  int32_t size = 1;
  bool operator==(const ReplicaGroup&) const = default;
};

/// What a program starts on one device.
struct Start {
  int32_t device = 0;
  int32_t function = 0;  ///< A function without parameters.
  Address frame;         ///< In an arena.
  bool operator==(const Start&) const = default;
};

struct StreamCount {
  int32_t stream = 0;
  int64_t entries = 0;  ///< Read or written by one run.
  bool operator==(const StreamCount&) const = default;
};

/// Collectives of a grouping that one run has a device take part in.
struct CollectiveCount {
  int32_t device = 0;
  int32_t group = 0;
  int64_t count = 0;
  bool operator==(const CollectiveCount&) const = default;
};

/// The transfers of one run with one remote buffer, both arms of conditionals counted, and a digest
/// of which store each load finds. The compiler computes it for the order of the graphs
/// (compiler/announce_remote.h), the checker for the order of the plan (check/ledger.h), by code
/// that shares nothing. All numbers are unsigned, have 64 bits and wrap:
///
///     mix(a, b)      x = (a ^ (b + 0x9e3779b97f4a7c15)) * 0xbf58476d1ce4e5b9,
///                    y = (x ^ (x >> 29)) * 0x94d049bb133111eb, result y ^ (y >> 32)
///     activation     mix(2, device) for a program's entry; mix(mix(caller, n), i) for the n-th call,
///                    loop or branch of the caller (from 0); i is the iteration, 0 for a call and
///                    for a then-arm, 1 for an else-arm
///     transfer       mix(activation, token)
///     first(e)       hash64(path) of the variable that lives in entry e; without one, mix(1, e)
///     a store to e   sets content(e) = transfer
///     a store whose  sets each content(e) that was set before to mix(content(e), transfer),
///     entry data     and others = mix(others, transfer); others begins as 0
///     decide
///     content(e)     if never set: first(e) while others is 0, else mix(first(e), others)
///     all            others + the sum of mix(first(e), content(e)) over the entries that were set
///     a branch       begins both arms with the same contents; afterwards content(e) and others are
///                    mix(then, else) where the arms differ, and an entry is set if either set it
///     a load         adds mix(transfer, content(e)) to a sum; if data decide its entry,
///                    mix(transfer, mix(3, all))
///     found          (that sum + all at the end of the run) / 2
struct RemoteTrace {
  int32_t buffer = 0;
  int64_t loads = 0;
  int64_t stores = 0;
  int64_t found = 0;
  bool operator==(const RemoteTrace&) const = default;
};

struct Final {
  int32_t variable = 0;
  /// What the variable's bytes hold after a run. None, in a remote buffer: whatever was stored there.
  ValueId value = kNoValue;
  bool operator==(const Final&) const = default;
};

struct Program {
  std::string name;
  std::vector<Start> starts;
  std::vector<StreamCount> streams;
  std::vector<CollectiveCount> collectives;  ///< None that is 0.
  std::vector<RemoteTrace> remote;           ///< The same for every replica.
  std::vector<Final> finals;
  bool operator==(const Program&) const = default;
};

struct Executable {
  /// So many replicas run the programs, each with arenas, tiers, channels and streams of its own.
  int32_t replicas = 1;
  std::vector<Device> devices;
  std::vector<Tier> tiers;
  std::vector<Arena> arenas;
  std::vector<StreamPort> streams;
  std::vector<RemoteBufferPlan> remote_buffers;
  std::vector<VariablePlan> variables;
  std::vector<ConstantPlan> constants;
  std::vector<Channel> channels;
  std::vector<ReplicaGroup> groups;
  std::vector<Value> values;
  std::vector<Function> functions;
  std::vector<Program> programs;
  bool operator==(const Executable&) const = default;

  /// Error{kUsage} listing the programs if there is none of that name.
  const Program& program(const std::string& name) const;
};

/// Workers of a pool of `threads` that run a replica as a team: the pool is cut in as many teams as divide both it and
/// the replicas evenly.
int32_t workers_of_replica(int32_t threads, int32_t replicas);

/// Bytes of all arenas of a device in a space, of one replica.
int64_t planned_bytes(const Executable& executable, int32_t device, Space space);

}  // namespace sluice::exe
