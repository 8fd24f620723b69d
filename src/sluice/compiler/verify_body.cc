#include "sluice/compiler/verify_body.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "sluice/base/error.h"
#include "sluice/base/ids/ids_format.h"

namespace sluice::compiler {
namespace {

constexpr NodeId kNever(std::numeric_limits<int32_t>::max());

class Verifier {
 public:
  Verifier(const Program& program, const Body& body)
      : program_(program), body_(body), first_reader_(body.values.size(), kNever) {}

  void run() {
    for (const ValueIndex v : body_.values.ids()) {
      if (body_.values[v].source != BodyValue::Source::kNode) first_reader_[v] = NodeId(0);
    }
    check_params();
    for (now_ = NodeId(0); now_ < body_.nodes.end_id(); ++now_) check(body_.nodes[now_]);
    for (const ValueIndex v : body_.results) {
      if (v != kNone) check_read(v, "a result");
    }
    for (const BodyParam& p : body_.params) {
      if (p.out != kNone) check_read(p.out, "the last version of parameter " + p.name);
    }
    for (const auto& [variable, v] : body_.variables) {
      check_that(program_.variables.contains(variable), "there is no variable {}", variable);
      check_read(v, "the last version of a variable");
    }
    check_ties();
  }

 private:
  template <typename... Args>
  void check_that(bool holds, fmt::format_string<Args...> format, Args&&... args) const {
    if (holds) return;
    std::string where = "body " + body_.name;
    if (body_.nodes.contains(now_)) {
      const Node& node = body_.nodes[now_];
      where += fmt::format(", node {} ({}.{} made at {})", now_, name_of(node), node.origin,
                           node.where());
    }
    fail(ErrorKind::kInternal, "{}: {}", where, fmt::format(format, std::forward<Args>(args)...));
  }

  void check_value(ValueIndex v) const {
    check_that(body_.values.contains(v), "there is no value {}", v);
  }

  void check_read(ValueIndex v, const std::string& what) const {
    check_value(v);
    check_that(first_reader_[v] <= now_, "{} is value {}, which no earlier node produces", what, v);
  }

  void check_params() const {
    for (size_t p = 0; p < body_.params.size(); ++p) {
      check_value(body_.params[p].in);
      const BodyValue& value = body_.value(body_.params[p].in);
      check_that(
          value.source == BodyValue::Source::kParam && value.index == static_cast<int32_t>(p),
          "value {} is not parameter {}", body_.params[p].in, p);
    }
  }

  void check(const Node& node) {
    check_that(node.inputs.size() == node.in_specs.size(), "{} inputs have {} specs",
               node.inputs.size(), node.in_specs.size());
    check_that(node.outputs.size() == node.out_specs.size(), "{} outputs have {} specs",
               node.outputs.size(), node.out_specs.size());
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      check_read(node.inputs[i], fmt::format("input {}", i));
      check_that(body_.value(node.inputs[i]).spec.elements() == node.in_specs[i].elements(),
                 "input {} is {}, but its value is {}", i, to_string(node.in_specs[i]),
                 to_string(body_.value(node.inputs[i]).spec));
    }
    for (const Tie& t : node.ties) {
      check_that(t.output >= 0 && t.output < std::ssize(node.outputs),
                 "a tie names output {}, the node has {}", t.output, node.outputs.size());
      check_read(t.into, "a value that is overwritten");
    }
    for (const ValueIndex v : node.outputs) {
      if (v == kNone) continue;
      check_value(v);
      check_that(first_reader_[v] == kNever, "value {} is produced twice", v);
      first_reader_[v] = NodeId(now_ + 1);
    }
    check_callees(node);
    for_each_index(node, [&](const exe::IndexExpr& x) {
      for (const exe::IndexExpr::Node& n : x.nodes()) {
        check_that(
            n.kind != exe::IndexExpr::Opcode::kParam || n.value < std::ssize(body_.index_params),
            "an index expression reads parameter {}, the body has {}", n.value,
            body_.index_params.size());
      }
    });
  }

  void check_callees(const Node& node) const {
    if (const auto* call = node.call()) {
      const Body& callee = callee_of(call->callee);
      check_arguments(node, callee, 0, node.inputs.size());
      check_that(call->index_args.size() == callee.index_params.size(),
                 "it passes {} index arguments, {} takes {}", call->index_args.size(), callee.name,
                 callee.index_params.size());
      check_that(call->results + std::ssize(call->updated) == std::ssize(node.outputs),
                 "{} outputs are not {} results and {} updates", node.outputs.size(), call->results,
                 call->updated.size());
      const auto* loop = node.as<Node::Loop>();
      const int32_t carried = loop == nullptr ? 0 : loop->carried;
      check_that(carried >= 0 && carried <= call->results && carried <= std::ssize(node.inputs),
                 "it carries {} values, but has {} inputs and {} results", carried,
                 node.inputs.size(), call->results);
      for (const int32_t u : call->updated) {
        check_that(u >= carried && u < std::ssize(callee.params), "it has no invariant input {}",
                   u);
        check_that(at(callee.params, u).out != kNone, "{} does not update its parameter {}",
                   callee.name, u);
      }
      check_results(node, callee, call->results);
      if (loop != nullptr) {
        check_rotations(*loop, callee);
        check_conditions(*loop, callee);
      }
    }
    if (const auto* branch = node.as<Node::Branch>()) {
      check_arguments(node, callee_of(branch->callees[0]), 1, branch->else_begin());
      check_arguments(node, callee_of(branch->callees[1]), branch->else_begin(),
                      node.inputs.size());
      for (const BodyId id : branch->callees)
        check_results(node, callee_of(id), std::ssize(node.outputs));
    }
  }

  const Body& callee_of(BodyId id) const {
    check_that(id.valid() && id < std::ssize(program_.bodies), "there is no body {}", id);
    return program_.body(id);
  }

  void check_arguments(const Node& node, const Body& callee, size_t first, size_t last) const {
    check_that(last >= first && last - first == callee.params.size(),
               "it passes {} arguments, {} takes {}", last - first, callee.name,
               callee.params.size());
    for (size_t i = first; i < last; ++i) {
      const TensorSpec& spec = callee.value(callee.params[i - first].in).spec;
      check_that(spec.shape == node.in_specs[i].shape && spec.dtype == node.in_specs[i].dtype,
                 "argument {} is {}, {} takes {}", i - first, to_string(node.in_specs[i]),
                 callee.name, to_string(spec));
    }
  }

  void check_results(const Node& node, const Body& callee, int64_t results) const {
    check_that(std::ssize(callee.results) == results, "it has {} results, {} returns {}", results,
               callee.name, callee.results.size());
    for (size_t r = 0; r < callee.results.size(); ++r) {
      const bool reads = node.outputs[r] != kNone && node.returns_result(static_cast<int32_t>(r));
      check_that(callee.results[r] != kNone || !reads,
                 "{} does not return result {}, which its caller reads", callee.name, r);
    }
  }

  // Checks that each carried value rotates into at most one other, of equal spec.
  void check_conditions(const Node::Loop& loop, const Body& callee) const {
    check_that(loop.conditions.empty() || loop.results == 0,
               "it has a condition and {} results; it must update arguments in place",
               loop.results);
    for (const int32_t c : loop.conditions) {
      check_that(std::find(loop.updated.begin(), loop.updated.end(), c) != loop.updated.end(),
                 "its condition, input {}, is not updated", c);
      const TensorSpec& spec = callee.value(at(callee.params, c).in).spec;
      check_that(spec.dtype == boolean && spec.elements() == 1,
                 "its condition, input {}, is {}, must be a scalar bool", c, to_string(spec));
    }
  }

  void check_rotations(const Node::Loop& loop, const Body& callee) const {
    check_that(loop.rotates.empty() || std::ssize(loop.rotates) == loop.carried,
               "it carries {} values, but {} rotate", loop.carried, loop.rotates.size());
    std::vector<bool> taken(loop.rotates.size(), false);
    for (size_t k = 0; k < loop.rotates.size(); ++k) {
      const int32_t from = loop.rotates[k];
      if (from < 0) continue;
      check_that(from < loop.carried, "carried value {} takes value {}, it carries {}", k, from,
                 loop.carried);
      check_that(!at(taken, from), "carried value {} is taken twice", from);
      at(taken, from) = true;
      check_that(callee.results[k] == kNone, "{} returns result {}, but its value is that of {}",
                 callee.name, k, from);
      const BodyValue& source = callee.value(at(callee.params, from).in);
      const BodyValue& target = callee.value(callee.params[k].in);
      check_that(source.spec == target.spec && source.layout == target.layout,
                 "carried value {} takes value {}, which is {} {}", k, from, to_string(source.spec),
                 to_string(source.layout));
    }
  }

  // Checks that each value is overwritten at most once and not read afterwards. Its views may still
  // be read.
  void check_ties() {
    Ids<ValueIndex, NodeId> overwritten(body_.values.size());  // The node that overwrites it.
    for (now_ = NodeId(0); now_ < body_.nodes.end_id(); ++now_) {
      const Node& node = body_.nodes[now_];
      for (const ValueIndex v : node.inputs) {
        check_that(!overwritten[v].valid(), "it reads value {}, which node {} has overwritten", v,
                   overwritten[v]);
      }
      for (const Tie& t : node.ties) {
        check_that(!overwritten[t.into].valid(), "it overwrites value {} again", t.into);
        overwritten[t.into] = now_;
      }
    }
    const auto check_last = [&](ValueIndex v, const std::string& what) {
      check_that(v == kNone || !overwritten[v].valid(), "{} has been overwritten", what);
    };
    for (const ValueIndex v : body_.results) check_last(v, fmt::format("result {}", v));
    for (const BodyParam& p : body_.params)
      check_last(p.out, "the last version of parameter " + p.name);
    for (const auto& [variable, v] : body_.variables)
      check_last(v, fmt::format("the last version of variable {}", variable));
  }

  const Program& program_;
  const Body& body_;
  Ids<ValueIndex, NodeId> first_reader_;  // For each value: the first node that may read it.
  NodeId now_{0};
};

}  // namespace

void verify(const Program& program, const std::string& pass) {
  for (const BodyId id : callees_first(program)) {
    try {
      Verifier(program, program.body(id)).run();
    } catch (Error& e) {
      throw e.note("verifying after pass " + pass);
    }
  }
}

void verify(const Program& program, const Body& body) { Verifier(program, body).run(); }

}  // namespace sluice::compiler
