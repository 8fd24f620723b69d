#include "sluice/session/measured.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <map>
#include <span>
#include <utility>

#include "sluice/report/measured_times.h"
#include "sluice/runtime/events.h"
#include "sluice/runtime/process_group.h"
#include "sluice/session/session.h"

namespace sluice {
namespace {

// A fact of a process, as other processes receive it.
struct Fact {
  enum class Tag : int32_t { kNone, kStep, kWait, kRuns, kLost };
  Tag kind = Tag::kNone;
  int32_t replica = 0;
  exe::DeviceId device{0};
  int32_t queue = 0;
  int32_t worker = 0;
  exe::FunctionId function{0};
  int32_t step = 0;
  int64_t begin = 0;  // Nanoseconds; for kRuns and kLost the count.
  int64_t end = 0;

  bool is_event() const { return kind == Tag::kStep || kind == Tag::kWait; }
};

// Finds the function and index of a step in its executable.
class StepIndex {
 public:
  explicit StepIndex(const exe::Executable& executable) {
    for (const exe::FunctionId f : executable.functions.ids()) {
      const std::vector<exe::Step>& steps = executable.functions[f].steps;
      if (!steps.empty()) first_[steps.data()] = f;
    }
  }
  // Sets the function and the number of a step.
  void describe(const exe::Step& step, Fact& fact) const {
    const auto at = std::prev(first_.upper_bound(&step));
    fact.function = at->second;
    fact.step = static_cast<int32_t>(&step - at->first);
  }

 private:
  std::map<const exe::Step*, exe::FunctionId> first_;  // Function of each first step.
};

std::vector<Fact> facts_here(const Session& session) {
  const StepIndex steps(session.executable());
  std::vector<Fact> facts;
  for (const runtime::StepRuns& m : session.moves()) {
    facts.push_back({.kind = Fact::Tag::kRuns, .replica = m.replica, .begin = m.runs});
    steps.describe(*m.step, facts.back());
  }
  for (const runtime::Lane& lane : session.lanes()) {
    facts.push_back({.kind = Fact::Tag::kLost, .replica = lane.replica, .begin = lane.ring.lost()});
    for (const runtime::Event& e : lane.ring.events()) {
      facts.push_back({.kind = e.waits ? Fact::Tag::kWait : Fact::Tag::kStep,
                       .replica = lane.replica,
                       .device = lane.device,
                       .queue = lane.queue,
                       .worker = lane.worker,
                       .begin = e.begin,
                       .end = e.end});
      steps.describe(*e.step, facts.back());
    }
  }
  return facts;
}

// Returns the facts of all processes, with times of the first one's clock.
std::vector<Fact> facts_of_all(Session& session) {
  std::vector<Fact> own = facts_here(session);
  runtime::Agreement& agreement = session.agreement();
  if (agreement.size() == 1) return own;
  const int64_t ahead = at(clock_differences(agreement, runtime::EventRing::now), agreement.rank());
  for (Fact& f : own) {
    if (!f.is_event()) continue;
    f.begin -= ahead;
    f.end -= ahead;
  }
  const std::vector<size_t> sizes = agreement.gathered(std::vector{own.size()});
  own.resize(*std::max_element(sizes.begin(), sizes.end()));
  return agreement.gathered(own);
}

std::vector<report::MeasuredRun> runs_of(const std::vector<Fact>& facts, const std::string& program,
                                         const exe::Executable& executable) {
  int64_t first = std::numeric_limits<int64_t>::max();
  for (const Fact& f : facts) {
    if (f.is_event()) first = std::min(first, f.begin);
  }
  std::map<int, report::MeasuredRun> runs;
  for (const Fact& f : facts) {
    if (f.kind == Fact::Tag::kNone) continue;
    report::MeasuredRun& run = runs[f.replica];
    if (f.kind == Fact::Tag::kRuns) run.moves.push_back({f.function, f.step, f.begin});
    if (f.kind == Fact::Tag::kLost) run.lost += f.begin;
    if (!f.is_event()) continue;
    const bool waits = f.kind == Fact::Tag::kWait;
    run.trace.events.push_back(
        {waits ? report::Event::Activity::kWait : report::Event::Activity::kStep, f.device, f.queue,
         f.function, f.step, static_cast<double>(f.begin - first) / 1e9,
         static_cast<double>(f.end - first) / 1e9, f.worker});
    run.trace.seconds = std::max(run.trace.seconds, run.trace.events.back().end);
  }
  std::vector<report::MeasuredRun> all;
  for (auto& [replica, run] : runs) {
    run.program = program;
    run.replica = replica;
    run.trace.complete = run.lost == 0;
    report::add_times(executable, run);
    all.push_back(std::move(run));
  }
  return all;
}

}  // namespace

std::vector<report::MeasuredRun> measured_run(Session& session, const std::string& program) {
  return runs_of(facts_of_all(session), program, session.executable());
}

std::vector<report::MeasuredRun> measured_here(const Session& session, const std::string& program) {
  return runs_of(facts_here(session), program, session.executable());
}

std::vector<int64_t> clock_differences(runtime::Agreement& agreement,
                                       const std::function<int64_t()>& now) {
  constexpr int kExchanges = 8;
  std::vector<int64_t> best;
  int64_t min = std::numeric_limits<int64_t>::max();
  for (int i = 0; i < kExchanges; ++i) {
    const int64_t begin = now();
    agreement.any(false);  // No process reads its clock before the first one has read `begin`.
    const std::vector<int64_t> times = agreement.gathered(std::vector{now()});
    const int64_t took = now() - begin;
    if (took >= min) continue;
    min = took;
    best.clear();
    for (const int64_t time : times) best.push_back(time - times.front());
  }
  agreement.broadcast(0, std::as_writable_bytes(std::span(best)));
  return best;
}

}  // namespace sluice
