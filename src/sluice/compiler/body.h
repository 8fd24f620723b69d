#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "sluice/exe/index_expr.h"
#include "sluice/ir/ir.h"
#include "sluice/target/fused_op.h"

/// The compiler's own form of a graph: every version of every tensor is a value of its own, made once.
namespace sluice::compiler {

/// Index into Body::values.
using ValueIndex = int32_t;
inline constexpr ValueIndex kNone = -1;
/// Index into Program::bodies.
using BodyId = int32_t;

/// All values that an index parameter or expression may have.
struct IndexRange {
  int64_t low = 0;
  int64_t high = 0;
  bool operator==(const IndexRange&) const = default;
};

struct BodyValue {
  enum class Source : uint8_t {
    kNode,       ///< A node makes it.
    kParam,      ///< Parameter `index`, there when the function starts.
    kVariable,   ///< Variable `index` of the program, there when the program starts.
    kConstant,   ///< Constant `index` of the program.
    kUndefined,  ///< Arbitrary bytes: an Init that nothing has read.
  };
  std::string tensor;
  int64_t version = 0;
  TensorSpec spec;
  Source source = Source::kNode;
  int32_t index = -1;
  Layout layout;
  bool operator==(const BodyValue&) const = default;
};

/// Output `output` of a node lies in the bytes of value `into` and ends its life.
struct Tie {
  int32_t output = 0;
  ValueIndex into = kNone;
  bool operator==(const Tie&) const = default;
};

/// The kinds of nodes.
struct NodeKinds {
  bool operator==(const NodeKinds&) const = default;
  /// One op, or several that one kernel runs.
  struct Kernel {
    Attrs attrs;
    /// Stages of a fused kernel, or of one op on operands that are not all row-major; empty: the op itself.
    std::vector<OpStage> stages;
    bool prints = false;  ///< It has an effect outside the program's tensors.
    bool operator==(const Kernel&) const = default;
  };
  /// Output 0 has the bytes of input 0 in the same order.
  struct View {
    bool operator==(const View&) const = default;
  };
  struct Copy {
    bool operator==(const Copy&) const = default;
  };
  /// Outputs are the results of the callee, then the new value of each by-reference input in `updated`.
  struct Call {
    BodyId callee = -1;
    int32_t results = 0;
    std::vector<int32_t> updated;            ///< Inputs that outputs[results + i] update.
    std::vector<exe::IndexExpr> index_args;  ///< One for each index parameter of the callee.
    int32_t transfers_before = 0;  ///< Transfers of this body that precede it in the graph's order.
    bool operator==(const Call&) const = default;
  };
  /// Runs the callee `trips` times. Input k is carried for k < carried; the others are invariant.
  struct Loop : Call {
    int64_t trips = 0;
    int32_t carried = 0;
    bool operator==(const Loop&) const = default;
  };
  /// Input 0 is the condition; `then_inputs` inputs of the first callee follow, then those of the second.
  struct Branch {
    std::array<BodyId, 2> callees{-1, -1};
    int32_t then_inputs = 0;
    int32_t transfers_before = 0;  ///< As in Call.
    bool operator==(const Branch&) const = default;
  };
  /// Between device memory and a stream or a remote buffer, as `effect` says.
  struct Transfer {
    Effect effect{};
    /// Entry of a remote buffer. Empty if the effect names it or the last input computes it.
    std::optional<exe::IndexExpr> entry;
    int32_t queue = 0;
    int32_t token = -1;  ///< Number of the transfer in the order of the graph.
    bool operator==(const Transfer&) const = default;
  };
  /// Waits until the transfer of input 0 under `token` has ended.
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
  /// Input 0 goes to the channel's other device, where the Receive of the same `message` makes it.
  struct Send {
    int32_t channel = -1;
    int32_t message = -1;  ///< Number of the message in the text of the program.
    bool operator==(const Send&) const = default;
  };
  struct Receive {
    int32_t channel = -1;
    int32_t message = -1;
    bool operator==(const Receive&) const = default;
  };
  /// One input and one output, among the replicas of `group`.
  struct Collective {
    Attrs attrs;
    int32_t group = -1;
    bool operator==(const Collective&) const = default;
  };
};

struct Node : NodeKinds {
  using What = std::variant<Kernel, View, Copy, Call, Loop, Branch, Transfer, Wait, Index, Send,
                            Receive, Collective>;

  What what;
  const OpDef* def =
      nullptr;  ///< The op it stems from; of a fused kernel, its first one; may be null.
  std::vector<ValueIndex> inputs;
  std::vector<TensorSpec> in_specs;  ///< As the node sees them: an alias may have another shape.
  std::vector<ValueIndex> outputs;   ///< kNone: nothing reads it, it is not made.
  std::vector<TensorSpec> out_specs;
  std::vector<Tie> ties;
  OpId origin = -1;
  std::string where;
  int32_t device = kInheritDevice;
  bool operator==(const Node&) const = default;

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
  /// The call of a Call or a Loop; null for other nodes.
  const Call* call() const {
    const auto* loop = as<Loop>();
    return loop != nullptr ? loop : as<Call>();
  }
  Call* call() {
    auto* loop = as<Loop>();
    return loop != nullptr ? loop : as<Call>();
  }
  /// How many leading inputs and outputs are carried; 0 unless it is a loop.
  int32_t carried() const { return is<Loop>() ? as<Loop>()->carried : 0; }
  bool has_stages() const { return is<Kernel>() && !as<Kernel>()->stages.empty(); }
};

/// Calls f(BodyId&) for each callee of a call, loop or branch. Node may be const.
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
/// Calls f(exe::IndexExpr&) for each index expression of a node. Node may be const.
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
  ValueIndex in = kNone;
  /// The last version, if the graph writes it for its caller; kNone otherwise.
  ValueIndex out = kNone;
  bool operator==(const BodyParam&) const = default;
};

/// How a body is entered.
enum class Role : uint8_t { kEntry, kFunction, kLoopBody };

struct Body {
  GraphId graph = -1;
  Role role = Role::kFunction;
  std::string name;
  int32_t device = kInheritDevice;
  std::vector<BodyValue> values;
  std::vector<Node> nodes;
  std::vector<BodyParam> params;
  std::vector<ValueIndex> results;  ///< kNone: the caller does not use it.
  /// The last version of each variable that an entry writes.
  std::vector<std::pair<int32_t, ValueIndex>> variables;
  /// Index parameters, with their range where it is known. The first one of a loop's body is its iteration.
  std::vector<std::optional<IndexRange>> index_params;

  bool operator==(const Body&) const = default;
  bool is_entry() const { return role == Role::kEntry; }
  const BodyValue& value(ValueIndex v) const { return values[static_cast<size_t>(v)]; }
  BodyValue& value(ValueIndex v) { return values[static_cast<size_t>(v)]; }
  ValueIndex add(BodyValue value) {
    values.push_back(std::move(value));
    return static_cast<ValueIndex>(values.size() - 1);
  }
};

/// A copy of value `from` into a new value named after it, made where `at` stands.
Node make_copy(Body& body, ValueIndex from, const std::string& suffix, const Node& at);
/// The stages of a kernel node, or the one op that it is. For kernels with one output or stages.
FusedOp fused_op(const Body& body, const Node& node);
/// Whether a node is a kernel that `fused_op` can describe.
bool has_fused_form(const Node& node);
/// "MatMul+Add+Gelu".
std::string name_of(const Node& node);
/// Values that are needed when the body has ended: results, updated parameters, variables.
std::vector<bool> kept_values(const Body& body);
/// For each node and each of its outputs, whether a node or the body's end reads it.
std::vector<std::vector<bool>> used_outputs(const Body& body);
/// The nodes that read each value, ascending.
std::vector<std::vector<int32_t>> readers_of(const Body& body);

}  // namespace sluice::compiler
