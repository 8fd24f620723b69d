#include "tools/plan/plan_json.h"

#include <algorithm>

namespace sluice::tool {
namespace {

JsonRecord json_of(const report::KindBytes& k) {
  JsonRecord record;
  record.add("kind", k.kind);
  record.add("bytes", k.bytes);
  return record;
}

JsonRecord json_of(const exe::MemoryNeeds& memory, const report::MemoryShares& shares) {
  JsonRecord record;
  record.add("name", memory.name);
  record.add("total_bytes", memory.total_bytes);
  record.add("budget_bytes", memory.budget_bytes);
  record.add("smallest_budget", memory.smallest_budget());
  record.add("bound_bytes", memory.bound_bytes);
  record.add("peak_program", memory.peak_program);
  std::vector<JsonRecord> kinds, peak_objects;
  for (const report::KindBytes& k : shares.kinds) kinds.push_back(json_of(k));
  for (const report::PeakObjectGroup& h : shares.peak_objects) {
    peak_objects.emplace_back().add("place", h.model_name);
    peak_objects.back().add("kind", h.kind);
    peak_objects.back().add("bytes", h.bytes);
  }
  record.add("kinds", std::move(kinds));
  record.add("holders", std::move(peak_objects));
  return record;
}

JsonRecord json_of(const report::FunctionReport& f) {
  JsonRecord record;
  record.add("name", f.name);
  record.add("place", f.model_name);
  record.add("device", static_cast<int64_t>(f.device));
  record.add("calls", f.call_sites);
  record.add("steps", f.steps);
  record.add("program_bytes", f.program_bytes);
  record.add("frame_bytes", f.frame_bytes);
  return record;
}

JsonRecord json_of(const report::ReferenceSteps& r) {
  JsonRecord record;
  record.add("op", r.op);
  record.add("steps", r.steps);
  return record;
}

JsonRecord json_of(const report::TransferReport& t) {
  JsonRecord record;
  record.add("program", t.program);
  record.add("memory", t.memory);
  record.add("queue", t.queue);
  record.add("loads", t.loads);
  record.add("loaded_bytes", t.loaded_bytes);
  record.add("stores", t.stores);
  record.add("stored_bytes", t.stored_bytes);
  return record;
}

JsonRecord json_of(const report::SentReport& s) {
  JsonRecord record;
  record.add("program", s.program);
  record.add("message_bytes", s.message_bytes);
  record.add("collective_bytes", s.collective_bytes);
  return record;
}

JsonRecord json_of(const report::DeviceForecast& d) {
  JsonRecord record;
  record.add("device", static_cast<int64_t>(d.device));
  record.add("seconds", d.seconds);
  record.add("message_wait_seconds", d.message_wait);
  record.add("collective_seconds", d.collective_seconds);
  return record;
}

JsonRecord json_of(const report::ProgramForecast& p) {
  JsonRecord record;
  record.add("program", p.program);
  record.add("seconds", p.seconds);
  std::vector<JsonRecord> transfers;
  for (const report::TransferForecast& t : p.transfers) {
    JsonRecord& row = transfers.emplace_back();
    row.add("memory", t.memory);
    row.add("bytes", t.bytes);
    row.add("seconds", t.seconds);
    row.add("exposed_seconds", t.exposed_seconds);
  }
  record.add("transfers", std::move(transfers));
  std::vector<JsonRecord> devices;
  for (const report::DeviceForecast& d : p.devices) devices.push_back(json_of(d));
  record.add("devices", std::move(devices));
  if (p.in_cluster) record.add("bubble", p.bubble());
  return record;
}

JsonRecord json_of(const report::Suggestion& s) {
  JsonRecord record;
  record.add("option", s.option);
  if (s.device_bytes >= 0) {
    record.add("device_bytes", s.device_bytes);
    record.add("tier_bytes", s.tier_bytes);
  }
  return record;
}

JsonRecord json_of(const report::ProgramBlocks& p) {
  JsonRecord record;
  record.add("program", p.program);
  std::vector<JsonRecord> phases;
  for (const std::string& phase : p.parts) phases.emplace_back().add("phase", phase);
  record.add("phases", std::move(phases));
  return record;
}

template <typename Rows>
std::vector<JsonRecord> list_of(const Rows& rows) {
  std::vector<JsonRecord> list;
  for (const auto& row : rows) list.push_back(json_of(row));
  return list;
}

}  // namespace

void add_plan(const report::PlanReport& report, const report::Outlook& outlook,
              JsonRecord& record) {
  record.add("fits", std::all_of(report.memories.begin(), report.memories.end(), [](const auto& m) {
               return m.budget_bytes < 0 || m.total_bytes <= m.budget_bytes;
             }));
  std::vector<JsonRecord> memories;
  for (size_t m = 0; m < report.memories.size(); ++m)
    memories.push_back(json_of(report.memories[m], report.shares[m]));
  record.add("memories", std::move(memories));
  record.add("host_buffers", list_of(report.host_buffers));
  record.add("function_list", list_of(report.functions));
  record.add("reference_steps", list_of(report.reference_steps));
  record.add("phase_list",
             list_of(report.phased ? report.blocks : std::vector<report::ProgramBlocks>()));
  record.add("transfer_list", list_of(report.transfers));
  record.add("sent_list", list_of(report.sent));
  record.add("forecasts", list_of(outlook.forecasts));
  record.add("suggestions", list_of(outlook.suggestions));
}

}  // namespace sluice::tool
