#include "sluice/exe/budget/does_not_fit.h"

#include <gtest/gtest.h>

#include <string>

#include "sluice/exe/executable.h"
#include "sluice/exe/validate.h"

namespace sluice::exe {
namespace {

MemoryNeeds device_of(int64_t budget) {
  MemoryNeeds m{.name = "device 0 (cpu)", .device = DeviceId(0)};
  m.total_bytes = 4000;
  m.budget_bytes = budget;
  m.bound_bytes = 3900;
  for (int i = 0; i < 8; ++i)
    m.peak_objects.push_back({"w" + std::to_string(i),
                              "variable",
                              "",
                              500,
                              FunctionId(),
                              i,
                              {"variables", "fc." + std::to_string(i) + ".weight"}});
  return m;
}

TEST(DoesNotFit, ABudgetThatIsMetIsAccepted) {
  EXPECT_FALSE(find_excess({}, {device_of(-1), device_of(4000)}));
}

TEST(DoesNotFit, FiguresAreFields) {
  const auto excess = find_excess({}, {device_of(4000), device_of(3999), device_of(0)});
  ASSERT_TRUE(excess);
  EXPECT_EQ(excess->kind(), ErrorKind::kDoesNotFit);
  EXPECT_EQ(excess->memory().budget_bytes, 3999);
  EXPECT_EQ(excess->memory().smallest_budget(), 4000);
  EXPECT_EQ(excess->memory().bound_bytes, 3900);
  EXPECT_EQ(excess->memory().peak_objects.size(), 8u);
  EXPECT_EQ(excess->remedy(), "");
  const std::string text = excess->what();
  EXPECT_EQ(text,
            "device 0 (cpu) needs 4000 bytes, its budget is 3999 (1 short)\n"
            "  smallest budget found: 4000 bytes; live-set bound: 3900 bytes\n"
            "  held at the peak:\n"
            "             500 B  fc.0.weight\n"
            "             500 B  fc.1.weight\n"
            "             500 B  fc.2.weight\n"
            "             500 B  fc.3.weight\n"
            "             500 B  fc.4.weight\n"
            "             500 B  fc.5.weight");
  const DoesNotFit with = excess->with_remedy("phased");
  EXPECT_EQ(with.what(), text + "\n  phased fits");
  EXPECT_EQ(with.remedy(), "phased");
  EXPECT_EQ(with.memory().total_bytes, 4000);
}

TEST(DoesNotFit, NoArenaExceedsTheLargestSize) {
  Executable e;
  e.arenas.push_back({.name = "frames", .bytes = kMaxSize});
  EXPECT_FALSE(find_excess(e, {}));
  e.arenas[ArenaId(0)].bytes += 64;
  const auto excess = find_excess(e, {device_of(-1)});
  ASSERT_TRUE(excess);
  EXPECT_EQ(excess->memory().name, "frames");
  EXPECT_EQ(excess->memory().total_bytes, kMaxSize + 64);
}

}  // namespace
}  // namespace sluice::exe
