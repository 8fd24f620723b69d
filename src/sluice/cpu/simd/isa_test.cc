#include "sluice/cpu/simd/isa.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "sluice/base/error.h"
#include "sluice/base/sys.h"

namespace sluice::cpu {
namespace {

TEST(Isa, NamesReadBack) {
  for (const Isa isa : {Isa::kBase, Isa::kAvx2, Isa::kAvx512})
    EXPECT_EQ(isa_from_name(to_string(isa)), isa);
  try {
    isa_from_name("sse9");
    FAIL() << "accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kUsage);
    EXPECT_STREQ(e.what(), "instruction set: must be base, avx2 or avx512, got 'sse9'");
  }
}

TEST(Isa, BaseIsAlwaysThereAndTheWidestIsTheDefault) {
  ASSERT_FALSE(available_isas().empty());
  EXPECT_EQ(available_isas().front(), Isa::kBase);
  EXPECT_EQ(available_isas().back(), detect_isa());
}

TEST(Isa, SetChangesTheCurrentOneAndRefusesWhatIsAbsent) {
  const Isa before = current_isa();
  for (const Isa isa : {Isa::kBase, Isa::kAvx2, Isa::kAvx512}) {
    if (isa <= detect_isa()) {
      set_isa(isa);
      EXPECT_EQ(current_isa(), isa);
    } else {
      EXPECT_THROW(set_isa(isa), Error);
    }
  }
  set_isa(before);
}

/// Prints the instruction set, or the error, that a program gets with SLUICE_ISA=`value`. Then
/// exits with the program's exit code.
[[noreturn]] void exit_with_isa(const char* value) {
  setenv("SLUICE_ISA", value, 1);
  try {
    sys::write_stderr(to_string(current_isa()));
  } catch (const Error& e) {
    sys::write_stderr(e.what());
    std::exit(e.exit_code());
  }
  std::exit(0);
}

TEST(IsaDeathTest, TheEnvironmentChoosesOrIsRefused) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(exit_with_isa("base"), ::testing::ExitedWithCode(0), "base");
  EXPECT_EXIT(exit_with_isa("sse9"), ::testing::ExitedWithCode(2), "SLUICE_ISA.*'sse9'");
}

}  // namespace
}  // namespace sluice::cpu
