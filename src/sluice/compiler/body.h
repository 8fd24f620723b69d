#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sluice/exe/index_expr.h"
#include "sluice/ir/ir.h"
#include "sluice/target/fused_op.h"

/// The compiler's own form of a graph: every version of every tensor is a value of its own, made once.
namespace sluice::compiler {

using ValueIndex = int32_t;
inline constexpr ValueIndex kNone = -1;

/// All values of an index parameter or expression.
struct IndexRange {
  int64_t low = 0;
  int64_t high = 0;
};

struct BodyValue {
  enum class Source : uint8_t {
    kNode,       ///< Made by a node.
    kParam,      ///< There when the function starts: parameter `index`.
    kVariable,   ///< There when the program starts: variable `index` of the executable.
    kConstant,   ///< Constant `index` of the executable.
    kUndefined,  ///< Whatever is there: an Init that nobody read.
  };
  std::string tensor;
  int64_t version = 0;
  TensorSpec spec;
  Source source = Source::kNode;
  int32_t index = -1;
  Layout layout;
};

/// Output `output` of a node lies in the bytes of value `into`, whose life it ends.
struct Tie {
  int32_t output = 0;
  ValueIndex into = kNone;
};

struct Node {
  enum class Kind : uint8_t {
    kKernel,
    kView,  ///< Output 0 has the bytes of input 0 in the same order.
    kCopy,
    kCall,
    kLoop,
    kBranch,    ///< Input 0 is the condition.
    kTransfer,  ///< To or from a stream or a remote buffer, as `effect` says.
    kWait,      ///< Until the transfer of input 0 under `token` has ended.
    kIndex,     ///< Output 0 is the value of `index`, as a scalar i32 or u32.
    kSend,
    kReceive,
    kCollective,  ///< One input, one output, among the replicas of `group`.
  };
  Kind kind = Kind::kKernel;
  const OpDef* def = nullptr;
  Attrs attrs;
  std::vector<ValueIndex> inputs;
  std::vector<TensorSpec> in_specs;
  std::vector<ValueIndex> outputs;  ///< Of calls: results, then what by-reference arguments become.
  std::vector<TensorSpec> out_specs;
  std::vector<Tie> ties;
  /// Of kernels of several ops, or on operands that are not all row-major; `def` is then the first one's.
  std::vector<FusedOp::Stage> stages;
  std::vector<GraphId> callees;
  int32_t results = 0;           ///< Of calls, loops, branches: how many outputs are results.
  std::vector<int32_t> updated;  ///< Of calls and loops: inputs that outputs[results + i] update.
  int32_t then_inputs = 0;       ///< Of branches.
  int64_t trips = 0;             ///< Of loops.
  int32_t carried = 0;
  Effect effect{};
  bool has_effect = false;
  /// Of transfers: the entry of a remote buffer, unless the last input gives it.
  std::optional<exe::IndexExpr> index;
  int32_t queue = 0;  ///< Of transfers and waits.
  /// Of transfers and their waits: the number of the transfer in the order of the graph.
  int32_t token = -1;
  /// Of calls and loops: which inputs of the graph are no inputs of the node but index arguments (empty: none), and those
  /// arguments.
  std::vector<bool> indexed;
  std::vector<exe::IndexExpr> index_args;
  int32_t group = -1;    ///< Of collectives.
  int32_t channel = -1;  ///< Of sends and receives.
  int64_t message = 0;
  OpId origin = -1;
  std::string where;
  int32_t device = 0;
};

struct BodyParam {
  std::string name;
  ValueIndex in = kNone;
  ValueIndex out =
      kNone;  ///< The last version, if the graph writes it for its caller; kNone otherwise.
};

struct Body {
  GraphId graph = -1;
  std::string name;
  int32_t device = 0;
  std::vector<BodyValue> values;
  std::vector<Node> nodes;
  std::vector<BodyParam> params;
  std::vector<ValueIndex> results;
  /// Of entry graphs: the last version of each variable that it writes.
  std::vector<std::pair<int32_t, ValueIndex>> variables;
  bool is_entry = false;
  /// Index parameters, each by its number among those that callers may pass: a loop's iteration, then the indexed inputs.
  std::vector<int32_t> index_inputs;
  /// Of each that callers may pass, where it is known.
  std::vector<std::optional<IndexRange>> index_ranges;

  const BodyValue& value(ValueIndex v) const { return values[static_cast<size_t>(v)]; }
  ValueIndex add(BodyValue value) {
    values.push_back(std::move(value));
    return static_cast<ValueIndex>(values.size() - 1);
  }
};

/// The ops of a kernel node: its stages, or the one op that it is. For nodes with one output or stages.
FusedOp fused_op(const Body& body, const Node& node);
/// A tensor that may lie in panels.
inline bool is_matrix(const TensorSpec& spec) {
  return spec.shape.rank() == 2 && spec.dtype == f32 && spec.elements() > 0;
}
/// A layout for asking whether an op runs on panels at all.
inline constexpr Layout kSomePanels{32};
/// "MatMul+Add+Gelu".
std::string name_of(const Node& node);

/// Readable text of a body, for --print-after.
std::string to_string(const Body& body);

}  // namespace sluice::compiler
