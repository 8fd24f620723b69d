#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "sluice/base/attrs.h"
#include "sluice/base/host_tensor.h"
#include "sluice/base/ids/ids.h"
#include "sluice/base/ids/ids_format.h"
#include "sluice/base/provenance.h"
#include "sluice/base/shape.h"
#include "sluice/exe/ids.h"
#include "sluice/exe/index_expr.h"

/// The result of compilation: plain data that is self-contained and printable. It does not refer to
/// the graphs or to the code that it was compiled from.
namespace sluice::exe {

/// One value of one tensor. A read must find this value in memory. Values are static names: each
/// activation of a function and each iteration of a loop makes its own instance of a value.
struct Value {
  std::string tensor;   ///< "fc1.weight", "Linear_subgraph(0)/matmul_100".
  int64_t version = 0;  ///< Version of the tensor's storage.
  /// Number that a value which is sent shares with the values that its Receives make; -1 for other
  /// values. So a Receive finds the value that it names, whatever the names are.
  int32_t message = -1;
  bool operator==(const Value&) const = default;
};

enum class Space : uint8_t { kDevice, kPinned, kHost, kFile };

/// The purpose of an arena. A workspace arena holds one slice of `stride` bytes per worker. If a
/// file tier has a staging arena, its transfers bypass the system's page cache and pass through
/// that arena. If it has a checksums arena, every piece of an entry is verified when it is read. A
/// staging arena in pinned memory belongs to a queued device (StagingPlan). A rings arena has
/// slots of feeds (Feed).
enum class ArenaKind : uint8_t {
  kPersistent,
  kFrames,
  kWorkspace,
  kSlots,
  kTier,
  kStaging,
  kChecksums,
  kRings
};

struct Arena {
  std::string name;
  ArenaKind kind = ArenaKind::kPersistent;
  Space space = Space::kDevice;
  DeviceId device{0};  ///< Device that owns the arena; invalid if the machine does.
  int64_t bytes = 0;
  int64_t stride = 0;  ///< Workspace: bytes for each worker; bytes >= workers * stride.
  bool operator==(const Arena&) const = default;
};

/// The address base + offset + (slot mod depth) * stride, or base + offset if depth is 0. Slots are
/// at least 0 (negative_slots). The base kFrame is the frame of the running activation.
struct Address {
  enum class Base : uint8_t { kArena, kFrame, kParam };
  Base base = Base::kFrame;
  int32_t index = 0;  ///< Index of the arena or parameter; 0 for the frame.
  int64_t offset = 0;
  int64_t depth = 0;
  int64_t stride = 0;
  IndexExpr slot;
  /// The arena of an address whose base is kArena.
  ArenaId arena() const { return ArenaId(index); }
  /// The parameter of an address whose base is kParam.
  ParamId param() const { return ParamId(index); }
  bool operator==(const Address&) const = default;
};

enum class Access : uint8_t { kRead, kWrite, kUpdate };

/// Memory that a step accesses, the value that the step must find there and the value that it
/// makes.
struct Operand {
  Address at;
  int64_t bytes = 0;
  Access access = Access::kRead;
  ValueId value = kNoValue;  ///< Read, update: the value found. Write: the value made.
  ValueId made = kNoValue;   ///< Update: the value made.
  TensorSpec spec;
  std::string layout = "row";  ///< "row": row-major in logical order.
  /// Bytes per task: task t of the step accesses bytes [t * task_stride, (t + 1) * task_stride) of
  /// the operand. If 0, every task accesses the whole operand.
  int64_t task_stride = 0;
  /// Bytes per row. If not 0, task_stride cuts every row, and a task accesses the same columns of
  /// all rows.
  int64_t task_pitch = 0;
  bool operator==(const Operand&) const = default;
};

/// One op of a fused kernel. Stage::op is the type of its operator.
using Stage = OpStageOf<std::string>;

/// Runs a kernel.
struct Kernel {
  std::string key;  ///< Name of the kernel on the device, "cpu.gemm".
  std::string op;   ///< OpDef::type; for a fused kernel, the types of its stages joined by '+'.
  Attrs attrs;
  std::vector<Stage> stages;       ///< Ops of a fused kernel; empty: the only op is `op`.
  std::vector<Operand> operands;   ///< Inputs of the op, then its outputs.
  std::vector<IndexExpr> scalars;  ///< Scalar arguments (micro-batch, step).
  /// (input operand, output operand) that may be exactly the same bytes.
  std::vector<std::pair<int32_t, int32_t>> may_coincide;
  int64_t tasks = 1;  ///< Each task runs on any worker; no task waits for another of this kernel.
  int64_t flops = 0;  ///< Floating-point operations of all tasks, for reports.
  /// Scratch bytes per worker, at the start of the worker's slice of the device's workspace arena.
  int64_t workspace_bytes = 0;
  bool operator==(const Kernel&) const = default;
};

/// Returns whether the kernel with this key runs the operator's definition, "cpu.reference". It is
/// slow: one task computes element by element.
inline bool is_reference_kernel(std::string_view key) { return key.ends_with(".reference"); }

/// Runs a function on the caller's addresses.
struct Call {
  FunctionId function{0};
  Ids<ParamId, Operand> args;         ///< One per parameter, with the parameter's access.
  std::vector<IndexExpr> index_args;  ///< One per index parameter.
  Address frame;                      ///< Address of the callee's frame.
  bool operator==(const Call&) const = default;
};

/// A value of one iteration that the next iteration finds in argument `in`. All carries of a loop
/// move at once: none of them finds a value that another one has moved.
struct Carry {
  ParamId in{0};  ///< Iteration 0 finds the argument's `value`.
  /// The argument whose value is carried: the value that it makes, or, if it is only read, the
  /// value that it has found. It equals `in` if the loop updates the argument in place.
  ParamId out{0};
  /// If `out` is only read, the carry *rotates*. This is then the name of the value in `in` after
  /// the last iteration; kNoValue if no step reads it. An argument that is made has a name itself.
  ValueId after = kNoValue;
  bool operator==(const Carry&) const = default;
};

/// Calls a function `trips` times; addresses and index arguments may use the iteration.
///
/// A loop with a condition may *exit*: an iteration begins only while the condition is true. Its
/// body updates arguments in place and has no results. The numbers of later messages, stream
/// entries and collectives are those after all iterations. Each participant counts what it has
/// done, so an exit skips no number at run time.
struct Loop {
  Call body;
  int64_t trips = 0;
  std::vector<Carry> carried;
  /// Argument of the body, an updated scalar bool in device memory; invalid: the loop has no
  /// condition.
  ParamId condition;
  /// Loops with one number, at most one on each device, have equal conditions and exit together.
  int32_t exit = -1;
  bool operator==(const Loop&) const = default;
};

/// Calls one of two functions, selected by a scalar bool in device memory.
struct Branch {
  Operand condition;
  Call then_call;
  Call else_call;
  bool operator==(const Branch&) const = default;
};

enum class TransferKind : uint8_t { kStreamIn, kStreamOut, kRemoteLoad, kRemoteStore };

/// Starts a transfer between device memory and a host stream or a remote buffer. On queue 0
/// (compute), the transfer ends with this step. On another queue, it has ended after a wait for its
/// token.
struct Issue {
  TransferKind kind = TransferKind::kStreamIn;
  int32_t object = 0;  ///< A StreamId or a BufferId; see `kind`.
  IndexExpr entry;     ///< Entry number in the stream or the buffer.
  /// Scalar in device memory with the entry number, used instead of `entry`; the runtime checks its
  /// range.
  std::optional<Operand> entry_from;
  Operand memory;  ///< Device memory, which a load writes and a store reads.
  int32_t queue = 0;
  int32_t token = 0;         ///< Unique in its function.
  ValueId found = kNoValue;  ///< Remote load: value in the entry, if this function knows it.
  bool is_stream() const {
    return kind == TransferKind::kStreamIn || kind == TransferKind::kStreamOut;
  }
  /// The stream of a transfer with one.
  StreamId stream() const { return StreamId(object); }
  /// The remote buffer of a load or a store.
  BufferId buffer() const { return BufferId(object); }
  bool operator==(const Issue&) const = default;
};

/// The compute queue waits until the last transfer issued with this token has ended.
struct Wait {
  int32_t queue = 0;
  int32_t token = 0;
  bool operator==(const Wait&) const = default;
};

/// Copies a value to slot (message mod capacity) of a channel; first waits until the slot is free.
/// The messages of a channel are numbered from 0 in the order of sending.
struct Send {
  ChannelId channel{0};
  IndexExpr message;
  Operand operand;
  bool operator==(const Send&) const = default;
};

/// Waits for message number `message` of a channel, copies it to memory and frees its slot.
struct Receive {
  ChannelId channel{0};
  IndexExpr message;
  Operand operand;
  bool operator==(const Receive&) const = default;
};

/// Runs an op on all replicas of a group together. No replica begins before all have arrived, and
/// none leaves before all have finished. In between, each may read and write the operands of all.
/// So the step is also a barrier for the workers of a replica.
struct Collective {
  std::string op;  ///< OpDef::type.
  Attrs attrs;
  GroupId group{0};
  IndexExpr sequence;  ///< Number of earlier collectives of this group that the device has run.
  std::vector<Operand> operands;  ///< Input and output, or one operand that is updated.
  std::vector<std::pair<int32_t, int32_t>> may_coincide;  ///< See Kernel::may_coincide.
  /// Bytes at the start of the device's workspace for copies of the other members' inputs. 0 if the
  /// device does not copy them.
  int64_t workspace_bytes = 0;
  bool operator==(const Collective&) const = default;
};

/// The work of a step. Copies, moves, destruction and comparison of this variant are compiled once,
/// in executable.cc.
struct StepBody : std::variant<Kernel, Call, Loop, Branch, Issue, Wait, Send, Receive, Collective> {
  using variant::variant;
  using variant::operator=;
  StepBody();
  StepBody(const StepBody& other);
  StepBody(StepBody&& other) noexcept;
  StepBody& operator=(const StepBody& other);
  StepBody& operator=(StepBody&& other) noexcept;
  ~StepBody();
  friend bool operator==(const StepBody& a, const StepBody& b);
};

struct Step {
  StepBody body;
  /// Whether all workers must finish the earlier steps of the program before any worker begins this
  /// step. Worker 0 runs all single-task steps, in their order.
  bool sync = false;
  /// Row of Origins::rows; -1: unknown. The stages of a fused kernel have consecutive rows from
  /// here on.
  int32_t provenance = -1;
  int64_t origin = -1;  ///< Id of the op in its graph; -1 if unknown.
  std::string where;    ///< Module path and source line of the op.
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

/// A buffer of a frame, for reports. It is live in steps [begin, end).
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
  /// Key of the function: its graph, device, clobbered inputs, used outputs and layouts.
  std::string memo;
  DeviceId device{0};
  Ids<ParamId, Param> params;
  int32_t index_params = 0;
  int64_t frame_bytes = 0;
  /// Lower bound of frame_bytes: maximum number of live bytes, callees included.
  int64_t frame_bound = 0;
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
  std::vector<Queue> queues;  ///< queues[0] is the compute queue.
  /// Whether the host enqueues commands and cannot access the memory. Such a device has 1 worker,
  /// and each of its queues has staging memory (StagingPlan).
  bool queued = false;
  bool operator==(const Device&) const = default;
};

/// Memory outside the devices, with one budget for the whole machine.
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

/// A stream of a feed, and its ring in host memory: element k is in slot k mod slots.
struct FeedRing {
  StreamId stream{0};
  int64_t slots = 1;
  ArenaId arena{0};  ///< Arena of the slots; slot s is at offset + s * slot_bytes.
  int64_t offset = 0;
  int64_t slot_bytes = 0;
  /// Returns the position of an element's slot in the arena.
  int64_t slot(int64_t element) const { return offset + element % slots * slot_bytes; }
  bool operator==(const FeedRing&) const = default;
};

/// Streams whose entries are transferred from or to the host while programs run. Entry k of all its
/// streams belongs to element k of the feed. The elements of all runs are numbered together.
///
/// An infeed makes element k in all rings at once. A load of entry k may begin once the element
/// exists. So it waits until each ring has had a free slot: k minus the entries read of that stream
/// is less than its slots. A store to an outfeed may begin once its ring has a free slot. An
/// element leaves all rings at once, after all its fields have been stored.
struct Feed {
  std::string name;
  bool input = true;
  int64_t depth = 1;  ///< Slots of a field that does not lag behind (lead over) another one.
  std::vector<FeedRing> rings;  ///< Indexed by field, in ascending order of streams.
  bool operator==(const Feed&) const = default;
};

struct RemoteBufferPlan {
  std::string name;
  TensorSpec spec;
  int64_t entries = 1;
  ArenaId arena{0};  ///< A tier arena.
  int64_t offset = 0;
  int64_t entry_stride = 0;  ///< Bytes from one entry to the next (padded for files).
  bool operator==(const RemoteBufferPlan&) const = default;
};

/// Bytes of an entry that one checksum covers.
inline constexpr int64_t kChecksumPiece = 64 << 10;
/// Number of checksums of one entry.
int64_t checksums_of_entry(const RemoteBufferPlan& buffer);

/// The pinned memory through which all transfers of a queue pass, on a queued device: a word
/// for values that the host reads by the compute queue, and two slots of equal size. A larger
/// transfer passes in pieces. A device has one such arena for each of its queues, in their order.
struct StagingPlan {
  static constexpr int64_t kWord = 64;
  static constexpr int64_t kMaxSlot = 1 << 20;  ///< Larger pieces are hardly faster.
  int64_t slot = 0;                             ///< Bytes of a slot.

  /// Returns the plan for transfers of at most `bytes`.
  static StagingPlan of_transfers(int64_t bytes);
  /// Returns the plan of an arena. Without bytes, it has no slots.
  static StagingPlan of_arena(int64_t bytes) { return {bytes > kWord ? (bytes - kWord) / 2 : 0}; }
  int64_t bytes() const { return kWord + 2 * slot; }
};

struct VariablePlan {
  std::string path;
  TensorSpec spec;
  ArenaId arena{0};
  int64_t offset = 0;
  int64_t bytes = 0;
  std::string layout = "row";
  ValueId value = kNoValue;  ///< Value of the variable before a program runs.
  int32_t shard = 0;         ///< Number of chunks; 0 if the variable is not sharded.
  GroupId group;             ///< Replica group; invalid: all replicas.
  BufferId buffer;           ///< Remote buffer that holds the variable; invalid: none.
  int64_t entry = 0;         ///< Entry of the variable in that buffer.
  std::string initializer;
  bool operator==(const VariablePlan&) const = default;
};

struct ConstantPlan {
  std::string name;
  TensorSpec spec;
  ArenaId arena{0};
  int64_t offset = 0;
  ValueId value = kNoValue;
  std::vector<std::byte> data;
  bool operator==(const ConstantPlan&) const = default;
};

struct Channel {
  std::string name;
  DeviceId from{0};      ///< Device that sends.
  DeviceId to{0};        ///< Device that receives.
  int64_t capacity = 1;  ///< Number of slots.
  ArenaId arena{0};      ///< Arena of the slots; slot s is at offset + s * slot_bytes.
  int64_t offset = 0;
  int64_t slot_bytes = 0;
  /// Returns the position of a message's slot in the arena.
  int64_t slot(int64_t message) const { return offset + message % capacity * slot_bytes; }
  bool operator==(const Channel&) const = default;
};

/// A partition of the replicas into groups. Group i begins at the lowest replica that no group
/// before it contains. It has `size` replicas, `stride` apart.
struct ReplicaGroup {
  int32_t stride = 1;
  int32_t size = 1;
  bool operator==(const ReplicaGroup&) const = default;
};

/// The function that a program starts on one device.
struct Start {
  DeviceId device{0};
  FunctionId function{0};  ///< A function without parameters.
  Address frame;           ///< Constant address in an arena.
  bool operator==(const Start&) const = default;
};

struct StreamCount {
  StreamId stream{0};
  int64_t entries = 0;  ///< Entries that one run reads or writes.
  bool operator==(const StreamCount&) const = default;
};

/// Number of collectives of a group that a device runs in one run of a program.
struct CollectiveCount {
  DeviceId device{0};
  GroupId group{0};
  int64_t count = 0;
  bool operator==(const CollectiveCount&) const = default;
};

/// Counts the transfers of one run with one remote buffer, and holds a digest of the store that
/// each load finds. Both arms of a conditional count. The compiler computes the trace for the order
/// of the graphs (compiler/lower/announce_remote.h). The checker computes it for the order of the
/// plan (check/simulation/ledger.h). The two share no code. All numbers are unsigned, have 64 bits
/// and wrap. A dynamic load or store is one whose entry number is in device memory
/// (Issue::entry_from). Long loops have rules of their own (exe/remote_trace.h).
///
///     mix(a, b)      x = (a ^ (b + 0x9e3779b97f4a7c15)) * 0xbf58476d1ce4e5b9,
///                    y = (x ^ (x >> 29)) * 0x94d049bb133111eb, result y ^ (y >> 32)
///     activation     mix(2, device) for a program's entry; mix(mix(caller, n), i) for the n-th
///                    call, loop or branch of the caller (from 0); i is the iteration, 0 for a call
///                    and for a then-arm, 1 for an else-arm
///     transfer       mix(activation, token)
///     first(e)       hash64(path) of the variable in entry e; mix(1, e) if it has no variable
///     store to e     sets content(e) = transfer
///     dynamic store  sets content(e) = mix(content(e), transfer) for each e set before, and
///                    others = mix(others, transfer); others begins as 0
///     content(e)     if never set: first(e) while others is 0, else mix(first(e), others)
///     all            others + the sum of mix(first(e), content(e)) over the entries that were set
///     branch         begins both arms with the same contents; afterwards content(e) and others are
///                    mix(then, else) where the arms differ, and an entry is set if an arm set it
///     exit           a loop with a condition is a branch: an empty then-arm, or all iterations
///     load of e      adds mix(transfer, content(e)) to sum, which begins as 0
///     dynamic load   adds mix(transfer, mix(3, all)) to sum
///     found          (sum + all at the end of the run) / 2
struct RemoteTrace {
  BufferId buffer{0};
  int64_t loads = 0;
  int64_t stores = 0;
  int64_t found = 0;
  bool operator==(const RemoteTrace&) const = default;
};

struct Final {
  VariableId variable{0};
  /// Value of the variable after a run. For a variable in a remote buffer, kNoValue means the value
  /// that was last stored there.
  ValueId value = kNoValue;
  bool operator==(const Final&) const = default;
};

struct Program {
  std::string name;
  std::vector<Start> starts;
  std::vector<StreamCount> streams;
  std::vector<CollectiveCount> collectives;  ///< Counts that are not 0.
  std::vector<RemoteTrace> remote;           ///< Traces of one replica; all replicas are equal.
  std::vector<Final> finals;
  bool operator==(const Program&) const = default;
};

/// Origins of the parts of a plan, for reports. Neither the fingerprint nor the canonical text of a
/// plan has them. Each table may be shorter than what it describes: the rest is unknown.
struct Origins {
  struct Variable {
    OpRole role = OpRole::kForward;  ///< See VariableInfo::role.
    VariableId owner;  ///< Variable that state or an accumulator belongs to; invalid: none.
    bool operator==(const Variable&) const = default;
  };
  std::vector<Provenance> rows;
  /// Index in `rows`; -1: unknown. Copies, conversions and transfers have that of their value.
  Ids<ValueId, int32_t> values;
  /// For each buffer: the first value that it holds; kNoValue: a frame of a callee.
  Ids<FunctionId, std::vector<ValueId>> buffers;
  Ids<VariableId, Variable> variables;
  /// Indexed by block (Provenance::block): names of the rows of equal blocks that share its
  /// functions.
  std::map<std::string, std::vector<std::string>> rows_of_blocks;
  bool operator==(const Origins&) const = default;

  /// The provenance in a row; that of an op without one if `row` is -1.
  const Provenance& at(int32_t row) const;
  int32_t of_value(ValueId value) const;
  ValueId in_buffer(FunctionId function, size_t buffer) const;
  Variable of_variable(VariableId variable) const;
};

struct Executable {
  /// Number of replicas that run the programs. Each has its own arenas, tiers, channels and
  /// streams.
  int32_t replicas = 1;
  Ids<DeviceId, Device> devices;
  std::vector<Tier> tiers;
  Ids<ArenaId, Arena> arenas;
  Ids<StreamId, StreamPort> streams;
  Ids<FeedId, Feed> feeds;
  Ids<BufferId, RemoteBufferPlan> remote_buffers;
  Ids<VariableId, VariablePlan> variables;
  Ids<ConstantId, ConstantPlan> constants;
  Ids<ChannelId, Channel> channels;
  Ids<GroupId, ReplicaGroup> groups;
  Ids<ValueId, Value> values;
  Ids<FunctionId, Function> functions;
  std::vector<Program> programs;
  Origins origins;
  bool operator==(const Executable&) const = default;

  /// Returns the program with this name. Error{kUsage} listing the programs if it does not exist.
  const Program& program(const std::string& name) const;
};

/// Whether the host reads a value in device memory to run a step.
bool reads_on_host(const Step& step);

/// Whether a loop of the executable has a condition.
bool has_exits(const Executable& executable);

/// Returns the feed of each stream; invalid for a stream without feed.
Ids<StreamId, FeedId> feeds_of_streams(const Executable& executable);

/// Where the slots of a channel are.
struct SlotMemory {
  Space space = Space::kDevice;
  DeviceId device{0};
  bool operator==(const SlotMemory&) const = default;
};

/// Returns where the slots of a channel between two devices must be. The queues of two queued
/// devices of one kind copy messages from the memory of the sender. A queued device exchanges
/// messages with any other device through pinned memory. Other devices use the receiver's memory.
SlotMemory slot_memory(const Executable& executable, DeviceId from, DeviceId to);

/// Number of workers that run one replica as a team. A pool of `threads` workers is cut into
/// gcd(threads, replicas) equal teams, so each team runs equally many replicas.
int32_t workers_of_replica(int32_t threads, int32_t replicas);

/// Bytes of all arenas of one replica that `device` owns in `space`.
int64_t planned_bytes(const Executable& executable, DeviceId device, Space space);

}  // namespace sluice::exe
