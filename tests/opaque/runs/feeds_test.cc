// A feed of an opaque device passes through its staging memory.
#include <gtest/gtest.h>

#include "../../session/feeds/feed_programs.h"

namespace sluice::test {
namespace {

TEST(OpaqueFeeds, RingsAreNotPinned) {
  const Sums p({4}, {700000}, 1, 1);  // The bytes of an element are transferred in pieces.
  Session session(p.ir, with(1));
  for (const exe::Feed& feed : session.executable().feeds) {
    const auto arena = static_cast<size_t>(feed.rings[0].arena);
    EXPECT_EQ(session.executable().arenas[exe::ArenaId(arena)].space, exe::Space::kHost);
  }
  const auto sums = std::make_shared<Numbers>();
  session.bind_feed(p.in, std::make_shared<Counting>(100));
  session.bind_feed(p.out, sums);
  session.run({}, "4");
  EXPECT_EQ(sums->field(0), (std::vector<float>{0, 1, 3, 6}));
}

}  // namespace
}  // namespace sluice::test
