// Wrong plans that a simpler checker would accept.

#include <utility>

#include "sluice/check/test_checks.h"

namespace sluice::check {
namespace {

// One arm waits for its own transfer, and so for all earlier transfers of that queue. The other arm
// does not wait.
TEST(Checker, WhatOneArmWaitsForMayBeInFlightAfterTheOther) {
  const std::string text = R"plan(sluice executable 1
device 0 kind cpu isa avx2 memory -1 workers 1 queues compute io
tier 0 "host" space host budget -1
arena 0 "frames" kind frames space device device 0 bytes 256 stride 0
arena 1 "host" kind tier space host device -1 bytes 192 stride 0
stream 0 "flag" in bool(1)
stream 1 "out" out float32(16)
stream 2 "y" in float32(16)
remote 0 "r" float32(16) entries 3 arena 1 offset 0 stride 64
value 0 "flag" 0
value 1 "x" 0
value 2 "own" 0
value 3 "f.flag" 0
value 4 "y" 0
function 0 "then" memo "" device 0 index_params 0 frame 64 bound 64
  0 issue remote_load 0 entry 1 queue 1 token 0
      write %2 at frame+0 bytes 64 float32(16) row
  1 wait queue 1 token 0
function 1 "else" memo "" device 0 index_params 0 frame 0 bound 0
function 2 "f" memo "" device 0 index_params 0 frame 64 bound 64
  param 0 "flag" read %3 bytes 1 bool(1) row
  0 branch then 0 frame frame+0 else 1 frame frame+0
      condition read %3 at param0+0 bytes 1 bool(1) row
      then
      else
function 3 "main" memo "" device 0 index_params 0 frame 256 bound 256
  0 issue stream_in 0 entry 0 queue 0 token 0
      write %0 at frame+0 bytes 1 bool(1) row
  1 issue stream_in 2 entry 0 queue 0 token 3
      write %4 at frame+192 bytes 64 float32(16) row
  2 issue remote_load 0 entry 0 queue 1 token 1
      write %1 at frame+64 bytes 64 float32(16) row
  3 sync call 2 frame frame+128
      read %0 at frame+0 bytes 1 bool(1) row
  4 wait queue 1 token 1
  5 issue stream_out 1 entry 0 queue 0 token 2
      read %1 at frame+64 bytes 64 float32(16) row
program "run"
  entry device 0 function 3 frame arena0+0
  stream 0 entries 1
  stream 1 entries 1
  stream 2 entries 1
  remote 0 loads 2 stores 0 found 1625443716527166632
end
)plan";
  EXPECT_EQ(all_of(violations(exe::plans::plan(text))), "");
  const Surgery early = [](exe::Executable& e) {
    std::swap(e.functions[exe::FunctionId(3)].steps[4], e.functions[exe::FunctionId(3)].steps[5]);
  };
  refuse(text, "race", "the load is used before the wait", early);
  refuse(text, "race", "its entry is overwritten before the wait", [&](exe::Executable& e) {
    early(e);
    auto& store = std::get<exe::Issue>(e.functions[exe::FunctionId(3)].steps[4].body);
    store.kind = exe::TransferKind::kRemoteStore;
    store.object = 0;
    store.memory.value = exe::ValueId(4);
    store.memory.at.offset = 192;
    e.programs[0].streams[exe::StreamId(1)].entries = 0;
  });
  refuse(text, "race", "the other arm touches what is loaded", [](exe::Executable& e) {
    exe::Step early_use = e.functions[exe::FunctionId(3)].steps[5];
    auto& store = std::get<exe::Issue>(early_use.body);
    store.kind = exe::TransferKind::kRemoteStore;
    store.object = 0;
    store.entry = 2;
    store.memory.at = {exe::Address::Base::kArena, 0, 64, 0, 0, {}};
    e.functions[exe::FunctionId(1)].steps.push_back(early_use);
  });
}

TEST(Checker, EntriesOfAStreamComeInOrderFromEveryQueue) {
  const std::string text = R"plan(sluice executable 1
device 0 kind cpu isa avx2 memory -1 workers 1 queues compute a b
arena 0 "frames" kind frames space device device 0 bytes 128 stride 0
stream 0 "x" in float32(16)
value 0 "x" 0
value 1 "x" 1
function 0 "main" memo "" device 0 index_params 0 frame 128 bound 128
  0 issue stream_in 0 entry 0 queue 1 token 0
      write %0 at frame+0 bytes 64 float32(16) row
  1 wait queue 1 token 0
  2 issue stream_in 0 entry 1 queue 2 token 1
      write %1 at frame+64 bytes 64 float32(16) row
  3 wait queue 2 token 1
program "run"
  entry device 0 function 0 frame arena0+0
  stream 0 entries 2
end
)plan";
  EXPECT_EQ(all_of(violations(exe::plans::plan(text))), "");
  refuse(text, "race", "the second may come first", [](exe::Executable& e) {
    std::swap(e.functions[exe::FunctionId(0)].steps[1], e.functions[exe::FunctionId(0)].steps[2]);
  });
}

// A budget must count all bytes, and only messages may use slots.
TEST(Checker, ArenasLieWhereTheirKindDoes) {
  refuse(exe::plans::two_devices(),
         {
             {"bounds", "function 3 frame arena1+0", "function 3 frame arena2+0"},
             {"bounds", "kind slots space device", "kind slots space host"},
             {"channel", "kind slots", "kind frames"},
             {"channel", "kind slots space device device 1", "kind slots space device device 0"},
         });
  refuse(exe::plans::train_step(), {
                                       {"bounds", "kind workspace space device device 0",
                                        "kind workspace space host device 0"},
                                       {"bounds", "kind persistent space device device 0",
                                        "kind persistent space device device -1"},
                                   });
  refuse(exe::plans::overlapped_loop(),
         {{"bounds", "kind tier space host", "kind tier space device"},
          {"budget", "kind tier space host", "kind tier space file"}});
}

// A tier holds the entries of all replicas, so its budget covers all replicas.
TEST(Checker, CountsATierOnceForEachReplica) {
  exe::Executable e = exe::plans::plan(exe::plans::overlapped_loop());
  e.replicas = 4;
  e.tiers[0].budget = 4 * 1024;
  EXPECT_EQ(all_of(violations(e)), "");
  e.tiers[0].budget = 4 * 1024 - 1;
  expect_rule(e, "budget", "a tier of four replicas");
}

}  // namespace
}  // namespace sluice::check
