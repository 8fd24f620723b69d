#include "sluice/check/test_checks.h"

namespace sluice::check {
namespace {

TEST(CheckRotations, RefusesDamage) {
  refuse(exe::plans::rotating_ring(), {
                                          {"value", "carry 0:2 1:0 %3", "carry 0:2"},
                                          {"value", "carry 0:2 1:0 %3", "carry 0:2 1:0"},
                                          {"value", "carry 0:2 1:0 %3", "carry 0:2 1:0 %2"},
                                          {"value", "carry 0:2 1:0 %3", "carry 0:2 1:1 %3"},
                                          {"value", "carry 0:2 1:0 %3", "carry 0:1 1:0 %3"},
                                          {"value", "carry 0:2 1:0 %3", "carry 0:2 1:2"},
                                          {"loop", "carry 0:2 1:0 %3", "carry 0:2 1:2 %3"},
                                          {"loop", "carry 0:2 1:0 %3", "carry 0:2 1:0 %3 1:0 %3"},
                                          {"loop", "carry 0:2 1:0 %3", "carry 2:0 1:0 %3"},
                                          {"value", "@ring(3,64,it)", "@ring(3,64,(it+1))"},
                                          {"value", "@ring(3,64,(it+1))", "@ring(3,64,it)"},
                                          {"overlap", "@ring(3,64,(it+2))", "@ring(3,64,it)"},
                                          {"overlap", "@ring(3,64,(it+2))", "@ring(2,64,(it+2))"},
                                          {"value", "@ring(3,64,it)", "@ring(2,64,it)"},
                                          {"value", "trips 1000000", "trips 1000001"},
                                          {"value", "trips 1000000", "trips 2"},
                                          {"value", "read %2 at frame+128", "read %2 at frame+0"},
                                          {"value", "read %3 at frame+64", "read %1 at frame+64"},
                                      });
}

/// rotating_ring() with a ring of two slots: the new value overwrites the old one.
std::string overwriting_ring() {
  std::string text = exe::plans::rotating_ring();
  const auto edit = [&](std::string_view from, std::string_view to) {
    text = exe::plans::replaced(text, from, to);
  };
  edit("\"old\" read %5", "\"old\" update %5>%6");
  edit("  param 2 \"next\" write %6 bytes 64 float32(16) row\n", "");
  edit("Add tasks 2 workspace 0\n", "Add tasks 2 workspace 0\n      coincide 1:2\n");
  edit("write %6 at param2+0", "write %6 at param1+0");
  edit("carry 0:2 1:0 %3", "carry 0:1 1:0 %3");
  edit("@ring(3,64,(it+1))", "@ring(2,64,(it+1))");
  edit("read %0 at frame+0@ring(3,64,it)", "update %0>%2 at frame+0@ring(2,64,it)");
  edit("      write %2 at frame+0@ring(3,64,(it+2)) bytes 64 float32(16) row\n", "");
  edit("read %3 at frame+64", "read %3 at frame+0");
  edit("read %2 at frame+128", "read %2 at frame+64");
  return text;
}

TEST(CheckRotations, ANewValueMayOverwriteTheOldestOne) {
  const std::string text = overwriting_ring();
  EXPECT_EQ(all_of(violations(exe::plans::plan(text))), "");
  EXPECT_EQ(
      all_of(violations(exe::plans::plan(exe::plans::replaced(text, "trips 1000000", "trips 2")))),
      "");
  refuse(text, {
                   {"value", "trips 1000000", "trips 1000001"},
                   {"value", "carry 0:1 1:0 %3", "carry 0:0 1:0 %3"},
                   {"value", "carry 0:1 1:0 %3", "carry 0:1 1:1"},
                   {"loop", "carry 0:1 1:0 %3", "carry 0:1 %2 1:0 %3"},
                   {"value", "carry 0:1 1:0 %3", "carry 1:0 %3"},
                   {"overlap", "@ring(2,64,(it+1))", "@ring(2,64,it)"},
                   {"overlap", "      coincide 1:2\n", ""},
                   {"access", "update %0>%2", "read %0"},
                   {"value", "\"old\" update %5>%6", "\"old\" update %5>%5"},
               });
}

// The order of the carries does not matter: all move at once.
TEST(CheckRotations, MoveAtOnce) {
  const std::string text = exe::plans::rotating_ring();
  EXPECT_EQ(all_of(violations(exe::plans::plan(
                exe::plans::replaced(text, "carry 0:2 1:0 %3", "carry 1:0 %3 0:2")))),
            "");
}

// Without iterations, a rotating value is the one before the loop.
TEST(CheckRotations, KeepTheirValuesWithoutIterations) {
  std::string text = exe::plans::replaced(exe::plans::rotating_ring(), "trips 1000000", "trips 0");
  text = exe::plans::replaced(text, "read %2 at frame+128", "read %1 at frame+64");
  EXPECT_NE(all_of(violations(exe::plans::plan(text))), "") << "slot 1 has the young value";
  text = exe::plans::replaced(text, "read %3 at frame+64", "read %3 at frame+0");
  EXPECT_EQ(all_of(violations(exe::plans::plan(text))), "");
}

}  // namespace
}  // namespace sluice::check
