#include "sluice/exe/checker.h"

#include <algorithm>

#include "sluice/base/error.h"
#include "sluice/exe/check_facts.h"
#include "sluice/exe/check_machine.h"
#include "sluice/exe/check_static.h"
#include "sluice/exe/findings.h"
#include "sluice/exe/validate.h"

namespace sluice::exe {

std::vector<Violation> check(const Executable& executable, const CheckOptions& options) {
  Findings findings(options.max_violations);
  for (const Problem& p : validate(executable)) {
    const bool step = p.place.part == Place::Part::kFunction && p.place.step >= 0;
    const std::string where =
        step ? fmt::format("function '{}' step {}",
                           executable.functions[static_cast<size_t>(p.place.index)].name,
                           p.place.step)
             : fmt::format("{} {}", word(p.place.part), p.place.index);
    findings.add("index", "{}: {}", where, p.message);
  }
  if (!findings.empty()) return findings.take();
  check_static(executable, findings);
  const std::vector<FunctionFacts> facts = function_facts(executable);
  // Replicas whose addresses and entries are alike run alike; see checker.h.
  const int64_t replicas = uses_replica(executable) ? executable.replicas : 1;
  for (const Program& program : executable.programs) {
    CheckOptions rest = options;  // All replicas of a program share its steps; each counts as one.
    for (int64_t r = 0; r < replicas && !findings.full(); ++r) {
      Machine machine(executable, program, facts, rest, r, findings);
      machine.run();
      rest.max_steps = std::max<int64_t>(rest.max_steps - machine.steps() - 1, 0);
    }
  }
  return findings.take();
}

void prove(const Executable& executable, const CheckOptions& options) {
  const std::vector<Violation> violations = check(executable, options);
  if (violations.empty()) return;
  std::string text;
  for (const Violation& v : violations) text += fmt::format("\n  [{}] {}", v.rule, v.message);
  const bool defect = std::any_of(violations.begin(), violations.end(),
                                  [](const Violation& v) { return v.rule != "limit"; });
  if (defect) fail(ErrorKind::kInternal, "the plan's proof fails:{}", text);
  fail(ErrorKind::kUsage,
       "the plan is too long to be proved; a program of fewer micro-batches a step or fewer layers "
       "is shorter:{}",
       text);
}

}  // namespace sluice::exe
