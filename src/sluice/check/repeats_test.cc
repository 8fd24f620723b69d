// Loops that several devices run together are left early once their joint state repeats.
#include <gtest/gtest.h>

#include "sluice/check/test_checks.h"

namespace sluice::check {
namespace {

/// Returns two_devices() with loops of so many iterations. `message` is the number of a message.
exe::Executable loops(int64_t sent, int64_t received, const std::string& message = "p0") {
  std::string text = exe::plans::two_devices();
  const auto replace = [&](std::string_view from, const std::string& to) {
    text = exe::plans::replaced(text, from, to);
  };
  replace("loop 0 frame frame+0 trips 5", fmt::format("loop 0 frame frame+0 trips {}", sent));
  replace("loop 1 frame frame+0 trips 5", fmt::format("loop 1 frame frame+0 trips {}", received));
  replace("stream 0 entries 5", fmt::format("stream 0 entries {}", sent));
  replace("stream 1 entries 5", fmt::format("stream 1 entries {}", received));
  replace("send 0 message p0", "send 0 message " + message);
  replace("receive 0 message p0", "receive 0 message " + message);
  return exe::plans::plan(text);
}

constexpr int64_t kMany = int64_t{1} << 40;

TEST(Repeats, AreNotWalked) {
  EXPECT_EQ(all_of(violations(loops(kMany, kMany), {.max_steps = 200})), "");
  EXPECT_EQ(all_of(violations(loops(kMany + 1, kMany + 1), {.max_steps = 200})), "");
  EXPECT_EQ(all_of(violations(loops(kMany, kMany, "(2+((p0*3)-((p0+1)*2)))"), {.max_steps = 200})),
            "");
}

TEST(Repeats, DoNotHideTheEndOfALoop) {
  const auto rules = [](const exe::Executable& e) { return all_of(violations(e)); };
  EXPECT_NE(rules(loops(kMany, kMany + 1)).find("deadlock: "), std::string::npos);
  EXPECT_NE(rules(loops(kMany + 1, kMany)).find("channel '0 to 1': 1 messages are never received"),
            std::string::npos);
  EXPECT_NE(rules(loops(kMany + 9, kMany)).find("deadlock: "), std::string::npos);
}

// Numbers that are right in the first iterations only.
TEST(Repeats, DoNotHideALaterNumber) {
  for (const char* const number :
       {"(p0+(p0/4000))", "(p0%4000)", "((p0*p0)/4001)", "0", "(p0*2)", "(p0-(p0/4999))"}) {
    EXPECT_NE(all_of(violations(loops(5000, 5000, number))).find("channel: "), std::string::npos)
        << number;
  }
}

}  // namespace
}  // namespace sluice::check
