#include "sluice/compiler/lower/ring_slots.h"

#include <gtest/gtest.h>

#include "sluice/compiler/lower/kernels.h"
#include "sluice/compiler/test_bodies.h"

namespace sluice::compiler {
namespace {

// A loop with a ring of three slots for its first values %2 and %3.
const char* const kLoop = R"(
    body step loop_body
      index_param ?
      param %0 f32(16)
      param %1 f32(16)
      kernel Add in %0 %1 out %2 f32(16)
      results %2 %-
    end)";

struct Lowered {
  explicit Lowered(const std::string& nodes)
      : program("body main entry\n" + nodes + "\nend" + kLoop) {
    LoweredBody lowered;
    choose_kernels(program.body(), *program.target, lowered);
    storage = assign_storage(program.body(), lowered.choices, *program.target);
  }
  int64_t fill() { return fill_ring_slots(program.body(), storage); }
  const Block& block(int32_t value) { return storage.block(ValueIndex(value)); }
  bool share(int32_t a, int32_t b) { return &block(a) == &block(b); }

  TestProgram program;
  Storage storage;
};

const char* const kRamps = R"(
    transfer - stream_in 0 compute out %0 f32(16)
    transfer - stream_out 1 compute in %0
    transfer - stream_in 0 compute out %1 f32(16)
    transfer - stream_in 0 compute out %2 f32(16)
    transfer - stream_out 1 compute in %1
    loop trips 4 carried 2 rotates 1:0 1 index it in %2 %3 out %4 f32(16) %5 f32(16)
    transfer - stream_out 1 compute in %5
    transfer - stream_in 0 compute out %6 f32(16)
    transfer - stream_out 1 compute in %4
    transfer - stream_out 1 compute in %6)";

std::string with_first(std::string nodes) {
  const std::string second = "    transfer - stream_out 1 compute in %1\n";
  nodes.insert(nodes.find(second) + second.size(),
               "    transfer - stream_in 0 compute out %3 f32(16)\n");
  return nodes;
}

TEST(RingSlots, TakeTheValuesOfTheRamps) {
  Lowered l(with_first(kRamps));
  ASSERT_EQ(l.block(2).ring, 3);
  ASSERT_TRUE(l.share(2, 3));
  EXPECT_EQ(l.fill(), 3);
  for (const int32_t v : {0, 1, 6}) EXPECT_TRUE(l.share(v, 2)) << v;
  // Each of them is alone in its slot while it is in use.
  for (const int32_t a : {0, 1, 6}) {
    for (const int32_t b : {0, 1, 2, 3, 4, 5, 6}) {
      const Tenant& x = l.storage.tenant(ValueIndex(a));
      const Tenant& y = l.storage.tenant(ValueIndex(b));
      if (a != b && x.slot == y.slot) {
        EXPECT_TRUE(x.end < y.begin || y.end < x.begin) << a << b;
      }
    }
  }
}

TEST(RingSlots, TakeNoValueOfAnotherSizeOrThatIsReadAfterTheLoop) {
  std::string other = with_first(kRamps);
  other.replace(other.find("%0 f32(16)"), 10, "%0 f32(15)");
  EXPECT_EQ(Lowered(other).fill(), 2);
  std::string later = with_first(kRamps);
  later += "\n    transfer - stream_out 1 compute in %1";
  EXPECT_EQ(Lowered(later).fill(), 2);
}

TEST(RingSlots, TakeValuesOfTheirTensor) {
  std::string named = with_first(kRamps);
  for (const auto& [value, name] :
       {std::pair("%0", "x"), {"%1", "y"}, {"%2", "y"}, {"%3", "y"}, {"%6", "y__t1"}}) {
    const std::string out = fmt::format("out {} f32(16)", value);
    named.insert(named.find(out) + out.size(), fmt::format(" name \"{}\" 0", name));
  }
  Lowered l(named);
  EXPECT_EQ(l.fill(), 1);
  EXPECT_TRUE(l.share(1, 2));
}

// Beside two large values, the ring may not be in use for longer.
TEST(RingSlots, DoNotRaiseTheMostBytesInUse) {
  const std::string large = R"(
    transfer - stream_in 2 compute out %7 f32(64)
    transfer - stream_in 0 compute out %8 f32(16)
    transfer - stream_out 3 compute in %7
    transfer - stream_out 1 compute in %8)";
  Lowered l(large + with_first(kRamps));
  EXPECT_EQ(l.fill(), 3);
  EXPECT_FALSE(l.share(8, 2));
}

}  // namespace
}  // namespace sluice::compiler
