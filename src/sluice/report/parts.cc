#include "sluice/report/parts.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "sluice/exe/visit_step.h"

namespace sluice::report {
namespace {

// Calls f for the operands of a step and the arguments of its calls.
template <typename F>
void for_each_value(const exe::Step& step, F&& f) {
  exe::for_each_operand(step, f);
  exe::for_each_call(step, [&](const exe::Call& c) {
    for (const exe::Operand& o : c.args) f(o);
  });
}

class Numbering {
 public:
  Numbering(const exe::Executable& e, const Places& places, const Report& r)
      : e_(e), places_(places), r_(r) {}

  PartNumbers run() const {
    PartNumbers numbers;
    for (const FunctionTimeline& f : r_.functions) {
      const auto found = std::find(r_.parts.begin(), r_.parts.end(), f.part);
      numbers.functions.push_back(f.part.empty() ? -1
                                                 : static_cast<int32_t>(found - r_.parts.begin()));
      const auto id = static_cast<int32_t>(numbers.steps.size());
      numbers.rows.push_back(places_.is_row(id));
      numbers.steps.push_back(parts_of_steps(id));
    }
    numbers.phases = places_.has_phases();
    return numbers;
  }

 private:
  const std::vector<exe::Step>& steps(int32_t function) const {
    return e_.functions[static_cast<size_t>(function)].steps;
  }
  const std::vector<int32_t>& parts(int32_t function, size_t step) const {
    return r_.functions[static_cast<size_t>(function)].steps[step].parts;
  }
  bool is_backward(int32_t function, size_t step) const {
    const std::vector<int32_t>& p = parts(function, step);
    return !p.empty() && r_.parts[static_cast<size_t>(p.front())].ends_with(" bwd");
  }

  // Returns the steps of a function that compute activations again: forward kernels and calls whose
  // results are read by backward steps alone, or by other such steps. Follows what is read later at
  // each address of the frame.
  std::vector<bool> recomputes(int32_t function) const {
    std::vector<bool> again(steps(function).size());
    std::set<int64_t> needed;  // Offsets in the frame.
    for (size_t s = again.size(); s-- > 0;) {
      const exe::Step& step = steps(function)[s];
      const bool backward = is_backward(function, s);
      bool needs = parts(function, s).empty(), writes = false;
      for_each_value(step, [&](const exe::Operand& o) {
        if (o.access == exe::Access::kRead) return;
        writes = true;
        const bool in_frame = o.at.base == exe::Address::Base::kFrame;
        needs = needs || !in_frame || needed.contains(o.at.offset);
        if (in_frame && o.access == exe::Access::kWrite) needed.erase(o.at.offset);
      });
      needs = needs || !writes;  // A call may store its results elsewhere.
      again[s] = !needs && !backward;
      if (!needs || backward) continue;
      for_each_value(step, [&](const exe::Operand& o) {
        if (o.access != exe::Access::kWrite && o.at.base == exe::Address::Base::kFrame)
          needed.insert(o.at.offset);
      });
    }
    return again;
  }

  // The first value of a name belongs to run 0. Updated values are left out, as they pass from run
  // to run.
  std::vector<StepPart> parts_of_steps(int32_t function) const {
    const std::vector<bool> again = recomputes(function);
    std::set<exe::ValueId> made_again;
    std::map<std::tuple<std::string, int64_t, bool>, std::vector<exe::ValueId>> values;
    std::vector<StepPart> result(again.size());
    for (size_t s = 0; s < again.size(); ++s) {
      if (parts(function, s).empty()) continue;
      StepPart part{parts(function, s).front(), 0};
      for_each_value(steps(function)[s], [&](const exe::Operand& o) {
        if (o.access == exe::Access::kUpdate || o.value < 0) return;
        const exe::Value& value = e_.values[static_cast<size_t>(o.value)];
        if (!places_.is_of_block(value.tensor)) return;
        if (again[s] && o.access == exe::Access::kWrite) made_again.insert(o.value);
        std::vector<exe::ValueId>& known =
            values[{value.tensor, value.version, made_again.contains(o.value)}];
        const auto found = std::find(known.begin(), known.end(), o.value);
        part.run = std::max(part.run, static_cast<int32_t>(found - known.begin()));
        if (found == known.end()) known.push_back(o.value);
      });
      if (!again[s]) result[s] = part;
    }
    return result;
  }

  const exe::Executable& e_;
  const Places& places_;
  const Report& r_;
};

}  // namespace

PartNumbers part_numbers(const exe::Executable& executable, const Places& places,
                         const Report& report) {
  return Numbering(executable, places, report).run();
}

}  // namespace sluice::report
