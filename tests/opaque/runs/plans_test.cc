// Plans for opaque devices, and the checker's errors when their staging memory is damaged.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sluice/check/checker.h"
#include "sluice/sluice.h"

namespace sluice::opaque {
namespace {

using testing::HasSubstr;

// A program with streams, and a remote buffer that an I/O queue moves too.
struct Program {
  Program() {
    Graph& main = ir.main_graph();
    const Tensor a = main.host_load(x);
    main.remote_store(buffer, 0, a);
    const Graph::IoScope on_io_queue(main, IoMode::kIo);
    main.host_store(y, main.remote_load(buffer, 0) * 2.0);
  }
  exe::Executable plan() const { return Session(ir, {.device = cpu_device()}).executable(); }

  Ir ir;
  H2dStream x = ir.h2d_stream(f32_spec({100}), "x");
  D2hStream y = ir.d2h_stream(f32_spec({100}), "y");
  RemoteBuffer buffer = ir.remote_buffer(f32_spec({100}), 2);
};

std::vector<exe::Arena*> staging_of(exe::Executable& e) {
  std::vector<exe::Arena*> found;
  for (exe::Arena& a : e.arenas) {
    if (a.kind == exe::ArenaKind::kStaging) found.push_back(&a);
  }
  return found;
}

TEST(Plans, AreForOpaqueDevicesInPlaceOfTheCpu) {
  exe::Executable e = Program().plan();
  EXPECT_EQ(e.devices[exe::DeviceId(0)].kind, "opaque");
  EXPECT_EQ(e.devices[exe::DeviceId(0)].workers, 1);
  EXPECT_TRUE(e.devices[exe::DeviceId(0)].queued);
  const auto staging = staging_of(e);
  ASSERT_EQ(staging.size(), e.devices[exe::DeviceId(0)].queues.size());
  ASSERT_EQ(staging.size(), 2U);
  for (const exe::Arena* a : staging) {
    EXPECT_EQ(a->space, exe::Space::kPinned);
    EXPECT_EQ(a->bytes, 64 + 2 * 448);  // A word, and two slots of 400 bytes rounded up.
  }
  EXPECT_TRUE(check::violations(e).empty());
}

TEST(Plans, CountStagingAgainstTheBudgetOfHostMemory) {
  const Program p;
  const int64_t remote = 2 * 448, staging = 2 * (64 + 2 * 448);
  SessionOptions options{.device = cpu_device(), .remote_memory = remote + staging};
  const Session fits(p.ir, options);
  options.remote_memory -= 1;
  EXPECT_THROW(Session(p.ir, options), Error);
}

TEST(Plans, WithDamagedStagingAreRefused) {
  const auto refused = [](const char* text, auto&& damage) {
    exe::Executable e = Program().plan();
    damage(e, staging_of(e));
    const auto found = check::violations(e);
    ASSERT_FALSE(found.empty()) << text;
    EXPECT_THAT(found[0].message, HasSubstr(text));
  };
  using Staging = std::vector<exe::Arena*>;
  refused("must have at least", [](exe::Executable&, const Staging& s) { s[0]->bytes -= 128; });
  refused("must have at least", [](exe::Executable&, const Staging& s) { s[1]->bytes -= 128; });
  refused("must have at least", [](exe::Executable&, const Staging& s) { s[1]->bytes = 0; });
  refused("two slots of a multiple", [](exe::Executable&, const Staging& s) { ++s[0]->bytes; });
  refused("two slots of a multiple", [](exe::Executable&, const Staging& s) { s[0]->bytes += 64; });
  refused("for each of its 3 queues", [](exe::Executable& e, const Staging&) {
    e.devices[exe::DeviceId(0)].queues.push_back({"third"});
  });
  refused("as it is not queued",
          [](exe::Executable& e, const Staging&) { e.devices[exe::DeviceId(0)].queued = false; });
  refused("must have 1 worker, as it is queued", [](exe::Executable& e, const Staging&) {
    e.devices[exe::DeviceId(0)].workers = 2;
    for (exe::Arena& a : e.arenas) {
      if (a.kind == exe::ArenaKind::kWorkspace) a.bytes *= 2;
    }
  });
}

}  // namespace
}  // namespace sluice::opaque
