#include "sluice/cpu/isa.h"

#include <gtest/gtest.h>

#include "sluice/base/error.h"

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
    EXPECT_STREQ(e.what(), "unknown instruction set 'sse9': base, avx2 and avx512 are known");
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

}  // namespace
}  // namespace sluice::cpu
