#include "sluice/report/traffic.h"

#include "sluice/exe/call_order.h"
#include "sluice/exe/visit_step.h"

namespace sluice::report {
namespace {

template <typename Counts>
int64_t bytes_of(const Counts& counts) {
  int64_t sum = 0;
  for (const auto& [where, t] : counts) sum = bounded_sum(sum, t.bytes);
  return sum;
}

}  // namespace

TrafficCounter::TrafficCounter(const exe::Executable& executable)
    : functions_(executable.functions.size()) {
  for (const int32_t f : exe::callees_first(executable))
    functions_[static_cast<size_t>(f)] = count(executable.functions[static_cast<size_t>(f)]);
}

std::vector<Traffic> TrafficCounter::of(const exe::Program& program) const {
  Counts all;
  for (const exe::Start& start : program.starts)
    add(functions_[static_cast<size_t>(start.function)], 1, all);
  std::vector<Traffic> result;
  for (const auto& [where, t] : all) result.push_back(t);
  return result;
}

void TrafficCounter::add(const Counts& from, int64_t turns, Counts& to) {
  for (const auto& [where, t] : from) {
    Traffic& sum =
        to.try_emplace(where, Traffic{t.kind, t.object, t.device, t.queue}).first->second;
    sum.transfers = bounded_sum(sum.transfers, bounded_product(turns, t.transfers));
    sum.bytes = bounded_sum(sum.bytes, bounded_product(turns, t.bytes));
  }
}

TrafficCounter::Counts TrafficCounter::count(const exe::Function& f) const {
  const auto callee = [&](const exe::Call& c) -> const Counts& {
    return functions_[static_cast<size_t>(c.function)];
  };
  Counts sum;
  for (const exe::Step& step : f.steps) {
    if (const auto* issue = std::get_if<exe::Issue>(&step.body)) {
      const Traffic one{issue->kind, issue->object, f.device, issue->queue, 1, issue->memory.bytes};
      add({{{one.kind, one.object, one.device, one.queue}, one}}, 1, sum);
    } else if (const auto* branch = std::get_if<exe::Branch>(&step.body)) {
      const Counts& then_counts = callee(branch->then_call);
      const Counts& else_counts = callee(branch->else_call);
      add(bytes_of(then_counts) < bytes_of(else_counts) ? else_counts : then_counts, 1, sum);
    } else {
      const auto* loop = std::get_if<exe::Loop>(&step.body);
      exe::for_each_call(step,
                         [&](const exe::Call& c) { add(callee(c), loop ? loop->trips : 1, sum); });
    }
  }
  return sum;
}

}  // namespace sluice::report
