#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "sluice/base/ids/ids.h"
#include "sluice/base/provenance.h"
#include "sluice/exe/ids.h"
#include "sluice/exe/index_expr.h"
#include "sluice/ir/ir.h"
#include "sluice/target/fused_op.h"

/// The compiler's form of a graph: each version of a tensor is a separate value, which is produced
/// once.
namespace sluice::compiler {

/// Index into Body::values.
using ValueIndex = Id<struct BodyValueTag>;
inline constexpr ValueIndex kNone;
/// Index into Body::nodes.
using NodeId = Id<struct NodeTag>;
/// Index into Program::bodies.
using BodyId = Id<struct BodyTag>;

/// The values, from `low` to `high` inclusive, of an index parameter or expression.
struct IndexRange {
  int64_t low = 0;
  int64_t high = 0;
  bool operator==(const IndexRange&) const = default;
};

struct BodyValue {
  enum class Source : uint8_t {
    kNode,       ///< An output of a node.
    kParam,      ///< Parameter `index`, available when the function starts.
    kVariable,   ///< Variable `index` of the program, available when the program starts.
    kConstant,   ///< Constant `index` of the program.
    kUndefined,  ///< Arbitrary bytes that nothing reads, for example an undefined Init.
  };
  std::string tensor;
  int64_t version = 0;
  TensorSpec spec;
  Source source = Source::kNode;
  int32_t index = -1;
  Layout layout;
  bool operator==(const BodyValue&) const = default;
};

/// Output `output` of a node overwrites the bytes of value `into`. Nothing reads `into` afterwards.
/// A view of `into` may be read: storage then makes it a copy (lower/storage.h).
struct Tie {
  int32_t output = 0;
  ValueIndex into;
  bool operator==(const Tie&) const = default;
};

struct NodeKinds {
  bool operator==(const NodeKinds&) const = default;
  /// One op, or several fused ops that one kernel runs.
  struct Kernel {
    Attrs attrs;
    /// Stages of a fused kernel, or the stage of a single op with operands that are not all
    /// row-major. Empty for other kernels.
    std::vector<OpStage> stages;
    bool prints = false;  ///< Whether it has an effect outside the program's tensors.
    /// Provenance of each stage of a fused kernel; empty: all have that of the node.
    std::vector<SharedProvenance> origins = {};
    bool operator==(const Kernel&) const = default;
  };
  /// Output 0 has the bytes of input 0 in the same order. Its shape may differ.
  struct View {
    bool operator==(const View&) const = default;
  };
  struct Copy {
    bool operator==(const Copy&) const = default;
  };
  /// The outputs are the callee's results, then the new values of the inputs in `updated`.
  struct Call {
    BodyId callee;
    int32_t results = 0;
    std::vector<int32_t> updated;            ///< Input that outputs[results + i] updates.
    std::vector<exe::IndexExpr> index_args;  ///< Values of the callee's index parameters.
    int32_t transfers_before = 0;            ///< Earlier transfers of this body in the graph.
    bool operator==(const Call&) const = default;
  };
  /// Runs the callee `trips` times. The first `carried` inputs are carried from iteration to
  /// iteration; the other inputs are invariant.
  struct Loop : Call {
    int64_t trips = 0;
    int32_t carried = 0;
    /// Updated inputs, scalar bools of equal value: an iteration begins only while they are true.
    /// Every device of the loop has one of its own. Empty: all iterations run.
    std::vector<int32_t> conditions;
    int32_t exit = -1;  ///< Number of a loop with a condition, equal in its parts.
    /// For each carried value, the carried parameter whose last version it becomes in the next
    /// iteration; the callee does not return it. -1: it becomes the callee's result. Empty: all
    /// become results.
    std::vector<int32_t> rotates;
    bool returns_result(int32_t k) const {
      return k >= static_cast<int32_t>(rotates.size()) || at(rotates, k) < 0;
    }
    bool operator==(const Loop&) const = default;
  };
  /// Runs callees[0] if input 0 is true, callees[1] otherwise. The next `then_inputs` inputs are
  /// the arguments of callees[0], the other inputs those of callees[1].
  struct Branch {
    std::array<BodyId, 2> callees;
    int32_t then_inputs = 0;
    int32_t transfers_before = 0;  ///< See Call.
    /// The first input that is an argument of callees[1].
    size_t else_begin() const { return static_cast<size_t>(then_inputs) + 1; }
    bool operator==(const Branch&) const = default;
  };
  /// Moves a tensor between device memory and a stream or a remote buffer, according to `effect`.
  struct Transfer {
    Effect effect{};
    /// Entry of a remote buffer. Empty for streams, also if `effect` contains the entry or the last
    /// input computes it.
    std::optional<exe::IndexExpr> entry;
    int32_t queue = 0;
    int32_t token = -1;  ///< Number of the transfer in the order of the graph.
    bool operator==(const Transfer&) const = default;
  };
  /// Waits until transfer `token` of `queue` has ended. Input 0 is the memory that this transfer
  /// reads or writes.
  struct Wait {
    int32_t queue = 0;
    int32_t token = -1;
    bool operator==(const Wait&) const = default;
  };
  /// Output 0 is the value of an index expression, as an i32 or u32 scalar.
  struct Index {
    exe::IndexExpr value;
    bool operator==(const Index&) const = default;
  };
  /// Sends input 0 to the other device of `channel`. There, a Receive with this `message` outputs
  /// it.
  struct Send {
    exe::ChannelId channel;
    int32_t message = -1;  ///< Number of the value in the program (exe::Value::message).
    bool operator==(const Send&) const = default;
  };
  struct Receive {
    exe::ChannelId channel;
    int32_t message = -1;
    bool operator==(const Receive&) const = default;
  };
  /// A collective op with one input and one output, run by each replica group of grouping `group`.
  struct Collective {
    Attrs attrs;
    exe::GroupId group;
    bool operator==(const Collective&) const = default;
  };
};

struct Node : NodeKinds {
  /// Copies, moves, destruction and comparison of this variant are compiled once, in body.cc.
  struct What : std::variant<Kernel, View, Copy, Call, Loop, Branch, Transfer, Wait, Index, Send,
                             Receive, Collective> {
    using variant::variant;
    using variant::operator=;
    What();
    What(const What& other);
    What(What&& other) noexcept;
    What& operator=(const What& other);
    What& operator=(What&& other) noexcept;
    ~What();
    friend bool operator==(const What& a, const What& b);
  };

  What what;
  const OpDef* def = nullptr;  ///< Its op, or the first op of a fused kernel; null: none.
  std::vector<ValueIndex> inputs;
  std::vector<TensorSpec> in_specs;  ///< As the node reads them; an alias may differ in shape.
  std::vector<ValueIndex> outputs;   ///< kNone: an output that is not produced.
  std::vector<TensorSpec> out_specs;
  std::vector<Tie> ties;
  OpId origin;
  SharedProvenance provenance;
  int32_t device = kInheritDevice;
  bool operator==(const Node&) const = default;

  /// Module path and source line of its op, for errors.
  std::string where() const { return provenance->where(); }
  template <typename T>
  bool is() const {
    return std::holds_alternative<T>(what);
  }
  template <typename T>
  const T* as() const {
    return std::get_if<T>(&what);
  }
  template <typename T>
  T* as() {
    return std::get_if<T>(&what);
  }
  /// The Call part of a Call or a Loop; null for other nodes.
  const Call* call() const {
    const auto* loop = as<Loop>();
    return loop != nullptr ? loop : as<Call>();
  }
  Call* call() {
    auto* loop = as<Loop>();
    return loop != nullptr ? loop : as<Call>();
  }
  /// Number of carried inputs and outputs, which come first; 0 unless the node is a loop.
  size_t carried() const { return is<Loop>() ? static_cast<size_t>(as<Loop>()->carried) : 0; }
  /// Whether output r of a call, if it is a result, is a result of the callee (see rotates).
  bool returns_result(int32_t r) const { return !is<Loop>() || as<Loop>()->returns_result(r); }
  bool has_stages() const { return is<Kernel>() && !as<Kernel>()->stages.empty(); }
};

/// Calls f(BodyId&) for each callee of a call, loop or branch. `node` may be const.
template <typename NodeType, typename F>
void for_each_callee(NodeType& node, F&& f) {
  if (auto* call = node.call()) f(call->callee);
  if (auto* branch = node.template as<Node::Branch>()) {
    for (auto& callee : branch->callees) f(callee);
  }
}
inline bool has_callees(const Node& node) {
  return node.call() != nullptr || node.is<Node::Branch>();
}
/// Calls f(exe::IndexExpr&) for each index expression of a node. `node` may be const.
template <typename NodeType, typename F>
void for_each_index(NodeType& node, F&& f) {
  if (auto* index = node.template as<Node::Index>()) f(index->value);
  if (auto* transfer = node.template as<Node::Transfer>()) {
    if (transfer->entry) f(*transfer->entry);
  }
  if (auto* call = node.call()) {
    for (auto& x : call->index_args) f(x);
  }
}

struct BodyParam {
  std::string name;
  ValueIndex in;
  /// The last version, if the body updates the parameter for its caller; kNone otherwise.
  ValueIndex out;
  bool operator==(const BodyParam&) const = default;
};

/// How a body is called.
enum class Role : uint8_t { kEntry, kFunction, kLoopBody };

struct Body {
  GraphId graph;
  Role role = Role::kFunction;
  std::string name;
  int32_t device = kInheritDevice;
  Ids<ValueIndex, BodyValue> values;
  Ids<NodeId, Node> nodes;
  std::vector<BodyParam> params;
  std::vector<ValueIndex> results;  ///< kNone: a result that no caller uses.
  /// Each variable that an entry writes, and its last version.
  std::vector<std::pair<exe::VariableId, ValueIndex>> variables;
  /// Range of each index parameter, if known. Index parameter 0 of a loop's body is the iteration.
  std::vector<std::optional<IndexRange>> index_params;

  bool operator==(const Body&) const = default;
  bool is_entry() const { return role == Role::kEntry; }
  const BodyValue& value(ValueIndex v) const { return values[v]; }
  BodyValue& value(ValueIndex v) { return values[v]; }
  ValueIndex add(BodyValue value) { return values.push_back(std::move(value)); }
};

/// Carried values of a loop that share a ring of `slots` slots, from the newest to the oldest: in
/// the next iteration, each has the bytes of the one before it now. The newest takes a result of
/// the callee, which has one more slot, or the last version of the oldest.
struct Rotation {
  std::vector<int32_t> carried;
  int32_t slots = 0;

  /// Slot of carried[i] in iteration 0. It is one slot further in each iteration.
  int32_t first_slot(size_t i) const { return static_cast<int32_t>(carried.size() - 1 - i); }
  /// Slot of the newest value's result in iteration 0.
  int32_t result_slot() const { return static_cast<int32_t>(carried.size()); }
  /// Slot after `trips` iterations.
  int32_t after(int32_t first, int64_t trips) const {
    return static_cast<int32_t>((first + trips) % slots);
  }
};
/// Divides the carried values of a loop into rotations: first those that become a result, in the
/// order of results, then the others. A value that becomes a result and is not rotated has a
/// rotation of its own.
std::vector<Rotation> rotations_of(const Node::Loop& loop);

/// Adds a value named after `from` plus `suffix`, and returns a node that copies `from` into it.
/// The node has the origin, source location and device of `at`. The caller inserts it.
Node make_copy(Body& body, ValueIndex from, const std::string& suffix, const Node& at);
/// Describes a kernel node as a FusedOp: its stages, or its op as a single stage. Requires
/// has_fused_form(node).
FusedOp fused_op(const Body& body, const Node& node);
/// Whether a node is a kernel with stages or with one output.
bool has_fused_form(const Node& node);
/// Types of a node's ops, for example "MatMul+Add+Gelu"; "op" for a node without an op.
std::string name_of(const Node& node);
/// For each value, whether it is needed after the body has ended: results, updated parameters,
/// variables.
Ids<ValueIndex, bool> kept_values(const Body& body);
/// For each node and each of its outputs, whether a node reads or overwrites it, or kept_values()
/// has it.
Ids<NodeId, std::vector<bool>> used_outputs(const Body& body);
/// For each value, the nodes that read it, ascending.
Ids<ValueIndex, std::vector<NodeId>> readers_of(const Body& body);

}  // namespace sluice::compiler
