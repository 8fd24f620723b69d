#include "sluice/compiler/passes/fusion/layouts.h"

#include <gtest/gtest.h>

#include "sluice/compiler/test_bodies.h"

namespace sluice::compiler {
namespace {

class Layouts : public testing::Test {
 protected:
  // Runs the pass on a target whose products read operand 1 fastest in panels of 32 columns.
  void run(const std::string& text, int devices = 1) {
    program_ = std::make_unique<TestProgram>(text, std::vector<int32_t>{}, devices);
    program_->target->panels = true;
    program_->target->wish = [](const FusedOp& op, int operand) {
      return op.stages[0].op->type == "MatMul" && operand == 1 ? parse_layout("panels32")
                                                               : Layout{};
    };
    chosen_ = choose_layouts(program_->program, program_->context);
    verify(program_->program, "layouts");
  }
  Layout of(int32_t value, int32_t body = 0) const {
    return program_->body(body).value(ValueIndex(value)).layout;
  }
  const Layout kRows{};
  const Layout kPanels = parse_layout("panels32");
  std::unique_ptr<TestProgram> program_;
  int64_t chosen_ = 0;
};

TEST_F(Layouts, AWeightHasTheLayoutThatItsProductWishes) {
  run(R"(
    body main entry
      param %0 f32(2,64)
      variable 0 %1 f32(64,64)
      variable 1 %2 f32(64)
      kernel MatMul in %0 %1 out %3 f32(2,64)
      kernel Add in %3 %2 out %4 f32(2,64)
      results %4
    end)");
  EXPECT_EQ(chosen_, 1);
  EXPECT_EQ(of(1), kPanels);
  EXPECT_EQ(program_->program.variables[exe::VariableId(0)].layout, kPanels);
  EXPECT_EQ(of(2), kRows) << "it is no matrix";
  EXPECT_EQ(of(0), kRows) << "it is no variable";
}

TEST_F(Layouts, AnUpdateSpreadsTheLayoutToItsStateAndItsNewValue) {
  run(R"(
    body main entry
      param %0 f32(2,64)
      variable 0 %1 f32(64,64)
      variable 1 %2 f32(64,64)
      kernel MatMul in %0 %1 out %3 f32(2,64)
      kernel AddLhsInplace in %1 %2 out %4 f32(64,64) tie 0 %1
      results %3
      last 0 %4
    end)");
  EXPECT_EQ(chosen_, 2);
  EXPECT_EQ(of(2), kPanels);
  EXPECT_EQ(of(4), kPanels);
}

TEST_F(Layouts, AUseThatNeedsRowsDecides) {
  const auto chosen_with = [&](const std::string& use) {
    run(R"(
    body main entry
      param %0 f32(2,64)
      variable 0 %1 f32(64,64)
      kernel MatMul in %0 %1 out %3 f32(2,64)
)" + use +
        "\nend\nbody f function\nparam %0 f32(64,64)\nresults %0\nend");
    return chosen_;
  };
  EXPECT_EQ(chosen_with(""), 1);
  EXPECT_EQ(chosen_with("kernel Neg in %1 out %4 f32(64,64)"), 1);
  EXPECT_EQ(chosen_with("results %1"), 0);
  EXPECT_EQ(chosen_with("view in %1 out %4 f32(64,64)"), 0);
  EXPECT_EQ(chosen_with("kernel Neg in %1 as f32(4096) out %4 f32(4096)"), 0);
  EXPECT_EQ(chosen_with("kernel Softmax in %1 out %4 f32(64,64)"), 0);
  EXPECT_EQ(chosen_with("transfer - stream_out 1 io in %1"), 0);
  EXPECT_EQ(chosen_with("send 0 message 0 in %1"), 0);
  EXPECT_EQ(chosen_with("loop trips 2 carried 1 1 in %1 out %4 f32(64,64)"), 0);
  EXPECT_EQ(chosen_with("call 1 in %1 out %4 f32(64,64)"), 0);
  EXPECT_EQ(chosen_with("transfer - stream_in 0 io out %4 f32(64,64) tie 0 %1"), 0);
}

TEST_F(Layouts, AUseInAnotherEntryDecidesToo) {
  run(R"(
    body main entry
      param %0 f32(2,64)
      variable 0 %1 f32(64,64)
      kernel MatMul in %0 %1 out %3 f32(2,64)
      results %3
    end
    body save entry
      variable 0 %0 f32(64,64)
      results %0
    end)");
  EXPECT_EQ(chosen_, 0);
}

TEST_F(Layouts, AVariableOfAnotherDeviceStaysInRows) {
  run(R"(
    body main entry
      param %0 f32(2,64)
      variable 0 %1 f32(64,64)
      kernel MatMul in %0 %1 out %2 f32(2,64)
      results %2
    end
    body save entry device 1
      param %0 f32(2)
      variable 0 %1 f32(64,64)
      results %0
    end)",
      2);
  EXPECT_EQ(chosen_, 1);
  EXPECT_EQ(of(1), kPanels);
  EXPECT_EQ(of(1, 1), kRows) << "its device may not know the layout";
}

TEST_F(Layouts, AFunctionIsCopiedForEachCombinationOfLayouts) {
  run(R"(
    body main entry
      param %0 f32(64,64)
      variable 0 %1 f32(64,64)
      call 1 in %0 %1 out %2 f32(64,64)
      call 1 in %2 %0 out %3 f32(64,64)
      call 1 in %3 %1 out %4 f32(64,64)
      results %4
    end
    body f function
      param %0 f32(64,64)
      param %1 f32(64,64)
      kernel MatMul in %0 %1 out %2 f32(64,64)
      results %2
    end)");
  const auto& nodes = program_->body().nodes;
  EXPECT_EQ(nodes[NodeId(0)].call()->callee, nodes[NodeId(2)].call()->callee);
  EXPECT_NE(nodes[NodeId(0)].call()->callee, nodes[NodeId(1)].call()->callee);
  EXPECT_EQ(of(1, nodes[NodeId(0)].call()->callee), kPanels);
  EXPECT_EQ(of(1, nodes[NodeId(1)].call()->callee), kRows);
}

// The entry reads the weight in panels. The loop's argument, which its body reads row-major, stays
// row-major.
TEST_F(Layouts, AnArgumentThatALoopWouldConvertIsConvertedBeforeIt) {
  run(R"(
    body main entry
      param %0 f32(64,64)
      variable 0 %1 f32(64,64)
      kernel MatMul in %0 %1 out %2 f32(64,64)
      kernel Neg in %1 out %3 f32(64,64)
      loop trips 3 carried 1 1 index it in %2 %3 out %4 f32(64,64)
      results %4
    end
    body step loop_body
      index_param ?
      param %0 f32(64,64)
      param %1 f32(64,64)
      kernel Softmax in %1 out %2 f32(64,64)
      results %2
    end)");
  EXPECT_EQ(chosen_, 1);
  EXPECT_EQ(of(1, 1), kRows);
}

}  // namespace
}  // namespace sluice::compiler
