#include "sluice/compiler/passes/renumber.h"

namespace sluice::compiler {
namespace {

// Numbers the transfers of a body in its order. Stores in each call and conditional the number of
// transfers before it.
void number_transfers(Body& body) {
  int32_t transfers = 0;
  for (Node& node : body.nodes) {
    if (auto* call = node.call()) call->transfers_before = transfers;
    if (auto* branch = node.as<Node::Branch>()) branch->transfers_before = transfers;
    if (auto* transfer = node.as<Node::Transfer>()) transfer->token = transfers++;
  }
}

// Removes the index parameters that no expression of a body reads, and their arguments. `used` must
// have the body's callees.
void drop_index_params(Program& program, BodyId id, std::map<BodyId, std::vector<bool>>& used) {
  using exe::IndexExpr;
  Body& body = program.body(id);
  std::vector<bool>& own = used[id];
  own.assign(body.index_params.size(), false);
  for (Node& node : body.nodes) {
    if (auto* call = node.call()) {
      const std::vector<bool>& taken = used.at(call->callee);
      std::vector<IndexExpr> args;
      for (size_t i = 0; i < taken.size(); ++i) {
        if (taken[i]) args.push_back(std::move(call->index_args[i]));
      }
      call->index_args = std::move(args);
    }
    for_each_index(node, [&](const IndexExpr& x) {
      for (const IndexExpr::Node& n : x.nodes()) {
        if (n.kind == IndexExpr::Opcode::kParam) at(own, n.value) = true;
      }
    });
  }
  std::vector<IndexExpr> numbers(own.size());
  std::vector<std::optional<IndexRange>> left;
  for (size_t p = 0; p < own.size(); ++p) {
    if (!own[p]) continue;
    numbers[p] = IndexExpr::param(static_cast<int64_t>(left.size()));
    left.push_back(body.index_params[p]);
  }
  body.index_params = std::move(left);
  for (Node& node : body.nodes)
    for_each_index(node, [&](IndexExpr& x) { x = exe::substitute(x, numbers); });
}

}  // namespace

void renumber(Program& program) {
  std::map<BodyId, std::vector<bool>> used;
  for (const BodyId id : callees_first(program)) {
    number_transfers(program.body(id));
    drop_index_params(program, id, used);
  }
}

}  // namespace sluice::compiler
