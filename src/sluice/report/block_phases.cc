// The parts of a program that trains, named after the blocks of the model. A block's graph and its
// gradient graph are named after the block. So are the graphs of nn::batch_serialise(), which run
// the block over all micro-batches.
#include <fmt/format.h>

#include <algorithm>

#include "sluice/exe/visit_step.h"
#include "sluice/report/places.h"
#include "sluice/report/value_names.h"

namespace sluice::report {
namespace {

constexpr std::string_view kBackward = "_bwd";

// Returns the graph that `graph` runs for each micro-batch: "fc.0_bwd" for
// "fc.0_bwd__batch_serial_step_…". Returns "" for other graphs.
std::string_view serialised(std::string_view graph) {
  const std::string_view name = given_name(graph);
  for (const std::string_view mark : {"__batch_serial_step", "__repeat_graph"}) {
    if (name.ends_with(mark)) return name.substr(0, name.size() - mark.size());
  }
  return "";
}

}  // namespace

void Places::name_blocks() {
  std::set<std::string, std::less<>> serial, plain, differentiated;
  const auto add = [&](std::string_view graph) {
    const std::string_view name = serialised(graph);
    if (!name.empty()) serial.emplace(name);
    if (name.empty()) plain.emplace(given_name(graph));
    if (name.empty() && is_gradient_graph(graph)) differentiated.emplace(given_name(graph));
  };
  for (const exe::Value& v : e_.values) add(graph_of(v.tensor));
  for (const exe::Function& f : e_.functions) add(f.name);
  serialised_ = !serial.empty();
  for (std::string name : serialised_ ? serial : differentiated) {
    if (serialised_ && name.ends_with(kBackward) && !plain.contains(name))
      name.resize(name.size() - kBackward.size());
    blocks_[name].names.insert(name);
  }
}

std::optional<Places::BlockPhase> Places::block_phase_of(const std::string& graph) const {
  const std::string_view name = serialised(graph);
  std::string block(name.empty() ? given_name(graph) : name);
  bool backward = name.empty() && is_gradient_graph(graph);
  if (!blocks_.contains(block) && block.ends_with(kBackward)) {
    block.resize(block.size() - kBackward.size());
    backward = true;
  }
  if (!blocks_.contains(block)) return std::nullopt;
  return BlockPhase{block, backward};
}

void Places::find_block_phases(const std::vector<int32_t>& callees_first) {
  find_blocks_of_modules();
  for (const int32_t f : callees_first) {
    const std::vector<exe::Step>& steps = e_.functions[static_cast<size_t>(f)].steps;
    for (size_t s = 0; s < steps.size(); ++s) {
      exe::for_each_call(steps[s], [&](const exe::Call& c) {
        for (const BlockPhase& p : block_phases_[static_cast<size_t>(c.function)].order)
          block_phases_[static_cast<size_t>(f)].add(p);
      });
      if (std::holds_alternative<exe::Kernel>(steps[s].body)) add_block_phases(f, s);
    }
    // A backward function may compute forward ops again, but it runs the backward part alone.
    const auto own = block_phase_of(e_.functions[static_cast<size_t>(f)].name);
    if (own && own->backward) block_phases_[static_cast<size_t>(f)] = {{*own}, {*own}};
  }
}

// Returns the parts whose values a kernel writes. Copies and initialisations have no part: they may
// run long before it.
std::vector<Places::BlockPhase> Places::written_phases(const exe::Kernel& kernel) const {
  std::vector<BlockPhase> all;
  if (kernel.op == "Copy" || kernel.op == "Init") return all;
  for (const exe::Operand& written : kernel.operands) {
    const exe::ValueId value =
        written.access == exe::Access::kUpdate ? written.made : written.value;
    if (written.access == exe::Access::kRead || value < 0) continue;
    const auto phase =
        block_phase_of(std::string(graph_of(e_.values[static_cast<size_t>(value)].tensor)));
    if (phase) all.push_back(*phase);
  }
  return all;
}

void Places::find_blocks_of_modules() {
  for (const exe::Function& f : e_.functions) {
    for (const exe::Step& step : f.steps) {
      const auto* kernel = std::get_if<exe::Kernel>(&step.body);
      const std::string module = kernel == nullptr ? "" : module_in(step.where);
      if (module.empty()) continue;
      const std::vector<BlockPhase> phases = written_phases(*kernel);
      if (!phases.empty()) blocks_of_modules_.try_emplace(module, phases.front().block);
    }
  }
}

// A kernel that computes a gradient and updates the weight with it writes the weight alone. It has
// the module of its first op.
std::vector<Places::BlockPhase> Places::block_phases_of(const exe::Step& step) const {
  const auto& kernel = std::get<exe::Kernel>(step.body);
  std::vector<BlockPhase> all = written_phases(kernel);
  if (!all.empty() || kernel.op.find('+') == std::string::npos) return all;
  const auto block = blocks_of_modules_.find(module_in(step.where));
  if (block != blocks_of_modules_.end()) all.push_back({block->second, true});
  return all;
}

void Places::add_block_phases(int32_t f, size_t s) {
  const exe::Step& step = e_.functions[static_cast<size_t>(f)].steps[s];
  for (const BlockPhase& phase : block_phases_of(step)) {
    block_phases_[static_cast<size_t>(f)].add(phase);
    for (const exe::Operand& read : std::get<exe::Kernel>(step.body).operands) {
      const Content* content = at(f, s, read.at);
      if (content != nullptr) add_rows(phase, *content);
    }
  }
}

// A kernel reads the weight of each row in turn: "fc.1.weight", "fc.2.weight".
void Places::add_rows(const BlockPhase& phase, const Content& content) {
  if (content.kind != Holding::kVariable) return;
  BlockRows& block = blocks_.at(phase.block);
  block.rows = std::max(block.rows, content.paths.size());
  for (const std::string& path : content.paths) {
    if (!path.starts_with(phase.block + ".")) continue;
    const std::string leaf = path.substr(phase.block.size());
    for (const std::string& other : content.paths)
      if (other.ends_with(leaf)) block.names.insert(other.substr(0, other.size() - leaf.size()));
  }
}

std::string Places::block_text(const std::string& block) const {
  const BlockRows& rows = blocks_.at(block);
  return rows.names.size() >= rows.rows ? range_of(rows.names)
                                        : fmt::format("{} and {} more", block, rows.rows - 1);
}

std::string Places::text_of(const BlockPhase& phase) const {
  return block_text(phase.block) + (phase.backward ? " bwd" : " fwd");
}

// Returns a text such as "fc.1 … fc.3 bwd" or "fc.4 fwd, fc.4 bwd".
std::string Places::block_phases_text(int32_t f) const {
  std::vector<std::string> texts;
  for (const BlockPhase& p : block_phases_[static_cast<size_t>(f)].order)
    texts.push_back(text_of(p));
  return fmt::format("{}", fmt::join(texts, ", "));
}

std::string Places::part_of_function(int32_t function) const {
  const bool one = block_phases_[static_cast<size_t>(function)].order.size() == 1;
  return one ? block_phases_text(function) : "";
}

std::vector<std::string> Places::parts_of_step(int32_t function, size_t step) const {
  const exe::Step& s = e_.functions[static_cast<size_t>(function)].steps[step];
  if (std::holds_alternative<exe::Kernel>(s.body)) {
    const std::vector<BlockPhase> phases = block_phases_of(s);
    if (phases.empty()) return {};
    return {text_of(phases.front())};
  }
  const auto* call = std::get_if<exe::Call>(&s.body);
  const auto* loop = std::get_if<exe::Loop>(&s.body);
  if (call == nullptr && loop == nullptr) return {};
  const int32_t callee = call != nullptr ? call->function : loop->body.function;
  const std::vector<BlockPhase>& phases = block_phases_[static_cast<size_t>(callee)].order;
  if (phases.empty()) return {};
  for (const BlockPhase& p : phases)
    if (p.block != phases.front().block) return {};
  // With phases, a loop over micro-batches may run both parts of a block. Elsewhere its steps have
  // parts of their own.
  if (phases.size() > 1 && !serialised_) return {};
  const Names& names = blocks_.at(phases.front().block).names;
  const bool rows = loop != nullptr && is_row(callee) && phases.size() == 1 &&
                    static_cast<int64_t>(names.size()) == loop->trips;
  if (!rows) return {block_phases_text(callee)};
  std::vector<std::string> texts;
  for (const std::string& name : names)
    texts.push_back(name + (phases.front().backward ? " bwd" : " fwd"));
  if (phases.front().backward) std::reverse(texts.begin(), texts.end());
  return texts;
}

bool Places::is_of_block(const std::string& tensor) const {
  return block_phase_of(std::string(graph_of(tensor))).has_value();
}

std::vector<std::string> Places::blocks_of_program(int32_t program) const {
  std::vector<std::string> phases;
  for (const exe::Start& start : e_.programs[static_cast<size_t>(program)].starts) {
    const auto f = static_cast<size_t>(start.function);
    if (!phases_[f].backward) continue;
    for (const BlockPhase& p : block_phases_[f].order) {
      const std::string text = text_of(p);
      if (std::find(phases.begin(), phases.end(), text) == phases.end()) phases.push_back(text);
    }
  }
  return phases;
}

}  // namespace sluice::report
