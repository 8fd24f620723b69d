#include "mutants.h"

#include <gtest/gtest.h>

#include <cstdio>

#include "dry_run.h"
#include "mutate.h"
#include "sluice/exe/test_plans.h"

namespace sluice::property {
namespace {

using exe::plans::plan;

std::vector<exe::Executable> hand_written() {
  return {plan(exe::plans::train_step()),
          plan(exe::plans::two_devices()),
          plan(exe::plans::overlapped_loop()),
          plan(exe::plans::replaced(exe::plans::carried_ring(), "1000001", "7")),
          plan(exe::plans::branch()),
          plan(exe::plans::by_reference())};
}

TEST(Mutants, OfHandWrittenPlansAreRefused) {
  MutantCount count;
  for (const exe::Executable& e : hand_written()) expect_mutants_refused(e, 1, 40, count);
  for (const auto& [kind, n] : count.defects_by_kind) std::printf("%4d  %s\n", n, kind.c_str());
  std::printf("%d mutants, %d harmless, %d defects, %d of them shown by data\n", count.made,
              count.harmless, count.defects, count.by_data);
  EXPECT_EQ(count.defects_by_kind.size(), mutation_kinds().size());
  EXPECT_GE(count.defects, 200);
}

TEST(DryRun, ShowsWhatDamageDoes) {
  const exe::Executable right = plan(exe::plans::train_step());
  EXPECT_EQ(difference(right, right), "");
  const auto after = [&](std::string_view from, std::string_view to) {
    return difference(right, plan(exe::plans::replaced(exe::plans::train_step(), from, to)));
  };
  EXPECT_EQ(after("2 sync kernel", "2 kernel"), "stream 1 entry 0 differs");
  EXPECT_EQ(after("write %6 at arena0+0", "write %6 at frame+0"), "variable fc.weight differs");
  EXPECT_EQ(after("bytes 192 stride 0", "bytes 128 stride 0"), "reaches beyond arena 'frames'");
  EXPECT_EQ(after("3 kernel", "3 sync kernel"), "");
}

}  // namespace
}  // namespace sluice::property
