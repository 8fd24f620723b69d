#include "sluice/check/counts.h"

#include "sluice/check/saturating.h"
#include "sluice/exe/call_order.h"
#include "sluice/exe/visit_step.h"

namespace sluice::check {
namespace {

void add_product(int64_t& sum, int64_t a, int64_t times) {
  sum = saturating_sum(sum, saturating_product(a, times));
}

std::string text_of(const std::map<std::pair<exe::DeviceId, exe::GroupId>, int64_t>& collectives) {
  std::string text;
  for (const auto& [where, count] : collectives) {
    text += fmt::format("{}{} collectives of group {} on device {}", text.empty() ? "" : ", ",
                        count, where.second, where.first);
  }
  return text.empty() ? "no collectives" : text;
}

}  // namespace

Counts::Counts(const exe::Executable& executable, const FactsOfFunctions& facts)
    : e_(executable), facts_(facts), functions_(executable.functions.size()) {
  for (const exe::FunctionId f : exe::callees_first(executable))
    functions_[f] = total(executable.functions[f]);
}

void Counts::add(const Total& from, int64_t times, Total& to) {
  for (const auto& [stream, n] : from.streams) add_product(to.streams[stream], n, times);
  for (const auto& [where, n] : from.collectives) add_product(to.collectives[where], n, times);
  for (const auto& [buffer, moved] : from.remote) {
    add_product(to.remote[buffer].loads, moved.loads, times);
    add_product(to.remote[buffer].stores, moved.stores, times);
  }
}

Counts::Total Counts::total(const exe::Function& f) const {
  Total sum;
  for (const exe::Step& step : f.steps) add_step(f, step, sum);
  return sum;
}

void Counts::add_step(const exe::Function& f, const exe::Step& step, Total& sum) const {
  add_product(sum.steps, 1, 1);
  if (const auto* i = std::get_if<exe::Issue>(&step.body)) {
    switch (i->kind) {
      case exe::TransferKind::kStreamIn:
      case exe::TransferKind::kStreamOut:
        return add_product(sum.streams[i->stream()], 1, 1);
      case exe::TransferKind::kRemoteLoad:
        return add_product(sum.remote[i->buffer()].loads, 1, 1);
      case exe::TransferKind::kRemoteStore:
        return add_product(sum.remote[i->buffer()].stores, 1, 1);
    }
  }
  if (const auto* c = std::get_if<exe::Collective>(&step.body))
    return add_product(sum.collectives[{f.device, c->group}], 1, 1);
  if (const auto* loop = std::get_if<exe::Loop>(&step.body)) {
    const Total& body = functions_[loop->body.function];
    // The steps of a loop that may be left early are not counted.
    add_product(sum.steps, body.steps, loop_period(*loop, facts_) == 0 ? loop->trips : 0);
    return add(body, loop->trips, sum);
  }
  exe::for_each_call(step, [&](const exe::Call& c) {
    const Total& callee = functions_[c.function];
    add_product(sum.steps, callee.steps, 1);
    add(callee, 1, sum);
  });
}

bool Counts::agree(const exe::Program& program, const Options& options, int64_t walks,
                   Findings& findings) const {
  bool agree = true;
  const auto fault = [&](const char* rule, const std::string& text) {
    findings.add(rule, "program '{}': {}", program.name, text);
    agree = false;
  };
  Total all;
  for (const exe::Start& start : program.starts) {
    const Total& entry = functions_[start.function];
    add_product(all.steps, entry.steps, 1);
    add(entry, 1, all);
  }
  for (const exe::StreamCount& s : program.streams) {
    const int64_t used =
        all.streams.contains(s.stream) ? all.streams.extract(s.stream).mapped() : 0;
    if (used == s.entries) continue;
    fault("stream", fmt::format("stream '{}': must use {} entries, got {}",
                                e_.streams[s.stream].name, s.entries, used));
  }
  for (const auto& [stream, used] : all.streams) {
    fault("stream",
          fmt::format("stream '{}': must use 0 entries, got {}", e_.streams[stream].name, used));
  }
  std::map<std::pair<exe::DeviceId, exe::GroupId>, int64_t> announced;
  for (const exe::CollectiveCount& c : program.collectives)
    announced[{c.device, c.group}] = c.count;
  if (announced != all.collectives) {
    fault("collective",
          fmt::format("must run {}, got {}", text_of(announced), text_of(all.collectives)));
  }
  for (const exe::RemoteTrace& t : program.remote) {
    const Moved& moved = all.remote[t.buffer];
    if (moved.loads == t.loads && moved.stores == t.stores) continue;
    fault("remote", fmt::format("'{}': must have {} loads and {} stores, got {} and {}",
                                e_.remote_buffers[t.buffer].name, t.loads, t.stores, moved.loads,
                                moved.stores));
  }
  int64_t steps = 0;
  add_product(steps, all.steps, walks);
  if (steps > options.max_steps)
    fault("limit", fmt::format("more than {} steps", options.max_steps));
  return agree;
}

}  // namespace sluice::check
