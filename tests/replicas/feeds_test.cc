// Feeds of several processes: the bits of one process, and ends of data and errors of one of them.
#include <gmock/gmock.h>

#include "../session/feeds/feed_programs.h"
#include "replicas_util.h"
#include "sluice/exe/process_map.h"
#include "sluice/transforms/loops/loops.h"

namespace sluice::test {
namespace {

using testing::HasSubstr;
using Group = std::shared_ptr<runtime::ProcessGroup>;

constexpr int64_t kTrips = 40;
constexpr const char* kNeedsOwnGroup =
    "this test ends in an error, after which the processes of mpirun cannot run another test; "
    "replicas_test runs it in a group of its own";

/// Adds the elements of a feed over `kTrips` iterations and all replicas. Every process gets the
/// sum; an outfeed, if there is one, gets each partial sum.
struct Totals {
  explicit Totals(int replicas, int devices = 1, bool has_outfeed = false) : ir(replicas) {
    in = ir.infeed("x", {{"x", f32_of({5})}, {"scale", f32_of({})}}, {.prefetch_depth = 2});
    if (has_outfeed) sums = ir.outfeed("sums", {{"sum", f32_of({5})}}, {.depth = 2});
    Graph& body = ir.create_empty_graph("body");
    const Tensor v = body.input(f32_of({5}), "v");
    Tensor x, sum;
    {
      const DeviceScope on(body, 0);
      const Tensors element = body.dequeue(in);
      x = element[0] * element[1];
    }
    {
      const DeviceScope on(body, devices - 1);
      sum = v * 0.5 + (replicas > 1 ? ops::replicated_all_reduce(x) : x);
      if (has_outfeed) body.enqueue(sums, Tensors{sum});
    }
    body.add_output(sum);
    Graph& main = ir.main_graph();
    const DeviceScope on(main, devices - 1);
    const Tensor zero = main.constant(HostTensor(f32_of({5})), "zero");
    out = main.host_store(ops::repeat(main, body, kTrips, {zero})[0], "out");
  }
  Ir ir;
  Infeed in;
  Outfeed sums;
  D2hStream out;
};

std::shared_ptr<Counting> elements(int64_t max = INT64_MAX) {
  return std::make_shared<Counting>(1009, max, [](size_t field, int64_t i) {
    return field == 0 ? static_cast<float>(i) * 0.37F : 1 / static_cast<float>(i + 1);
  });
}

SessionOptions shared_by(const Group& group, int devices, std::vector<int> map = {}) {
  SessionOptions options = with(1, devices);
  options.group = group;
  options.map = std::move(map);
  return options;
}

TEST(FeedsOfProcesses, ReplicasHaveTheBitsOfOneProcess) {
  const Totals p(4);
  const auto run = [&](const Group& group) {
    Session session(p.ir, shared_by(group, 1));
    session.bind_feed(p.in, elements());
    std::vector<HostTensor> results;
    for (int i = 0; i < 3; ++i) results.push_back(session.run()[p.out]);
    return results;
  };
  const std::vector<HostTensor> want = run(nullptr);
  for_each_group(4, [&](const Group& group) {
    const std::vector<HostTensor> got = run(group);
    for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(got[i].same_bits(want[i])) << i;
  });
}

/// Two loops that exit when a sum of all replicas has grown enough, on two devices. Messages and
/// collectives follow each of them.
struct Exits {
  explicit Exits(int replicas) : ir(replicas) {
    in = ir.infeed("x", {{"x", f32_of({5})}, {"scale", f32_of({})}}, {.prefetch_depth = 2});
    const auto all = [&](Tensor t) {
      return replicas > 1 ? ops::replicated_all_reduce(t) : t * 1.0f;
    };
    Tensors v{main.scalar(0, f32), main.constant(HostTensor(f32_of({5})), "zero")};
    for (const double limit : {40.0, 90.0}) {
      v = ops::while_loop(
          main, [&](Tensor count, Tensor) { return ops::greater(limit, count); },
          [&](Tensor count, Tensor sum, Tensor x, Tensor scale) {
            Tensor there;
            {
              const DeviceScope on(main, 1);
              there = sum * 0.5f + all(x * scale);
            }
            return Tensors{count + ops::mean(all(x)) + 1.0f, there};
          },
          v, in, 60);
      const DeviceScope on(main, 1);
      v[1] = all(v[1]) * 0.25f;
    }
    out = main.host_store(v[1], "out");
    count = main.host_store(v[0], "count");
  }
  Ir ir;
  Graph& main = ir.main_graph();
  Infeed in;
  D2hStream out, count;
};

TEST(FeedsOfProcesses, ExitsHaveTheBitsOfOneProcess) {
  for (const int replicas : {1, 2, 4}) {
    const Exits p(replicas);
    const auto run = [&](const Group& group) {
      const std::vector<int> map = group == nullptr || replicas == group->size()
                                       ? std::vector<int>()
                                       : exe::ProcessMap::devices_first(replicas, 2, group->size());
      Session session(p.ir, shared_by(group, 2, map));
      session.bind_feed(p.in, elements());
      std::vector<HostTensor> results;
      for (int i = 0; i < 3; ++i) {
        const HostTensors made = session.run();
        results.push_back(made[p.out]);
        results.push_back(made[p.count]);
      }
      return results;
    };
    const std::vector<HostTensor> want = run(nullptr);
    const auto compare = [&](const Group& group) {
      const std::vector<HostTensor> got = run(group);
      for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(got[i].same_bits(want[i])) << i;
    };
    const int processes = launched_group() != nullptr ? launched_group()->size() : 2;
    if (processes != replicas && processes != 2) continue;
    if (launched_group() == nullptr) {
      for_each_process(processes, compare);
    } else {
      compare(launched_group());
    }
  }
}

// The stages of two processes: one of them has all rings of the infeed, the other one all of the
// outfeed.
TEST(FeedsOfProcesses, AnOutfeedBelongsToOneProcess) {
  for (const int replicas : {1, 2}) {
    const Totals p(replicas, 2, true);
    const auto run = [&](const Group& group) {
      const std::vector<int> map = group == nullptr
                                       ? std::vector<int>()
                                       : exe::ProcessMap::devices_first(replicas, 2, group->size());
      Session session(p.ir, shared_by(group, 2, map));
      const auto source = elements();
      const auto sums = std::make_shared<Numbers>();
      session.bind_feed(p.in, source);
      session.bind_feed(p.sums, sums);
      for (int i = 0; i < 3; ++i) session.run();
      EXPECT_EQ(source->made > 0, group == nullptr || group->rank() == 0);
      // A process counts what its own thread moves and its own devices use.
      const std::vector<report::FeedReport> counts = session.feed_statistics();
      const int64_t all = 3 * kTrips * replicas;
      for (const report::FeedReport& feed : counts) {
        const bool here = group == nullptr || group->rank() == (feed.input ? 0 : 1);
        EXPECT_EQ(feed.used, here ? all : 0) << feed.name;
        EXPECT_EQ(feed.slots > 0, here) << feed.name;
        if (!feed.input) {
          EXPECT_EQ(feed.moved, here ? all : 0);
        }
      }
      return sums->field(0);
    };
    const std::vector<float> want = run(nullptr);
    EXPECT_EQ(want.size(), 3 * static_cast<size_t>(kTrips * replicas));
    const auto compare = [&](const Group& group) {
      const std::vector<float> got = run(group);
      EXPECT_EQ(got, group->rank() == 0 ? std::vector<float>() : want);
    };
    if (launched_group() == nullptr) {
      for_each_process(2, compare);
    } else if (launched_group()->size() == 2) {
      compare(launched_group());
    }
  }
}

TEST(FeedsOfProcesses, AnOutfeedOfSeveralProcessesIsRefused) {
  const Totals p(4, 1, true);
  for_each_group(4, [&](const Group& group) {
    EXPECT_THAT(
        error_text(ErrorKind::kUsage, [&] { Session session(p.ir, shared_by(group, 1)); }),
        HasSubstr("outfeed 'sums': all its fields must belong to one process, got processes 0, 1"));
  });
}

/// Runs until process 1 fails; process 0 has a source or sink that blocks. Expects the error of
/// process 1 in both. A process that does not see it hangs: there is no deadline of feeds.
void expect_the_error_of_process_1(const Totals& p, int devices, ErrorKind kind, const char* text,
                                   const std::function<void(Session&, int rank)>& bind) {
  std::vector<std::string> errors(2);
  for_each_process(2, [&](const Group& group) {
    const int rank = group->rank();
    Session session(p.ir, shared_by(group, devices));
    bind(session, rank);
    errors[static_cast<size_t>(rank)] = error_text(kind, [&] { session.run(); });
    // Without the other process, no run can follow.
    error_text(kind, [&] { session.run(); });
  });
  for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr(text));
  EXPECT_THAT(errors[0], HasSubstr("process 1: "));
  EXPECT_THAT(errors[1], testing::Not(HasSubstr("process ")));
}

TEST(FeedsOfProcesses, OneEndOfDataEndsAll) {
  if (launched_group() != nullptr) GTEST_SKIP() << kNeedsOwnGroup;
  const Totals p(2);
  for (const bool blocks : {false, true}) {
    expect_the_error_of_process_1(p, 1, ErrorKind::kUsage,
                                  "feed 'x': requested 80 elements, produced 7",
                                  [&](Session& session, int rank) {
                                    const std::shared_ptr<FeedSource> endless = elements();
                                    session.bind_feed(p.in, rank == 1 ? elements(7)
                                                            : blocks ? std::make_shared<Blocking>(6)
                                                                     : endless);
                                  });
  }
}

// The source of process 0 makes no element, so this process exchanges no message.
TEST(FeedsOfProcesses, AnErrorEndsAProcessThatWaitsForItsSource) {
  if (launched_group() != nullptr) GTEST_SKIP() << kNeedsOwnGroup;
  struct Failing : Numbers {
    void take(std::span<const ConstArrayView>) override { fail(ErrorKind::kIo, "no space"); }
  };
  const Totals p(1, 2, true);
  expect_the_error_of_process_1(p, 2, ErrorKind::kIo, "no space\n  while taking element 0",
                                [&](Session& session, int) {
                                  session.bind_feed(p.in, std::make_shared<Blocking>(1));
                                  session.bind_feed(p.sums, std::make_shared<Failing>());
                                });
}

}  // namespace
}  // namespace sluice::test
