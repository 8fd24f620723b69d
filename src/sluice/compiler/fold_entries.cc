#include "sluice/compiler/fold_entries.h"

#include <algorithm>

#include "sluice/compiler/dead_code.h"

namespace sluice::compiler {

using exe::IndexExpr;

namespace {

class Folder {
 public:
  Folder(Body& body, const Globals& globals, const IndexTable& table)
      : body_(body), table_(table), indices_(body, globals, table) {}

  int64_t run() {
    std::vector<Node> nodes = std::move(body_.nodes);
    for (Node& node : nodes) {
      counters_.clear();
      if (computes_entry(node)) {
        fold_entry(node);
      } else if (takes_indices(node)) {
        fold_arguments(node);
      }
      out_.push_back(std::move(node));
      for (Node& counter : counters_) out_.push_back(std::move(counter));
    }
    body_.nodes = std::move(out_);
    return entries_;
  }

 private:
  void fold_entry(Node& node) {
    const auto& fact = indices_.of(node.inputs.back());
    if (!fact) return;
    node.index = fact->expr;
    node.inputs.pop_back();
    node.in_specs.pop_back();
    ++entries_;
  }

  // The fact of an argument that the callee takes as an index.
  std::optional<IndexFact> index_argument(const Node& node, size_t i) const {
    const GraphId callee = node.callees[0];
    const auto known = table_.range(callee, callee_input(node, i));
    if (!known || !table_.is_wanted(callee, callee_input(node, i))) return std::nullopt;
    if (std::find(node.updated.begin(), node.updated.end(), static_cast<int32_t>(i)) !=
        node.updated.end())
      return std::nullopt;
    const auto fact = indices_.argument(node, i);
    // Whoever reads the last value of a counter must be able to make it.
    const bool carried = node.kind == Node::Kind::kLoop && i < static_cast<size_t>(node.carried);
    if (carried && !indices_.of(node.outputs[i])) return std::nullopt;
    const bool covered = fact && fact->range.low >= known->low && fact->range.high <= known->high;
    return covered ? fact : std::nullopt;
  }

  void fold_arguments(Node& node) {
    std::vector<std::optional<IndexFact>> arguments;
    for (size_t i = 0; i < node.inputs.size(); ++i) arguments.push_back(index_argument(node, i));
    std::vector<ValueIndex> inputs;
    std::vector<TensorSpec> specs;
    std::vector<int32_t> moved;  // By input: where it is now.
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      moved.push_back(static_cast<int32_t>(inputs.size()));
      node.indexed.push_back(arguments[i].has_value());
      if (arguments[i]) {
        node.index_args.push_back(arguments[i]->expr);
        continue;
      }
      inputs.push_back(node.inputs[i]);
      specs.push_back(node.in_specs[i]);
    }
    node.inputs = std::move(inputs);
    node.in_specs = std::move(specs);
    for (int32_t& u : node.updated) u = moved[static_cast<size_t>(u)];
    if (node.kind == Node::Kind::kLoop) drop_counters(node, arguments);
  }

  // A carried value that is an index argument is no result either; who reads its last value gets it anew.
  void drop_counters(Node& node, const std::vector<std::optional<IndexFact>>& arguments) {
    for (auto k = static_cast<size_t>(node.carried); k-- > 0;) {
      if (!arguments[k]) continue;
      const auto at = static_cast<std::ptrdiff_t>(k);
      Node last;
      last.kind = Node::Kind::kIndex;
      last.origin = node.origin;
      last.where = node.where;
      last.device = node.device;
      last.outputs = {node.outputs[k]};
      last.out_specs = {node.out_specs[k]};
      last.index = indices_.of(node.outputs[k])->expr;
      counters_.push_back(std::move(last));
      node.outputs.erase(node.outputs.begin() + at);
      node.out_specs.erase(node.out_specs.begin() + at);
      for (Tie& t : node.ties) t.output -= 1;
      --node.carried;
      --node.results;
    }
  }

  Body& body_;
  const IndexTable& table_;
  Indices indices_;
  std::vector<Node> out_;
  std::vector<Node> counters_;
  int64_t entries_ = 0;
};

template <typename Visit>
void each_index(Body& body, Visit&& visit) {
  for (Node& node : body.nodes) {
    if (node.index) visit(*node.index);
    for (IndexExpr& x : node.index_args) visit(x);
  }
}

}  // namespace

int64_t fold_entries(Body& body, const Globals& globals, const FactTable& facts,
                     const IndexTable& table) {
  const int64_t folded = Folder(body, globals, table).run();
  remove_dead_code(body, facts);
  return folded;
}

void number_index_params(Body& body) {
  std::vector<bool> used(body.index_ranges.size(), false);
  each_index(body, [&](IndexExpr& x) {
    for (const IndexExpr::Node& n : x.nodes()) {
      if (n.kind == IndexExpr::Kind::kParam) used[static_cast<size_t>(n.value)] = true;
    }
  });
  std::vector<IndexExpr> numbers(used.size());
  for (size_t p = 0; p < used.size(); ++p) {
    if (!used[p]) continue;
    numbers[p] = IndexExpr::param(static_cast<int64_t>(body.index_inputs.size()));
    body.index_inputs.push_back(static_cast<int32_t>(p));
  }
  each_index(body, [&](IndexExpr& x) { x = exe::substitute(x, numbers); });
}

}  // namespace sluice::compiler
