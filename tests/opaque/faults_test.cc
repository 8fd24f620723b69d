// Tests errors of commands, lost devices, and calls that fail.
#include <future>

#include "opaque_test_util.h"

namespace sluice::opaque {
namespace {

class OpaqueFaults : public testing::TestWithParam<Mode> {};
INSTANTIATE_TEST_SUITE_P(Modes, OpaqueFaults, testing::Values(Mode::kThreads, Mode::kLazy),
                         mode_name);

/// Lets command `number` of a queue fail.
Options failing(int64_t number, int queue = 0, ErrorKind kind = ErrorKind::kIo) {
  Options options;
  options.hook = [=](int q, int64_t command, std::string_view) {
    if (q == queue && command == number) fail(kind, "command {} fails", number);
  };
  return options;
}

TEST_P(OpaqueFaults, AppearLateAndStay) {
  int late = 0;
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    Options options = failing(1);
    options.seed = seed;
    Rig rig(GetParam(), options);
    const auto q = rig.queue();
    q->upload(rig.memory(), rig.host(), 64);
    const int64_t mark = q->mark();
    while (q->begun() < 1) error_of([&] { q->passed(mark); });
    int calls = 0;
    while (error_of([&] { EXPECT_FALSE(q->passed(mark)); }).empty()) ++calls;
    late += calls > 0;
    const std::string want = "input/output: command 1 fails";
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(error_of([&] { q->check(); }), want);
      EXPECT_EQ(error_of([&] { q->upload(rig.memory(), rig.host(), 64); }), want);
      EXPECT_EQ(error_of([&] { q->mark(); }), want);
      EXPECT_EQ(error_of([&] { q->drain(); }), want);
    }
    EXPECT_EQ(q->begun(), 1);
  }
  EXPECT_GT(late, 0);
}

TEST_P(OpaqueFaults, AppearAfterAtMostErrorLagCalls) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    Options options = failing(1);
    options.seed = seed;
    options.error_lag = 0;
    Rig rig(GetParam(), options, true);
    const auto q = rig.queue();
    q->upload(rig.memory(), rig.host(), 64);
    rig.release();
    EXPECT_NE(error_of([&] { q->drain(); }), "");
    EXPECT_NE(error_of([&] { q->check(); }), "");
  }
}

TEST_P(OpaqueFaults, KeepTheFirst) {
  Options options = failing(1);
  options.error_lag = 100;
  Rig rig(GetParam(), options);
  const auto q = rig.queue();
  std::byte other[4];
  error_of([&] {
    q->upload(rig.memory(), rig.host(), 64);
    q->drain();
  });
  for (int i = 0; i < 101; ++i) error_of([&] { q->upload(rig.memory(), other, 4); });
  EXPECT_EQ(error_of([&] { q->check(); }), "input/output: command 1 fails");
}

TEST_P(OpaqueFaults, LetNoLaterCommandRun) {
  Rig rig(GetParam(), failing(2), true);
  const auto q = rig.queue();
  rig.fill(3);
  for (int i = 0; i < 3; ++i) q->upload(rig.memory() + 64 * i, rig.host(), 64);
  q->download(rig.host() + 512, rig.memory() + 128, 64);
  rig.release();
  EXPECT_EQ(error_of([&] { q->drain(); }), "input/output: command 2 fails");
  EXPECT_EQ(q->begun(), 2);
  EXPECT_EQ(rig.host()[512], std::byte{3});
}

TEST_P(OpaqueFaults, EndTheQueuesOfTheDeviceAndThoseThatWait) {
  Rig rig(GetParam(), failing(1), true);
  const auto failed = rig.queue(), sister = rig.queue();
  const auto waiting = rig.queue(1);
  failed->upload(rig.memory(), rig.host(), 64);
  waiting->wait(*failed, failed->mark());
  waiting->upload(rig.memory(1), rig.host(), 64);
  rig.release();
  EXPECT_NE(error_of([&] { failed->drain(); }), "");
  while (error_of([&] { sister->check(); }).empty()) {
  }
  EXPECT_EQ(error_of([&] { sister->check(); }), "input/output: command 1 fails");
  const std::string error = error_of([&] { waiting->drain(); });
  EXPECT_TRUE(error.starts_with("peer lost: ")) << error;
  EXPECT_EQ(waiting->begun(), 0);
}

TEST_P(OpaqueFaults, LeaveOtherDevicesAlone) {
  Rig rig(GetParam(), failing(1));
  const auto failed = rig.queue(), other = rig.queue(1);
  error_of([&] {
    failed->upload(rig.memory(), rig.host(), 64);
    failed->drain();
  });
  EXPECT_NO_THROW(other->upload(rig.memory(1), rig.host(), 64));
  EXPECT_NO_THROW(other->drain());
  other->copy_from(rig.device(0), rig.memory(1), rig.memory() + 256, 64);
  const std::string error = error_of([&] { other->drain(); });
  EXPECT_TRUE(error.starts_with("peer lost: ")) << error;
}

TEST_P(OpaqueFaults, LoseADevice) {
  Rig rig(GetParam(), failing(1, 0, ErrorKind::kPeerLost));
  const auto q = rig.queue();
  error_of([&] {
    q->upload(rig.memory(), rig.host(), 64);
    q->drain();
  });
  const std::string want = "peer lost: command 1 fails";
  std::byte more[4];
  EXPECT_EQ(error_of([&] { rig.read(0, rig.memory(), 4); }), want);
  EXPECT_EQ(error_of([&] {
              rig.device().write(rig.memory(), {{1}, i32, {}}, "row", 0, more);
            }),
            want);
  EXPECT_EQ(error_of([&] { rig.device().allocate(4); }), want);
  EXPECT_EQ(error_of([&] { rig.device().pin(more); }), want);
  EXPECT_EQ(error_of([&] { rig.queue(); }), want);
}

TEST_P(OpaqueFaults, FindWritesBehindAWorkspace) {
  Rig rig(GetParam());
  const auto q = rig.queue();
  const auto neg = elementwise(rig.family(), "Neg", 4);
  launch(*q, neg, {rig.memory(), rig.memory() + 256}, rig.memory() + 256);
  const std::string error = error_of([&] { q->drain(); });
  EXPECT_NE(error.find("opaque.elementwise wrote behind its workspace"), std::string::npos)
      << error;
}

TEST_P(OpaqueFaults, RefuseWrongLaunches) {
  for (int which = 0; which < 5; ++which) {
    Rig rig(GetParam());
    const auto q = rig.queue();
    const auto neg = elementwise(rig.family(), "Neg", 4);
    const DeviceAddress at = rig.memory();
    EXPECT_THROW(neg.run(neg.state.get(), {}, 0), Error);
    const uint64_t no_kernel[4] = {};
    std::vector<DeviceAddress> operands{at, at + 64};
    std::vector<int64_t> scalars{1};
    EXPECT_TRUE(error_of([&] {
                  if (which == 0) q->launch({no_kernel, operands, at + 256, {}});
                  if (which == 1) q->launch({nullptr, operands, at + 256, {}});
                  if (which == 2) q->launch({neg.state.get(), {operands.data(), 1}, at + 256, {}});
                  if (which == 3) q->launch({neg.state.get(), operands, at + 256, scalars});
                  if (which == 4) q->launch({neg.state.get(), operands, at + 257, {}});
                }).starts_with("internal error: opaque: "))
        << which;
  }
}

/// Uses each function of the interface. Returns an error or "".
std::string small_program(Mode mode, int64_t fail_at, uint64_t seed) {
  return error_of([&] {
    const auto device = make_device({.mode = mode, .seed = seed, .ring = 3, .fail_at = fail_at});
    const auto neg = elementwise(*device, "Neg", 16);
    std::vector<std::byte> host(256);
    std::unique_ptr<runtime::OpenDevice> open[2] = {device->open(), device->open()};
    auto& one = dynamic_cast<QueuedDevice&>(*open[0]);
    auto& two = dynamic_cast<QueuedDevice&>(*open[1]);
    one.pin(host);
    two.pin(host);
    const DeviceAddress at = one.allocate(1024), there = two.allocate(1024);
    const std::vector<float> x(16, 2.5f);
    const TensorSpec spec{{16}, f32, {}};
    one.write(at, spec, "row", 0, std::as_bytes(std::span(x)));
    const auto a = one.queue(), io = one.queue(), b = two.queue();
    io->download(host.data(), at, 64);
    io->upload(at + 64, host.data(), 64);
    a->wait(*io, io->mark());
    launch(*a, neg, {at + 64, at + 128}, at + 256);
    a->copy(at + 192, at + 128, 64);
    b->wait(*a, a->mark());
    b->copy_from(one, there, at + 192, 64);
    b->download(host.data() + 64, there, 64);
    const int64_t last = b->mark();
    a->wait(*b, last);
    a->check();
    poll(*b, last);
    a->drain();
    io->drain();
    b->drain();
    std::vector<float> y(16);
    two.read(there, spec, "row", 0, std::as_writable_bytes(std::span(y)));
    for (const float v : y) EXPECT_EQ(v, -2.5f);
    EXPECT_EQ(std::memcmp(host.data() + 64, y.data(), 64), 0);
  });
}

TEST_P(OpaqueFaults, FailAtEachCallInTurn) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    int64_t call = 1;
    for (; call < 10000; ++call) {
      const std::string error = small_program(GetParam(), call, seed);
      if (error.empty()) break;
      EXPECT_TRUE(error.starts_with("peer lost: opaque: ") ||
                  error.starts_with("does not fit: opaque: "))
          << call << " " << error;
    }
    EXPECT_GE(call, 25);
    EXPECT_LT(call, 10000);
  }
}

TEST_P(OpaqueFaults, FailInEachCommandInTurn) {
  for (int queue = 0; queue < 3; ++queue) {
    for (int64_t command = 1; command <= 2; ++command) {
      Rig rig(GetParam(), failing(command, queue));
      const std::string error = error_of([&] {
        const auto a = rig.queue(), io = rig.queue(), b = rig.queue(1);
        for (int i = 0; i < 2; ++i) {
          io->upload(rig.memory(), rig.host(), 64);
          a->wait(*io, io->mark());
          a->copy(rig.memory() + 64, rig.memory(), 64);
          b->wait(*a, a->mark());
          b->copy_from(rig.device(), rig.memory(1), rig.memory() + 64, 64);
          io->wait(*b, b->mark());
        }
        io->drain();
        a->drain();
        b->drain();
      });
      EXPECT_TRUE(error.starts_with("input/output: command") || error.starts_with("peer lost: "))
          << error;
    }
  }
}

}  // namespace
}  // namespace sluice::opaque
