#include "sluice/compiler/passes/entries.h"

#include <gtest/gtest.h>

#include "sluice/compiler/test_bodies.h"

namespace sluice::compiler {
namespace {

class Entries : public testing::Test {
 protected:
  // Constant 0 is 3, constant 1 is 1.
  int64_t run(const std::string& text) {
    program_ = std::make_unique<TestProgram>(text, std::vector<int32_t>{3, 1});
    program_->ir.remote_buffer({{4}, f32, {}}, 100);
    return fold_entries(program_->program, program_->context);
  }
  std::unique_ptr<TestProgram> program_;
};

TEST_F(Entries, ConstantsAndArithmeticFold) {
  EXPECT_EQ(run(R"(
    body main entry
      param %0 f32(4)
      constant 0 %1 i32()
      constant 1 %2 i32()
      kernel Mul in %1 %1 out %3 i32()
      kernel Sub in %3 %2 out %4 i32()
      transfer - remote_store 1 io at -1 in %0 %4
    end)"),
            1);
  program_->expect(R"(
    body main entry
      param %0 f32(4)
      constant 0 %1 i32()
      constant 1 %2 i32()
      transfer - remote_store 1 io at -1 index 8 in %0
    end)");
}

TEST_F(Entries, WhatDataDecideStays) {
  const char* const text = R"(
    body main entry
      param %0 f32(4)
      constant 1 %1 i32()
      transfer - stream_in 0 io out %2 i32()
      kernel Add in %2 %1 out %3 i32()
      transfer - remote_store 1 io at -1 in %0 %3
    end)";
  EXPECT_EQ(run(text), 0);
  program_->expect(text);
}

// The counter starts at 3 with step 1. It is 3 + iteration in the loop and 8 after it, and no
// memory holds it.
TEST_F(Entries, ACounterIsNotCarried) {
  EXPECT_EQ(run(R"(
    body main entry
      param %0 f32(4)
      constant 0 %1 i32()
      loop trips 5 carried 2 1 index it in %0 %1 out %2 f32(4) %3 i32()
      results %2 %3
    end
    body step loop_body
      index_param ?
      param %0 f32(4)
      param %1 i32() n
      constant 1 %2 i32()
      transfer - remote_load 1 io at -1 in %1 out %3 f32(4)
      kernel Add in %1 %2 out %4 i32()
      results %3 %4
    end)"),
            1);
  program_->expect(R"(
    body main entry
      param %0 f32(4)
      constant 0 %1 i32()
      loop trips 5 carried 1 1 index it index (3+it) in %0 out %2 f32(4)
      index 8 out %3 i32()
      results %2 %3
    end
    body step loop_body
      index_param ?
      index_param ?
      param %0 f32(4)
      constant 1 %2 i32()
      transfer - remote_load 1 io at -1 index p1 out %3 f32(4)
      results %3
    end)");
}

TEST_F(Entries, ACounterThatMayLeaveItsDtypeIsData) {
  const char* const text = R"(
    body main entry
      constant 0 %1 i32()
      loop trips 3000000000 carried 1 1 index it in %1 out %2 i32()
    end
    body step loop_body
      index_param ?
      param %1 i32()
      constant 1 %2 i32()
      transfer - remote_load 1 io at -1 in %1 out %3 f32(4)
      kernel Add in %1 %2 out %4 i32()
      results %4
    end)";
  EXPECT_EQ(run(text), 0);
}

// One call passes an index, the other a number from a stream. Each gets its own copy of f.
TEST_F(Entries, AFunctionIsCopiedForCallersWithoutAnIndex) {
  const std::string f = R"(
    body f function
      param %0 i32() n
      transfer - remote_load 1 io at -1 in %0 out %1 f32(4)
    end)";
  EXPECT_EQ(run(R"(
    body main entry
      constant 0 %0 i32()
      transfer - stream_in 0 io out %1 i32()
      call 1 in %0
      call 1 in %1
    end)" + f),
            1);
  program_->expect(R"(
    body main entry
      constant 0 %0 i32()
      transfer - stream_in 0 io out %1 i32()
      call 1 index 3
      call 2 in %1
    end
    body f function
      index_param ?
      transfer - remote_load 1 io at -1 index p0 out %1 f32(4)
    end)" + f);
}

TEST_F(Entries, AnArgumentThatIsReadAsDataTooIsMadeByANode) {
  EXPECT_EQ(run(R"(
    body main entry
      constant 0 %0 i32()
      call 1 in %0 out %1 i32()
      results %1
    end
    body f function
      param %0 i32() n
      transfer - remote_load 1 io at -1 in %0 out %1 f32(4)
      kernel Neg in %0 out %2 i32()
      results %2
    end)"),
            1);
  program_->expect(R"(
    body main entry
      constant 0 %0 i32()
      call 1 index 3 out %1 i32()
      results %1
    end
    body f function
      index_param ?
      index p0 out %0 i32() where "n of f" role copy
      transfer - remote_load 1 io at -1 index p0 out %1 f32(4)
      kernel Neg in %0 out %2 i32()
      results %2
    end)");
}

TEST_F(Entries, ConditionalsPassNoIndices) {
  const char* const text = R"(
    body main entry
      param %0 bool()
      constant 0 %1 i32()
      branch 1 1 then 1 in %0 %1 %1
    end
    body f function
      param %0 i32()
      transfer - remote_load 1 io at -1 in %0 out %1 f32(4)
    end)";
  EXPECT_EQ(run(text), 0);
  program_->expect(text);
}

}  // namespace
}  // namespace sluice::compiler
