#include "sluice/report/plan_names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "sluice/exe/call_order.h"
#include "sluice/exe/visit_step.h"

namespace sluice::report {
namespace {

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

std::string_view suffix(OpRole role) { return is_backward(role) ? " bwd" : " fwd"; }

}  // namespace

PlanNames::PlanNames(const exe::Executable& executable)
    : e_(executable), contents_(e_), facts_(e_.functions.size()) {
  for (const exe::FunctionId f : exe::callees_first(e_)) find_facts(f);
}

Provenance PlanNames::of_step(const exe::Step& step, const Provenance& call) const {
  return e_.origins.at(step.provenance).inside(call);
}

Provenance PlanNames::first_call(exe::FunctionId f) const {
  const std::vector<Provenance>& calls = contents_.calls_of(f);
  return calls.empty() ? Provenance() : calls.front();
}

void PlanNames::find_facts(exe::FunctionId f) {
  Facts& own = facts(f);
  const Provenance context = first_call(f);
  for (const exe::Step& step : function(f).steps) {
    exe::for_each_call(step, [&](const exe::Call& call) {
      Facts& callee = facts(call.function);
      if (std::holds_alternative<exe::Loop>(step.body)) callee.loop = &step;
      for (const Provenance& work : callee.work)
        exe::add_work(own.work, work.inside(e_.origins.at(step.provenance)));
    });
    const auto* kernel = std::get_if<exe::Kernel>(&step.body);
    if (kernel == nullptr || !is_work(*kernel) || step.provenance < 0) continue;
    const size_t stages = std::max<size_t>(kernel->stages.size(), 1);
    for (size_t i = 0; i < stages; ++i) {
      const Provenance& p = e_.origins.at(step.provenance + static_cast<int32_t>(i));
      exe::add_work(own.work, p);
      const std::string module = contents_.module_of(p.inside(context));
      if (!module.empty()) exe::add_once(own.modules, module);
    }
  }
}

template <typename Use>
void PlanNames::each_work(exe::FunctionId f, const Use& use) const {
  for (const Provenance& call : contents_.calls_of(f)) {
    for (const Provenance& work : facts(f).work) use(work.inside(call));
  }
}

bool PlanNames::does(exe::FunctionId f, std::initializer_list<OpRole> roles) const {
  bool found = false;
  each_work(f, [&](const Provenance& p) {
    found = found || std::find(roles.begin(), roles.end(), p.role) != roles.end();
  });
  return found;
}

std::string PlanNames::part_of(const Provenance& p) const {
  if (!has_part(p)) return "";
  const auto* rows = contents_.rows_of(p.block);
  return fmt::format("{}{}", rows != nullptr ? exe::range_of(*rows) : p.block, suffix(p.role));
}

std::vector<std::string> PlanNames::parts_of(exe::FunctionId f) const {
  std::vector<std::string> parts;
  each_work(f, [&](const Provenance& p) {
    if (has_part(p)) exe::add_once(parts, part_of(p));
  });
  return parts;
}

std::string PlanNames::part_of_kernel(const exe::Step& step, const Provenance& provenance) const {
  const auto* kernel = std::get_if<exe::Kernel>(&step.body);
  return kernel != nullptr && is_work(*kernel) ? part_of(provenance) : "";
}

std::string PlanNames::part_of_function(exe::FunctionId f) const {
  const std::vector<std::string> parts = parts_of(f);
  return parts.size() == 1 ? parts.front() : "";
}

std::string PlanNames::of_function(exe::FunctionId f) const {
  for (const exe::Program& p : e_.programs) {
    for (const exe::Start& start : p.starts) {
      if (start.function == f) return "program " + p.name;
    }
  }
  std::vector<std::string> texts = parts_of(f);
  if (!has_phases() || texts.empty() || does(f, {OpRole::kEvaluation})) {
    texts = {exe::range_of(facts(f).modules)};
    if (does(f, {OpRole::kForward, OpRole::kRecomputation})) texts.push_back("forward");
    if (does(f, {OpRole::kGradient})) texts.push_back("backward");
    if (does(f, {OpRole::kEvaluation})) texts.push_back("evaluation");
  }
  if (does(f, {OpRole::kUpdate})) texts.push_back("update");
  std::erase(texts, "");
  if (texts.empty()) texts.push_back(function(f).name);
  if (facts(f).loop != nullptr) {
    const Instance iteration = e_.origins.at(facts(f).loop->provenance).per_iteration;
    texts.push_back(iteration.row != 0           ? "a row of a loop"
                    : iteration.micro_batch != 0 ? "a micro-batch of a loop"
                                                 : "an iteration of a loop");
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

std::vector<std::string> PlanNames::parts_of_step(exe::FunctionId f, size_t s) const {
  const exe::Step& step = function(f).steps[s];
  const Provenance p = of_step(step, first_call(f));
  if (const std::string part = part_of_kernel(step, p); !part.empty()) return {part};
  const auto* call = std::get_if<exe::Call>(&step.body);
  const auto* loop = std::get_if<exe::Loop>(&step.body);
  if (call == nullptr && loop == nullptr) return {};
  // The parts of this call, not those of all calls of its function.
  std::vector<std::string> parts;
  std::set<std::string> blocks;
  OpRole role = OpRole::kForward;
  for (const Provenance& own : facts(call != nullptr ? call->function : loop->body.function).work) {
    const Provenance work = own.inside(p);
    if (!has_part(work)) continue;
    exe::add_once(parts, part_of(work));
    blocks.insert(work.block);
    role = work.role;
  }
  if (blocks.size() != 1) return {};
  // With phases, a loop over micro-batches may run both parts of a block. Elsewhere its steps have
  // parts of their own.
  if (parts.size() > 1 && !has_phases()) return {};
  const std::vector<std::string> together = {fmt::format("{}", fmt::join(parts, ", "))};
  const auto* rows = contents_.rows_of(*blocks.begin());
  if (parts.size() > 1 || rows == nullptr || loop == nullptr || p.per_iteration.row == 0 ||
      loop->trips != static_cast<int64_t>(rows->size()))
    return together;
  std::vector<std::string> texts;
  for (int64_t i = 0; i < loop->trips; ++i) {
    const int64_t row = (p.at + i * p.per_iteration).row;
    if (row < 0 || row >= std::ssize(*rows)) return together;
    texts.push_back(fmt::format("{}{}", at(*rows, row), suffix(role)));
  }
  return texts;
}

std::vector<std::string> PlanNames::blocks_of_program(int32_t program) const {
  const std::vector<exe::Start>& starts = at(e_.programs, program).starts;
  std::vector<std::string> parts;
  if (std::none_of(starts.begin(), starts.end(), [&](const exe::Start& start) {
        return does(start.function, {OpRole::kGradient});
      }))
    return parts;
  for (const exe::Start& start : starts) {
    for (const std::string& part : parts_of(start.function)) exe::add_once(parts, part);
  }
  return parts;
}

}  // namespace sluice::report
