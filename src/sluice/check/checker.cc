#include "sluice/check/checker.h"

#include <algorithm>

#include "sluice/base/error.h"
#include "sluice/check/counts.h"
#include "sluice/check/findings.h"
#include "sluice/check/function_facts.h"
#include "sluice/check/listing.h"
#include "sluice/check/simulation/simulation.h"
#include "sluice/check/step_rules.h"
#include "sluice/check/table_rules.h"
#include "sluice/exe/validate.h"

namespace sluice::check {

std::vector<Violation> violations(const exe::Executable& executable, const Options& options) {
  Findings findings(options.max_violations);
  for (const exe::Problem& p : exe::validate(executable)) {
    const bool step =
        p.position.section == exe::PlanPosition::Section::kFunction && p.position.step >= 0;
    const std::string where =
        step ? fmt::format("function '{}' step {}",
                           executable.functions[exe::FunctionId(p.position.index)].name,
                           p.position.step)
             : fmt::format("{} {}", exe::word(p.position.section), p.position.index);
    findings.add("index", "{}: {}", where, p.message);
  }
  if (!findings.empty()) return findings.take();
  const FactsOfFunctions facts = function_facts(executable);
  check_tables(executable, findings);
  check_steps(executable, facts, findings);
  // Where no address or entry depends on the replica, all replicas run alike: run one of them.
  const int64_t replicas = uses_replica(executable) ? executable.replicas : 1;
  const Counts counts(executable, facts);
  for (const exe::Program& program : executable.programs) {
    // A program with wrong counts or too many steps is not simulated to its end.
    const bool whole = counts.agree(program, options, replicas, findings);
    Options rest = options;  // The replicas of a program share one limit of steps.
    for (int64_t r = 0; r < (whole ? replicas : 1) && !findings.full(); ++r) {
      Simulation simulation(executable, program, facts, rest, r, findings);
      if (!whole) simulation.stop_soon();
      simulation.run();
      rest.max_steps = std::max<int64_t>(rest.max_steps - simulation.steps() - 1, 0);
    }
  }
  check_listings(executable, findings);
  return findings.take();
}

void prove(const exe::Executable& executable, const Options& options) {
  const std::vector<Violation> found = violations(executable, options);
  if (found.empty()) return;
  std::string text;
  for (const Violation& v : found) text += fmt::format("\n  [{}] {}", v.rule, v.message);
  const bool defect =
      std::any_of(found.begin(), found.end(), [](const Violation& v) { return v.rule != "limit"; });
  if (defect) fail(ErrorKind::kInternal, "the plan's proof fails:{}", text);
  fail(ErrorKind::kUsage,
       "the plan is too long to be proved; use fewer micro-batches a step or fewer layers:{}",
       text);
}

}  // namespace sluice::check
