#include "sluice/exe/budget/memory_contents.h"

#include <fmt/format.h>

#include <algorithm>

#include "sluice/exe/call_order.h"
#include "sluice/exe/visit_step.h"
#include "sluice/exe/words.h"

namespace sluice::exe {
namespace {

constexpr const char *kVariables = "variables", *kState = "optimizer state",
                     *kAccumulators = "accumulators", *kGradients = "gradients",
                     *kActivations = "activations", *kStreams = "inputs and outputs";

std::string joined(const std::string& owner, const std::string& text) {
  return owner.empty() ? text : owner + ", " + text;
}

bool is_of_gradients(OpRole role) {
  return role == OpRole::kGradient || role == OpRole::kReduction || role == OpRole::kNorm;
}

}  // namespace

void add_work(std::vector<Provenance>& list, const Provenance& provenance) {
  const auto same = [&](const Provenance& other) {
    return other.role == provenance.role && other.block == provenance.block;
  };
  if (std::none_of(list.begin(), list.end(), same)) list.push_back(provenance);
}

std::string range_of(const std::vector<std::string>& names) {
  if (names.empty()) return "";
  return names.size() == 1 ? names.front() : names.front() + " … " + names.back();
}

MemoryContents::MemoryContents(const Executable& executable)
    : e_(executable), calls_(e_.functions.size()), remotes_(e_.remote_buffers.size()) {
  for (const Program& p : e_.programs) {
    for (const Start& start : p.starts) calls_[start.function] = {Provenance()};
  }
  for (const VariableId v : e_.variables.ids()) {
    const VariablePlan& plan = e_.variables[v];
    if (plan.buffer < 0) continue;
    entries_[{plan.buffer, plan.entry}] = v;
    add(plan.buffer, of_variable(v));
    remotes_[plan.buffer].has_variables = true;
  }
  std::vector<FunctionId> callers_first = callees_first(e_);
  std::reverse(callers_first.begin(), callers_first.end());
  for (const FunctionId f : callers_first) {
    for (const Step& step : function(f).steps) {
      for_each_call(step, [&](const Call& call) {
        for (const Provenance& own : calls_of(f))
          add_work(calls_[call.function], e_.origins.at(step.provenance).inside(own));
      });
      const auto* issue = std::get_if<Issue>(&step.body);
      if (issue == nullptr || issue->kind != TransferKind::kRemoteStore ||
          remotes_[issue->buffer()].has_variables)
        continue;
      const Provenance p = of_value(f, issue->memory.value);
      Contents stored = described(p);
      if (stored.kind == kStreams) stored.name = p.variable + ", kept for the backward pass";
      if (!stored.name.empty()) add(issue->buffer(), stored);
    }
  }
}

void MemoryContents::add(BufferId remote_buffer, const Contents& contents) {
  Remote& remote = remotes_[remote_buffer];
  if (remote.names.empty()) remote.kind = contents.kind;
  add_once(remote.names, contents.name);
}

const std::vector<Provenance>& MemoryContents::calls_of(FunctionId function) const {
  return calls_[function];
}

const std::vector<std::string>* MemoryContents::rows_of(const std::string& block) const {
  const auto rows = e_.origins.rows_of_blocks.find(block);
  return rows == e_.origins.rows_of_blocks.end() || rows->second.size() < 2 ? nullptr
                                                                            : &rows->second;
}

std::string MemoryContents::module_of(const Provenance& p) const {
  if (const auto* rows = rows_of(p.block)) return range_of(*rows);
  std::string module = p.module_path.empty() ? p.block : p.module_path;
  std::replace(module.begin(), module.end(), '/', '.');
  return module;
}

Provenance MemoryContents::of_value(FunctionId function, ValueId value) const {
  const int32_t row = e_.origins.of_value(value);
  const std::vector<Provenance>& calls = calls_of(function);
  return row < 0 || calls.empty() ? Provenance() : e_.origins.at(row).inside(calls.front());
}

const Step* MemoryContents::maker_of(FunctionId f, size_t b) const {
  const Function& fn = function(f);
  const int64_t begin = fn.buffers[b].begin;
  return begin >= 0 && begin < std::ssize(fn.steps) ? &at(fn.steps, begin) : nullptr;
}

// An op outside all modules, such as an activation between two layers, has the module of the kernel
// that it is a stage of.
Provenance MemoryContents::provenance_of(FunctionId f, size_t b) const {
  Provenance p = of_value(f, e_.origins.in_buffer(f, b));
  const Step* maker = maker_of(f, b);
  const auto* kernel = maker == nullptr ? nullptr : std::get_if<Kernel>(&maker->body);
  if (kernel == nullptr || maker->provenance < 0) return p;
  for (size_t s = 0; s < kernel->stages.size() && module_of(p).empty(); ++s)
    p.module_path = e_.origins.at(maker->provenance + static_cast<int32_t>(s)).module_path;
  return p;
}

Contents MemoryContents::described(const Provenance& p) const {
  if (p.op == "host_load") return {kStreams, p.variable + ", read from its stream"};
  const bool has_variable = !p.variable.empty();
  std::string owner = has_variable ? p.variable : module_of(p);
  if (const auto* rows = rows_of(p.block); has_variable && rows != nullptr)
    owner += fmt::format(" and {} more", rows->size() - 1);
  if (p.role == OpRole::kAccumulation)
    return {kAccumulators, has_variable ? owner + ", accumulator" : "counter of micro-batches"};
  if (is_of_gradients(p.role))
    return {kGradients, joined(owner, has_variable ? "gradient" : "gradient of " + p.op)};
  if (p.role == OpRole::kUpdate) {
    if (p.op.empty() || p.op == "remote_load") return {kState, owner};
  } else if (has_variable) {
    return {kVariables, p.role == OpRole::kCollective ? owner + ", gathered" : owner};
  }
  return p.op.empty() ? Contents() : Contents{kActivations, joined(owner, p.op + " output")};
}

Contents MemoryContents::of_variable(VariableId variable) const {
  const VariablePlan& v = e_.variables[variable];
  const auto [role, owner] = e_.origins.of_variable(variable);
  const char* const kind = role == OpRole::kUpdate         ? kState
                           : role == OpRole::kAccumulation ? kAccumulators
                                                           : kVariables;
  if (owner < 0) return {kind, v.path};
  const std::string& path = e_.variables[owner].path;
  const bool below = v.path.starts_with(path + ".");
  return {kind, joined(path, kind == kAccumulators ? "accumulator"
                             : below               ? v.path.substr(path.size() + 1)
                                                   : v.path)};
}

Contents MemoryContents::of_constant(ConstantId constant) const {
  return {"constants", "constant " + e_.constants[constant].name};
}

Contents MemoryContents::of_remote(BufferId remote_buffer) const {
  const Remote& remote = remotes_[remote_buffer];
  return {remote.kind,
          remote.names.empty() ? e_.remote_buffers[remote_buffer].name : range_of(remote.names)};
}

Contents MemoryContents::of_arena(ArenaKind kind) {
  const std::string name = kind == ArenaKind::kSlots     ? "channel slots"
                           : kind == ArenaKind::kStaging ? "staging of transfers"
                           : kind == ArenaKind::kRings   ? "rings of feeds"
                                                         : std::string(word(kind));
  return {name, name};
}

Contents MemoryContents::of_buffer(FunctionId f, size_t b) const {
  const Provenance p = provenance_of(f, b);
  Contents contents = described(p);
  const Step* maker = maker_of(f, b);
  const auto* load = maker == nullptr ? nullptr : std::get_if<Issue>(&maker->body);
  if (load != nullptr && load->kind == TransferKind::kRemoteLoad &&
      load->memory.value == e_.origins.in_buffer(f, b)) {
    const bool known = load->entry.is_constant() && !load->entry_from;
    const auto variable =
        known ? entries_.find({load->buffer(), load->entry.constant()}) : entries_.end();
    contents =
        variable != entries_.end() ? of_variable(variable->second) : of_remote(load->buffer());
    contents.name += ", loaded";
  }
  if (contents.name.empty()) return {contents.kind, function(f).buffers[b].name};
  if (contents.kind == kGradients || (contents.kind == kActivations && is_of_gradients(p.role)))
    contents.name += " (backward)";
  else if (contents.kind == kActivations)
    contents.name += fmt::format(" ({})", word(p.role));
  return contents;
}

}  // namespace sluice::exe
