#include "sluice/report/places.h"

#include <fmt/format.h>

#include <algorithm>

#include "sluice/exe/call_order.h"
#include "sluice/exe/visit_step.h"

namespace sluice::report {
namespace {

constexpr const char *kVariables = "variables", *kState = "optimizer state",
                     *kAccumulators = "accumulators", *kGradients = "gradients",
                     *kActivations = "activations", *kStreams = "inputs and outputs";

void append(std::string& text, std::string_view part) {
  if (part.empty()) return;
  if (!text.empty()) text += ", ";
  text += part;
}

template <typename T>
void add_once(std::vector<T>& list, const T& item) {
  if (std::find(list.begin(), list.end(), item) == list.end()) list.push_back(item);
}

// Returns "fc.1 … fc.3": the first and the last name of a list.
std::string range_of(const std::vector<std::string>& names) {
  if (names.empty()) return "";
  return names.size() == 1 ? names.front() : names.front() + " … " + names.back();
}

// Copies and initialisations may run long before the part of a block that they belong to.
bool is_work(const exe::Kernel& kernel) {
  return kernel.op != "Copy" && kernel.op != "Init" && kernel.op != "Index";
}

bool is_backward(OpRole role) {
  return role == OpRole::kGradient || role == OpRole::kRecomputation ||
         role == OpRole::kAccumulation;
}

bool has_part(const Provenance& p) {
  return !p.block.empty() &&
         (is_backward(p.role) || p.role == OpRole::kForward || p.role == OpRole::kEvaluation);
}

void add_work(std::vector<Provenance>& list, const Provenance& p) {
  const auto same = [&](const Provenance& o) { return o.role == p.role && o.block == p.block; };
  if (std::none_of(list.begin(), list.end(), same)) list.push_back(p);
}

std::string_view suffix(bool backward) { return backward ? " bwd" : " fwd"; }

}  // namespace

Places::Places(const exe::Executable& executable)
    : e_(executable), facts_(e_.functions.size()), remotes_(e_.remote_buffers.size()) {
  for (size_t p = 0; p < e_.programs.size(); ++p) {
    for (const exe::Start& start : e_.programs[p].starts) {
      facts(start.function).programs.insert(static_cast<int32_t>(p));
      facts(start.function).contexts = {Provenance()};
    }
  }
  const std::vector<int32_t> order = exe::callees_first(e_);
  for (auto f = order.rbegin(); f != order.rend(); ++f) find_contexts(*f);
  for (const int32_t f : order) find_facts(f);
  for (const exe::Program& p : e_.programs) {
    trains_.push_back(std::any_of(p.starts.begin(), p.starts.end(), [&](const exe::Start& start) {
      return does(start.function, {OpRole::kGradient});
    }));
  }
  find_remotes(order);
}

void Places::find_remotes(const std::vector<int32_t>& callees_first) {
  std::map<int32_t, std::vector<std::string>> texts;
  std::set<int32_t> homes;
  const auto add = [&](int32_t buffer, const Place& place) {
    Place& remote = remotes_[static_cast<size_t>(buffer)];
    if (texts[buffer].empty()) remote.kind = place.kind;
    add_once(texts[buffer], place.text);
    remote.text = range_of(texts[buffer]);
  };
  for (size_t v = 0; v < e_.variables.size(); ++v) {
    const exe::VariablePlan& plan = e_.variables[v];
    if (plan.buffer < 0) continue;
    homes.insert(plan.buffer);
    entries_[{plan.buffer, plan.entry}] = static_cast<int32_t>(v);
    add(plan.buffer, of_variable(static_cast<int32_t>(v)));
  }
  for (auto f = callees_first.rbegin(); f != callees_first.rend(); ++f) {
    for (const exe::Step& step : function(*f).steps) {
      const auto* issue = std::get_if<exe::Issue>(&step.body);
      if (issue == nullptr || issue->kind != exe::TransferKind::kRemoteStore) continue;
      const Provenance p = of_value(*f, issue->memory.value);
      Place place = described(p);
      if (place.kind == kStreams) place.text = p.variable + ", kept for the backward pass";
      if (!place.text.empty() && !homes.contains(issue->object)) add(issue->object, place);
    }
  }
}

Provenance Places::of_step(const exe::Step& step, const Provenance& call) const {
  return e_.origins.at(step.provenance).inside(call);
}

Provenance Places::of_value(int32_t function, exe::ValueId value) const {
  const int32_t row = e_.origins.of_value(value);
  const std::vector<Provenance>& contexts = facts(function).contexts;
  return row < 0 || contexts.empty() ? Provenance() : e_.origins.at(row).inside(contexts.front());
}

void Places::find_contexts(int32_t f) {
  for (const exe::Step& step : function(f).steps) {
    exe::for_each_call(step, [&](const exe::Call& call) {
      const Facts& own = facts(f);
      Facts& callee = facts(call.function);
      callee.programs.insert(own.programs.begin(), own.programs.end());
      if (callee.loop == nullptr && std::holds_alternative<exe::Loop>(step.body))
        callee.loop = &step;
      for (const Provenance& context : own.contexts)
        add_work(callee.contexts, of_step(step, context));
    });
  }
}

void Places::find_facts(int32_t f) {
  Facts& own = facts(f);
  const Provenance context = own.contexts.empty() ? Provenance() : own.contexts.front();
  for (const exe::Step& step : function(f).steps) {
    exe::for_each_call(step, [&](const exe::Call& call) {
      for (const Provenance& work : facts(call.function).work)
        add_work(own.work, work.inside(e_.origins.at(step.provenance)));
    });
    const auto* kernel = std::get_if<exe::Kernel>(&step.body);
    if (kernel == nullptr || !is_work(*kernel)) continue;
    const size_t stages = step.provenance < 0 ? 1 : std::max<size_t>(kernel->stages.size(), 1);
    for (size_t i = 0; i < stages; ++i) {
      const Provenance& p = e_.origins.at(step.provenance + static_cast<int32_t>(i));
      if (step.provenance >= 0) add_work(own.work, p);
      const std::string module = module_of(p.inside(context));
      if (!module.empty()) add_once(own.modules, module);
    }
  }
}

template <typename Use>
void Places::each_work(int32_t f, const Use& use) const {
  for (const Provenance& context : facts(f).contexts) {
    for (const Provenance& work : facts(f).work) use(work.inside(context));
  }
}

bool Places::does(int32_t f, std::initializer_list<OpRole> roles) const {
  bool found = false;
  each_work(f, [&](const Provenance& p) {
    found = found || std::find(roles.begin(), roles.end(), p.role) != roles.end();
  });
  return found;
}

std::vector<Places::Part> Places::parts_of(int32_t f) const {
  std::vector<Part> parts;
  each_work(f, [&](const Provenance& p) {
    if (has_part(p)) add_once(parts, Part{p.block, is_backward(p.role)});
  });
  return parts;
}

const std::vector<std::string>* Places::rows_of(const std::string& block) const {
  const auto rows = e_.origins.rows_of_blocks.find(block);
  return rows == e_.origins.rows_of_blocks.end() || rows->second.size() < 2 ? nullptr
                                                                            : &rows->second;
}

std::string Places::texts_of(const std::vector<Part>& parts) const {
  std::string text;
  for (const auto& [block, backward] : parts) {
    const auto* rows = rows_of(block);
    append(text, rows != nullptr ? range_of(*rows) : block);
    text += suffix(backward);
  }
  return text;
}

std::string Places::part_of_kernel(const exe::Step& step, const Provenance& provenance) const {
  const auto* kernel = std::get_if<exe::Kernel>(&step.body);
  if (kernel == nullptr || !is_work(*kernel) || !has_part(provenance)) return "";
  return texts_of({{provenance.block, is_backward(provenance.role)}});
}

// The modules of rows of equal blocks are those of the first row.
std::string Places::module_of(const Provenance& p) const {
  if (const auto* rows = rows_of(p.block)) return range_of(*rows);
  std::string module = p.module_path.empty() ? p.block : p.module_path;
  std::replace(module.begin(), module.end(), '/', '.');
  return module;
}

std::string Places::phase_of(int32_t f, bool backward) const {
  bool trains = false;
  std::string name;
  for (const int32_t p : facts(f).programs) {
    append(name, e_.programs[static_cast<size_t>(p)].name);
    trains = trains || trains_[static_cast<size_t>(p)];
  }
  return !trains ? name : backward ? "backward" : "forward";
}

Place Places::described(const Provenance& p) const {
  const auto* rows = p.variable.empty() ? nullptr : rows_of(p.block);
  std::string text = p.variable;
  if (rows != nullptr) text += fmt::format(" and {} more", rows->size() - 1);
  switch (p.role) {
    case OpRole::kAccumulation:
      append(text, text.empty() ? "counter of micro-batches" : "accumulator");
      return {kAccumulators, text};
    case OpRole::kGradient:
    case OpRole::kReduction:
    case OpRole::kNorm: {
      const std::string of = text.empty() ? " of " + p.op : "";
      if (text.empty()) text = module_of(p);
      append(text, "gradient" + of);
      return {kGradients, text};
    }
    default:
      break;
  }
  if (p.op == "host_load") return {kStreams, text + ", read from its stream"};
  const bool loaded = p.op.empty() || p.op == "remote_load";
  if (p.role == OpRole::kUpdate && loaded) return {kState, text};
  if (p.role == OpRole::kCollective && !text.empty()) append(text, "gathered");
  if (p.role != OpRole::kUpdate && !text.empty()) return {kVariables, text};
  if (p.op.empty()) return {};
  if (text.empty()) text = module_of(p);
  append(text, p.op + " output");
  return {kActivations, text};
}

Place Places::of_variable(int32_t variable) const {
  const exe::VariablePlan& v = e_.variables[static_cast<size_t>(variable)];
  const auto [role, owner] = e_.origins.of_variable(variable);
  const char* const kind = role == OpRole::kUpdate         ? kState
                           : role == OpRole::kAccumulation ? kAccumulators
                                                           : kVariables;
  if (owner < 0) return {kind, v.path};
  std::string text = e_.variables[static_cast<size_t>(owner)].path;
  const bool below = v.path.starts_with(text + ".");
  append(text, kind == kAccumulators ? "accumulator"
               : below               ? v.path.substr(text.size() + 1)
                                     : v.path);
  return {kind, text};
}

Place Places::of_remote(int32_t remote_buffer) const {
  Place place = remotes_[static_cast<size_t>(remote_buffer)];
  if (place.text.empty()) place.text = e_.remote_buffers[static_cast<size_t>(remote_buffer)].name;
  return place;
}

Place Places::of_buffer(int32_t f, int32_t b) const {
  const exe::FrameBuffer& buffer = function(f).buffers[static_cast<size_t>(b)];
  const exe::ValueId value = e_.origins.in_buffer(f, b);
  Place place = described(of_value(f, value));
  if (buffer.begin >= 0 && buffer.begin < static_cast<int64_t>(function(f).steps.size())) {
    const exe::Step& maker = function(f).steps[static_cast<size_t>(buffer.begin)];
    const auto* issue = std::get_if<exe::Issue>(&maker.body);
    if (issue != nullptr && issue->kind == exe::TransferKind::kRemoteLoad &&
        issue->memory.value == value) {
      const bool known = issue->entry.is_constant() && !issue->entry_from;
      const auto variable =
          known ? entries_.find({issue->object, issue->entry.constant()}) : entries_.end();
      place = variable != entries_.end() ? of_variable(variable->second) : of_remote(issue->object);
      append(place.text, "loaded");
    }
  }
  if (place.text.empty()) return {place.kind, buffer.name};
  const std::string phase = phase_of(f, place.kind == kGradients);
  const bool phased = place.kind == kActivations || place.kind == kGradients;
  if (phased && !phase.empty()) place.text += " (" + phase + ")";
  return place;
}

std::string Places::part_of_function(int32_t f) const {
  const std::vector<Part> parts = parts_of(f);
  return parts.size() == 1 ? texts_of(parts) : "";
}

std::string Places::of_function(int32_t f) const {
  const Facts& own = facts(f);
  for (const exe::Program& p : e_.programs) {
    for (const exe::Start& start : p.starts) {
      if (start.function == f) return "program " + p.name;
    }
  }
  const std::string program = phase_of(f, false);
  const bool trains = program == "forward";
  const std::vector<Part> parts = parts_of(f);
  const bool phase = trains && has_phases() && !parts.empty();
  std::string text = phase ? texts_of(parts) : range_of(own.modules);
  if (!trains) append(text, program);
  if (trains && !phase && does(f, {OpRole::kForward, OpRole::kRecomputation}))
    append(text, "forward");
  if (trains && !phase && does(f, {OpRole::kGradient})) append(text, "backward");
  if (trains && does(f, {OpRole::kUpdate})) append(text, "update");
  if (own.loop == nullptr) return text.empty() ? function(f).name : text;
  const Instance turn = e_.origins.at(own.loop->provenance).per_iteration;
  append(text, turn.row != 0           ? "a row of a loop"
               : turn.micro_batch != 0 ? "a micro-batch of a loop"
                                       : "an iteration of a loop");
  return text;
}

std::vector<std::string> Places::parts_of_step(int32_t f, size_t s) const {
  const exe::Step& step = function(f).steps[s];
  const std::vector<Provenance>& contexts = facts(f).contexts;
  const Provenance p = of_step(step, contexts.empty() ? Provenance() : contexts.front());
  if (const std::string part = part_of_kernel(step, p); !part.empty()) return {part};
  const auto* call = std::get_if<exe::Call>(&step.body);
  const auto* loop = std::get_if<exe::Loop>(&step.body);
  if (call == nullptr && loop == nullptr) return {};
  // The parts of this call, not those of all calls of its function.
  std::vector<Part> parts;
  for (const Provenance& own : facts(call != nullptr ? call->function : loop->body.function).work) {
    const Provenance work = own.inside(p);
    if (has_part(work)) add_once(parts, Part{work.block, is_backward(work.role)});
  }
  const auto other = [&](const Part& part) { return part.block != parts.front().block; };
  if (parts.empty() || std::any_of(parts.begin(), parts.end(), other)) return {};
  // With phases, a loop over micro-batches may run both parts of a block. Elsewhere its steps have
  // parts of their own.
  if (parts.size() > 1)
    return has_phases() ? std::vector{texts_of(parts)} : std::vector<std::string>();
  const auto* rows = rows_of(parts.front().block);
  if (rows == nullptr || loop == nullptr || p.per_iteration.row == 0 ||
      loop->trips != static_cast<int64_t>(rows->size()))
    return {texts_of(parts)};
  std::vector<std::string> texts;
  for (int64_t i = 0; i < loop->trips; ++i) {
    const auto row = static_cast<size_t>((p.at + i * p.per_iteration).row);
    if (row >= rows->size()) return {texts_of(parts)};
    texts.push_back((*rows)[row] + std::string(suffix(parts.front().backward)));
  }
  return texts;
}

std::vector<std::string> Places::blocks_of_program(int32_t program) const {
  std::vector<std::string> texts;
  for (const exe::Start& start : e_.programs[static_cast<size_t>(program)].starts) {
    if (!trains_[static_cast<size_t>(program)]) continue;
    for (const Part& part : parts_of(start.function)) add_once(texts, texts_of({part}));
  }
  return texts;
}

}  // namespace sluice::report
