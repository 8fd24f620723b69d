#include "sluice/compiler/verify_body.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "sluice/base/error.h"

namespace sluice::compiler {
namespace {

constexpr size_t kNoNode = std::numeric_limits<size_t>::max();

class Verifier {
 public:
  Verifier(const Program& program, const Body& body)
      : program_(program), body_(body), made_(body.values.size(), kNoNode) {}

  void run() {
    for (size_t v = 0; v < body_.values.size(); ++v) {
      if (body_.values[v].source != BodyValue::Source::kNode) made_[v] = 0;
    }
    check_params();
    for (now_ = 0; now_ < body_.nodes.size(); ++now_) check(body_.nodes[now_]);
    for (const ValueIndex v : body_.results) {
      if (v != kNone) check_read(v, "a result");
    }
    for (const BodyParam& p : body_.params) {
      if (p.out != kNone) check_read(p.out, "the last version of parameter " + p.name);
    }
    for (const auto& [variable, v] : body_.variables) {
      check_that(variable >= 0 && static_cast<size_t>(variable) < program_.variables.size(),
                 "there is no variable {}", variable);
      check_read(v, "the last version of a variable");
    }
    check_ties();
  }

 private:
  template <typename... Args>
  void check_that(bool holds, fmt::format_string<Args...> format, Args&&... args) const {
    if (holds) return;
    std::string where = "body " + body_.name;
    if (now_ < body_.nodes.size()) {
      const Node& node = body_.nodes[now_];
      where += fmt::format(", node {} ({}.{} made at {})", now_, name_of(node), node.origin,
                           node.where());
    }
    fail(ErrorKind::kInternal, "{}: {}", where, fmt::format(format, std::forward<Args>(args)...));
  }

  void check_value(ValueIndex v) const {
    check_that(v >= 0 && static_cast<size_t>(v) < body_.values.size(), "there is no value {}", v);
  }

  void check_read(ValueIndex v, const std::string& what) const {
    check_value(v);
    check_that(made_[static_cast<size_t>(v)] <= now_,
               "{} is value {}, which no earlier node produces", what, v);
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
      check_that(t.output >= 0 && static_cast<size_t>(t.output) < node.outputs.size(),
                 "a tie names output {}, the node has {}", t.output, node.outputs.size());
      check_read(t.into, "a value that is overwritten");
    }
    for (const ValueIndex v : node.outputs) {
      if (v == kNone) continue;
      check_value(v);
      check_that(made_[static_cast<size_t>(v)] == kNoNode, "value {} is produced twice", v);
      made_[static_cast<size_t>(v)] = now_ + 1;
    }
    check_callees(node);
    for_each_index(node, [&](const exe::IndexExpr& x) {
      for (const exe::IndexExpr::Node& n : x.nodes()) {
        check_that(n.kind != exe::IndexExpr::Opcode::kParam ||
                       static_cast<size_t>(n.value) < body_.index_params.size(),
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
      check_that(static_cast<size_t>(call->results) + call->updated.size() == node.outputs.size(),
                 "{} outputs are not {} results and {} updates", node.outputs.size(), call->results,
                 call->updated.size());
      check_that(node.carried() <= call->results &&
                     static_cast<size_t>(node.carried()) <= node.inputs.size(),
                 "it carries {} values, but has {} inputs and {} results", node.carried(),
                 node.inputs.size(), call->results);
      for (const int32_t u : call->updated) {
        check_that(u >= node.carried() && static_cast<size_t>(u) < callee.params.size(),
                   "it has no invariant input {}", u);
        check_that(callee.params[static_cast<size_t>(u)].out != kNone,
                   "{} does not update its parameter {}", callee.name, u);
      }
      check_results(node, callee, static_cast<size_t>(call->results));
      if (const auto* loop = node.as<Node::Loop>()) {
        check_rotations(*loop, callee);
        check_conditions(*loop, callee);
      }
    }
    if (const auto* branch = node.as<Node::Branch>()) {
      const auto middle = static_cast<size_t>(branch->then_inputs) + 1;
      check_arguments(node, callee_of(branch->callees[0]), 1, middle);
      check_arguments(node, callee_of(branch->callees[1]), middle, node.inputs.size());
      for (const BodyId id : branch->callees)
        check_results(node, callee_of(id), node.outputs.size());
    }
  }

  const Body& callee_of(BodyId id) const {
    check_that(id >= 0 && static_cast<size_t>(id) < program_.bodies.size(), "there is no body {}",
               id);
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

  void check_results(const Node& node, const Body& callee, size_t results) const {
    check_that(callee.results.size() == results, "it has {} results, {} returns {}", results,
               callee.name, callee.results.size());
    for (size_t r = 0; r < results; ++r) {
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
      const TensorSpec& spec = callee.value(callee.params[static_cast<size_t>(c)].in).spec;
      check_that(spec.dtype == boolean && spec.elements() == 1,
                 "its condition, input {}, is {}, must be a scalar bool", c, to_string(spec));
    }
  }

  void check_rotations(const Node::Loop& loop, const Body& callee) const {
    check_that(loop.rotates.empty() || loop.rotates.size() == static_cast<size_t>(loop.carried),
               "it carries {} values, but {} rotate", loop.carried, loop.rotates.size());
    std::vector<bool> taken(loop.rotates.size(), false);
    for (size_t k = 0; k < loop.rotates.size(); ++k) {
      const int32_t from = loop.rotates[k];
      if (from < 0) continue;
      check_that(from < loop.carried, "carried value {} takes value {}, it carries {}", k, from,
                 loop.carried);
      check_that(!taken[static_cast<size_t>(from)], "carried value {} is taken twice", from);
      taken[static_cast<size_t>(from)] = true;
      check_that(callee.results[k] == kNone, "{} returns result {}, but its value is that of {}",
                 callee.name, k, from);
      const BodyValue& source = callee.value(callee.params[static_cast<size_t>(from)].in);
      const BodyValue& target = callee.value(callee.params[k].in);
      check_that(source.spec == target.spec && source.layout == target.layout,
                 "carried value {} takes value {}, which is {} {}", k, from, to_string(source.spec),
                 to_string(source.layout));
    }
  }

  // Checks that each value is overwritten at most once and not read afterwards. Its views may still
  // be read.
  void check_ties() {
    std::vector<size_t> overwritten(body_.values.size(), kNoNode);
    for (now_ = 0; now_ < body_.nodes.size(); ++now_) {
      const Node& node = body_.nodes[now_];
      for (const ValueIndex v : node.inputs) {
        check_that(overwritten[static_cast<size_t>(v)] == kNoNode,
                   "it reads value {}, which node {} has overwritten", v,
                   overwritten[static_cast<size_t>(v)]);
      }
      for (const Tie& t : node.ties) {
        check_that(overwritten[static_cast<size_t>(t.into)] == kNoNode,
                   "it overwrites value {} again", t.into);
        overwritten[static_cast<size_t>(t.into)] = now_;
      }
    }
    const auto check_last = [&](ValueIndex v, const std::string& what) {
      check_that(v == kNone || overwritten[static_cast<size_t>(v)] == kNoNode,
                 "{} has been overwritten", what);
    };
    for (const ValueIndex v : body_.results) check_last(v, fmt::format("result {}", v));
    for (const BodyParam& p : body_.params)
      check_last(p.out, "the last version of parameter " + p.name);
    for (const auto& [variable, v] : body_.variables)
      check_last(v, fmt::format("the last version of variable {}", variable));
  }

  const Program& program_;
  const Body& body_;
  std::vector<size_t> made_;  // For each value: number of nodes that run before it is available.
  size_t now_ = 0;
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
