// A steady run with feeds allocates nothing.

#include "../../runtime/malloc_counter.h"
#include "feed_programs.h"

namespace sluice::test {
namespace {

TEST(FeedAllocations, ASteadyRunHasNone) {
  if (!counts_allocations())
    GTEST_SKIP() << "requires a build without sanitizer, which replaces malloc";
  struct Last : FeedSink {
    void take(std::span<const ConstArrayView> fields) override { last = first_of(fields[0]); }
    std::atomic<float> last{0};
  };
  for (const int threads : {1, 2}) {
    for (const int replicas : {1, 2}) {
      const Sums p({20}, {4, 4}, replicas);
      SessionOptions options = with(threads);
      options.events = replicas == 2 ? 100 : 0;  // Recording allocates nothing either.
      Session session(p.ir, options);
      session.bind_feed(
          p.in, std::make_shared<Counting>(1, INT64_MAX, [](size_t, int64_t) { return 0.5f; }));
      const auto sink = std::make_shared<Last>();
      session.bind_feed(p.out, sink);
      Binding bound = session.bind({}, {}, "20");
      session.run_into(bound);
      const int64_t before = allocations();
      for (int i = 0; i < 10; ++i) session.run_into(bound);
      EXPECT_EQ(allocations() - before, 0);
      EXPECT_GT(sink->last, 0);
    }
  }
}

}  // namespace
}  // namespace sluice::test
