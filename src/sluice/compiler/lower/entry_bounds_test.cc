#include "sluice/compiler/lower/entry_bounds.h"

#include <gtest/gtest.h>

#include "sluice/base/test_refusals.h"
#include "sluice/compiler/lower/test_lowering.h"

namespace sluice::compiler {
namespace {

// A program whose loop runs `trips` times and loads entry `entry` of a buffer with 4 entries. The
// iteration is index parameter 0.
std::function<void()> check(int trips, const std::string& entry) {
  return [=] {
    TestProgram p(fmt::format(R"(
    body main entry
      loop trips {} carried 0 1 index it
    end
    body step loop_body
      index_param ?
      transfer - remote_load 1 compute at -1 index {} out %0 f32(4) where "line 1"
    end)",
                              trips, entry));
    p.ir.remote_buffer({{4}, f32, {}}, 4);
    check_entries(lower(p));
  };
}

TEST(EntryBounds, AcceptsEntriesOfTheBuffer) {
  EXPECT_NO_THROW(check(4, "p0")());
  EXPECT_NO_THROW(check(2, "((p0*2)+1)")());
  EXPECT_NO_THROW(check(1000000, "3")());
  EXPECT_NO_THROW(check(9, "(p0%4)")());
}

TEST(EntryBounds, RefusesTheFirstEntryOutside) {
  expect_refused({
      {"high", check(5, "p0"), "entry must be 0 to 3, got 0 to 4 (made at line 1)"},
      {"low", check(2, "(p0-1)"), "entry must be 0 to 3, got -1 to 0"},
      {"one", check(3, "4"), "remote buffer remote1: entry must be 0 to 3, got 4"},
  });
}

TEST(EntryBounds, ALoopWithoutTripsMovesNothing) { EXPECT_NO_THROW(check(0, "9")()); }

}  // namespace
}  // namespace sluice::compiler
