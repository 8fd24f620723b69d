#include "sluice/report/traffic.h"

#include <algorithm>

#include "sluice/exe/call_order.h"
#include "sluice/exe/visit_step.h"

namespace sluice::report {

int64_t operand_bytes(const std::vector<exe::Operand>& operands) {
  int64_t bytes = 0;
  for (const exe::Operand& o : operands) bytes = bounded_sum(bytes, o.bytes);
  return bytes;
}

bool is_all_reduce(const exe::Collective& collective) {
  return collective.op.starts_with("ReplicatedAllReduce");
}

int64_t exchanged_bytes(const exe::Collective& collective, int64_t members) {
  const auto& items = collective.attrs.items;
  const bool local = std::any_of(items.begin(), items.end(), [](const auto& item) {
    return item.first == "op" && item.second == AttrValue(std::string("local"));
  });
  if (local || collective.op == "ReplicatedSlice") return 0;
  const int64_t once = bounded_product(members - 1, collective.operands.front().bytes);
  if (is_all_reduce(collective)) return bounded_product(2, once);
  return collective.op == "ReplicatedAllGather" ? bounded_product(members, once) : once;
}

TrafficCounter::TrafficCounter(const exe::Executable& executable)
    : functions_(executable.functions.size()) {
  for (const exe::FunctionId f : exe::callees_first(executable))
    functions_[f] = count(executable, executable.functions[f]);
}

std::vector<Traffic> TrafficCounter::of(const exe::Program& program) const {
  std::vector<Traffic> result;
  for (const auto& [where, t] : count(program).transfers) result.push_back(t);
  return result;
}

std::vector<Messages> TrafficCounter::messages_of(const exe::Program& program) const {
  std::vector<Messages> result;
  for (const auto& [devices, m] : count(program).messages) result.push_back(m);
  return result;
}

std::vector<CollectiveBytes> TrafficCounter::collectives_of(const exe::Program& program) const {
  std::vector<CollectiveBytes> result;
  for (const auto& [key, c] : count(program).collectives) result.push_back(c);
  return result;
}

void TrafficCounter::Counts::add(const Traffic& t, int64_t iterations) {
  Traffic& sum = transfers
                     .try_emplace({t.kind, t.object, t.device, t.queue},
                                  Traffic{t.kind, t.object, t.device, t.queue})
                     .first->second;
  sum.transfers = bounded_sum(sum.transfers, bounded_product(iterations, t.transfers));
  sum.bytes = bounded_sum(sum.bytes, bounded_product(iterations, t.bytes));
}

void TrafficCounter::Counts::add(const Messages& m, int64_t iterations) {
  Messages& sum = messages.try_emplace({m.from, m.to}, Messages{m.from, m.to}).first->second;
  sum.messages = bounded_sum(sum.messages, bounded_product(iterations, m.messages));
  sum.bytes = bounded_sum(sum.bytes, bounded_product(iterations, m.bytes));
}

void TrafficCounter::Counts::add(const CollectiveBytes& c, int64_t iterations) {
  CollectiveBytes& sum =
      collectives.try_emplace({c.op, c.group, c.device}, CollectiveBytes{c.op, c.group, c.device})
          .first->second;
  sum.collectives = bounded_sum(sum.collectives, bounded_product(iterations, c.collectives));
  sum.bytes = bounded_sum(sum.bytes, bounded_product(iterations, c.bytes));
  sum.group_bytes = bounded_sum(sum.group_bytes, bounded_product(iterations, c.group_bytes));
  sum.members = c.members;
}

void TrafficCounter::Counts::add(const Work& w, int64_t iterations) {
  work.tasks = bounded_sum(work.tasks, bounded_product(iterations, w.tasks));
  work.flops = bounded_sum(work.flops, bounded_product(iterations, w.flops));
  work.bytes = bounded_sum(work.bytes, bounded_product(iterations, w.bytes));
}

void TrafficCounter::Counts::add(const Counts& other, int64_t iterations) {
  for (const auto& [where, t] : other.transfers) add(t, iterations);
  for (const auto& [devices, m] : other.messages) add(m, iterations);
  for (const auto& [key, c] : other.collectives) add(c, iterations);
  add(other.work, iterations);
}

int64_t TrafficCounter::Counts::bytes() const {
  int64_t sum = 0;
  for (const auto& [where, t] : transfers) sum = bounded_sum(sum, t.bytes);
  for (const auto& [devices, m] : messages) sum = bounded_sum(sum, m.bytes);
  return sum;
}

TrafficCounter::Counts TrafficCounter::count(const exe::Executable& executable,
                                             const exe::Function& f) const {
  const auto callee = [&](const exe::Call& c) -> const Counts& { return functions_[c.function]; };
  Counts sum;
  for (const exe::Step& step : f.steps) {
    if (const auto* kernel = std::get_if<exe::Kernel>(&step.body)) {
      sum.add(Work{kernel->tasks, kernel->flops, operand_bytes(kernel->operands)}, 1);
    } else if (const auto* c = std::get_if<exe::Collective>(&step.body)) {
      const int64_t members = executable.groups[c->group].size;
      sum.add(CollectiveBytes{c->op, c->group, f.device, 1, operand_bytes(c->operands),
                              exchanged_bytes(*c, members), members},
              1);
    } else if (const auto* issue = std::get_if<exe::Issue>(&step.body)) {
      sum.add(Traffic{issue->kind, issue->object, f.device, issue->queue, 1, issue->memory.bytes},
              1);
    } else if (const auto* send = std::get_if<exe::Send>(&step.body)) {
      const exe::Channel& channel = executable.channels[send->channel];
      sum.add(Messages{channel.from, channel.to, 1, send->operand.bytes}, 1);
    } else if (const auto* branch = std::get_if<exe::Branch>(&step.body)) {
      const Counts& then_counts = callee(branch->then_call);
      const Counts& else_counts = callee(branch->else_call);
      sum.add(then_counts.bytes() < else_counts.bytes() ? else_counts : then_counts, 1);
    } else {
      const auto* loop = std::get_if<exe::Loop>(&step.body);
      exe::for_each_call(step,
                         [&](const exe::Call& c) { sum.add(callee(c), loop ? loop->trips : 1); });
    }
  }
  return sum;
}

TrafficCounter::Counts TrafficCounter::count(const exe::Program& program) const {
  Counts all;
  for (const exe::Start& start : program.starts) all.add(functions_[start.function], 1);
  return all;
}

}  // namespace sluice::report
