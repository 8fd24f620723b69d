// A run fits in a budget equal to its peak. With one byte less, the error contains both numbers.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../support/mlp.h"
#include "sluice/exe/memory_needs.h"

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
  error_of(ErrorKind::kDoesNotFit, [&] { Session(p.ir, with_memory(0)); });
  error_of(ErrorKind::kUsage, [&] { Session(p.ir, with_memory(-2)); });
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
