#include "sluice/ir/builtin.h"

namespace sluice::builtin {
namespace {

std::vector<TensorSpec> infer_init(const OpView& op) {
  const auto o = op.options<InitOptions>();
  return {{o.shape, o.dtype, {}}};
}

std::vector<TensorSpec> same_as_first(const OpView& op) { return {op.input(0)}; }
std::vector<TensorSpec> nothing(const OpView&) { return {}; }

OpDef structural(const char* type, const char* name, const char* doc) {
  OpDef def;
  def.type = type;
  def.name = name;
  def.doc = doc;
  def.traits = Trait::kStructural;
  def.infer = nothing;
  return def;
}

// A transfer between a graph and its environment. Gradients stay in the graph.
OpDef transfer(const char* type, const char* name, const char* doc) {
  OpDef def = structural(type, name, doc);
  def.traits |= Trait::kZeroGradient;
  return def;
}

}  // namespace

const OpDef& init() {
  static const OpDef def = [] {
    OpDef d = transfer("Init", "init",
                       "A tensor filled with `value`, or with whatever is there if undefined.");
    d.outputs = {"y"};
    d.options = to_attrs(InitOptions{});
    d.infer = infer_init;
    return d;
  }();
  return def;
}

const OpDef& host_load() {
  static const OpDef def = [] {
    OpDef d = transfer("HostLoad", "host_load",
                       "The next entry of a host stream, written over its operand.");
    d.inputs = {{"x", Mode::kWrite}};
    d.outputs = {"y"};
    d.aliases = {{0, 0}};
    d.infer = same_as_first;
    return d;
  }();
  return def;
}

const OpDef& host_store() {
  static const OpDef def = [] {
    OpDef d = transfer("HostStore", "host_store",
                       "Emits its operand as the next entry of a host stream.");
    d.inputs = {{"x"}};
    return d;
  }();
  return def;
}

const OpDef& remote_load() {
  static const OpDef def = [] {
    OpDef d = transfer("RemoteLoad", "remote_load",
                       "An entry of a remote buffer, written over its first operand; the second, "
                       "if any, is the entry.");
    d.inputs = {{"x", Mode::kWrite}, {"entry"}};
    d.variadic = true;
    d.outputs = {"y"};
    d.aliases = {{0, 0}};
    d.infer = same_as_first;
    return d;
  }();
  return def;
}

const OpDef& remote_store() {
  static const OpDef def = [] {
    OpDef d = transfer("RemoteStore", "remote_store",
                       "Writes its first operand to an entry of a remote buffer; the second, if "
                       "any, is the entry.");
    d.inputs = {{"x"}, {"entry"}};
    d.variadic = true;
    return d;
  }();
  return def;
}

const OpDef& call() {
  static const OpDef def = [] {
    OpDef d = structural("Call", "call", "Runs a graph on the operands.");
    d.inputs = {{"x"}};
    d.variadic = true;
    return d;
  }();
  return def;
}

const OpDef& loop() {
  static const OpDef def = [] {
    OpDef d =
        structural("Loop", "repeat", "Runs a graph `trips` times; its first inputs are carried.");
    d.inputs = {{"x"}};
    d.variadic = true;
    d.options = to_attrs(LoopOptions{});
    return d;
  }();
  return def;
}

const OpDef& branch() {
  static const OpDef def = [] {
    OpDef d = structural("If", "conditional",
                         "Runs the first graph if the condition holds, the second otherwise.");
    d.inputs = {{"condition"}, {"x"}};
    d.variadic = true;
    d.options = to_attrs(IfOptions{});
    return d;
  }();
  return def;
}

size_t carried(const Op& loop) {
  return static_cast<size_t>(from_attrs<LoopOptions>(loop.attrs).carried);
}

size_t then_inputs(const Op& branch) {
  return static_cast<size_t>(from_attrs<IfOptions>(branch.attrs).then_inputs);
}

}  // namespace sluice::builtin
