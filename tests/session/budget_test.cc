// A run fits in a budget equal to its peak. With one byte less, the error contains both numbers.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "../support/mlp.h"
#include "sluice/compiler/compile.h"
#include "sluice/exe/budget/does_not_fit.h"
#include "sluice/exe/memory_needs.h"
#include "sluice/report/plan_report.h"
#include "sluice/session/fit.h"

namespace sluice::test {
namespace {

using testing::HasSubstr;

SessionOptions with_memory(int64_t bytes, int threads = 1) {
  return {.device = cpu_device({.memory = bytes, .threads = threads})};
}

TEST(Budget, RunsAtThePeakWithTheSameBits) {
  const MlpProgram p;
  Session free(p.ir, with_memory(-1));
  const int64_t peak = free.planned_bytes();
  EXPECT_GT(peak, 0);
  EXPECT_EQ(peak, free.measured_bytes());
  Session tight(p.ir, with_memory(peak));
  EXPECT_EQ(tight.planned_bytes(), peak);
  EXPECT_EQ(tight.measured_bytes(), peak);
  EXPECT_EQ(train(free, p, 20), train(tight, p, 20));
  EXPECT_EQ(all_bytes(free), all_bytes(tight));
}

TEST(Budget, RefusesOneByteLessWithFigures) {
  const MlpProgram p;
  const int64_t peak = Session(p.ir, with_memory(-1)).planned_bytes();
  const std::string what =
      error_of(ErrorKind::kDoesNotFit, [&] { Session(p.ir, with_memory(peak - 1)); });
  // The message names the bytes that the plan needs, and the budget that was given.
  EXPECT_THAT(what, HasSubstr(std::to_string(peak)));
  EXPECT_THAT(what, HasSubstr(std::to_string(peak - 1)));
  EXPECT_THAT(what, HasSubstr("smallest budget"));
  EXPECT_THAT(what, HasSubstr("live-set bound"));
  EXPECT_THAT(what, HasSubstr("layer0.fc.weight"));  // A tensor that is live at the peak.
  try {
    Session(p.ir, with_memory(peak - 1));
    FAIL() << "it fits";
  } catch (const DoesNotFit& e) {
    EXPECT_EQ(e.memory().smallest_budget(), peak);
    EXPECT_EQ(e.memory().budget_bytes, peak - 1);
    EXPECT_LE(e.memory().bound_bytes, peak);
    EXPECT_THAT(e.memory().peak_objects,
                testing::Contains(testing::Field(&exe::PeakObject::name, "layer0.fc.weight")));
  }
  error_of(ErrorKind::kDoesNotFit, [&] { Session(p.ir, with_memory(0)); });
  error_of(ErrorKind::kUsage, [&] { Session(p.ir, with_memory(-2)); });
}

TEST(Budget, AnErrorNamesHoldersAsTheSummary) {
  const MlpProgram p;
  const Session session(p.ir, with_memory(-1));
  std::map<std::string, std::string> kinds;  // Keyed by name.
  const report::PlanReport summarised = report::plan_report(session.executable(), 1000);
  for (const report::PeakObjectGroup& h : summarised.shares[0].peak_objects)
    kinds[h.model_name] = h.kind;
  try {
    Session(p.ir, with_memory(64));
    FAIL() << "it fits";
  } catch (const DoesNotFit& e) {
    const std::string text = e.what();
    ASSERT_FALSE(e.memory().peak_objects.empty());
    for (const exe::PeakObject& h : e.memory().peak_objects)
      EXPECT_EQ(kinds[h.contents.name], h.contents.kind) << h.contents.name;
    for (size_t i = 0; i < 6; ++i) {
      const exe::PeakObject& h = e.memory().peak_objects.at(i);
      EXPECT_THAT(text, HasSubstr(fmt::format("\n    {:>12} B  {}", h.bytes, h.contents.name)));
    }
  }
  // An activation that a gradient reads and overwrites counts as a forward value.
  EXPECT_EQ(kinds["layer0, gelu_slope output (forward)"], "activations");
  const exe::MemoryNeeds needs = exe::memory_needs(session.executable(), 1000)[0];
  for (const exe::PeakObject& h : needs.peak_objects) {
    if (h.contents.kind != "activations") continue;
    EXPECT_EQ(h.kind, "buffer");
    EXPECT_EQ(h.provenance->role, OpRole::kForward) << h.contents.name;
    EXPECT_NE(h.provenance->op, "");
  }
}

TEST(Budget, CountsTheWorkspaceOfEachWorker) {
  const MlpProgram p;
  const int64_t one = Session(p.ir, with_memory(-1, 1)).planned_bytes();
  const int64_t three = Session(p.ir, with_memory(-1, 3)).planned_bytes();
  EXPECT_GE(three, one);
  error_of(ErrorKind::kDoesNotFit, [&] { Session(p.ir, with_memory(three - 1, 3)); });
}

TEST(Budget, PeakIsTheLiveSetBoundOnTheMlp) {
  for (const Layers style : {Layers::kInlined, Layers::kOutlined}) {
    const MlpProgram p({.layers = 3, .width = 512, .style = style});
    Session session(p.ir, with_memory(-1, 2));
    const exe::MemoryNeeds memory = exe::memory_needs(session.executable())[0];
    std::cout << fmt::format("{}: peak {} B, bound {} B, ratio {:.4f}\n",
                             style == Layers::kInlined ? "inlined" : "outlined", memory.total_bytes,
                             memory.bound_bytes, memory.ratio);
    EXPECT_LT(memory.ratio, 1.005);
    EXPECT_EQ(memory.total_bytes, session.measured_bytes());
  }
}

TEST(Budget, ChoosesTheFirstRungThatFits) {
  std::vector<int> built;
  const auto rung = [&](int width, int64_t memory) {
    return Rung{
        std::to_string(width), [&built, width, memory] {
          built.push_back(width);
          return RungProgram{MlpProgram({.layers = 2, .width = width}).ir, with_memory(memory)};
        }};
  };
  const int64_t budget = Session(rung(32, -1).build().ir, with_memory(-1)).planned_bytes();
  built.clear();
  Fit fit = find_fit({.rungs = {rung(48, budget), rung(32, budget), rung(16, budget)}});
  EXPECT_EQ(built, (std::vector<int>{48, 32}));
  ASSERT_EQ(fit.chosen, size_t{1});
  ASSERT_EQ(fit.tried.size(), 2u);
  EXPECT_EQ(fit.tried[1].device_bytes, budget);
  EXPECT_EQ(fit.tried[1].saved_bytes, fit.tried[0].device_bytes - budget);
  Session session(fit.program.ir, std::move(*fit.compiled), fit.program.session);
  EXPECT_EQ(session.measured_bytes(), budget);
}

TEST(Budget, AdviceIsTriedIfNoRungFits) {
  const auto rung = [](int width, int64_t memory) {
    return Rung{
        std::to_string(width), [width, memory] {
          return RungProgram{MlpProgram({.layers = 2, .width = width}).ir, with_memory(memory)};
        }};
  };
  const Rung fails{"fails", []() -> RungProgram { fail(ErrorKind::kUsage, "no such program"); }};
  Fit fit = find_fit({.rungs = {rung(32, 8)}, .advice = {rung(32, 8), rung(16, -1), fails}});
  EXPECT_FALSE(fit.chosen);
  EXPECT_EQ(fit.advised, size_t{1});
  EXPECT_EQ(fit.program.session.device.memory, 8);
  EXPECT_FALSE(find_fit({.rungs = {rung(32, 8)}, .advice = {fails, rung(16, -1)}}).advised);
  error_of(ErrorKind::kUsage, [&] { find_fit({.rungs = {rung(32, 8), fails}}); });
}

// The files of a system in a folder of their own.
class MachineMemory : public testing::Test {
 protected:
  MachineMemory() { ::setenv("SLUICE_SYSTEM_ROOT", root_.c_str(), 1); }
  ~MachineMemory() override {
    ::unsetenv("SLUICE_SYSTEM_ROOT");
    std::filesystem::remove_all(root_);
  }
  void write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file(root_ + path);
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text << "\n";
  }
  const std::string root_ = testing::TempDir() + "budget_test_system";
};

TEST_F(MachineMemory, AProgramThatNeedsMoreIsRefusedWhenItsSessionOpens) {
  const MlpProgram p;
  const int64_t peak = Session(p.ir, with_memory(-1)).planned_bytes();
  const auto refused = [&](int64_t available, const std::string& part) {
    try {
      Session(p.ir, with_memory(-1));
      ADD_FAILURE() << "it fits";
    } catch (const DoesNotFit& e) {
      EXPECT_THAT(e.what(), HasSubstr(part));
      EXPECT_EQ(e.memory().budget_bytes, available);
      EXPECT_GE(e.memory().total_bytes, peak);
    }
  };
  write("/proc/meminfo", fmt::format("MemAvailable: {} kB", (peak - 1) / 1024));
  refused((peak - 1) / 1024 * 1024, "which the machine has available, got ");
  // The plan is the same as on any other machine.
  EXPECT_EQ(compile(p.ir, compile_options(with_memory(-1))).memories[0].total_bytes, peak);
  write("/proc/meminfo", fmt::format("MemAvailable: {} kB", 2 * peak / 1024));
  EXPECT_EQ(Session(p.ir, with_memory(-1)).measured_bytes(), peak);
  write("/proc/self/cgroup", "0::/");
  write("/proc/self/mountinfo", "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw");
  write("/sys/fs/cgroup/memory.max", "4096");
  refused(4096, "which the control group leaves to this process, got ");
}

TEST(Budget, OfTheHostTierIsItsOwn) {
  Ir ir;
  Graph& main = ir.main_graph();
  const RemoteBuffer buffer = ir.remote_buffer(f32_spec({100}), 3);
  const Tensor x = main.variable(f32_spec({100}), Initializer::constant(1), "x");
  main.remote_store(buffer, 1, x);
  const int64_t needed = 3 * 448;  // Entries are padded to 64 bytes.
  Session fits(ir, {.device = cpu_device({.threads = 1}), .remote_memory = needed});
  const std::string what = error_of(ErrorKind::kDoesNotFit, [&] {
    Session(ir, {.device = cpu_device({.threads = 1}), .remote_memory = needed - 1});
  });
  EXPECT_THAT(what, HasSubstr("host"));
  EXPECT_THAT(what, HasSubstr(std::to_string(needed)));
}

}  // namespace
}  // namespace sluice::test
