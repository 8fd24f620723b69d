#pragma once
#include <fmt/format.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "sluice/exe/executable.h"
#include "sluice/exe/text.h"
#include "sluice/exe/visit_step.h"

/// One function for each kind of damage. It returns every step of a plan where the damage can be
/// done.
namespace sluice::property {

using namespace exe;  // NOLINT: everything here is about executables

/// A position in a plan and the damage to do there. `damage` returns the reason why it is a defect,
/// or an empty text if a dry run must show it.
struct Candidate {
  std::string about;
  std::function<std::string(Executable&)> damage;
};

// order.cc: steps, transfers, names.
std::vector<Candidate> wait_dropped(const Executable& e);
std::vector<Candidate> step_dropped(const Executable& e);
std::vector<Candidate> steps_swapped(const Executable& e);
std::vector<Candidate> sync_dropped(const Executable& e);
std::vector<Candidate> rotation_off_by_one(const Executable& e);
std::vector<Candidate> trips_off_by_one(const Executable& e);
std::vector<Candidate> late_iteration_changed(const Executable& e);
std::vector<Candidate> carry_dropped(const Executable& e);
std::vector<Candidate> carry_changed(const Executable& e);
std::vector<Candidate> value_renamed(const Executable& e);
std::vector<Candidate> layout_renamed(const Executable& e);
std::vector<Candidate> stream_entries_swapped(const Executable& e);
std::vector<Candidate> transfer_dropped(const Executable& e);
std::vector<Candidate> final_damaged(const Executable& e);
std::vector<Candidate> remote_entry_beyond(const Executable& e);
std::vector<Candidate> collective_dropped(const Executable& e);
std::vector<Candidate> collectives_swapped(const Executable& e);
std::vector<Candidate> collective_at_one_replica(const Executable& e);
std::vector<Candidate> collective_of_other_group(const Executable& e);
std::vector<Candidate> collectives_exchanged(const Executable& e);

// messages.cc: messages between devices.
std::vector<Candidate> message_dropped(const Executable& e);
std::vector<Candidate> message_repeated(const Executable& e);
std::vector<Candidate> message_swapped(const Executable& e);
std::vector<Candidate> message_counted_differently(const Executable& e);
std::vector<Candidate> messages_exchanged(const Executable& e);
std::vector<Candidate> message_of_other_channel(const Executable& e);
std::vector<Candidate> message_of_other_value(const Executable& e);
std::vector<Candidate> message_moved(const Executable& e);
std::vector<Candidate> channel_short(const Executable& e);

// transfers.cc: transfers on I/O queues.
std::vector<Candidate> wait_moved(const Executable& e);
std::vector<Candidate> issue_moved(const Executable& e);
std::vector<Candidate> queue_changed(const Executable& e);
std::vector<Candidate> buffer_shared(const Executable& e);
std::vector<Candidate> wait_past_border(const Executable& e);
std::vector<Candidate> wait_for_other(const Executable& e);
std::vector<Candidate> wait_on_other_queue(const Executable& e);
std::vector<Candidate> load_dropped(const Executable& e);
std::vector<Candidate> store_dropped(const Executable& e);
std::vector<Candidate> load_before_store(const Executable& e);

// remote.cc: entries, remote buffers, tiers.
std::vector<Candidate> row_off_by_one(const Executable& e);
std::vector<Candidate> row_counted_differently(const Executable& e);
std::vector<Candidate> row_of_other_replica(const Executable& e);
std::vector<Candidate> buffer_exchanged(const Executable& e);
std::vector<Candidate> entries_overlapped(const Executable& e);
std::vector<Candidate> remote_buffers_overlapped(const Executable& e);
std::vector<Candidate> locations_exchanged(const Executable& e);
std::vector<Candidate> tier_short(const Executable& e);
std::vector<Candidate> tier_budget_cut(const Executable& e);

// training.cc: the order and the rows of training steps.
std::vector<Candidate> accumulations_exchanged(const Executable& e);
std::vector<Candidate> updated_early(const Executable& e);
std::vector<Candidate> row_of_other_block(const Executable& e);
std::vector<Candidate> stored_value_overwritten(const Executable& e);

// pipelines.cc: the ramps, rings and messages of pipelined steps.
std::vector<Candidate> updated_before_drain(const Executable& e);
std::vector<Candidate> ramp_step_moved(const Executable& e);
std::vector<Candidate> step_repeated(const Executable& e);
std::vector<Candidate> ring_short(const Executable& e);
std::vector<Candidate> ring_slot_ignored(const Executable& e);
std::vector<Candidate> ring_slot_below_0(const Executable& e);
std::vector<Candidate> exchange_dropped(const Executable& e);
std::vector<Candidate> exchange_repeated(const Executable& e);

// bytes.cc: buffers, arenas, arguments, tasks.
std::vector<Candidate> buffer_moved(const Executable& e);
std::vector<Candidate> released_early(const Executable& e);
std::vector<Candidate> buffer_shrunk(const Executable& e);
std::vector<Candidate> frame_shrunk(const Executable& e);
std::vector<Candidate> arena_shrunk(const Executable& e);
std::vector<Candidate> arenas_overlapped(const Executable& e);
std::vector<Candidate> argument_rebound(const Executable& e);
std::vector<Candidate> workspace_shared(const Executable& e);
std::vector<Candidate> budget_cut(const Executable& e);
std::vector<Candidate> coincidence_forbidden(const Executable& e);
std::vector<Candidate> tasks_overlapped(const Executable& e);

inline std::string step_name(const Executable& e, size_t f, size_t s) {
  return fmt::format("'{}' step {} ({})", e.functions[exe::FunctionId(f)].name, s,
                     step_title(e.functions[exe::FunctionId(f)].steps[s]));
}

inline bool is_remote(const Issue& i) {
  return i.kind == TransferKind::kRemoteLoad || i.kind == TransferKind::kRemoteStore;
}

/// Whether an operator of the function or of a callee computes with index parameter `param`.
bool is_data(const Executable& e, const Function& f, int64_t param);

/// Removes each step for which `which` is true, one in each candidate. Its barrier stays.
std::vector<Candidate> steps_dropped(const Executable& e,
                                     const std::function<bool(const Step&)>& which);

/// Moves step `from` of a function to position `to`. Barriers stay at their positions.
void move_step(Function& f, size_t from, size_t to);

template <typename F>
void for_each_step(const Executable& e, F&& visit) {
  for (size_t f = 0; f < e.functions.size(); ++f) {
    for (size_t s = 0; s < e.functions[exe::FunctionId(f)].steps.size(); ++s)
      visit(f, s, e.functions[exe::FunctionId(f)].steps[s]);
  }
}

inline Step& step_of(Executable& e, size_t f, size_t s) {
  return e.functions[exe::FunctionId(f)].steps[s];
}

/// Visits all operands of a step, including those of calls, in a fixed order.
template <typename StepType, typename F>
void every_operand(StepType& step, F&& f) {
  for_each_operand(step, f);
  for_each_call(step, [&](auto& c) {
    for (auto& o : c.args) f(o);
  });
}

inline Operand* operand_at(Step& step, size_t n) {
  Operand* found = nullptr;
  size_t i = 0;
  every_operand(step, [&](Operand& o) {
    if (i++ == n) found = &o;
  });
  return found;
}

inline bool same_place(const Address& a, const Address& b) {
  return a.base == b.base && a.index == b.index && a.offset == b.offset && a.depth == b.depth;
}

inline bool disjoint(const Operand& a, const Operand& b) {
  return a.at.base != b.at.base || a.at.index != b.at.index ||
         a.at.offset + a.bytes <= b.at.offset || b.at.offset + b.bytes <= a.at.offset;
}

}  // namespace sluice::property
