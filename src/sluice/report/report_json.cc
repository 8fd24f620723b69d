#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "sluice/exe/words.h"
#include "sluice/report/measured_times.h"
#include "sluice/report/report.h"
#include "sluice/report/viewer/viewer.h"

namespace sluice {

// An id is its number in JSON.
template <typename Tag, typename Integer>
void to_json(nlohmann::ordered_json& json, Id<Tag, Integer> id) {
  json = id.value();
}

}  // namespace sluice

namespace sluice::report {
namespace {

using Json = nlohmann::ordered_json;

/// A table: the names of the columns once, and then the rows.
Json table(std::vector<std::string> columns) {
  return {{"columns", std::move(columns)}, {"rows", Json::array()}};
}

int64_t nanoseconds(double seconds) { return std::llround(seconds * 1e9); }
// A negative time was not measured.
int64_t measured_ns(double seconds) { return seconds < 0 ? -1 : nanoseconds(seconds); }

constexpr size_t kMaxKernels = 500;  // In a report: the others are faster.

// Splits "fc/0 layers.cc:31" into its module path and its source line. Either may be absent.
std::pair<std::string, std::string> layer_and_source(const std::string& where) {
  const size_t space = where.rfind(' ');
  const std::string last = where.substr(space == where.npos ? 0 : space + 1);
  if (last.find(':') == last.npos) return {where, ""};
  return {where.substr(0, space == where.npos ? 0 : space), last};
}

template <typename Rows, typename ToJson>
Json list(const Rows& rows, ToJson&& to_json) {
  Json all = Json::array();
  for (const auto& row : rows) all.push_back(to_json(row));
  return all;
}

Json json_of(const exe::Device& d) {
  return {{"kind", d.kind},
          {"isa", d.isa},
          {"workers", d.workers},
          {"budget_bytes", d.memory_budget},
          {"queues", list(d.queues, [](const exe::Queue& q) { return Json(q.name); })}};
}

Json json_of(const MemoryBytes& m) {
  return {{"name", m.name},
          {"device", m.device},
          {"budget_bytes", m.budget},
          {"planned_bytes", m.planned},
          {"always_live_bytes", m.always_live},
          {"peak_live_bytes", m.peak_live},
          {"gap_bytes", m.gaps},
          {"program_bytes", m.program},
          {"peak_program", m.peak_program},
          {"kinds", list(m.kinds, [](const KindBytes& k) {
             return Json{{"kind", k.kind}, {"bytes", k.bytes}};
           })}};
}

Json json_of(const FunctionTimeline& f) {
  Json buffers = table({"name", "place", "kind", "offset", "bytes", "begin", "end"});
  for (const LiveBuffer& b : f.buffers)
    buffers["rows"].push_back({b.name, b.model_name, b.kind, b.offset, b.bytes, b.begin, b.end});
  Json steps = table({"kind", "name", "where", "live_bytes", "flops", "bytes", "queue", "calls",
                      "trips", "forecast_ns", "parts", "kernel"});
  for (const StepReport& s : f.steps)
    steps["rows"].push_back({s.kind, s.name, s.where, s.live_bytes, s.flops, s.bytes, s.queue,
                             s.calls, s.trips, nanoseconds(s.seconds), s.parts, s.kernel});
  return {{"name", f.name},
          {"place", f.model_name},
          {"part", f.part},
          {"device", f.device},
          {"frame_bytes", f.frame_bytes},
          {"peak_bytes", f.peak_bytes},
          {"program_bytes", f.program_bytes},
          {"buffers", std::move(buffers)},
          {"steps", std::move(steps)}};
}

Json json_of(const Trace& t) {
  Json events = table(
      {"kind", "device", "queue", "worker", "function", "step", "part", "begin_ns", "end_ns"});
  constexpr const char* kWords[] = {"step", "wait", "part"};
  for (const Event& e : t.events)
    events["rows"].push_back({at(kWords, e.kind), e.device, e.queue, e.worker, e.function, e.step,
                              e.part, nanoseconds(e.begin), nanoseconds(e.end)});
  return {{"complete", t.complete}, {"seconds", t.seconds}, {"events", std::move(events)}};
}

Json json_of(const RemoteAccesses& a) {
  Json accesses = table({"buffer", "entry", "function", "step", "turn", "trips", "count"});
  for (const RemoteAccess& r : a.rows)
    accesses["rows"].push_back(
        {r.buffer, r.entry, r.function, r.step, r.iteration, r.trips, r.count});
  return {{"complete", a.complete}, {"accesses", std::move(accesses)}};
}

// The kernels of a program with their layers and source lines.
Json kernels_of(const Report& r, const ProgramReport& p) {
  Json kernels = table({"function", "step", "name", "layer", "source", "reference", "runs",
                        "forecast_ns", "measured_ns"});
  for (const KernelTime& k : p.kernels) {
    if (kernels["rows"].size() == kMaxKernels) break;
    const FunctionTimeline& f = r.functions[k.function];
    const StepReport& s = at(f.steps, k.step);
    auto [layer, source] = layer_and_source(s.where);
    if (layer.empty()) layer = f.model_name.empty() ? f.name : f.model_name;
    kernels["rows"].push_back({k.function, k.step, s.name, layer, source, is_reference(s), k.runs,
                               nanoseconds(k.forecast), measured_ns(k.measured)});
  }
  return kernels;
}

Json json_of(const Report& r, const ProgramReport& p) {
  Json json{{"name", p.name},
            {"starts", list(p.starts,
                            [](const auto& s) {
                              return Json{{"device", s.first}, {"function", s.second}};
                            })},
            {"seconds", p.seconds},
            {"tasks", p.work.tasks},
            {"flops", p.work.flops},
            {"operand_bytes", p.work.bytes}};
  json["transfers"] = list(p.transfers, [](const Traffic& t) {
    return Json{{"kind", exe::word(t.kind)}, {"object", t.object},       {"device", t.device},
                {"queue", t.queue},          {"transfers", t.transfers}, {"bytes", t.bytes}};
  });
  json["messages"] = list(p.messages, [](const Messages& m) {
    return Json{{"from", m.from}, {"to", m.to}, {"messages", m.messages}, {"bytes", m.bytes}};
  });
  json["collectives"] = list(p.collectives, [](const CollectiveBytes& c) {
    return Json{{"op", c.op},         {"group", c.group},
                {"device", c.device}, {"collectives", c.collectives},
                {"bytes", c.bytes},   {"sent_bytes", c.sent_bytes()}};
  });
  json["forecasts"] = list(p.forecasts, [](const TransferForecast& t) {
    return Json{{"memory", t.memory},
                {"bytes", t.bytes},
                {"seconds", t.seconds},
                {"exposed_seconds", t.exposed_seconds}};
  });
  json["remote"] = json_of(p.accesses);
  json["overlaps"] = list(p.overlaps, [](const Overlap& o) {
    return Json{{"kind", exe::word(o.kind)},  {"object", o.object},
                {"device", o.device},         {"transfers", o.transfers},
                {"hidden_seconds", o.hidden}, {"exposed_seconds", o.exposed}};
  });
  json["measured_runs"] = p.measured_runs;
  json["measured_ns"] = measured_ns(p.measured_seconds);
  json["kernel_count"] = p.kernels.size();
  json["kernels"] = kernels_of(r, p);
  json["device_times"] = list(p.devices, [](const DeviceTimes& d) {
    return Json{{"device", d.device},
                {"kernels", d.kernels},
                {"forecast_ns", nanoseconds(d.forecast)},
                {"measured_ns", measured_ns(d.measured)},
                {"reference_ns", measured_ns(d.reference)},
                {"waits_ns", measured_ns(d.waits)},
                {"transfers_ns", measured_ns(d.transfers)},
                {"exposed_ns", measured_ns(d.exposed)}};
  });
  // A later key would copy the events, which are most of a report.
  json["trace"] = json_of(p.trace);
  return json;
}

Json json_of(const MeasuredRun& m) {
  Json moves = table({"function", "step", "runs"});
  for (const StepRuns& s : m.moves) moves["rows"].push_back({s.function, s.step, s.runs});
  Json steps = table({"function", "step", "ns"});
  for (const StepTime& s : m.steps)
    steps["rows"].push_back({s.function, s.step, nanoseconds(s.seconds)});
  return {{"program", m.program},
          {"replica", m.replica},
          {"runs", m.runs},
          {"min_ns", measured_ns(m.seconds)},
          {"steps", std::move(steps)},
          {"moves", std::move(moves)},
          {"lost", m.lost},
          {"trace", json_of(m.trace)}};
}

Json json_of(const FeedWaits& w) { return {{"count", w.count}, {"seconds", w.seconds}}; }

Json json_of(const FeedReport& f) {
  return {{"name", f.name},
          {"input", f.input},
          {"depth", f.depth},
          {"slots", f.slots},
          {"moved_elements", f.moved},
          {"used_elements", f.used},
          {"moved_bytes", f.bytes},
          {"host_seconds", f.host_seconds},
          {"run_seconds", f.run_seconds},
          {"waits_for_host", json_of(f.waits_for_host)},
          {"waits_for_program", json_of(f.waits_for_program)},
          {"waits_at_end", json_of(f.waits_at_end)},
          {"occupancy", f.occupancy}};
}

Json json_of(const Pipeline& p) {
  Json json{
      {"schedule", p.schedule}, {"micro_batches", p.micro_batches}, {"period", p.period},
      {"slots", p.slots},       {"ramp_slots", p.ramp_slots},       {"seconds", p.seconds},
      {"bubble", p.bubble},     {"imbalance", p.imbalance},         {"slowest_stage", p.slowest}};
  json["stages"] = list(p.stages, [](const StageReport& s) {
    return Json{{"blocks", s.blocks},
                {"device", s.device},
                {"forward_seconds", s.forward_seconds},
                {"backward_seconds", s.backward_seconds},
                {"message_seconds", s.message_seconds},
                {"in_flight", s.in_flight},
                {"activation_bytes", s.activation_bytes},
                {"parameters", s.parameters}};
  });
  json["tasks"] = list(p.tasks, [](const ScheduledTask& t) {
    return Json{{"stage", t.stage}, {"backward", t.backward}, {"slot", t.slot}};
  });
  return json;
}

Json json_of(const Report& r) {
  Json json{{"schema", "sluice-report"}, {"version", kReportVersion}, {"model", r.model}};
  json["options"] = Json::object();
  json["defaults"] = Json::object();
  for (const ChosenOption& o : r.options) {
    json["options"][o.name] = o.value;
    if (!o.otherwise.empty()) json["defaults"][o.name] = o.otherwise;
  }
  json["machine"] = r.machine;
  json["rates"] = {{"threads", r.rates.threads},
                   {"flops_per_second", r.rates.flops},
                   {"copy_bytes_per_second", r.rates.copies},
                   {"remote_bytes_per_second", r.rates.remote}};
  json["refusal"] = r.refusal;
  json["replicas"] = r.replicas;
  const auto any = [](const auto& row) { return json_of(row); };
  json["devices"] = list(r.devices, any);
  json["memories"] = list(r.memories, any);
  json["arenas"] = list(r.arenas, [](const ArenaBytes& a) {
    return Json{{"name", a.name},
                {"kind", a.kind},
                {"space", a.space},
                {"device", a.device},
                {"bytes", a.bytes}};
  });
  json["objects"] = table({"name", "place", "kind", "arena", "offset", "bytes"});
  for (const HeldObject& o : r.objects)
    json["objects"]["rows"].push_back({o.name, o.model_name, o.kind, o.arena, o.offset, o.bytes});
  json["streams"] = r.streams;
  json["remote_buffers"] = r.remote_buffers;
  json["remote_entries"] = r.remote_entries;
  json["parts"] = r.parts;
  json["functions"] = list(r.functions, any);
  json["programs"] = list(r.programs, [&](const ProgramReport& p) { return json_of(r, p); });
  json["event_bytes"] = r.event_bytes;
  json["host_buffers"] = list(r.host_buffers, [](const KindBytes& b) {
    return Json{{"kind", b.kind}, {"bytes", b.bytes}};
  });
  json["measured"] = list(r.measured, any);
  json["feeds"] = list(r.feeds, any);
  json["pipeline"] = list(r.pipeline, any);
  json["suggestions"] = list(r.suggestions, [](const Suggestion& s) {
    return Json{{"option", s.option},
                {"device_bytes", s.device_bytes},
                {"tier_bytes", s.tier_bytes},
                {"fits", s.fits}};
  });
  return json;
}

// A name may have bytes that are not UTF-8.
std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::string to_json(const Report& report) { return text_of(json_of(report)) + "\n"; }

namespace {

// Leaves the first events of a trace, at most `max`.
void shorten(Trace& trace, size_t max) {
  if (trace.events.size() <= max) return;
  std::vector<double> begins;
  for (const Event& e : trace.events) begins.push_back(e.begin);
  std::nth_element(begins.begin(), begins.begin() + static_cast<std::ptrdiff_t>(max), begins.end());
  const double end = begins[max];
  std::erase_if(trace.events, [end](const Event& e) { return e.begin >= end; });
  trace.complete = false;
}

}  // namespace

std::string to_html(const Report& report) {
  std::string page(kViewerPage);
  const auto fill = [&](std::string_view mark, std::string_view text) {
    page.replace(page.find(mark), mark.size(), text);
  };
  fill("/*STYLE*/", kViewerStyle);
  fill("/*SCRIPT*/", kViewerScript);
  // A page of 2 MB has room for so many measured events.
  constexpr size_t kMaxMeasured = 10'000;
  Report shown = report;
  for (MeasuredRun& run : shown.measured) shorten(run.trace, kMaxMeasured / shown.measured.size());
  // In a script element, "</" could end the data.
  std::string data;
  for (const char c : text_of(json_of(shown))) c == '<' ? data += "\\u003c" : data += c;
  fill("/*REPORT*/", data);
  return page;
}

namespace {

// Adds a process for each device and a thread for each of its queues and workers, and the events of
// a trace. The ids of processes begin with `first`.
void add_chrome_events(const Report& report, const Trace& trace, const std::string& run,
                       int64_t first, Json& events) {
  const auto tid = [&](const Event& e) {
    const auto queues = static_cast<int64_t>(report.devices[e.device].queues.size());
    if (e.kind == Event::Activity::kBlockPass) return queues;
    return e.worker == 0 ? int64_t{e.queue} : queues + e.worker;
  };
  const auto meta = [&](const char* name, exe::DeviceId device, int64_t thread,
                        const std::string& text) {
    events.push_back({{"ph", "M"},
                      {"name", name},
                      {"pid", first + device},
                      {"tid", thread},
                      {"args", {{"name", text}}}});
  };
  for (const exe::DeviceId device : report.devices.ids()) {
    meta("process_name", device, 0, fmt::format("{}, device {}", run, device));
    const std::vector<exe::Queue>& queues = report.devices[device].queues;
    for (size_t q = 0; q < queues.size(); ++q)
      meta("thread_name", device, static_cast<int64_t>(q), queues[q].name);
    meta("thread_name", device, static_cast<int64_t>(queues.size()), "blocks");
    for (int32_t w = 1; w < report.devices[device].workers; ++w)
      meta("thread_name", device, static_cast<int64_t>(queues.size()) + w,
           fmt::format("worker {}", w));
  }
  for (const Event& e : trace.events) {
    const FunctionTimeline& f = report.functions[e.function];
    Json event{{"ph", "X"},
               {"pid", first + e.device},
               {"tid", tid(e)},
               {"ts", static_cast<double>(nanoseconds(e.begin)) / 1e3},
               {"dur", static_cast<double>(nanoseconds(e.end) - nanoseconds(e.begin)) / 1e3}};
    if (e.kind == Event::Activity::kBlockPass) {
      event["name"] = at(report.parts, e.part);
      event["args"] = {{"turn", e.step}};
    } else {
      const StepReport& s = at(f.steps, e.step);
      event["name"] = e.kind == Event::Activity::kWait ? "wait: " + s.kind : s.name;
      event["cat"] = e.kind == Event::Activity::kWait ? "wait" : s.kind;
      event["args"] = {
          {"function", f.name}, {"where", s.where}, {"bytes", s.bytes}, {"flops", s.flops}};
    }
    events.push_back(std::move(event));
  }
}

}  // namespace

std::string to_chrome_trace(const Report& report) {
  Json events = Json::array();
  int64_t first = 0;
  const auto add = [&](const Trace& trace, const std::string& run) {
    add_chrome_events(report, trace, run, first, events);
    first += static_cast<int64_t>(report.devices.size());
  };
  for (const ProgramReport& p : report.programs) add(p.trace, p.name + " (planned)");
  for (const MeasuredRun& m : report.measured)
    add(m.trace, fmt::format("{} (measured, replica {})", m.program, m.replica));
  return text_of({{"displayTimeUnit", "ns"}, {"traceEvents", std::move(events)}}) + "\n";
}

}  // namespace sluice::report
