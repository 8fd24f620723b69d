#include "sluice/compiler/lower/kernels.h"

#include <gtest/gtest.h>

#include "sluice/base/test_refusals.h"
#include "sluice/compiler/test_bodies.h"

namespace sluice::compiler {
namespace {

TEST(Kernels, EachKindOfNodeAsksTheTarget) {
  TestProgram p(R"(
    body main entry
      param %0 f32(4)
      kernel Neg in %0 out %1 f32(4)
      kernel Neg in %1 out %2 f32(4)
        stage Neg f32(4) to -1 from 0
        stage Neg f32(4) to 1 from -1
      copy in %2 out %3 f32(4)
      index 3 out %4 i32()
      view in %3 out %5 f32(4)
    end)");
  LoweredBody lowered;
  EXPECT_EQ(choose_kernels(p.body(), *p.target, lowered), 5);
  std::vector<std::string> keys;
  for (const KernelChoice& choice : lowered.choices) keys.push_back(choice.key);
  EXPECT_EQ(keys, (std::vector<std::string>{"test.Neg", "test.fused2", "test.copy row row",
                                            "test.index", ""}));
  EXPECT_EQ(lowered.choices[NodeId(0)].flops, 4);
  EXPECT_EQ(lowered.choices[NodeId(1)].flops, 2 * 4);
  EXPECT_EQ(lowered.choices[NodeId(2)].flops, 0);
}

TEST(Kernels, CopiesThatStorageAddedGetTheirKernels) {
  TestProgram p(R"(
    body main entry
      variable 0 %0 f32(4,4) layout panels32
      view in %0 out %2 f32(4,4)
      copy in %0 out %1 f32(4,4)
    end)");
  LoweredBody lowered;
  lowered.choices.resize(2);
  EXPECT_EQ(choose_copies(p.body(), *p.target, lowered), 1);
  EXPECT_EQ(lowered.choices[NodeId(0)].key, "");
  EXPECT_EQ(lowered.choices[NodeId(1)].key, "test.copy panels32 row");
}

TEST(Kernels, ARefusalNamesTheOpAndItsPlace) {
  TestProgram p(R"(
    body main entry
      param %0 f32(4)
      kernel Neg in %0 out %1 f32(4) origin 7 where "line 3"
    end)");
  p.target->kernel = [](const OpView&) -> KernelChoice { fail(ErrorKind::kUsage, "none"); };
  LoweredBody lowered;
  expect_refused({{"none", [&] { choose_kernels(p.body(), *p.target, lowered); },
                   "choosing a kernel for Neg.7 made at line 3"}});
}

}  // namespace
}  // namespace sluice::compiler
