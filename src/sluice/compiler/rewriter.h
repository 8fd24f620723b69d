#pragma once
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sluice/compiler/body.h"

/// Changes of a body and of its nodes. They keep the lists of a node that belong together (inputs
/// and their specs, outputs, their specs and ties) equally long.
namespace sluice::compiler {

/// Adds an input that `node` reads under `spec`.
void add_input(Node& node, ValueIndex value, const TensorSpec& spec);
/// Adds an output of `node`.
void add_output(Node& node, ValueIndex value, const TensorSpec& spec);
/// Adds the output `made`, which overwrites the bytes of `into`.
void add_overwrite(Node& node, ValueIndex into, ValueIndex made, const TensorSpec& spec);
/// Adds an argument to a call or a loop that the callee updates, and the output `made`, its new
/// value. Returns the index of the input. The caller adds the callee's parameter.
int32_t add_updated(Node& node, ValueIndex argument, ValueIndex made, const TensorSpec& spec);
/// Calls f(size_t input, size_t output) for each input of a call or a loop that the callee updates,
/// and the output that is its new value.
template <typename F>
void for_each_updated(const Node& node, F&& f) {
  if (node.call() == nullptr) return;
  auto output = static_cast<size_t>(node.call()->results);
  for (const int32_t input : node.call()->updated) f(static_cast<size_t>(input), output++);
}

/// A node without operands that has the origin, the provenance and the device of `at`.
Node node_like(const Node& at);

/// The spec of the result of an op with operands of these specs.
TensorSpec spec_of(const OpStage& part, const std::vector<TensorSpec>& inputs);

/// Rebuilds the list of a body's nodes. A pass visits each node once, in their order, and keeps it,
/// drops it, or inserts other nodes before it or in its place:
///
///     Rewriter rewriter(body);
///     rewriter.run([&](Node& node) {
///       if (!is_difference(node)) return true;  // The node stays.
///       rewriter.split(node, parts);            // Its parts take its place.
///       return false;
///     });
class Rewriter {
 public:
  explicit Rewriter(Body& body) : body_(body) {}

  /// Calls `visit(Node&)` for each node. The node stays if the call returns true. During the calls,
  /// Body::nodes has the nodes before the visited one, as they are now.
  template <typename Visit>
  void run(Visit&& visit) {
    Ids<NodeId, Node> old = std::exchange(body_.nodes, {});
    body_.nodes.reserve(old.size());
    for (Node& node : old) {
      rename_inputs(node);
      if (visit(node)) insert(std::move(node));
    }
    rename_ends();
  }

  /// Inserts a node before the visited one. Returns its first output; kNone if it has none.
  ValueIndex insert(Node node);

  /// Lets all readers of `from` from the visited node on, and the ends of the body, read `to`
  /// instead. The visited node itself is not changed. A node that overwrites `from` then overwrites
  /// `to`.
  void replace_use(ValueIndex from, ValueIndex to);

  /// Inserts the parts of `node` that its used outputs need, in their order. The node must not
  /// overwrite a value. Operand i >= 0 of a part is input i of the node; operand ~p is the result
  /// of part p. The result of a part is output `OpStage::output` of the node, or a new value if
  /// that is negative. `used`: for each output, whether something reads it; empty: all are used.
  void split(const Node& node, std::span<const OpStage> parts, const std::vector<bool>& used = {});

  /// The inserted node that makes a value; null if a later node makes it, or none.
  const Node* maker(ValueIndex value) const;
  /// The value that readers of `value` read now; see replace_use().
  ValueIndex current(ValueIndex value) const;

 private:
  void rename_inputs(Node& node) const;
  void rename_ends();

  Body& body_;
  Ids<ValueIndex, NodeId> maker_;       ///< Node of each value; invalid or missing: none yet.
  Ids<ValueIndex, ValueIndex> rename_;  ///< Replacement of each value; kNone or missing: none.
};

}  // namespace sluice::compiler
