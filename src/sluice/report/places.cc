#include "sluice/report/places.h"

#include <algorithm>

#include "sluice/exe/call_order.h"
#include "sluice/exe/visit_step.h"
#include "sluice/report/value_names.h"

namespace sluice::report {
namespace {

constexpr int kRounds = 4;  // A name passes through up to this many calls or stores, in either
                            // direction.
constexpr std::string_view kAccumulator = "accum.";
constexpr std::string_view kCounter = "mean_accum_counter";
constexpr const char* kCounted = "counter of micro-batches";
constexpr std::string_view kGradient = "Gradient___";

void remove_part(std::string& name, std::string_view part) {
  const size_t at = name.find(part);
  if (at != std::string::npos) name.erase(at, part.size());
}

void append(std::string& text, std::string_view part) {
  if (part.empty()) return;
  if (!text.empty()) text += ", ";
  text += part;
}

// Returns "fc.1.weight" for one variable. Returns "fc.1 … fc.3, weight" for several variables with
// the same last name.
template <typename Names>
std::string variables_of(const Names& paths) {
  std::set<std::string> leaves;
  Names modules;
  for (const std::string& path : paths) {
    const size_t dot = path.rfind('.');
    if (dot == std::string::npos) return range_of(paths);
    modules.insert(path.substr(0, dot));
    leaves.insert(path.substr(dot + 1));
  }
  if (paths.size() < 2 || leaves.size() != 1) return range_of(paths);
  return range_of(modules) + ", " + *leaves.begin();
}

}  // namespace

std::string_view word(Holding holding) {
  switch (holding) {
    case Holding::kVariable:
      return "variables";
    case Holding::kState:
      return "optimizer state";
    case Holding::kAccumulator:
      return "accumulators";
    case Holding::kGradient:
      return "gradients";
    case Holding::kActivation:
      return "activations";
    case Holding::kStream:
      return "inputs and outputs";
    case Holding::kConstant:
      return "constants";
    case Holding::kUnknown:
      break;
  }
  return "others";
}

bool NaturalLess::operator()(const std::string& a, const std::string& b) const {
  size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (is_digit(a[i]) && is_digit(b[j])) {
      size_t m = i, n = j;
      while (m < a.size() && is_digit(a[m])) ++m;
      while (n < b.size() && is_digit(b[n])) ++n;
      if (m - i != n - j) return m - i < n - j;
      const int order = a.compare(i, m - i, b, j, n - j);
      if (order != 0) return order < 0;
      i = m;
      j = n;
    } else if (a[i] != b[j]) {
      return a[i] < b[j];
    } else {
      ++i, ++j;
    }
  }
  return a.size() - i < b.size() - j;
}

Places::Places(const exe::Executable& executable)
    : e_(executable),
      remotes_(e_.remote_buffers.size()),
      frames_(e_.functions.size()),
      params_(e_.functions.size()),
      starts_(e_.functions.size()),
      variables_at_(e_.arenas.size()),
      phases_(e_.functions.size()),
      block_phases_(e_.functions.size()),
      programs_(e_.functions.size()),
      trips_(e_.functions.size()) {
  for (const exe::VariablePlan& v : e_.variables) variables_.insert(v.path);
  for (size_t v = 0; v < e_.variables.size(); ++v) {
    const exe::VariablePlan& plan = e_.variables[v];
    variable_contents_.push_back(content_of_variable(plan.path));
    if (plan.buffer < 0) {
      variables_at_[static_cast<size_t>(plan.arena)][plan.offset] = static_cast<int32_t>(v);
      continue;
    }
    entries_[{plan.buffer, plan.entry}] = static_cast<int32_t>(v);
    Content& remote = remotes_[static_cast<size_t>(plan.buffer)];
    remote.paths.merge(Names(variable_contents_.back().paths));
    remote.modules.merge(Names(variable_contents_.back().modules));
    remote.kind = variable_contents_.back().kind;
    remote.what = variable_contents_.back().what;
  }
  for (size_t f = 0; f < e_.functions.size(); ++f) {
    const exe::Function& fn = e_.functions[f];
    frames_[f].resize(fn.buffers.size());
    params_[f].resize(fn.params.size());
    for (size_t b = 0; b < fn.buffers.size(); ++b)
      starts_[f][fn.buffers[b].offset].push_back(static_cast<int32_t>(b));
  }
  std::vector<int32_t> order = exe::callees_first(e_);
  std::reverse(order.begin(), order.end());
  for (int round = 0; round < kRounds; ++round) {
    for (const int32_t f : order) {
      for (size_t s = 0; s < e_.functions[static_cast<size_t>(f)].steps.size(); ++s) visit(f, s);
    }
  }
  find_programs(order);
  find_update_graphs();
  std::reverse(order.begin(), order.end());
  find_phases(order);
  name_blocks();
  find_block_phases(order);
}

std::string Places::module_of(const std::string& path) const {
  const size_t dot = path.rfind('.');
  return dot == std::string::npos ? "" : path.substr(0, dot);
}

Places::Content Places::content_of_variable(const std::string& path) const {
  Content c;
  c.kind = Holding::kVariable;
  std::string base = path;
  if (path.starts_with(kAccumulator) && variables_.contains(path.substr(kAccumulator.size()))) {
    c.kind = Holding::kAccumulator;
    base = path.substr(kAccumulator.size());
  } else if (const std::string owner = module_of(path);
             !owner.empty() && variables_.contains(owner)) {
    c.kind = Holding::kState;
    base = owner;
    c.what = path.substr(owner.size() + 1);
  }
  c.paths.insert(base);
  if (const std::string module = module_of(base); !module.empty()) c.modules.insert(module);
  return c;
}

Places::Content* Places::at(int32_t f, size_t s, const exe::Address& address) {
  const auto i = static_cast<size_t>(address.index);
  const auto fn = static_cast<size_t>(f);
  if (address.base == exe::Address::Base::kParam) return &params_[fn][i];
  if (address.base == exe::Address::Base::kArena) {
    const std::map<int64_t, int32_t>& offsets = variables_at_[i];
    auto next = offsets.upper_bound(address.offset);
    if (next == offsets.begin()) return nullptr;
    const auto v = static_cast<size_t>(std::prev(next)->second);
    const exe::VariablePlan& plan = e_.variables[v];
    return address.offset < plan.offset + plan.bytes ? &variable_contents_[v] : nullptr;
  }
  const std::vector<exe::FrameBuffer>& buffers = e_.functions[fn].buffers;
  const auto step = static_cast<int64_t>(s);
  const auto holds = [&](int32_t b) {
    const exe::FrameBuffer& buffer = buffers[static_cast<size_t>(b)];
    return buffer.begin <= step && step < buffer.end &&
           address.offset < buffer.offset + buffer.bytes;
  };
  for (auto next = starts_[fn].upper_bound(address.offset); next != starts_[fn].begin();) {
    --next;
    for (const int32_t b : next->second) {
      if (holds(b)) return &frames_[fn][static_cast<size_t>(b)];
    }
  }
  return nullptr;
}

void Places::visit(int32_t f, size_t s) {
  const exe::Step& step = e_.functions[static_cast<size_t>(f)].steps[s];
  if (const auto* issue = std::get_if<exe::Issue>(&step.body)) return visit_issue(f, s, *issue);
  if (const auto* k = std::get_if<exe::Kernel>(&step.body))
    return visit_work(f, s, k->operands, false);
  if (const auto* c = std::get_if<exe::Collective>(&step.body))
    return visit_work(f, s, c->operands, true);
  if (const auto* r = std::get_if<exe::Receive>(&step.body)) {
    Content* memory = at(f, s, r->operand.at);
    if (memory == nullptr || memory->kind != Holding::kUnknown || r->operand.value < 0) return;
    *memory = made_by(step, r->operand, {});
    memory->note = "received";
    return;
  }
  exe::for_each_call(step, [&](const exe::Call& c) { visit_call(f, s, c); });
  if (const auto* loop = std::get_if<exe::Loop>(&step.body)) {
    std::vector<Content>& params = params_[static_cast<size_t>(loop->body.function)];
    for (const exe::Carry& c : loop->carried)
      merge(params[static_cast<size_t>(c.out)], params[static_cast<size_t>(c.in)]);
  }
}

// Adds the names in `from` to `to` if both have the same kind.
void Places::merge(const Content& from, Content& to) {
  if (from.kind != to.kind) return;
  to.paths.insert(from.paths.begin(), from.paths.end());
  to.modules.insert(from.modules.begin(), from.modules.end());
}

void Places::visit_issue(int32_t f, size_t s, const exe::Issue& issue) {
  Content* memory = at(f, s, issue.memory.at);
  if (memory == nullptr) return;
  const auto object = static_cast<size_t>(issue.object);
  switch (issue.kind) {
    case exe::TransferKind::kStreamIn:
      *memory = {Holding::kStream, {}, {}, e_.streams[object].name, "read from its stream", false};
      return;
    case exe::TransferKind::kStreamOut:
      return;
    case exe::TransferKind::kRemoteStore: {
      Content& remote = remotes_[object];
      if (remote.kind == Holding::kUnknown) {
        remote = *memory;
      } else if (remote.paths.empty()) {
        merge(*memory, remote);
      }
      return;
    }
    case exe::TransferKind::kRemoteLoad:
      break;
  }
  Content loaded = remotes_[object];
  if (issue.entry.is_constant() && !issue.entry_from) {
    const auto found = entries_.find({issue.object, issue.entry.constant()});
    if (found != entries_.end()) loaded = variable_contents_[static_cast<size_t>(found->second)];
  }
  if (loaded.kind == Holding::kUnknown) return;
  loaded.note = "loaded";
  *memory = loaded;
}

void Places::visit_call(int32_t f, size_t s, const exe::Call& call) {
  std::vector<Content>& params = params_[static_cast<size_t>(call.function)];
  for (size_t a = 0; a < call.args.size(); ++a) {
    Content* given = at(f, s, call.args[a].at);
    if (given == nullptr) continue;
    Content& param = params[a];
    if (param.kind == Holding::kUnknown) {
      if (call.args[a].access != exe::Access::kWrite) param = *given;
    } else if (given->kind == Holding::kUnknown) {
      *given = param;
    } else {
      merge(*given, param);
    }
  }
}

// An accumulator belongs to the variable whose value or state a kernel updates with it.
void Places::name_accumulators(int32_t f, size_t s, const std::vector<exe::Operand>& operands) {
  const Content* updated = nullptr;
  for (const exe::Operand& o : operands) {
    const Content* c = at(f, s, o.at);
    if (c == nullptr || c->paths.empty()) continue;
    const bool writes = o.access != exe::Access::kRead;
    if (writes && c->kind != Holding::kGradient && c->kind != Holding::kActivation) updated = c;
  }
  if (updated == nullptr) return;
  const Content target = *updated;
  for (const exe::Operand& o : operands) {
    Content* c = at(f, s, o.at);
    if (c == nullptr || c->kind != Holding::kAccumulator || !c->paths.empty() ||
        c->what == kCounted)
      continue;
    c->paths = target.paths;
    c->modules = target.modules;
  }
}

void Places::visit_work(int32_t f, size_t s, const std::vector<exe::Operand>& operands,
                        bool collective) {
  const exe::Step& step = e_.functions[static_cast<size_t>(f)].steps[s];
  Content inputs;
  const Content* first = nullptr;
  for (const exe::Operand& o : operands) {
    const Content* c = at(f, s, o.at);
    if (o.access == exe::Access::kWrite || c == nullptr) continue;
    if (first == nullptr && c->kind != Holding::kUnknown) first = c;
    const bool variable = c->kind == Holding::kVariable;
    if (variable && inputs.kind != Holding::kVariable) inputs.modules.clear();
    if (variable) inputs.kind = Holding::kVariable;
    if (variable || inputs.kind != Holding::kVariable)
      inputs.modules.insert(c->modules.begin(), c->modules.end());
  }
  const auto* kernel = std::get_if<exe::Kernel>(&step.body);
  const bool copies = collective || (kernel != nullptr && kernel->op == "Copy");
  for (const exe::Operand& o : operands) {
    Content* c = at(f, s, o.at);
    if (c == nullptr || o.access != exe::Access::kWrite || o.value < 0) continue;
    // A variable that a kernel overwrites keeps its name.
    const bool in_place = std::any_of(operands.begin(), operands.end(), [&](const auto& other) {
      return other.access != exe::Access::kWrite && at(f, s, other.at) == c;
    });
    if (in_place || o.at.base == exe::Address::Base::kArena) continue;
    const bool named = c->kind == Holding::kAccumulator && !c->paths.empty();
    if (copies && first != nullptr) {
      if (!named) *c = *first;
      const std::string& tensor = e_.values[static_cast<size_t>(o.value)].tensor;
      c->note = has(tensor, "gathered")    ? "gathered"
                : has(tensor, "scattered") ? "own shard"
                : has(tensor, "reduced")   ? "summed"
                : has(tensor, "'panels")   ? "in panels"
                                           : "copy";
    } else if (!named) {
      *c = made_by(step, o, inputs);
    }
  }
  name_accumulators(f, s, operands);
  if (!collective && !copies) return;
  // A reduced accumulator takes the name of its sum.
  for (const exe::Operand& from : operands) {
    const Content* sum = at(f, s, from.at);
    if (from.access != exe::Access::kWrite || sum == nullptr || sum->paths.empty()) continue;
    for (const exe::Operand& to : operands) {
      Content* c = at(f, s, to.at);
      if (c == nullptr || c->kind != Holding::kAccumulator || !c->paths.empty()) continue;
      c->paths = sum->paths;
      c->modules = sum->modules;
    }
  }
}

Places::Content Places::made_by(const exe::Step& step, const exe::Operand& result,
                                const Content& inputs) const {
  const std::string& tensor = e_.values[static_cast<size_t>(result.value)].tensor;
  std::string leaf = without_numbers(leaf_of(tensor));
  leaf.resize(std::min(leaf.size(), leaf.find('\'')));
  Content c;
  c.backward = is_gradient_graph(graph_of(tensor)) || leaf.starts_with(kGradient);
  if (leaf == kCounter) return {Holding::kAccumulator, {}, {}, kCounted, "", false};
  if (leaf.starts_with(kAccumulator)) {
    c.kind = Holding::kAccumulator;
    leaf.erase(0, kAccumulator.size());
    if (variables_.contains(leaf)) {
      c.paths.insert(leaf);
      c.modules.insert(module_of(leaf));
    } else {
      c.what = leaf;
    }
    return c;
  }
  const std::string module = module_in(step.where);
  c.modules = module.empty() ? inputs.modules : Names{module};
  c.kind = Holding::kActivation;
  if (!leaf.starts_with(kGradient)) {
    const size_t of = tensor.find(" of ");
    c.what = (of == std::string::npos ? op_of(leaf) + " output" : tensor.substr(0, of));
    return c;
  }
  c.kind = Holding::kGradient;
  leaf.erase(0, kGradient.size());
  const std::string path =
      variables_.contains(leaf) || c.modules.size() != 1 ? leaf : *c.modules.begin() + "." + leaf;
  if (variables_.contains(path)) {
    c.paths.insert(path);
    c.modules = {module_of(path)};
  } else {
    remove_part(leaf, "_remote_load");
    c.what = leaf == "x" ? "gradient of its input" : "gradient of " + op_of(leaf);
  }
  return c;
}

void Places::find_programs(const std::vector<int32_t>& callers_first) {
  for (size_t p = 0; p < e_.programs.size(); ++p) {
    for (const exe::Start& start : e_.programs[p].starts)
      programs_[static_cast<size_t>(start.function)].insert(static_cast<int32_t>(p));
  }
  for (const int32_t f : callers_first) {
    for (const exe::Step& step : e_.functions[static_cast<size_t>(f)].steps) {
      const auto* loop = std::get_if<exe::Loop>(&step.body);
      exe::for_each_call(step, [&](const exe::Call& c) {
        const auto callee = static_cast<size_t>(c.function);
        const std::set<int32_t>& programs = programs_[static_cast<size_t>(f)];
        programs_[callee].insert(programs.begin(), programs.end());
        if (loop != nullptr) trips_[callee] = std::max(trips_[callee], loop->trips);
      });
    }
  }
}

// The graphs of an optimizer's step: those named "…Step" that overwrite variables or state.
void Places::find_update_graphs() {
  for (size_t f = 0; f < e_.functions.size(); ++f) {
    const std::vector<exe::Step>& steps = e_.functions[f].steps;
    for (size_t s = 0; s < steps.size(); ++s) {
      exe::for_each_operand(steps[s], [&](const exe::Operand& o) {
        const exe::ValueId value = o.access == exe::Access::kUpdate ? o.made : o.value;
        if (o.access == exe::Access::kRead || value < 0) return;
        const std::string_view graph = graph_of(e_.values[static_cast<size_t>(value)].tensor);
        const Content* c = at(static_cast<int32_t>(f), s, o.at);
        const bool owned =
            c != nullptr && (c->kind == Holding::kVariable || c->kind == Holding::kState);
        if (owned && given_name(graph).ends_with("Step")) update_graphs_.emplace(graph);
      });
    }
  }
}

// Whether a function, or one that it calls, has a transfer for which `found` holds.
template <typename Found>
bool Places::has_transfer(int32_t function, const Found& found) const {
  for (const exe::Step& step : e_.functions[static_cast<size_t>(function)].steps) {
    const auto* issue = std::get_if<exe::Issue>(&step.body);
    bool has = issue != nullptr && found(*issue);
    exe::for_each_call(step,
                       [&](const exe::Call& c) { has = has || has_transfer(c.function, found); });
    if (has) return true;
  }
  return false;
}

// A turn of a loop is a row if each turn transfers another remote entry.
bool Places::is_row(int32_t function) const {
  const std::string_view name = given_name(e_.functions[static_cast<size_t>(function)].name);
  const auto moves_row = [](const exe::Issue& i) {
    const bool remote =
        i.kind == exe::TransferKind::kRemoteLoad || i.kind == exe::TransferKind::kRemoteStore;
    return remote && (!i.entry.is_constant() || i.entry_from);
  };
  return name == "rows" && has_transfer(function, moves_row);
}

// Returns the words for one turn of a loop. A turn that reads a stream is a micro-batch.
std::string Places::turn_of(int32_t function) const {
  const std::string_view name = given_name(e_.functions[static_cast<size_t>(function)].name);
  const auto reads_stream = [](const exe::Issue& i) {
    return i.kind == exe::TransferKind::kStreamIn;
  };
  const bool batch = (name == "micro_batch" && has_transfer(function, reads_stream)) ||
                     name.ends_with("__batch_serial_step");
  if (batch) return "a micro-batch of a loop";
  return is_row(function) ? "a row of a loop" : "a turn of a loop";
}

void Places::add_phases(const exe::Step& step, Phases& phases) {
  exe::for_each_call(step, [&](const exe::Call& c) {
    const Phases& callee = phases_[static_cast<size_t>(c.function)];
    phases.forward |= callee.forward;
    phases.backward |= callee.backward;
    phases.update |= callee.update;
  });
  const auto* kernel = std::get_if<exe::Kernel>(&step.body);
  if (kernel == nullptr) return;
  for (const exe::Operand& o : kernel->operands) {
    const exe::ValueId value = o.access == exe::Access::kUpdate ? o.made : o.value;
    if (o.access == exe::Access::kRead || value < 0) continue;
    const std::string& tensor = e_.values[static_cast<size_t>(value)].tensor;
    const std::string leaf = leaf_of(tensor);
    const std::string graph(graph_of(tensor));
    const bool backward = is_gradient_graph(graph) || leaf.starts_with(kGradient);
    const bool updates = update_graphs_.contains(graph) ||
                         (o.access == exe::Access::kUpdate && variables_.contains(tensor));
    const bool counts = leaf.starts_with(kAccumulator) || leaf.starts_with(kCounter);
    phases.update |= updates;
    phases.backward |= backward && !updates;
    phases.forward |= !backward && !updates && !counts && kernel->op != "Copy";
  }
}

void Places::find_phases(const std::vector<int32_t>& callees_first) {
  for (const int32_t f : callees_first) {
    for (const exe::Step& step : e_.functions[static_cast<size_t>(f)].steps)
      add_phases(step, phases_[static_cast<size_t>(f)]);
  }
}

std::string Places::phase_of(int32_t f, bool backward) const {
  bool trains = false;
  std::string name;
  for (const int32_t p : programs_[static_cast<size_t>(f)]) {
    const exe::Program& program = e_.programs[static_cast<size_t>(p)];
    append(name, program.name);
    for (const exe::Start& start : program.starts)
      trains |= phases_[static_cast<size_t>(start.function)].backward;
  }
  return !trains ? name : backward ? "backward" : "forward";
}

Place Places::place_of(const Content& c, const std::string& phase) const {
  Place place{c.kind, variables_of(c.paths)};
  switch (c.kind) {
    case Holding::kVariable:
    case Holding::kState:
      append(place.text, c.what);
      break;
    case Holding::kAccumulator:
      if (c.paths.empty()) append(place.text, c.what);
      if (c.what != kCounted) append(place.text, "accumulator");
      break;
    case Holding::kGradient:
    case Holding::kActivation:
      if (c.paths.empty()) {
        place.text = range_of(c.modules);
        append(place.text, c.what);
      } else {
        append(place.text, "gradient");
      }
      break;
    case Holding::kStream:
    case Holding::kConstant:
    case Holding::kUnknown:
      place.text = c.what;
      break;
  }
  append(place.text, c.note);
  const bool has_phase = c.kind == Holding::kActivation || c.kind == Holding::kGradient;
  if (has_phase && !phase.empty()) place.text += " (" + phase + ")";
  return place;
}

Place Places::of_variable(int32_t variable) const {
  return place_of(variable_contents_[static_cast<size_t>(variable)], "");
}

Place Places::of_remote(int32_t remote_buffer) const {
  Content c = remotes_[static_cast<size_t>(remote_buffer)];
  c.note = c.kind == Holding::kStream ? "kept for the backward pass" : "";
  Place place = place_of(c, "");
  if (place.text.empty()) place.text = e_.remote_buffers[static_cast<size_t>(remote_buffer)].name;
  return place;
}

Place Places::of_buffer(int32_t function, int32_t buffer) const {
  const Content& c = frames_[static_cast<size_t>(function)][static_cast<size_t>(buffer)];
  Place place = place_of(c, phase_of(function, c.backward));
  if (!place.text.empty()) return place;
  const exe::Function& fn = e_.functions[static_cast<size_t>(function)];
  return {place.kind, without_numbers(leaf_of(fn.buffers[static_cast<size_t>(buffer)].name))};
}

std::string Places::of_function(int32_t function) const {
  const auto f = static_cast<size_t>(function);
  const exe::Function& fn = e_.functions[f];
  for (const exe::Program& p : e_.programs) {
    for (const exe::Start& start : p.starts) {
      if (start.function == function) return "program " + p.name;
    }
  }
  const Phases& phases = phases_[f];
  std::string text;
  if (serialised_ && !block_phases_[f].order.empty() && phase_of(function, false) == "forward") {
    text = block_phases_text(function);
    if (phases.update) append(text, "update");
    if (trips_[f] > 0) append(text, turn_of(function));
    return text;
  }
  Names modules, others;
  for (const std::vector<Content>* contents : {&frames_[f], &params_[f]}) {
    for (const Content& c : *contents) {
      const bool owned = c.kind == Holding::kVariable || c.kind == Holding::kState ||
                         c.kind == Holding::kAccumulator;
      (owned ? modules : others).insert(c.modules.begin(), c.modules.end());
    }
  }
  if (modules.empty()) modules = std::move(others);
  for (const exe::Step& step : fn.steps) {
    if (const std::string module = module_in(step.where); !module.empty()) modules.insert(module);
  }
  text = range_of(modules);
  if (phase_of(function, false) != "forward") {
    append(text, phase_of(function, false));
  } else {
    if (phases.forward) append(text, "forward");
    if (phases.backward) append(text, "backward");
    if (phases.update) append(text, "update");
  }
  if (trips_[f] > 0) append(text, turn_of(function));
  return text.empty() ? fn.name : text;
}

}  // namespace sluice::report
