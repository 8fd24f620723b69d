#include "sluice/compiler/lower/announce_remote.h"

#include <gtest/gtest.h>

#include "sluice/compiler/lower/test_lowering.h"

namespace sluice::compiler {
namespace {

// Returns the trace of remote buffer 1 in a program with these nodes.
exe::RemoteTrace trace(const std::string& nodes, const std::string& others = "") {
  TestProgram p("body main entry\nvariable 0 %0 f32(4)\nvariable 1 %1 f32(4)\n" + nodes + "\nend" +
                others);
  p.ir.remote_buffer({{4}, f32, {}}, 8);
  lower(p);
  announce_remote(p.program);
  const auto& traces = p.program.executable.programs[0].remote;
  return traces.empty() ? exe::RemoteTrace{} : traces[0];
}

constexpr const char* kStore0 = "transfer - remote_store 1 compute at 0 token 0 in %0\n";
constexpr const char* kStore1 = "transfer - remote_store 1 compute at 1 token 1 in %1\n";
constexpr const char* kLoad0 = "transfer - remote_load 1 compute at 0 token 2 out %2 f32(4)\n";

std::string join(std::initializer_list<const char*> nodes) {
  std::string text;
  for (const char* node : nodes) text += node;
  return text;
}

TEST(AnnounceRemote, FollowsTokensNotPlaces) {
  EXPECT_EQ(trace(join({kStore0, kStore1, kLoad0})), trace(join({kLoad0, kStore1, kStore0})));
}

TEST(AnnounceRemote, CountsLoadsAndStores) {
  const exe::RemoteTrace t = trace(join({kStore0, kStore1, kLoad0}));
  EXPECT_EQ(t.buffer, 0);
  EXPECT_EQ(t.loads, 1);
  EXPECT_EQ(t.stores, 2);
}

TEST(AnnounceRemote, AnotherOrderOrEntryIsAnotherTrace) {
  const auto base = trace(join({kStore0, kStore1, kLoad0})).found;
  const char* const load1 = "transfer - remote_load 1 compute at 1 token 2 out %2 f32(4)\n";
  const char* const early = "transfer - remote_load 1 compute at 0 token -1 out %2 f32(4)\n";
  EXPECT_NE(base, trace(join({kStore0, kStore1, load1})).found);
  EXPECT_NE(base, trace(join({kStore0, kStore1, early})).found);
  EXPECT_NE(base, trace(join({kStore0, kLoad0})).found);
}

// The number of transfers before the call decides whether the load finds the callee's store.
TEST(AnnounceRemote, CallsStandWhereTheGraphHasThem) {
  const std::string f = "\nbody f function\nparam %0 f32(4)\n" + std::string(kStore0) + "end";
  const auto at = [&](int before) {
    return trace(fmt::format("call 1 before {} in %1\n"
                             "transfer - remote_load 1 compute at 0 token 0 out %2 f32(4)\n",
                             before),
                 f)
        .found;
  };
  EXPECT_NE(at(0), at(1));
}

TEST(AnnounceRemote, LoopsRunAllTheirTrips) {
  EXPECT_EQ(trace("loop trips 1000 carried 0 1", R"(
    body step loop_body
      transfer - remote_load 1 compute at 0 out %0 f32(4)
    end)")
                .loads,
            1000);
}

}  // namespace
}  // namespace sluice::compiler
