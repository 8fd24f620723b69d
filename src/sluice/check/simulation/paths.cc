#include <algorithm>
#include <map>
#include <utility>

#include "sluice/check/simulation/simulation.h"

namespace sluice::check {

bool Simulation::run_arm(DeviceRun& d, const exe::Call& call, int64_t arm) {
  const size_t depth = d.stack.size();
  d.arm.clear();
  const Activation& caller = d.stack.back();
  const RemoteLedger::Activation path = RemoteLedger::callee(caller.path, caller.calls, arm);
  if (!enter(d, call, Role::kArm, nullptr)) return false;
  d.stack.back().path = path;
  advance(d, depth);
  if (stop_) return false;
  if (d.stack.size() > depth) {
    bad(d, "branch", "an arm waits for another device");
    stop_ = true;
    return false;
  }
  return true;
}

/// Adds to `mine` the transfers in flight that only the other arm left. Arms wait for their own
/// transfers, so both lists are subsets of the list before the branch.
void Simulation::join_flights(std::vector<Flight>& mine, const std::vector<Flight>& other) {
  // A queue ends its transfers in order. So, for each queue, one of the two lists contains the
  // other.
  for (size_t i = 0; i < other.size(); ++i) {
    const auto same = [&](const Flight& f) {
      return f.owner == other[i].owner && f.token == other[i].token && f.queue == other[i].queue;
    };
    if (std::none_of(mine.begin(), mine.end(), same))
      mine.insert(mine.begin() + static_cast<int64_t>(std::min(i, mine.size())), other[i]);
  }
}

Simulation::Outcome Simulation::branch(DeviceRun& d, const exe::Branch& b) {
  Activation& a = d.stack.back();
  Range condition;
  if (!resolve(d, b.condition.at, b.condition.bytes, condition)) return Outcome::kDone;
  read(d, b.condition, condition, lookup(a, b.condition.value), "the condition");
  const Touched touched[] = {{&b.condition, condition, Grid::everyone()}};
  touch(d, touched, 0);
  for (const auto& [token, queue] : a.tokens) {
    bad(d, "wait", "token {} on queue {} is not waited for before the branch", token, queue);
  }
  const size_t mark = bytes_.mark();
  const Window before = d.window;
  const std::vector<Flight> flights = d.flights;
  const auto moves = [&](const exe::Call& arm) { return facts_[arm.function].transfers; };
  const bool remote = moves(b.then_call) || moves(b.else_call);
  RemoteLedger::Contents entries;
  if (remote) entries = remote_.contents();
  if (!run_arm(d, b.then_call, 0)) return Outcome::kDone;
  const Bindings then_made = std::move(d.arm);
  const std::vector<Range> then_ranges = bytes_.changed(mark);
  std::vector<ByteMap::Pieces> then_pieces;
  for (const Range& r : then_ranges) then_pieces.push_back(bytes_.pieces(r));
  bytes_.roll_back(mark);
  Window after_then = std::move(d.window);
  d.window = before;
  const std::vector<Flight> flights_after_then = std::exchange(d.flights, flights);
  if (remote) {
    RemoteLedger::Contents after = remote_.contents();
    remote_.start_with(std::exchange(entries, std::move(after)));
  }
  if (!run_arm(d, b.else_call, 1)) return Outcome::kDone;
  d.window.merge(after_then);
  join_flights(d.flights, flights_after_then);
  if (remote) remote_.join(entries, d.device);
  join_arms(a, then_made, d.arm, mark, then_ranges, then_pieces);
  bytes_.release();
  ++a.calls;
  return Outcome::kDone;
}

void Simulation::join_arms(Activation& a, const Bindings& then_made, const Bindings& else_made,
                           size_t mark, const std::vector<Range>& then_ranges,
                           const std::vector<ByteMap::Pieces>& then_pieces) {
  // If both arms bind one name to different values, that name is a new value after the branch. The
  // condition decides at run time which of the two it is.
  std::map<std::pair<int64_t, int64_t>, Instance> joined;
  const std::map<exe::ValueId, Instance> other(else_made.begin(), else_made.end());
  for (const auto& [v, i] : else_made) a.values.erase(v);
  for (const auto& [v, i] : then_made) {
    a.values.erase(v);
    const auto j = other.find(v);
    if (j == other.end() || i.bytes != j->second.bytes || i.dtype != j->second.dtype ||
        *i.layout != *j->second.layout)
      continue;
    if (i.id == j->second.id) {
      a.values[v] = i;
      continue;
    }
    const auto [k, is_new] = joined.try_emplace({i.id, j->second.id});
    if (is_new) k->second = make(v, i.bytes, i.dtype, *i.layout);
    a.values[v] = k->second;
  }
  // Compare both outcomes for all bytes that either arm changed.
  const std::vector<Range> ranges = [&] {
    std::vector<Range> all = bytes_.changed(mark);
    all.insert(all.end(), then_ranges.begin(), then_ranges.end());
    return ByteMap::merged(std::move(all));
  }();
  std::vector<ByteMap::Pieces> else_pieces;
  for (const Range& r : ranges) else_pieces.push_back(bytes_.pieces(r));
  bytes_.roll_back(mark);
  for (size_t i = 0; i < then_ranges.size(); ++i) bytes_.restore(then_ranges[i], then_pieces[i]);
  for (size_t i = 0; i < ranges.size(); ++i) {
    ByteMap::Pieces result;
    const ByteMap::Pieces then_all = bytes_.pieces(ranges[i]);
    const ByteMap::Pieces& else_all = else_pieces[i];
    for (size_t t = 0, e = 0; t < then_all.size() && e < else_all.size();) {
      const auto& x = then_all[t];
      const auto& y = else_all[e];
      const int64_t begin = std::max(x.begin, y.begin);
      const int64_t end = std::min(x.end, y.end);
      if (begin < end) {
        const auto both = joined.find({x.value.id, y.value.id});
        if (x.value == y.value) {
          result.push_back({begin, end, x.value});
        } else if (both != joined.end() && x.value.origin == y.value.origin) {
          result.push_back({begin, end, {both->second.id, x.value.origin, both->second.name}});
        }
      }
      ++(x.end <= y.end ? t : e);
    }
    bytes_.restore(ranges[i], result);
  }
}

/// Returns the state that determines the next iterations of a loop, without its counter. Values of
/// the loop are numbered in the order found. So states are equal if they differ only in the time at
/// which their values were made.
std::vector<int64_t> Simulation::state_of(const DeviceRun& d, const LoopRun& run) const {
  std::vector<int64_t> out;
  std::unordered_map<int64_t, int64_t> numbers;
  const auto number = [&](int64_t id) {
    if (id < run.first_id) return id;
    return run.first_id +
           numbers.try_emplace(id, static_cast<int64_t>(numbers.size())).first->second;
  };
  for (const Instance& i : run.found) out.push_back(number(i.id));
  for (const Instance& i : run.made) out.push_back(number(i.id));
  for (const exe::ArenaId a : e_.arenas.ids()) {
    if (e_.arenas[a].device != d.device) continue;
    out.push_back(a);
    bytes_.arena(a).for_each([&](int64_t begin, int64_t end, const ByteOrigin& c) {
      out.insert(out.end(), {begin, end, number(c.id), c.origin});
    });
  }
  out.push_back(-1);
  d.window.serialise(out);
  return out;
}

void Simulation::leave_early(DeviceRun& d, const exe::Loop& l, LoopRun& run) {
  if (run.period == 0 || run.iteration != run.next_look) return;
  // Skip whole periods only, and run the last period with its true counter.
  const int64_t left = (l.trips - run.iteration) / run.period - 1;
  if (left < 1) return;
  std::vector<int64_t> state = state_of(d, run);
  if (!run.has_snapshot) {
    run.snapshot = std::move(state);
    run.has_snapshot = true;
    run.next_look = run.iteration + run.period;
  } else if (state == run.snapshot) {
    run.iteration += left * run.period;
    run.period = 0;
  } else {
    // The distance between comparisons doubles, so comparing costs no more than running.
    run.has_snapshot = false;
    run.next_look = 2 * run.iteration;
  }
}

}  // namespace sluice::check
