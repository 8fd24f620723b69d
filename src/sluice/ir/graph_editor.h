#pragma once
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "sluice/base/provenance.h"
#include "sluice/ir/ir.h"

namespace sluice {

/// Changes a graph in other ways than appending ops; transforms use it. Every function keeps
/// versions and indices correct: if verify() held before, it holds afterwards.
class GraphEditor {
 public:
  explicit GraphEditor(Graph& graph) : graph_(graph) {}

  /// Counters of an Ir at one time, and sizes of the graphs that grow with a graph (roll_back()).
  struct Mark {
    struct Counts {
      size_t tensors, storages, inputs, outputs, appended_outputs;
    };
    OpId next_op;
    int64_t next_graph_number, next_tensor_suffix;
    size_t graph_count;
    std::map<GraphId, Counts> graphs;
  };
  /// Marks the graph, all graphs that it calls, directly or not, and those that append_outputs()
  /// of one of these changes.
  Mark mark() const;
  /// Removes all graphs, and from the marked graphs all ops, tensors, inputs and outputs, that were
  /// added since `mark`. Since then, only new graphs and the marked ones may have changed, by
  /// emitting pure ops or by this class.
  static void roll_back(const Ir& ir, const Mark& mark);
  /// The id of the next op of an Ir.
  static OpId next_op(const Ir& ir);

  /// Appends outputs to the graph. Every op that calls the graph gets new results named
  /// "autodiff_output__t<k>". In a conditional, the other branch returns zeros for them.
  /// Error{kUsage} if the graph is the body of a repeat, because outputs of a body are carried.
  void append_outputs(const Tensors& outputs);
  /// Adds an input by reference to the graph. Every repeat and call of the graph gets an operand
  /// for it: a tensor of undefined values that is made just before the op. Error{kUsage} if a
  /// conditional runs the graph.
  Tensor append_buffer(const TensorSpec& spec, const std::string& name);
  /// Makes `inputs` the inputs of the graph: the present inputs in another order, or fewer. No op
  /// may call the graph yet.
  void set_inputs(const Tensors& inputs);
  /// Renames a tensor; makes the name unique.
  void rename(const Tensor& tensor, std::string name);
  /// Adds a constant that shares its bytes with a constant of another graph.
  Tensor share_constant(const Tensor& constant);

  struct Placement {
    OpId op;
    OpId anchor;
    enum class Side : uint8_t { kBefore, kAfter } side;
  };
  /// Moves each op next to its anchor; ops of one anchor stay in the order given. Moved ops read
  /// the versions at their new position. A moved op must not be an anchor. A move must not separate
  /// a write from the ops that read the written version.
  void place(const std::vector<Placement>& placements);

  /// Replaces the operator, operands and options of an op; its outputs stay. The value of each
  /// operand at the position of the op must be its value at the end of the graph.
  void rewrite(OpId op, const OpDef& def, const Tensors& operands, Attrs attrs = {});

  /// Removes ops that no output, effect, variable or by-reference input depends on. Their tensors
  /// remain until compact().
  void remove_dead_ops();
  void remove_ops(const std::unordered_set<OpId>& ops);
  /// Removes tensors from id `first` on that are not made or used by an op and are not inputs,
  /// outputs or variables. Former inputs that set_inputs() dropped are removed too. Returns the new
  /// id of each tensor; -1 if it was removed.
  Ids<TensorId, TensorId> compact(TensorId first = TensorId(0));

  /// While a Guise exists, ops added to the graph get the device and the provenance of `origin`. If
  /// `origin` has no role, they get that of the graph's ProvenanceScope.
  class Guise {
   public:
    Guise(Graph& graph, const Op& origin);
    ~Guise();
    Guise(const Guise&) = delete;
    Guise& operator=(const Guise&) = delete;

   private:
    Graph& graph_;
    std::unique_ptr<Provenance> previous_;
    int previous_device_;
  };

 private:
  /// Graphs that get outputs together: a graph, and the other branches of conditionals that call
  /// one of them.
  struct Growth {
    std::set<GraphId> graphs;
    std::set<GraphId> callers;  ///< Graphs that call one of them.
  };
  Growth growth() const;
  /// Recomputes versions in program order, and the index of ops.
  void renumber();

  Graph& graph_;
};

}  // namespace sluice
