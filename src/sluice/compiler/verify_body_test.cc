#include "sluice/compiler/verify_body.h"

#include <gtest/gtest.h>

#include "sluice/base/test_refusals.h"
#include "sluice/compiler/test_bodies.h"

namespace sluice::compiler {
namespace {

// Body 1 updates its parameter 1 and returns only the first of its two results. Body 2 has an index
// parameter. Body 3 returns neither of its results.
constexpr const char* kCallees = R"(
    body f function number 1
      param %0 f32(4)
      param %1 f32(4) last %2
      kernel AddLhsInplace in %1 %0 out %2 f32(4) tie 0 %1
      results %0 %-
    end
    body g function number 2
      index_param 0 3
      param %0 f32(4)
      results %0
    end
    body h function number 3
      param %0 f32(4)
      param %1 f32(2,2)
      param %2 f32(4)
      results %- %- %-
    end)";

std::string with_main(const std::string& lines) {
  return "body main entry\nparam %0 f32(4)\nparam %1 f32(4)\n" + lines + "\nend" + kCallees;
}

Refusal broken(const std::string& lines, const std::string& part) {
  return {lines,
          [=] {
            const TestProgram p(with_main(lines));
            verify(p.program, p.body(0));
          },
          part, ErrorKind::kInternal};
}

TEST(VerifyBody, AcceptsSoundBodies) {
  const TestProgram p(with_main(R"(
    call 1 updated 1 in %0 %1 out %2 f32(4) %- %3 f32(4) tie 2 %1
    call 2 index 2 in %2 out %4 f32(4)
    view in %3 out %5 f32(2,2)
    kernel Neg in %5 as f32(4) out %6 f32(4)
    results %6 %3)"));
  EXPECT_NO_THROW(verify(p.program, "nothing"));
}

TEST(VerifyBody, RefusesValuesOutOfOrder) {
  expect_refused({
      broken(
          "view in %3 out %2 f32(4)\nview in %2 out %3 f32(4)",
          "body main, node 0 (op.-1 made at ): input 0 is value 3, which no earlier node produces"),
      broken("view in %9 out %2 f32(4)", "input 0 is value 9, which no earlier node produces"),
      broken("view in %- out %2 f32(4)", "node 0 (op.-1 made at ): there is no value -1"),
      broken("view in %0 out %2 f32(4)\nview in %0 out %2 f32(4)", "value 2 is produced twice"),
      broken("results %7", "body main: there is no value 7"),
      broken("last 0 %0", "there is no variable 0"),
  });
}

TEST(VerifyBody, RefusesReadsAndWritesAfterAWrite) {
  const std::string write = "kernel AddLhsInplace in %0 %1 out %2 f32(4) tie 0 %0\n";
  expect_refused({
      broken(write + "view in %0 out %3 f32(4)", "it reads value 0, which node 0 has overwritten"),
      broken(write + "copy in %1 out %3 f32(4) tie 0 %0", "it overwrites value 0 again"),
      broken(write + "results %0", "result 0 has been overwritten"),
      broken("copy in %0 out %2 f32(4) tie 1 %1", "a tie names output 1, the node has 1"),
      broken("copy in %0 out %2 f32(4) tie 0 %5", "there is no value 5"),
  });
}

TEST(VerifyBody, RefusesLastVersionsThatHaveBeenOverwritten) {
  const std::string write = "kernel AddLhsInplace in %3 %1 out %4 f32(4) tie 0 %3\n";
  expect_refused({
      broken("variable 0 %3 f32(4)\n" + write + "last 0 %3",
             "the last version of variable 0 has been overwritten"),
      broken("param %3 f32(4) p last %3\n" + write,
             "the last version of parameter p has been overwritten"),
  });
}

TEST(VerifyBody, RefusesCallsThatDoNotFitTheCallee) {
  expect_refused({
      broken("call 7 in %0 out %2 f32(4)", "there is no body 7"),
      broken("call 1 in %0 out %2 f32(4) %-", "it passes 1 arguments, f takes 2"),
      broken("call 2 in %0 out %2 f32(4)", "it passes 0 index arguments, g takes 1"),
      broken("call 2 index 1 in %0 as f32(2,2) out %2 f32(4)",
             "argument 0 is (2, 2) float32, g takes (4,) float32"),
      broken("call 1 in %0 %1 out %2 f32(4) %3 f32(4)",
             "f does not return result 1, which its caller reads"),
      broken("call 1 updated 0 in %0 %1 out %2 f32(4) %- %3 f32(4) tie 2 %0",
             "f does not update its parameter 0"),
      broken("call 1 updated 5 in %0 %1 out %2 f32(4) %- %3 f32(4)", "it has no invariant input 5"),
      broken("call 1 results 1 in %0 %1 out %2 f32(4) %-", "2 outputs are not 1 results"),
      broken("loop trips 1 carried 2 2 index it in %0 out %2 f32(4)",
             "it carries 2 values, but has 1 inputs and 1 results"),
      broken("call 2 index p0 in %0 out %2 f32(4)",
             "an index expression reads parameter 0, the body has 0"),
      broken("branch 2 2 then 2 in %0 %1 %1 out %2 f32(4)", "it passes 2 arguments, g takes 1"),
  });
}

TEST(VerifyBody, RefusesRotationsOfOtherValues) {
  const auto loop = [](const std::string& rotates, int body, const std::string& part) {
    const std::string values = body == 1
                                   ? " in %0 %1 out %2 f32(4) %3 f32(4)"
                                   : " in %0 %1 as f32(2,2) %0 out %2 f32(4) %3 f32(2,2) %4 f32(4)";
    return broken(
        fmt::format("loop trips 1 carried {} {} {}{}", body == 1 ? 2 : 3, rotates, body, values),
        part);
  };
  expect_refused({
      loop("rotates 1:2", 1, "carried value 1 takes value 2, it carries 2"),
      loop("rotates 0:0 rotates 1:1", 1, "f returns result 0, but its value is that of 0"),
      broken("loop trips 1 carried 2 rotates 1:0 1 updated 1 in %0 %1 out %2 f32(4) %3 f32(4) %4 "
             "f32(4) tie 2 %1",
             "it has no invariant input 1"),
      loop("rotates 0:2 rotates 1:1", 3, "h does not return result 2, which its caller reads"),
      loop("rotates 0:2 rotates 1:1 rotates 2:2", 3, "carried value 2 is taken twice"),
      loop("rotates 0:2 rotates 1:0 rotates 2:1", 3,
           "carried value 1 takes value 0, which is (4,) float32 row"),
  });
  const TestProgram p(
      with_main("loop trips 1 carried 3 rotates 0:2 rotates 1:1 rotates 2:0 3 in %0 %1 as f32(2,2) "
                "%0 out %2 f32(4) %3 f32(2,2) %4 f32(4)"));
  EXPECT_NO_THROW(verify(p.program, "nothing"));
}

TEST(VerifyBody, RefusesSpecsThatDoNotFit) {
  expect_refused({
      broken("view in %0 as f32(3) out %2 f32(3)",
             "input 0 is (3,) float32, but its value is (4,) float32"),
      {"specs",
       [] {
         TestProgram p(with_main("view in %0 out %2 f32(4)"));
         p.body().nodes[NodeId(0)].in_specs.clear();
         verify(p.program, p.body());
       },
       "1 inputs have 0 specs", ErrorKind::kInternal},
      {"parameter",
       [] {
         TestProgram p(with_main(""));
         std::swap(p.body().params[0], p.body().params[1]);
         verify(p.program, p.body());
       },
       "value 1 is not parameter 0", ErrorKind::kInternal},
  });
}

TEST(VerifyBody, NamesThePass) {
  const TestProgram p(with_main("results %7"));
  expect_refused({{"pass", [&] { verify(p.program, "my pass"); }, "verifying after pass my pass",
                   ErrorKind::kInternal}});
}

}  // namespace
}  // namespace sluice::compiler
