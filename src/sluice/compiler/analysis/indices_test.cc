#include "sluice/compiler/analysis/indices.h"

#include <gtest/gtest.h>

#include "sluice/compiler/test_bodies.h"

namespace sluice::compiler {
namespace {

// The fact of the last output of body 0 as "expression low..high", or "data" without a fact.
std::string fact(const std::string& nodes, std::vector<int32_t> numbers,
                 const std::string& others = "") {
  const TestProgram p("body main entry\n" + nodes + "\nend" + others, std::move(numbers));
  const IndexTable table(p.program);
  const Indices indices(p.program, p.body(0), table);
  const auto& found = indices.of(p.body(0).nodes.back().outputs[0]);
  return found
             ? fmt::format("{} {}..{}", to_string(found->expr), found->range.low, found->range.high)
             : "data";
}

std::string binary(const std::string& op, int32_t a, int32_t b, const std::string& dtype = "i32") {
  return fact("constant 0 %0 " + dtype + "()\nconstant 1 %1 " + dtype + "()\nkernel " + op +
                  " in %0 %1 out %2 " + dtype + "()",
              {a, b});
}

TEST(Indices, ArithmeticFoldsWhereItStaysInItsDtype) {
  EXPECT_EQ(binary("Add", 7, 5), "12 12..12");
  EXPECT_EQ(binary("Sub", 5, 7), "-2 -2..-2");
  EXPECT_EQ(binary("Sub", 5, 7, "u32"), "data");
  EXPECT_EQ(binary("Mul", -3, 5), "-15 -15..-15");
  EXPECT_EQ(binary("Mul", 1 << 20, 1 << 20), "data");
  EXPECT_EQ(binary("Div", 7, 2), "3 3..3");
  EXPECT_EQ(binary("Div", -7, 2), "-4 -4..-4");
  EXPECT_EQ(binary("Div", 7, 0), "data");
  EXPECT_EQ(binary("Div", INT32_MIN, -1), "data");
  EXPECT_EQ(binary("Add", INT32_MAX, 1), "data");
  EXPECT_EQ(binary("Greater", 1, 2), "data");
}

TEST(Indices, RemaindersAreThoseOfTheOp) {
  const auto remainder = [](int32_t start, const std::string& attrs) {
    return fact("constant 0 %0 i32()\nkernel IncrementMod in %0 out %1 i32()\nattrs " + attrs,
                {start});
  };
  EXPECT_EQ(remainder(3, "increment=1.0 modulus=4.0"), "0 0..3");
  EXPECT_EQ(remainder(2, "increment=1.0 modulus=4.0"), "3 3..3");
  EXPECT_EQ(remainder(0, "increment=-1.0 modulus=4.0"), "3 0..3");
}

TEST(Indices, AliasesCopiesAndCastsKeepTheNumber) {
  EXPECT_EQ(fact("constant 0 %0 i32()\nview in %0 out %1 i32(1)\ncopy in %1 out %2 i32(1)", {9}),
            "9 9..9");
  EXPECT_EQ(fact("constant 0 %0 i32()\nkernel Cast in %0 out %1 u32()\nattrs dtype=uint32", {9}),
            "9 9..9");
  EXPECT_EQ(fact("constant 0 %0 i32()\nkernel Cast in %0 out %1 u32()\nattrs dtype=uint32", {-1}),
            "data");
}

constexpr const char* kNext = R"(
    body next function
      param %0 i32()
      constant 1 %1 i32()
      kernel Add in %0 %1 out %2 i32()
      results %2
    end)";

TEST(Indices, CallsAdvanceTheirArgument) {
  EXPECT_EQ(fact("constant 0 %0 i32()\ncall 1 in %0 out %1 i32()\ncall 1 in %1 out %2 i32()",
                 {5, 10}, kNext),
            "25 25..25");
}

TEST(Indices, LoopsAdvanceTheirCounterByTheirTrips) {
  const std::string step = R"(
    body step loop_body
      index_param ?
      param %0 i32()
      constant 1 %1 i32()
      kernel Add in %0 %1 out %2 i32()
      results %2
    end)";
  EXPECT_EQ(fact("constant 0 %0 i32()\nloop trips 4 carried 1 1 index it in %0 out %1 i32()",
                 {5, 10}, step),
            "45 45..45");
}

TEST(Indices, AValueThatIsNotItsOwnSuccessorIsNoCounter) {
  const std::string swap = R"(
    body swap loop_body
      index_param ?
      param %0 i32()
      param %1 i32()
      results %1 %0
    end)";
  EXPECT_EQ(fact("constant 0 %0 i32()\nconstant 1 %1 i32()\n"
                 "loop trips 4 carried 2 1 index it in %0 %1 out %2 i32() %3 i32()",
                 {5, 10}, swap),
            "data");
}

// As u32, -1 is 2^32 - 1, which has another remainder.
TEST(Indices, ARemainderOfACastNumberIsData) {
  const auto range_of = [](const char* cast) {
    return fact("constant 0 %0 i32()\ncall 1 in %0 out %2 u32()", {-1}, std::string(R"(
    body turn function
      param %0 i32()
)") + cast + R"(
      kernel IncrementMod in %1 out %2 u32()
        attrs increment=2.0 modulus=3.0
      results %2
    end)");
  };
  EXPECT_EQ(range_of("copy in %0 out %1 i32()"), "1 1..1");
  EXPECT_EQ(range_of("kernel Cast in %0 out %1 u32()\nattrs dtype=uint32"), "data");
}

TEST(Indices, RangesAreThoseOfAllCalls) {
  const TestProgram p(R"(
    body main entry
      constant 0 %0 i32()
      constant 1 %1 i32()
      call 1 in %0 %0
      call 1 in %1 %1
    end
    body f function
      param %0 i32()
      param %1 i32()
      transfer - remote_load 1 io at -1 in %0 out %2 f32(4)
    end)",
                      {5, 2});
  const IndexTable table(p.program);
  EXPECT_TRUE(table.is_wanted(BodyId(1), 0));
  EXPECT_FALSE(table.is_wanted(BodyId(1), 1));
  EXPECT_EQ(table.range(BodyId(1), 0), (IndexRange{2, 5}));
}

TEST(Indices, ExpressionsDifferWhereTheirDifferenceIsAConstant) {
  const auto differs = [](const char* a, const char* b) {
    return differ(exe::parse_index_expr(a), exe::parse_index_expr(b));
  };
  EXPECT_TRUE(differs("3", "4"));
  EXPECT_TRUE(differs("(p0+1)", "(p0+2)"));
  EXPECT_TRUE(differs("p0", "(p0+2)"));
  EXPECT_FALSE(differs("p0", "p0"));
  EXPECT_FALSE(differs("p0", "p1"));
  EXPECT_FALSE(differs("(p0*2)", "(p0+1)"));
}

}  // namespace
}  // namespace sluice::compiler
