#include "sluice/report/report.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "sluice/exe/test_plans.h"
#include "sluice/exe/words.h"
#include "sluice/report/measured_times.h"

namespace sluice::report {
namespace {

using namespace exe::plans;

// Every kernel takes two seconds, every entry of remote memory one second.
Report report_of(const std::string& text, int64_t max_events = kMaxEvents, double copies = 1e30) {
  exe::Executable e = plan(text);
  for (exe::Function& f : e.functions) {
    for (exe::Step& step : f.steps) {
      if (auto* kernel = std::get_if<exe::Kernel>(&step.body)) kernel->flops = 2;
    }
  }
  return make_report(e, {.threads = 1, .flops = 1, .copies = copies, .remote = 64}, max_events);
}

std::vector<std::string> plans() {
  return {train_step(),    two_devices(), overlapped_loop(), carried_ring(),
          rotating_ring(), branch(),      by_reference(),    collectives()};
}

TEST(Report, AlwaysLivePeakAndGapsAreThePlannedBytes) {
  for (const std::string& text : plans()) {
    const exe::Executable e = plan(text);
    for (const MemoryBytes& m : report_of(text).memories) {
      EXPECT_EQ(m.always_live + m.peak_live + m.gaps, m.planned) << text;
      EXPECT_GE(m.gaps, 0) << m.name << text;
      int64_t kinds = 0;
      for (const KindBytes& k : m.kinds) kinds += k.bytes;
      EXPECT_EQ(kinds, m.planned) << text;
      if (m.device < 0) continue;
      EXPECT_EQ(m.planned, exe::planned_bytes(e, exe::DeviceId(m.device), exe::Space::kDevice));
    }
  }
}

TEST(Report, AFeedHasARateAndAMeanOccupancy) {
  const FeedReport feed{.moved = 10, .host_seconds = 4, .occupancy = {1, 0, 3}};
  EXPECT_DOUBLE_EQ(feed.elements_per_second(), 2.5);
  EXPECT_DOUBLE_EQ(feed.mean_occupancy(), 1.5);
  EXPECT_EQ(FeedReport().elements_per_second(), 0);
  EXPECT_EQ(FeedReport().mean_occupancy(), 0);
}

TEST(Report, ATimelineHasTheLiveBytesOfEachStep) {
  const Report r = report_of(train_step());
  const FunctionTimeline& f = r.functions[exe::FunctionId(0)];
  std::vector<int64_t> live;
  for (const StepReport& s : f.steps) live.push_back(s.live_bytes);
  EXPECT_EQ(live, (std::vector<int64_t>{64, 64, 128, 128, 192, 64, 64}));
  EXPECT_EQ(f.peak_bytes, 192);
  EXPECT_EQ(f.steps[2].kind, "kernel");
  EXPECT_EQ(f.steps[2].name, "MatMul");
  EXPECT_EQ(f.steps[2].where, "fc (mlp.cc:7)");
  EXPECT_EQ(f.steps[2].bytes, 3 * 64);
  EXPECT_EQ(f.steps[0].name, "image");
  EXPECT_EQ(r.memories[0].always_live, 64 + 8 + 256);
  EXPECT_EQ(r.programs[0].work.flops, 4 * 2);
  EXPECT_EQ(r.programs[0].work.tasks, 2 + 2 + 1 + 1);
}

TEST(Report, APeakCountsTheFramesOfCallees) {
  const Report r = report_of(
      replaced(replaced(branch(), "frame 384 bound 320\n",
                        "frame 384 bound 320\n  buffer \"x\" offset 64 bytes 64 steps 1 3\n"
                        "  buffer \"frame of f\" offset 128 bytes 64 steps 2 3\n"
                        "  buffer \"a\" offset 192 bytes 64 steps 2 4\n"),
               "  0 sync kernel cpu.neg",
               "  buffer \"then.t\" offset 0 bytes 64 steps 0 2\n  0 sync kernel cpu.neg"));
  EXPECT_EQ(r.memories[0].peak_live, 3 * 64);
  for (const FunctionTimeline& f : r.functions) {
    for (const LiveBuffer& b : f.buffers) EXPECT_NE(b.name, "frame of f");
  }
}

TEST(Report, AMessageStartsItsReaderAndAFullChannelStopsItsSender) {
  const Report r = report_of(replaced(two_devices(), "capacity 2", "capacity 1"));
  const Trace& t = r.programs[0].trace;
  EXPECT_TRUE(t.complete);
  // Five kernels of device 1, one after the other. The messages take no time.
  EXPECT_NEAR(t.seconds, 5 * 2, 1e-9);
  double waits = 0;
  for (const Event& e : t.events) {
    if (e.kind == Event::Activity::kWait && e.device == 0) waits += e.end - e.begin;
  }
  // Device 0 sends message 2 after message 1 has left its slot, and so on.
  EXPECT_NEAR(waits, 3 * 2, 1e-9);
  ASSERT_EQ(r.programs[0].messages.size(), 1u);
  EXPECT_EQ(r.programs[0].messages[0].messages, 5);
}

TEST(Report, ATraceIsCutAtItsMostEvents) {
  const Trace t = report_of(carried_ring(), 100).programs[0].trace;
  EXPECT_EQ(t.events.size(), 100u);
  EXPECT_FALSE(t.complete);
}

TEST(Report, TransfersOnIoQueuesAreBesideKernels) {
  const Report r = report_of(overlapped_loop());
  std::set<int32_t> queues;
  for (const Event& e : r.programs[0].trace.events) queues.insert(e.queue);
  EXPECT_EQ(queues, (std::set<int32_t>{0, 1, 2}));
  EXPECT_EQ(r.remote_buffers, (std::vector<std::string>{"acts", "out"}));
}

TEST(Report, ATransferIsHiddenWhileItsDeviceComputes) {
  // The body loads an entry during its kernel, and stores one after it. All of main is exposed.
  const Report r = report_of(overlapped_loop());
  using ReportRow = std::tuple<std::string, exe::TransferKind, int64_t, double, double>;
  std::vector<ReportRow> rows;
  for (const Overlap& o : r.programs[0].overlaps)
    rows.emplace_back(r.remote_buffers[static_cast<size_t>(o.object)], o.kind, o.transfers,
                      o.hidden, o.exposed);
  EXPECT_EQ(rows, (std::vector<ReportRow>{{"acts", exe::TransferKind::kRemoteLoad, 6, 5, 1},
                                          {"out", exe::TransferKind::kRemoteLoad, 1, 0, 1},
                                          {"out", exe::TransferKind::kRemoteStore, 6, 0, 6}}));
}

TEST(Report, EntriesHaveTheStepsThatAccessThem) {
  const Report r = report_of(overlapped_loop());
  const RemoteAccesses& a = r.programs[0].accesses;
  EXPECT_TRUE(a.complete);
  using ReportRow = std::tuple<int32_t, int64_t, int32_t, int32_t, int64_t, int64_t, int64_t>;
  std::vector<ReportRow> rows;
  for (const RemoteAccess& x : a.rows)
    rows.emplace_back(x.buffer, x.entry, x.function, x.step, x.iteration, x.trips, x.count);
  std::vector<ReportRow> expected{{0, 0, 1, 0, 0, 1, 1}};
  for (int i = 0; i < 5; ++i) {
    expected.push_back({0, i + 1, 0, 0, i, 5, 1});
    expected.push_back({1, i, 0, 2, i, 5, 1});
  }
  expected.push_back({1, 5, 1, 4, 0, 1, 1});
  expected.push_back({1, 5, 1, 5, 0, 1, 1});
  EXPECT_EQ(rows, expected);
  EXPECT_EQ(r.remote_entries, (std::vector<int64_t>{6, 6}));
}

TEST(Report, ALongLoopLeavesAccessesOut) {
  const std::string many = replaced(overlapped_loop(), "index it\n", "index 0\n");
  const RemoteAccesses all = report_of(many).programs[0].accesses;
  EXPECT_TRUE(all.complete);
  EXPECT_EQ(all.rows[1].count, 5);  // All iterations share a row.
  exe::Executable e = plan(many);
  for (exe::Step& step : e.functions[exe::FunctionId(1)].steps) {
    if (auto* loop = std::get_if<exe::Loop>(&step.body)) loop->trips = int64_t{1} << 40;
  }
  EXPECT_FALSE(remote_accesses(e, e.programs[0]).complete);
}

TEST(Report, CollectivesAreCountedByOp) {
  const Report r = report_of(collectives());
  int64_t count = 0;
  for (const CollectiveBytes& c : r.programs[0].collectives) count += c.collectives;
  EXPECT_EQ(r.replicas, 4);
  EXPECT_EQ(r.programs[0].collectives.size(), 2u);
  EXPECT_EQ(count, 3 * 2);
}

// tests/counts counts the instructions of this test, which grow with the events.
TEST(Report, WritesAHundredThousandEvents) {
  Report r = report_of(train_step());
  Trace& t = r.programs[0].trace;
  const Event event = t.events[0];
  for (int i = static_cast<int>(t.events.size()); i < 100'000; ++i) {
    t.events.push_back(event);
    t.events.back().begin = 1e-5 * i;
    t.events.back().end = 1e-5 * (i + 1);
  }
  for (const std::string& text : {to_json(r), to_html(r)}) {
    EXPECT_GT(text.size(), 100'000u * 20);
    EXPECT_LT(text.size(), 100'000u * 100);
  }
}

// Number and bytes of steps, by their kind.
using Sums = std::map<std::string, std::pair<int64_t, int64_t>>;

// A trace omits steps without duration, so copies take time here.
TEST(Report, ATraceHasThePlannedTransfersMessagesAndCollectives) {
  std::set<std::string> seen;
  for (const std::string& text : plans()) {
    const Report r = report_of(text, kMaxEvents, 64);
    for (const ProgramReport& p : r.programs) {
      Sums planned;
      const auto add = [](Sums& sums, const std::string& kind, int64_t count, int64_t bytes) {
        if (count == 0) return;
        sums[kind].first += count;
        sums[kind].second += bytes;
      };
      for (const Traffic& t : p.transfers)
        add(planned, std::string(exe::word(t.kind)), t.transfers, t.bytes);
      for (const Messages& m : p.messages) add(planned, "send", m.messages, m.bytes);
      for (const CollectiveBytes& c : p.collectives) {
        add(planned, "collective", c.collectives, 0);  // A step counts updated operands twice.
      }
      if (!p.trace.complete) continue;  // Its loop has more iterations than a trace has events.
      Sums traced;
      for (const Event& e : p.trace.events) {
        if (e.kind != Event::Activity::kStep) continue;
        const StepReport& s = at(r.functions[e.function].steps, e.step);
        if (s.kind.rfind("stream_", 0) == 0 || s.kind.rfind("remote_", 0) == 0 ||
            s.kind == "send" || s.kind == "collective")
          add(traced, s.kind, 1, s.kind == "collective" ? 0 : s.bytes);
      }
      EXPECT_EQ(traced, planned) << p.name << text;
      for (const auto& [kind, sums] : planned) seen.insert(kind);
    }
  }
  EXPECT_EQ(seen, (std::set<std::string>{"collective", "remote_load", "remote_store", "send",
                                         "stream_in", "stream_out"}));
}

TEST(Report, HtmlHasNoMarkupFromNames) {
  Report r = report_of(train_step());
  r.model = "</script><b>";
  const std::string page = to_html(r);
  EXPECT_EQ(page.find("</script><b>"), std::string::npos);
  EXPECT_NE(page.find("\\u003c/script>\\u003cb>"), std::string::npos);
  EXPECT_EQ(page.find("/*REPORT*/"), std::string::npos);
  for (const char* const word : {"http://", "https://"}) {
    for (size_t at = page.find(word); at != std::string::npos; at = page.find(word, at + 1))
      EXPECT_EQ(page.substr(at, 18), "http://www.w3.org/");  // The name of SVG, not an address.
  }
}

// A run in which two workers execute the tasks of step 2, and one of them waits.
std::vector<MeasuredRun> measured_in(const exe::Executable& e, double second) {
  MeasuredRun run;
  run.program = e.programs[0].name;
  const auto add = [&](Event::Activity kind, int32_t step, double begin, double end,
                       int32_t worker) {
    const int32_t queue = step == 0 ? 1 : 0;  // The transfer is on the I/O queue.
    run.trace.events.push_back({kind, exe::DeviceId(0), queue, exe::FunctionId(0), step,
                                begin * second, end * second, worker});
  };
  add(Event::Activity::kStep, 0, 0, 3, 0);  // A transfer of which a second is hidden.
  add(Event::Activity::kStep, 2, 2, 6, 0);
  add(Event::Activity::kStep, 2, 2, 4, 1);
  add(Event::Activity::kWait, 3, 4, 6, 1);
  run.trace.seconds = 6 * second;
  add_times(e, run);
  return {run};
}

TEST(MeasuredTimes, AreTheMinimumOfSeveralRuns) {
  const exe::Executable e = plan(train_step());
  std::vector<MeasuredRun> runs;
  for (const double second : {3, 1, 2}) merge_runs(runs, measured_in(e, second));
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].runs, 3);
  EXPECT_EQ(runs[0].seconds, 6);
  EXPECT_EQ(runs[0].trace.seconds, 12);  // The events are those of the last run.
  ASSERT_EQ(runs[0].steps.size(), 2u);
  EXPECT_EQ(runs[0].steps[1].seconds, 3);  // The mean of the two workers.
  EXPECT_EQ(runs[0].devices.front().transfers, 3);
  EXPECT_EQ(runs[0].devices.front().exposed, 2);
  EXPECT_EQ(runs[0].devices.front().waits, 2.0 / e.devices[exe::DeviceId(0)].workers);

  Report r = report_of(train_step());
  const ProgramReport before = r.programs[0];
  EXPECT_EQ(before.measured_runs, 0);
  EXPECT_EQ(before.devices.front().kernels, 4);
  EXPECT_EQ(before.devices.front().measured, -1);
  add_measured(runs, r);
  const ProgramReport& p = r.programs[0];
  EXPECT_EQ(p.measured_runs, 3);
  EXPECT_EQ(p.measured_seconds, 6);
  EXPECT_EQ(p.kernels.size(), before.kernels.size());
  EXPECT_EQ(p.kernels[0].step, 2);
  EXPECT_EQ(p.kernels[0].measured, 3.0 * static_cast<double>(p.kernels[0].runs));
  EXPECT_EQ(p.kernels[1].measured, -1);
  EXPECT_EQ(p.devices.front().measured, p.kernels[0].measured);
  EXPECT_EQ(p.devices.front().exposed, 2);
}

TEST(MeasuredTimes, HaveNoSumsWhereEventsWereLost) {
  const exe::Executable e = plan(train_step());
  std::vector<MeasuredRun> runs = measured_in(e, 1);
  runs[0].trace.complete = false;
  add_times(e, runs[0]);
  EXPECT_EQ(runs[0].seconds, -1);
  EXPECT_TRUE(runs[0].devices.empty());
  EXPECT_EQ(runs[0].steps.size(), 2u);  // A mean needs not all events.
  merge_runs(runs, measured_in(e, 2));
  EXPECT_EQ(runs[0].seconds, 12);
  EXPECT_EQ(runs[0].steps[1].seconds, 3);
}

TEST(MeasuredTimes, CountTheRunsOfEachKernel) {
  const Report r = report_of(overlapped_loop());
  const ProgramReport& p = r.programs[0];
  int64_t runs = 0;
  double forecast = 0;
  for (const KernelTime& k : p.kernels) {
    runs += k.runs;
    forecast += k.forecast;
  }
  EXPECT_GT(runs, static_cast<int64_t>(p.kernels.size()));  // A loop repeats some.
  EXPECT_EQ(p.devices.front().kernels, runs);
  EXPECT_DOUBLE_EQ(p.devices.front().forecast, forecast);
}

}  // namespace
}  // namespace sluice::report
