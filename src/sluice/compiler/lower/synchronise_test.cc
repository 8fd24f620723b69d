#include "sluice/compiler/lower/synchronise.h"

#include <gtest/gtest.h>

#include <utility>

#include "sluice/compiler/lower/test_lowering.h"

namespace sluice::compiler {
namespace {

// For each step of "main", "1" if it has a barrier, "0" otherwise. Kernels have `tasks` tasks of
// one row each.
std::string barriers(const std::string& nodes, int64_t tasks, const std::string& others = "") {
  TestProgram p("body main entry\nvariable 0 %0 f32(8,16)\nvariable 1 %1 f32(8,16)\n" + nodes +
                "\nend" + others);
  p.ir.remote_buffer({{8, 16}, f32, {}}, 4);
  p.target->kernel = [=](const OpView& op) {
    KernelChoice choice{.key = "k", .tasks = tasks};
    if (op.def().type == "Softmax") choice.task_stride = {64, 64};
    return choice;
  };
  exe::Function& main = lower(p).functions.back();
  synchronise(main);
  std::string flags;
  for (const exe::Step& step : main.steps) flags += step.sync ? '1' : '0';
  return flags;
}

constexpr const char* kChain = R"(
    kernel Neg in %0 out %2 f32(8,16)
    kernel Neg in %2 out %3 f32(8,16)
    kernel Neg in %1 out %4 f32(8,16)
    kernel Sum in %2 %3 %4 out %5 f32(8,16))";

TEST(Synchronise, OnlyAStepThatConflictsWithAnEarlierOneHasABarrier) {
  EXPECT_EQ(barriers(kChain, 4), "1101");
}

TEST(Synchronise, SingleTasksFollowEachOtherOnOneWorker) { EXPECT_EQ(barriers(kChain, 1), "1000"); }

TEST(Synchronise, TasksOfEqualCutsNeedNone) {
  EXPECT_EQ(barriers(R"(
    kernel Softmax in %0 out %2 f32(8,16)
    kernel Softmax in %2 out %3 f32(8,16))",
                     8),
            "10");
}

TEST(Synchronise, AWriteWaitsForReaders) {
  EXPECT_EQ(barriers(R"(
    kernel Neg in %0 out %2 f32(8,16)
    kernel Neg in %1 out %3 f32(8,16)
    kernel AddLhsInplace in %0 %1 out %4 f32(8,16) tie 0 %0
    kernel Sum in %2 %3 out %5 f32(8,16)
    last 0 %4)",
                     4),
            "1010");
}

TEST(Synchronise, WhatACallDidIsUnknown) {
  EXPECT_EQ(barriers(R"(
    kernel Neg in %0 out %2 f32(8,16)
    call 1 in %1
    kernel Neg in %1 out %3 f32(8,16))",
                     4, "\nbody f function\nparam %0 f32(8,16)\nend"),
            "101");
}

// Whether a kernel that reads bytes of base `b` has a barrier after one that wrote those of `a`.
bool separates(exe::Address::Base a, exe::Address::Base b) {
  exe::Function function;
  for (const auto& [base, access] : {std::pair{a, exe::Access::kWrite}, {b, exe::Access::kRead}}) {
    exe::Operand operand;
    operand.at.base = base;
    operand.bytes = 64;
    operand.access = access;
    exe::Kernel kernel;
    kernel.tasks = 4;
    kernel.operands = {operand};
    exe::Step step;
    step.body = kernel;
    function.steps.push_back(step);
  }
  synchronise(function);
  return function.steps[1].sync;
}

// An argument may lie in an arena, but never in the frame of its function.
TEST(Synchronise, AParameterMayBeBytesOfAnArena) {
  using Base = exe::Address::Base;
  EXPECT_TRUE(separates(Base::kParam, Base::kArena));
  EXPECT_TRUE(separates(Base::kArena, Base::kParam));
  EXPECT_FALSE(separates(Base::kParam, Base::kFrame));
  EXPECT_FALSE(separates(Base::kFrame, Base::kArena));
}

TEST(Synchronise, BytesOfATransferAreTouchedAtItsWait) {
  EXPECT_EQ(barriers(R"(
    kernel Neg in %0 out %3 f32(8,16)
    transfer - remote_load 1 io at 0 queue 1 token 0 out %2 f32(8,16)
    kernel Neg in %1 out %4 f32(8,16)
    wait - queue 1 token 0 in %2
    kernel Sum in %2 %3 %4 out %5 f32(8,16))",
                     4),
            "10001");
}

}  // namespace
}  // namespace sluice::compiler
