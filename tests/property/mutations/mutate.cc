#include "mutate.h"

#include <algorithm>

#include "mutations.h"
#include "sluice/base/rng.h"

namespace sluice::property {
namespace {

struct MutationKind {
  std::string name;
  std::vector<std::string> rules;
  std::vector<Candidate> (*find)(const Executable&);
};

const MutationKind kKinds[] = {
    {"wait dropped", {"race", "wait"}, wait_dropped},
    {"wait moved", {"race", "wait"}, wait_moved},
    {"issue moved", {"value", "race", "sync", "stream", "final", "remote", "overlap"}, issue_moved},
    {"queue changed", {"wait", "race"}, queue_changed},
    {"double buffer made single", {"value", "race", "overlap"}, buffer_shared},
    {"step dropped", {"value", "final", "remote"}, step_dropped},
    {"transfer dropped", {"value", "stream", "remote", "final"}, transfer_dropped},
    {"steps swapped",
     {"value", "race", "wait", "channel", "deadlock", "stream", "final", "remote", "collective"},
     steps_swapped},
    {"sync dropped", {"sync"}, sync_dropped},
    {"buffer moved", {"value", "overlap", "bounds", "final", "sync", "race"}, buffer_moved},
    {"released early", {"value", "overlap", "race", "bounds"}, released_early},
    {"buffer shrunk", {"bounds"}, buffer_shrunk},
    {"frame shrunk", {"bounds"}, frame_shrunk},
    {"arena shrunk", {"bounds"}, arena_shrunk},
    {"arenas overlapped", {"overlap"}, arenas_overlapped},
    {"argument rebound", {"value", "overlap", "final"}, argument_rebound},
    {"workspace shared", {"workspace"}, workspace_shared},
    {"message dropped", {"channel", "deadlock", "value", "final"}, message_dropped},
    {"message repeated", {"channel", "deadlock"}, message_repeated},
    // The numbers that calls pass on also count streams, entries and collectives.
    {"message swapped",
     {"channel", "deadlock", "stream", "remote", "race", "collective"},
     message_swapped},
    {"message counted differently",
     {"channel", "deadlock", "stream", "remote", "race", "collective"},
     message_counted_differently},
    {"messages exchanged", {"channel", "value", "sync", "access"}, messages_exchanged},
    {"message of another channel", {"channel", "deadlock"}, message_of_other_channel},
    {"message of another value",
     {"channel", "value", "overlap", "access", "sync", "final", "race"},
     message_of_other_value},
    {"message moved",
     {"channel", "deadlock", "value", "sync", "race", "overlap", "remote", "final"},
     message_moved},
    {"channel one slot short", {"channel", "deadlock", "race"}, channel_short},
    {"rotation off by one", {"value", "overlap", "race"}, rotation_off_by_one},
    {"trips off by one",
     {"value", "stream", "channel", "deadlock", "remote", "final", "collective"},
     trips_off_by_one},
    {"late iteration changed",
     {"value", "race", "overlap", "bounds", "stream", "channel", "deadlock", "remote", "final",
      "collective", "sync"},
     late_iteration_changed},
    {"carry dropped", {"value"}, carry_dropped},
    {"carry changed", {"value", "loop"}, carry_changed},
    {"value renamed", {"value"}, value_renamed},
    {"layout renamed", {"layout"}, layout_renamed},
    {"stream entries swapped", {"stream"}, stream_entries_swapped},
    {"final damaged", {"final"}, final_damaged},
    {"budget cut", {"budget"}, budget_cut},
    {"coincidence forbidden", {"overlap"}, coincidence_forbidden},
    {"tasks overlapped", {"tasks"}, tasks_overlapped},
    {"remote entry beyond", {"remote"}, remote_entry_beyond},
    {"collective dropped", {"collective"}, collective_dropped},
    {"collectives swapped", {"collective"}, collectives_swapped},
    {"collective at one replica", {"collective"}, collective_at_one_replica},
    {"collective of another group", {"collective"}, collective_of_other_group},
    {"collectives exchanged", {"collective"}, collectives_exchanged},
    {"wait past the border", {"wait", "race"}, wait_past_border},
    {"wait for another", {"wait", "race"}, wait_for_other},
    {"wait on another queue", {"wait"}, wait_on_other_queue},
    {"row off by one",
     {"remote", "race", "stream", "collective", "channel", "deadlock"},
     row_off_by_one},
    {"row counted differently",
     {"remote", "race", "stream", "collective", "channel", "deadlock"},
     row_counted_differently},
    {"row of another replica", {"remote", "race", "stream", "collective"}, row_of_other_replica},
    {"load dropped", {"value", "remote"}, load_dropped},
    {"store dropped", {"value", "remote"}, store_dropped},
    {"load before the store", {"remote", "race", "value"}, load_before_store},
    {"another buffer", {"remote", "race"}, buffer_exchanged},
    {"entries overlapped", {"remote"}, entries_overlapped},
    {"remote buffers overlapped", {"overlap"}, remote_buffers_overlapped},
    {"locations exchanged", {"remote"}, locations_exchanged},
    {"tier one byte short", {"bounds"}, tier_short},
    {"tier budget cut", {"budget"}, tier_budget_cut},
    {"accumulations exchanged",
     {"value", "race", "wait", "overlap", "sync", "final", "remote"},
     accumulations_exchanged},
    {"updated early",
     {"value", "race", "wait", "overlap", "sync", "final", "remote", "collective"},
     updated_early},
    {"updated before the drain",
     {"value", "race", "wait", "overlap", "sync", "final", "remote", "collective", "channel"},
     updated_before_drain},
    {"ramp step moved",
     {"value", "race", "wait", "overlap", "sync", "final", "remote", "channel"},
     ramp_step_moved},
    {"step repeated",
     {"value", "overlap", "final", "sync", "channel", "deadlock", "stream", "collective"},
     step_repeated},
    {"ring one slot short", {"value", "overlap", "race", "bounds"}, ring_short},
    {"ring slot ignored", {"value", "overlap", "race"}, ring_slot_ignored},
    {"ring slot below 0", {"index"}, ring_slot_below_0},
    {"exchange dropped", {"value", "channel", "final", "race", "deadlock"}, exchange_dropped},
    {"exchange repeated", {"value", "channel", "deadlock"}, exchange_repeated},
    {"row of another block", {"remote", "race", "value"}, row_of_other_block},
    {"stored value overwritten", {"remote", "race", "value"}, stored_value_overwritten},
};

}  // namespace

std::vector<std::string> mutation_kinds() {
  std::vector<std::string> names;
  for (const MutationKind& k : kKinds) names.push_back(k.name);
  return names;
}

std::vector<std::string> message_kinds() {
  std::vector<std::string> names = mutation_kinds();
  std::erase_if(names, [](const std::string& name) {
    return !name.starts_with("message") && !name.starts_with("channel");
  });
  return names;
}

std::vector<std::string> kinds_without(std::vector<std::string> kinds,
                                       const std::vector<std::string>& left_out) {
  std::erase_if(kinds, [&](const std::string& kind) {
    return std::find(left_out.begin(), left_out.end(), kind) != left_out.end();
  });
  return kinds;
}

std::vector<Damage> mutations(const Executable& right, uint64_t seed, int per_kind,
                              const std::vector<std::string>& wanted) {
  std::vector<Damage> out;
  for (const MutationKind& kind : kKinds) {
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), kind.name) == wanted.end())
      continue;
    std::vector<Candidate> all = kind.find(right);
    // Shuffle by the seed, so that a few candidates are spread over the plan.
    const Seed key =
        fold(Seed{static_cast<uint32_t>(seed >> 32), static_cast<uint32_t>(seed)}, kind.name);
    for (size_t i = all.size(); i > 1; --i) std::swap(all[i - 1], all[random_bits(key, i) % i]);
    if (all.size() > static_cast<size_t>(per_kind)) all.resize(static_cast<size_t>(per_kind));
    for (Candidate& c : all)
      out.push_back({kind.name, std::move(c.about), kind.rules, std::move(c.damage)});
  }
  return out;
}

}  // namespace sluice::property
