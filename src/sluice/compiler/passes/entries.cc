#include "sluice/compiler/passes/entries.h"

#include <algorithm>

#include "sluice/compiler/analysis/indices.h"
#include "sluice/compiler/passes/dead_code.h"

namespace sluice::compiler {

using exe::IndexExpr;

namespace {

// Properties of the calls for which a body is specialised.
struct Key {
  // For each parameter: range of an index argument.
  std::vector<std::optional<IndexRange>> indexed;
  std::optional<IndexRange> iteration;  // Range of a loop's counter.
  std::vector<bool> read;               // Results that callers read; empty: all.
  size_t carried = 0;                   // Number of carried values of a loop.
  bool operator==(const Key&) const = default;
};

// Converts the parameters in key.indexed into index parameters. Index nodes compute their values. A
// loop's body does not return a carried value that is an index parameter.
void take_index_params(Body& body, const Key& key) {
  if (key.iteration) body.index_params[0] = key.iteration;
  const std::vector<BodyParam> all = std::move(body.params);
  body.params.clear();
  std::vector<Node> made;
  for (size_t i = 0; i < all.size(); ++i) {
    BodyValue& value = body.value(all[i].in);
    if (i >= key.indexed.size() || !key.indexed[i]) {
      value.index = static_cast<int32_t>(body.params.size());
      body.params.push_back(all[i]);
      continue;
    }
    Node node;
    node.what = Node::Index{IndexExpr::param(static_cast<int64_t>(body.index_params.size()))};
    node.outputs = {all[i].in};
    node.out_specs = {value.spec};
    node.provenance =
        Provenance{.role = OpRole::kCopy, .line = fmt::format("{} of {}", all[i].name, body.name)};
    node.device = body.device;
    value.index = -1;
    value.source = BodyValue::Source::kNode;
    body.index_params.push_back(key.indexed[i]);
    made.push_back(std::move(node));
  }
  std::vector<Node>& nodes = body.nodes.items();
  const auto after_iteration =
      nodes.begin() + (!nodes.empty() && nodes[0].is<Node::Index>() ? std::ptrdiff_t{1} : 0);
  nodes.insert(after_iteration, std::make_move_iterator(made.begin()),
               std::make_move_iterator(made.end()));
  if (body.role != Role::kLoopBody) return;
  for (size_t i = std::min(key.indexed.size(), body.results.size()); i-- > 0;) {
    if (key.indexed[i] && i < key.carried)
      body.results.erase(body.results.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

class Folder {
 public:
  Folder(const Program& program, Body& body, const IndexTable& table)
      : body_(body), table_(table), indices_(program, body, table) {}

  // Folds the entries and arguments of the body; returns the number of entries.
  int64_t run() {
    Ids<NodeId, Node> nodes = std::move(body_.nodes);
    for (Node& node : nodes) {
      counters_.clear();
      Key key;
      if (computes_entry(node)) fold_entry(node);
      if (node.call() != nullptr) key = fold_arguments(node);
      add(std::move(node), std::move(key));
      for (Node& counter : counters_) add(std::move(counter), {});
    }
    body_.nodes = std::move(out_);
    return entries_;
  }

  /// For each node: key for its callee.
  Ids<NodeId, Key>& keys() { return keys_; }

 private:
  void add(Node node, Key key) {
    out_.push_back(std::move(node));
    keys_.push_back(std::move(key));
  }

  void fold_entry(Node& node) {
    const auto& fact = indices_.of(node.inputs.back());
    if (!fact) return;
    node.as<Node::Transfer>()->entry = fact->expr;
    node.inputs.pop_back();
    node.in_specs.pop_back();
    ++entries_;
  }

  // The fact of argument i, if the callee can take it as an index argument.
  std::optional<IndexFact> index_argument(const Node& node, size_t i) const {
    const Node::Call& call = *node.call();
    const auto known = table_.range(call.callee, i);
    if (!known || !table_.is_wanted(call.callee, i)) return std::nullopt;
    if (std::find(call.updated.begin(), call.updated.end(), static_cast<int32_t>(i)) !=
        call.updated.end())
      return std::nullopt;
    const auto fact = indices_.argument(node, i);
    // A carried value must also have a fact for its last value, which readers after the loop need.
    const bool carried = i < node.carried();
    if (carried && (node.outputs[i] == kNone || !indices_.of(node.outputs[i]))) return std::nullopt;
    const bool covered = fact && fact->range.low >= known->low && fact->range.high <= known->high;
    return covered ? fact : std::nullopt;
  }

  Key fold_arguments(Node& node) {
    Key key;
    std::vector<std::optional<IndexFact>> arguments;
    for (size_t i = 0; i < node.inputs.size(); ++i) arguments.push_back(index_argument(node, i));
    Node::Call& call = *node.call();
    if (node.is<Node::Loop>()) key.iteration = table_.iteration(call.callee);
    key.carried = node.carried();
    std::vector<ValueIndex> inputs;
    std::vector<TensorSpec> specs;
    std::vector<int32_t> moved;  // For each input: its new index.
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      moved.push_back(static_cast<int32_t>(inputs.size()));
      if (arguments[i]) {
        key.indexed.resize(i + 1);
        key.indexed[i] = table_.range(call.callee, i);
        call.index_args.push_back(arguments[i]->expr);
        continue;
      }
      inputs.push_back(node.inputs[i]);
      specs.push_back(node.in_specs[i]);
    }
    node.inputs = std::move(inputs);
    node.in_specs = std::move(specs);
    for (int32_t& u : call.updated) u = at(moved, u);
    if (auto* loop = node.as<Node::Loop>())
      for (int32_t& c : loop->conditions) c = at(moved, c);
    if (node.is<Node::Loop>()) drop_counters(node, arguments);
    return key;
  }

  // Removes carried values that are index arguments from the loop. An Index node computes the last
  // value of each.
  void drop_counters(Node& node, const std::vector<std::optional<IndexFact>>& arguments) {
    auto& loop = *node.as<Node::Loop>();
    for (size_t k = node.carried(); k-- > 0;) {
      if (!arguments[k]) continue;
      const auto at = static_cast<std::ptrdiff_t>(k);
      Node last;
      last.what = Node::Index{indices_.of(node.outputs[k])->expr};
      last.origin = node.origin;
      last.provenance = node.provenance;
      last.device = node.device;
      last.outputs = {node.outputs[k]};
      last.out_specs = {node.out_specs[k]};
      counters_.push_back(std::move(last));
      node.outputs.erase(node.outputs.begin() + at);
      node.out_specs.erase(node.out_specs.begin() + at);
      for (Tie& t : node.ties) t.output -= 1;
      --loop.carried;
      --loop.results;
    }
  }

  Body& body_;
  const IndexTable& table_;
  Indices indices_;
  Ids<NodeId, Node> out_;
  std::vector<Node> counters_;
  Ids<NodeId, Key> keys_;  // For each node of out_.
  int64_t entries_ = 0;
};

}  // namespace

int64_t fold_entries(Program& program, const Context&) {
  if (program.ir.remote_buffer_count() == 0) return 0;
  const FactTable facts(program);
  const IndexTable table(program);
  int64_t folded = 0;
  specialise<Key>(program, [&](BodyId id, const Key& key) {
    Body& body = program.body(id);
    take_index_params(body, key);
    drop_results(body, key.read);
    Folder folder(program, body, table);
    folded += folder.run();
    const Ids<NodeId, NodeId> indices = remove_dead_nodes(body, facts);
    const auto used = used_outputs(body);
    std::vector<Request<Key>> requests;
    for (const NodeId n : body.nodes.ids()) {
      Node& node = body.nodes[n];
      auto* call = node.call();
      if (call == nullptr) {
        for_each_callee(node, [&](BodyId& callee) { requests.push_back({&callee, {}}); });
        continue;
      }
      Key wanted = std::move(folder.keys()[indices[n]]);
      if (node.is<Node::Call>()) wanted.read = request_results(node, used[n]);
      requests.push_back({&call->callee, std::move(wanted)});
    }
    return requests;
  });
  // The ranges are not needed any more. Copies of a body for different ranges or results may now be
  // equal.
  for (const BodyId id : callees_first(program)) {
    for (auto& range : program.body(id).index_params) range.reset();
  }
  merge_equal_bodies(program);
  return folded;
}

}  // namespace sluice::compiler
