// Processes that share replicas. If they do not agree or one of them fails, all of them throw.
#include <gmock/gmock.h>

#include <atomic>
#include <optional>
#include <thread>

#include "replicas_util.h"
#include "sluice/data/test_wait.h"
#include "sluice/report/traffic.h"
#include "sluice/session/measured.h"

namespace sluice::test {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;

using Group = std::shared_ptr<runtime::ProcessGroup>;

/// Returns the error that each process throws.
std::vector<std::optional<Error>> errors_of(int processes,
                                            const std::function<void(const Group&)>& process) {
  std::vector<std::optional<Error>> errors(static_cast<size_t>(processes));
  for_each_process(processes, [&](const Group& group) {
    try {
      process(group);
    } catch (const Error& e) {
      group->fail(e);
      errors[static_cast<size_t>(group->rank())] = e;
    }
  });
  return errors;
}

void expect_all(const std::vector<std::optional<Error>>& errors, ErrorKind kind,
                const std::string& text) {
  for (const auto& error : errors) {
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->kind(), kind);
    EXPECT_THAT(error->what(), HasSubstr(text));
  }
}

/// Computes the sum of x * scale + w over the replicas.
struct Sum {
  explicit Sum(int replicas, double scale = 1, uint32_t key = 0) : ir(replicas) {
    Graph& main = ir.main_graph();
    in = ir.h2d_stream(f32_spec({100}), "x");
    const Tensor w = main.variable(f32_spec({100}), Initializer::normal(0, 1).keyed({key, 0}), "w");
    const Tensor x = main.host_load(in) * scale + w;
    out = main.host_store(ops::replicated_all_reduce(x, ops::CollectiveOp::kAdd), "y");
  }
  Ir ir;
  H2dStream in;
  D2hStream out;
};

TEST(Processes, MustShareReplicasEvenly) {
  expect_all(errors_of(3,
                       [](const Group& group) {
                         Session(Sum(4).ir, {.device = cpu_device(), .group = group});
                       }),
             ErrorKind::kUsage, "3 processes cannot share 4 replicas evenly");
}

// Each reading of a clock is a tick of all. An exchange has at most four readings a process.
TEST(Processes, CompareTheirClocks) {
  constexpr int64_t kAhead = 1'000'000;
  std::atomic<int64_t> ticks{0};
  for_each_process(3, [&](const Group& group) {
    runtime::Agreement agreement(group);
    const int64_t ahead = (group->rank() - 1) * kAhead;
    const std::vector<int64_t> differences =
        clock_differences(agreement, [&] { return ticks++ + ahead; });
    ASSERT_EQ(differences.size(), 3u);
    EXPECT_EQ(differences[0], 0);
    for (int64_t p = 1; p < 3; ++p)
      EXPECT_NEAR(static_cast<double>(differences[static_cast<size_t>(p)]),
                  static_cast<double>(p * kAhead), 3 * 4);
  });
}

TEST(Processes, SeeTheMeasuredRunOfAll) {
  const Sum sum(4);
  for_each_process(2, [&](const Group& group) {
    Session session(sum.ir, {.device = cpu_device({.threads = 1}), .group = group, .events = 50});
    session.run({{sum.in, HostTensor(f32_spec({4, 100}))}});
    const std::vector<report::MeasuredRun> runs = measured_run(session, "main");
    ASSERT_EQ(runs.size(), 4u);
    for (size_t r = 0; r < runs.size(); ++r) {
      EXPECT_EQ(runs[r].replica, static_cast<int>(r));
      EXPECT_EQ(runs[r].program, "main");
      EXPECT_EQ(runs[r].lost, 0);
      EXPECT_EQ(runs[r].moves.size(), 3u);  // Load, reduce and store.
      for (const report::StepRuns& m : runs[r].moves) EXPECT_EQ(m.runs, 1);
      EXPECT_GT(runs[r].trace.events.size(), 3u);
      for (const report::Event& e : runs[r].trace.events) EXPECT_GE(e.begin, 0);
    }
    EXPECT_EQ(measured_here(session, "main").size(), 2u);
  });
}

TEST(Processes, WithDifferentPlansRefuseToStart) {
  expect_all(errors_of(2,
                       [](const Group& group) {
                         Session(Sum(2, 1 + group->rank()).ir,
                                 {.device = cpu_device(), .group = group});
                       }),
             ErrorKind::kUsage, "processes 0 and 1 have different plans");
}

TEST(Processes, WithDifferentInitialValuesRefuseToStart) {
  expect_all(errors_of(2,
                       [](const Group& group) {
                         Session(Sum(2, 1, static_cast<uint32_t>(group->rank())).ir,
                                 {.device = cpu_device(), .group = group});
                       }),
             ErrorKind::kUsage, "processes 0 and 1 have different initial values");
}

// Each process receives the part of the peer's input that its own share reads. A single process
// needs no room.
TEST(Processes, RoomForOthersIsWhatAShareReads) {
  EXPECT_EQ(Session(Sum(2).ir).exchange_bytes(), 0);
  for_each_process(2, [](const Group& group) {
    Session session(Sum(2).ir, {.device = cpu_device(), .group = group});
    // Shares begin at multiples of 64 elements, so the first share has 64 of 100 elements.
    EXPECT_EQ(session.exchange_bytes(), group->rank() == 0 ? 256 : 192);
  });
}

// Adds each collective of groups of the replicas.
void add_collectives(const Tensor& x, const ReplicaGrouping& group) {
  Graph& main = x.graph();
  const auto store = [&](const Tensor& y) { main.host_store(y, "y"); };
  store(ops::replicated_all_reduce(x, ops::CollectiveOp::kAdd, group));
  store(ops::replicated_all_reduce_identical_grad_inputs(x, ops::CollectiveOp::kAdd, group));
  store(ops::replicated_reduce_scatter(x, ops::CollectiveOp::kMean, group));
  store(ops::replicated_reduce_scatter(x, ops::CollectiveOp::kLocal, group));
  const Tensor shard = ops::replica_sharded_slice(x, group);
  store(shard);
  store(ops::replicated_all_gather(shard, 0, group));
  store(ops::replicated_all_gather(x, 1, group));
  if (x.dim(0) % group.size() == 0) store(ops::replicated_slice(x, 0, group));
  const Tensor own = ops::identity(x);
  ops::replicated_all_reduce_(own, ops::CollectiveOp::kMax, group);
  store(own);
}

// With a process for each replica, collectives send exactly the bytes of exchanged_bytes().
TEST(Processes, CollectivesSendThePlannedBytes) {
  if (cpu_device().target->is_queued()) return;
  for (const int replicas : {2, 4, 6}) {
    for (const Shape& shape : {Shape{6, 4}, Shape{12, 77}}) {
      Ir ir(replicas);
      const H2dStream in = ir.h2d_stream({shape, f32, {}}, "x");
      const Tensor x = ir.main_graph().host_load(in);
      for (const ReplicaGrouping& group : groupings(replicas)) add_collectives(x, group);
      std::atomic<int64_t> planned{0};
      const int64_t before = bytes_sent_by_programs();
      for_each_process(replicas, [&](const Group& group) {
        Session session(ir, {.device = cpu_device({.threads = 1}), .group = group});
        std::vector<int64_t> dims{replicas};
        dims.insert(dims.end(), shape.begin(), shape.end());
        session.run({{in, drawn(Shape(dims), f32, 1)}});
        if (group->rank() > 0) return;
        const exe::Executable& e = session.executable();
        const report::TrafficCounter traffic(e);
        for (const report::CollectiveBytes& c : traffic.collectives_of(e.programs.front()))
          planned += replicas / c.members * c.group_bytes;
      });
      EXPECT_EQ(bytes_sent_by_programs() - before, planned) << replicas << " replicas";
      EXPECT_GT(planned, 0);
    }
  }
}

TEST(Processes, AnErrorOfOneStopsAll) {
  Ir ir(2);
  Graph& main = ir.main_graph();
  const H2dStream in = ir.h2d_stream(i32_spec({}), "which");
  const RemoteBuffer buffer = ir.remote_buffer(f32_spec({8}), 2);
  const Tensor x = main.remote_load(buffer, main.host_load(in));
  main.host_store(ops::replicated_all_reduce(x, ops::CollectiveOp::kAdd), "y");
  const auto errors = errors_of(2, [&](const Group& group) {
    Session session(ir, {.device = cpu_device(), .group = group});
    session.run({{in, HostTensor::of<int32_t>({2}, i32, {0, 1})}});
    try {
      session.run({{in, HostTensor::of<int32_t>({2}, i32, {0, 5})}});
    } catch (const Error&) {
      // No process can continue without the failed one, even if it has caught the error.
      session.run({{in, HostTensor::of<int32_t>({2}, i32, {0, 1})}});
    }
  });
  expect_all(errors, ErrorKind::kUsage, "entry 5 is outside its 2 entries");
  // Process 0 may still gather the results of the first run when the other one fails.
  EXPECT_THAT(errors[0]->what(),
              AllOf(HasSubstr("process 1: "), AnyOf(HasSubstr("running ReplicatedAllReduce"),
                                                    HasSubstr("gathering data of all"))));
  EXPECT_THAT(errors[1]->what(), testing::Not(HasSubstr("process ")));
}

SessionOptions two_devices(const Group& group, std::vector<int> map = {}) {
  return {.device = cpu_device({.threads = 1}),
          .more_devices = {cpu_device({.threads = 1})},
          .group = group,
          .map = std::move(map)};
}

TEST(Processes, NameTheMessageThatAnErrorWithholds) {
  Ir ir;
  Graph& main = ir.main_graph();
  const H2dStream in = ir.h2d_stream(i32_spec({}), "which");
  const RemoteBuffer buffer = ir.remote_buffer(f32_spec({8}), 2);
  main.set_device(0);
  const Tensor x = main.remote_load(buffer, main.host_load(in));
  main.set_device(1);
  main.host_store(x * 2.0, "y");
  const auto errors = errors_of(2, [&](const Group& group) {
    Session session(ir, two_devices(group));
    session.run({{in, HostTensor::of<int32_t>({}, i32, {1})}});
    session.run({{in, HostTensor::of<int32_t>({}, i32, {5})}});
  });
  expect_all(errors, ErrorKind::kUsage, "entry 5 is outside its 2 entries");
  EXPECT_THAT(errors[0]->what(), testing::Not(HasSubstr("process ")));
  EXPECT_THAT(errors[1]->what(),
              AllOf(HasSubstr("process 0: "), HasSubstr("running Receive: message from device 0"),
                    HasSubstr("receiving message 0 of channel 0to1 from process 0")));
}

// One process transfers for the other.
TEST(Processes, ShareABufferAndStreams) {
  Ir ir;
  Graph& main = ir.main_graph();
  const H2dStream in = ir.h2d_stream(f32_spec({8}), "in");
  const D2hStream out = ir.d2h_stream(f32_spec({8}), "out");
  const RemoteBuffer buffer = ir.remote_buffer(f32_spec({8}), 2);
  for (const int device : {0, 1}) {
    main.set_device(device);
    const Tensor sum = main.remote_load(buffer, device) + main.host_load(in);
    main.remote_store(buffer, device, sum);
    main.host_store(out, sum * 2.0);
  }
  const HostTensor x = drawn({2, 8}, f32, 1);
  Session whole(ir, two_devices(nullptr));
  whole.run({{in, x}});
  const HostTensors want = whole.run({{in, x}});
  for_each_process(2, [&](const Group& group) {
    Session session(ir, two_devices(group));
    session.run({{in, x}});
    EXPECT_TRUE(session.run({{in, x}})[out].same_bits(want[out]));
  });
}

TEST(Processes, RefuseMapsThatLeaveThemIdle) {
  expect_all(errors_of(2,
                       [](const Group& group) {
                         Session(Sum(1).ir, two_devices(group, {1, 1}));
                       }),
             ErrorKind::kUsage, "process 0 must run a device, got none");
}

/// Sums a variable over the replicas, again and again.
Ir endless_sums(int replicas) {
  Ir ir(replicas);
  Graph& main = ir.main_graph();
  Graph& body = ir.create_graph(
      "turn", [](Graph&, Tensor x) { return ops::replicated_all_reduce(x) * 0.4; },
      f32_spec({100}));
  const Tensor x = main.variable(f32_spec({100}), Initializer::constant(1), "x");
  main.host_store(ops::repeat(main, body, 1'000'000'000, {x})[0], "y");
  return ir;
}

TEST(Processes, AStopOfOneEndsAll) {
  const Ir ir = endless_sums(4);
  for (const int stopped : {0, 1}) {
    const auto errors = errors_of(2, [&](const Group& group) {
      Session session(ir, {.device = cpu_device({.threads = 2}),
                           .group = group,
                           .proof = SessionOptions::Proof::kTrust});
      std::thread stopper([&] {
        while (group->rank() == stopped && !session.stop()) std::this_thread::yield();
      });
      try {
        session.run();
      } catch (const Error&) {
        stopper.join();
        EXPECT_FALSE(session.stop());
        session.run();  // The group has ended.
      }
    });
    expect_all(errors, ErrorKind::kStopped, "run: stopped by a call of stop()");
    for (const int rank : {0, 1}) {
      EXPECT_EQ(std::string(errors[static_cast<size_t>(rank)]->what())
                    .starts_with(fmt::format("process {}: ", stopped)),
                rank != stopped);
    }
  }
}

/// A group that counts how often this process looks for an error of the others.
class CountedChecks final : public runtime::ProcessGroup {
 public:
  explicit CountedChecks(Group of) : of_(std::move(of)) {}
  int rank() const override { return of_->rank(); }
  int size() const override { return of_->size(); }
  int usable_cores() const override { return of_->usable_cores(); }
  std::unique_ptr<runtime::Messages> messages(int tag) override { return of_->messages(tag); }
  void check() const override {
    ++checks;
    of_->check();
  }
  bool fail(const Error& error) override { return of_->fail(error); }

  mutable std::atomic<int64_t> checks{0};

 private:
  Group of_;
};

// A process that has ended its part of a run waits for the outputs of the others.
TEST(Processes, AStopEndsTheWaitForOutputs) {
  Ir ir(2);
  Graph& main = ir.main_graph();
  const Tensor x = main.variable(f32_spec({100}), Initializer::constant(1), "x");
  main.host_store(x * 2.0, "y");
  const auto errors = errors_of(2, [&](const Group& group) {
    const auto counted = std::make_shared<CountedChecks>(group);
    Session session(ir, {.device = cpu_device({.threads = 1}), .group = counted});
    if (group->rank() == 0) {
      for (;; std::this_thread::yield()) group->check();  // This process does not run.
    }
    // The program has no message, so that only the wait for the outputs looks for errors.
    std::thread stopper([&, before = counted->checks.load()] {
      EXPECT_TRUE(wait_until([&] { return counted->checks > before; }));
      EXPECT_TRUE(session.stop());
    });
    try {
      session.run();
    } catch (const Error&) {
      stopper.join();
      throw;
    }
    ADD_FAILURE() << "no error";
    stopper.join();
  });
  expect_all(errors, ErrorKind::kStopped, "run: stopped by a call of stop()");
}

TEST(Processes, AgreeOnWhatAnyOfThemSays) {
  for_each_process(3, [](const Group& group) {
    runtime::Agreement agreement(group);
    EXPECT_FALSE(agreement.any(false));
    EXPECT_TRUE(agreement.any(group->rank() == 1));
    std::vector<std::byte> word(4, std::byte(group->rank()));
    agreement.broadcast(2, word);
    EXPECT_EQ(word[3], std::byte{2});
    std::vector<std::byte> parts(6, std::byte(group->rank()));  // Two blocks of three parts.
    agreement.share(parts, std::vector{0, 1, 2}, 2);
    EXPECT_THAT(parts, testing::ElementsAre(std::byte{0}, std::byte{1}, std::byte{2}, std::byte{0},
                                            std::byte{1}, std::byte{2}));
    std::vector<std::byte> own(4, std::byte(group->rank()));  // Process 0 has nothing.
    agreement.share(own, std::vector{2, 2, 1, 2});
    EXPECT_THAT(own, testing::ElementsAre(std::byte{2}, std::byte{2}, std::byte{1}, std::byte{2}));
  });
}

}  // namespace
}  // namespace sluice::test
