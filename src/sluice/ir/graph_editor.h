#pragma once
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "sluice/ir/ir.h"

namespace sluice {

/// Changes to a graph beyond appending to it: what transforms are made of. Every function leaves
/// versions and indices right, so that verify() holds as it did before.
class GraphEditor {
 public:
  explicit GraphEditor(Graph& graph) : graph_(graph) {}

  /// How much of an Ir there is now.
  struct Mark {
    struct Counts {
      size_t tensors, storages, inputs, outputs, appended_outputs;
    };
    OpId next_op;
    int64_t next_graph_number, next_tensor_suffix;
    std::vector<Counts> graphs;
  };
  static Mark mark(const Ir& ir);
  /// Takes back what was added to an Ir since: graphs, ops, tensors, inputs and outputs. Only for
  /// an Ir to which things were added, by emitting pure ops or by this class.
  static void roll_back(const Ir& ir, const Mark& mark);

  /// Appends outputs to the graph, and results named "autodiff_output__t<k>" to every op that calls
  /// it. The other branch of a conditional gets zeros. Error{kUsage} if the graph is the body of a
  /// repeat: its outputs are carried.
  void append_outputs(const Tensors& outputs);
  /// Makes `inputs` the graph's inputs: the same in another order, or fewer. For graphs that
  /// nothing calls yet.
  void set_inputs(const Tensors& inputs);
  /// Gives a tensor another name, made unique.
  void rename(const Tensor& tensor, std::string name);
  /// A constant of this graph that shares its bytes with a constant of another one.
  Tensor share_constant(const Tensor& constant);

  struct Placement {
    OpId op;
    OpId anchor;
    enum class Side : uint8_t { kBefore, kAfter } side;
  };
  /// Moves ops next to others, those of one anchor in the order given; they read the versions that
  /// hold there. No moved op may be an anchor, nor be moved away from between a write and its
  /// reader.
  void place(const std::vector<Placement>& placements);

  /// Makes an op another one with the same outputs. The operands must hold at its place what they hold now.
  void rewrite(OpId op, const OpDef& def, const Tensors& operands, Attrs attrs = {});

  /// Removes ops that no output, effect, variable or by-reference input depends on. Their tensors
  /// remain until compact().
  void remove_dead_ops();
  void remove_ops(const std::unordered_set<OpId>& ops);
  /// Drops tensors from `first` on that no op makes and nothing uses; inputs no longer listed among
  /// them. Returns where the others are now.
  std::vector<TensorId> compact(TensorId first = 0);

  /// While alive, ops that are added to the graph take device, module path and source line of
  /// `origin`.
  class Guise {
   public:
    Guise(Graph& graph, const Op& origin);
    ~Guise();
    Guise(const Guise&) = delete;
    Guise& operator=(const Guise&) = delete;

   private:
    Graph& graph_;
    std::string where_;
    std::string scope_;
    int device_;
    size_t first_;
  };

 private:
  /// Numbers versions anew in program order; indexes ops.
  void renumber();

  Graph& graph_;
};

}  // namespace sluice
