#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "sluice/report/plan_report.h"

namespace sluice::report {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

int64_t columns(const std::string& line) {
  return std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xC0) != 0x80; });
}

// A memory with `peak_objects` objects of 100 bytes, and one kind for each.
void add_memory(PlanReport& report, const std::string& name, int32_t device, int peak_objects,
                int64_t budget = -1) {
  exe::MemoryNeeds needs;
  needs.name = name;
  needs.device = exe::DeviceId(device);
  needs.total_bytes = 100 * peak_objects;
  needs.bound_bytes = needs.total_bytes;
  needs.budget_bytes = budget;
  report.memories.push_back(needs);
  MemoryShares shares;
  for (int i = 0; i < peak_objects; ++i) {
    shares.kinds.push_back({"kind " + std::to_string(i), 100});
    shares.peak_objects.push_back({"fc." + std::to_string(i) + ".weight", "variables", 100});
  }
  report.shares.push_back(shares);
}

TEST(Summary, AnswersWhetherEachMemoryFits) {
  PlanReport report;
  add_memory(report, "device 0 (cpu)", 0, 20);
  EXPECT_EQ(lines_of(summary(report))[0],
            "fits: no budget is given; smallest budget: device 0 2,000 bytes");
  add_memory(report, "tier host", -1, 30, 3000);
  EXPECT_EQ(
      lines_of(summary(report))[0],
      "fits: yes (tier host 3,000 of 3,000 bytes); smallest budget: device 0 2,000, tier host "
      "3,000 bytes");
  report.memories[0].budget_bytes = 1999;
  const std::vector<std::string> lines = lines_of(summary(report));
  EXPECT_EQ(lines[0].substr(0, 41), "fits: no (device 0 2,000 of 1,999 bytes);");
}

TEST(Summary, NamesHostMemoryThatThePlanDoesNotHave) {
  PlanReport report;
  add_memory(report, "device 0 (cpu)", 0, 2);
  report.host_buffers = {{"copy of the variables for checkpoints", 1234567}};
  const std::string line = "host memory: 1,234,567 bytes, copy of the variables for checkpoints";
  for (const std::string& text : {summary(report), memory_map(report)}) {
    const std::vector<std::string> lines = lines_of(text);
    EXPECT_EQ(std::count(lines.begin(), lines.end(), line), 1) << text;
  }
}

TEST(Summary, DrawsKindsAndNamesHolders) {
  PlanReport report;
  add_memory(report, "device 0 (cpu)", 0, 2);
  report.shares[0].kinds = {{"variables", 150}, {"workspace", 50}};
  report.shares[0].peak_objects = {{"fc1.weight, accumulator", "accumulators", 150}};
  const std::string text = summary(report);
  EXPECT_NE(text.find("  #########... 150 variables"), std::string::npos) << text;
  EXPECT_NE(text.find("  ###.........  50 workspace"), std::string::npos) << text;
  EXPECT_NE(text.find("| 150 fc1.weight, accumulator\n"), std::string::npos) << text;
}

TEST(Summary, SumsTheKindsThatHaveNoRow) {
  PlanReport report;
  add_memory(report, "device 0 (cpu)", 0, 9);
  EXPECT_NE(summary(report).find("400 4 other kinds"), std::string::npos) << summary(report);
}

TEST(Summary, FitsAScreenWhateverThePlan) {
  for (const int memories : {1, 2, 3, 8, 40}) {
    PlanReport report;
    Outlook outlook{.machine = std::string(200, 'm'), .offload = std::string(200, 'o')};
    for (int m = 0; m < memories; ++m)
      add_memory(report, "device " + std::to_string(m) + " (cpu)", m, 10, 50);
    report.shares[0].peak_objects[0].model_name = "a … " + std::string(200, 'b');
    for (int f = 0; f < 20; ++f) report.functions.push_back({.name = "f", .model_name = "fc … fc"});
    for (int p = 0; p < 5; ++p) {
      const std::string program = "program " + std::to_string(p);
      report.transfers.push_back({program, "streams", "io", 1, 2, 3, 4});
      outlook.forecasts.push_back({program, 0.5, {}});
    }
    for (int s = 0; s < 9; ++s) outlook.suggestions.push_back({"--option"});
    outlook.closing = "the end";
    const std::vector<std::string> lines = lines_of(summary(report, outlook));
    EXPECT_LE(lines.size(), memories == 1 ? 25u : 25u + 4 * static_cast<size_t>(memories));
    for (const std::string& line : lines) EXPECT_LE(columns(line), 100) << line;
    EXPECT_EQ(lines.back(), "the end");
    EXPECT_EQ(lines[0].substr(0, 8), "fits: no");
  }
}

TEST(Summary, ShowsPhasesInOrderAndLeavesOutTheMiddle) {
  PlanReport report;
  report.blocks = {{"train", {"in fwd", "out fwd", "out bwd", "in bwd"}}};
  EXPECT_EQ(summary(report).find("phases"), std::string::npos);
  report.phased = true;
  EXPECT_EQ(summary(report).substr(summary(report).find("phases")),
            "phases of 'train': in fwd, out fwd, out bwd, in bwd\n");
  for (const std::string part : {"fwd", "bwd"}) {
    for (int i = 0; i < 9; ++i)
      report.blocks[0].parts.push_back(fmt::format("block{} {}", i, part));
  }
  EXPECT_EQ(summary(report).substr(summary(report).find("phases")),
            "phases of 'train': in fwd, out fwd, out bwd, …, block6 bwd, block7 bwd, block8 bwd\n");
  report.blocks[0].parts = {std::string(200, 'a') + " fwd", std::string(200, 'a') + " bwd"};
  for (const std::string& line : lines_of(summary(report))) EXPECT_LE(columns(line), 100) << line;
  EXPECT_NE(memory_map(report).find("phases of 'train', in order: aaa"), std::string::npos);
}

TEST(Summary, ShowsWhatAStepMovesAndCosts) {
  PlanReport report;
  report.transfers = {{"eval", "streams", "io", 1, 7, 1, 7},
                      {"train", "streams", "io", 1, 10, 1, 1},
                      {"train", "tier host", "load", 2, 1000, 0, 0},
                      {"train", "tier host", "store", 0, 0, 3, 2000}};
  Outlook outlook;
  outlook.forecasts = {{"eval", 1, {}}, {"train", 0.5, {{"tier host", 3000, 0.25, 0.125}}}};
  outlook.machine = "2 GF/s";
  const std::string text = summary(report, outlook);
  EXPECT_NE(
      text.find("a run of 'train' moves: streams 10 in, 1 out; tier host 1,000 in, 2,000 out\n"),
      std::string::npos)
      << text;
  EXPECT_NE(text.find("a run of 'train' is forecast to take 500.000 ms; transfers 250.000 ms, of "
                      "which 125.000 ms exposed\n  at 2 GF/s\n"),
            std::string::npos)
      << text;
  EXPECT_EQ(text.find("'eval'"), std::string::npos);
}

TEST(Summary, NamesTheOperatorsOnReferenceKernels) {
  PlanReport report;
  EXPECT_EQ(summary(report).find("reference"), std::string::npos);
  report.reference_steps = {{"ArgMax", 1200}, {"MatMul", 1}};
  EXPECT_NE(summary(report).find("on reference kernels, which are slow: ArgMax (1,200 steps), "
                                 "MatMul (1 step)\n"),
            std::string::npos)
      << summary(report);
}

TEST(Summary, ListsTheLargestFramesAndTheOptionsThatSave) {
  PlanReport report;
  for (const int64_t bytes : {10, 4000, 30, 2000})
    report.functions.push_back({.name = "raw",
                                .model_name = "fc." + std::to_string(bytes),
                                .steps = 2,
                                .frame_bytes = bytes});
  Outlook outlook;
  outlook.suggestions = {{"--offload optimizer", 1000, 2000}, {"--recompute"}};
  const std::string text = summary(report, outlook);
  EXPECT_NE(text.find("4,000 fc.4000, 2 steps\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("fc.10,"), std::string::npos);
  EXPECT_EQ(text.find("raw"), std::string::npos);
  EXPECT_NE(
      text.find("smaller with --offload optimizer: 1,000 bytes on the device, 2,000 in tiers\n"
                "             --recompute (bytes not computed)\n"),
      std::string::npos)
      << text;
}

}  // namespace
}  // namespace sluice::report
