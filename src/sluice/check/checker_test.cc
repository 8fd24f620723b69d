#include "sluice/check/test_checks.h"

#include "sluice/base/error.h"
#include "sluice/exe/text.h"

namespace sluice::check {
namespace {

TEST(Checker, AcceptsRightPlans) {
  for (const std::string& text :
       {exe::plans::train_step(), exe::plans::two_devices(), exe::plans::overlapped_loop(),
        exe::plans::carried_ring(), exe::plans::rotating_ring(), exe::plans::branch(),
        exe::plans::by_reference(), exe::plans::collectives()}) {
    EXPECT_EQ(all_of(violations(exe::plans::plan(text))), "") << text;
  }
}

TEST(Checker, AcceptsOtherRightVersions) {
  // The checker must accept each of these edits: a plan may choose either form.
  const std::vector<std::array<std::string, 3>> edits = {
      {exe::plans::two_devices(), "capacity 2", "capacity 1"},
      {exe::plans::train_step(), "3 kernel", "3 sync kernel"},
      {exe::plans::train_step(), "memory 1024", "memory 576"},
      {exe::plans::overlapped_loop(), "found %5", "found %-"},
      {exe::plans::branch(), "1 sync kernel",
       "1 kernel"},  // Task t reads only bytes that task t wrote.
      {exe::plans::carried_ring(), "trips 1000001", "trips 1"},
      {exe::plans::carried_ring(), "trips 1000001", "trips 999999999999"},
      {exe::plans::rotating_ring(), "trips 1000000", "trips 1"},
      {exe::plans::rotating_ring(), "trips 1000000", "trips 4"},
      {exe::plans::rotating_ring(), "trips 1000000", "trips 1000000000000"},
  };
  for (const auto& [text, from, to] : edits) {
    EXPECT_EQ(all_of(violations(exe::plans::plan(exe::plans::replaced(text, from, to)))), "")
        << from << " -> " << to;
  }
}

TEST(Checker, RefusesDamagedTrainStep) {
  refuse(exe::plans::train_step(),
         {
             {"value", "read %2 at frame+0 bytes 64 float32(4,4) row task 32",
              "read %3 at frame+0 bytes 64 float32(4,4) row task 32"},
             {"value", "write %2 at frame+0", "write %3 at frame+0"},
             {"value", "write %2 at frame+0", "write %2 at frame+64"},
             {"value", "write %3 at frame+64", "write %3 at frame+128"},
             {"overlap", "write %5 at frame+128", "write %5 at frame+64"},
             {"overlap", "write %5 at frame+128", "write %5 at frame+32"},
             {"bounds", "write %5 at frame+128", "write %5 at frame+160"},
             {"bounds", "bytes 192 stride 0", "bytes 128 stride 0"},
             {"bounds", "frame 192 bound", "frame 128 bound"},
             {"bounds", "write %5 at frame+128 bytes 64", "write %5 at frame+128 bytes 32"},
             {"budget", "memory 1024", "memory 575"},
             {"workspace", "bytes 256 stride 128", "bytes 128 stride 128"},
             {"workspace", "bytes 256 stride 128", "bytes 256 stride 64"},
             {"workspace", "kind workspace", "kind frames"},
             {"workspace", "tasks 2 workspace 128", "tasks 2 workspace 129"},
             {"workspace", "write %5 at frame+128", "write %5 at arena2+0"},
             {"sync", "2 sync kernel", "2 kernel"},
             {"sync", "4 sync kernel", "4 kernel"},
             {"sync", "3 kernel cpu.relu Relu tasks 2", "3 kernel cpu.relu Relu tasks 4"},
             {"overlap", "      coincide 0:1\n", ""},
             {"overlap", "      coincide 0:3\n", ""},
             {"tasks", "write %4 at frame+64 bytes 64 float32(4,4) row task 32",
              "write %4 at frame+64 bytes 64 float32(4,4) row"},
             {"tasks", "write %4 at frame+64 bytes 64 float32(4,4) row task 32",
              "write %4 at frame+64 bytes 64 float32(4,4) row task 16"},
             {"tasks", "read %3 at frame+64 bytes 64 float32(4,4) row task 32",
              "read %3 at frame+64 bytes 64 float32(4,4) row"},
             {"tasks", "read %2 at frame+0 bytes 64 float32(4,4) row task 32",
              "read %2 at frame+0 bytes 64 float32(4,4) row task 31"},
             {"tasks", "2 sync kernel cpu.gemm MatMul tasks 2",
              "2 sync kernel cpu.gemm MatMul tasks 1"},
             {"sync", "write %3 at frame+64 bytes 64 float32(4,4) row task 32",
              "write %3 at frame+64 bytes 64 float32(4,4) row task 8 pitch 16"},
             {"tasks", "write %3 at frame+64 bytes 64 float32(4,4) row task 32",
              "write %3 at frame+64 bytes 64 float32(4,4) row task 4 pitch 16"},
             {"tasks", "write %3 at frame+64 bytes 64 float32(4,4) row task 32",
              "write %3 at frame+64 bytes 64 float32(4,4) row task 8 pitch 15"},
             {"stream", "stream_in 0 entry 0", "stream_in 0 entry 1"},
             {"stream", "  stream 0 entries 1", "  stream 0 entries 2"},
             {"stream", "stream_in 0 entry 0", "stream_in 1 entry 0"},
             {"stream", "  stream 1 entries 1\n", ""},
             {"wait", "wait queue 1 token 0", "wait queue 1 token 1"},
             {"wait", "wait queue 1 token 0", "wait queue 0 token 0"},
             {"wait", "queue 0 token 1", "queue 1 token 1"},
             {"final", "final 0 value %6", "final 0 value %0"},
             {"final", "final 0 value %6", "final 0 value %5"},
             {"final", "  final 0 value %6\n", ""},
             {"final", "write %6 at arena0+0", "write %6 at frame+0"},
             {"overlap", "arena 0 offset 64", "arena 0 offset 32"},
             {"bounds", "arena 0 offset 64", "arena 0 offset 128"},
             {"overlap", "arena 0 offset 0 bytes 64 row value",
              "arena 0 offset 32 bytes 64 row value"},
             {"value", "arena 0 offset 64", "arena 0 offset 72"},
             {"layout", "read %4 at frame+64 bytes 64 float32(4,4) row",
              "read %4 at frame+64 bytes 64 float32(4,4) panel"},
             {"layout", "write %2 at frame+0 bytes 64 float32(4,4) row",
              "write %2 at frame+0 bytes 64 float32(4,4) panel"},
             {"layout", "write %2 at frame+0 bytes 64 float32(4,4) row",
              "write %2 at frame+0 bytes 64 float32(4,4) tiles2x2"},
             {"bounds", "read %4 at frame+64 bytes 64 float32(4,4) row",
              "read %4 at frame+64 bytes 64 float32(4,5) tiles2x2"},
             {"bounds", "read %4 at frame+64 bytes 64 float32(4,4) row",
              "read %4 at frame+64 bytes 64 float32(4,3) row"},
             {"access", "write %2 at frame+0", "read %2 at frame+0"},
             {"value", "frame arena1+0", "frame arena0+0"},
         });
}

TEST(Checker, RefusesDamagedChannels) {
  refuse(exe::plans::two_devices(),
         {
             {"channel", "send 0 message p0", "send 0 message (p0+1)"},
             {"channel", "receive 0 message p0", "receive 0 message (p0*2)"},
             {"channel", "receive 0 message p0", "receive 0 message (4-p0)"},
             {"channel", "write %0 at frame+0 bytes 64 float32(16) row\n  1 kernel",
              "write %1 at frame+0 bytes 64 float32(16) row\n  1 kernel"},
             {"channel", "slot 64", "slot 32"},
             {"channel", "from 0 to 1", "from 1 to 0"},
             {"channel", "loop 0 frame frame+0 trips 5", "loop 0 frame frame+0 trips 6"},
             {"deadlock", "loop 0 frame frame+0 trips 5", "loop 0 frame frame+0 trips 4"},
             {"deadlock", "loop 0 frame frame+0 trips 5", "loop 0 frame frame+0 trips 9"},
             {"bounds", "bytes 128 stride 0\nstream", "bytes 64 stride 0\nstream"},
             {"bounds", "device 0 bytes 64", "device 1 bytes 64"},
             {"stream", "stream_in 0 entry p0", "stream_in 0 entry 0"},
             {"stream", "stream_out 1 entry p0", "stream_out 1 entry (p0+1)"},
             {"value", "read %1 at frame+64", "read %1 at frame+0"},
         });
}

// Device 1 renames the value that it receives. The message number alone identifies it.
TEST(Checker, KnowsAMessageByItsNumber) {
  using exe::plans::replaced;
  std::string text = replaced(exe::plans::two_devices(), "value 1 \"y\" 0\n",
                              "value 1 \"y\" 0\nvalue 2 \"received\" 3 message 0\n");
  text = replaced(text, "receive 0 message p0\n      write %0",
                  "receive 0 message p0\n      write %2");
  text = replaced(text, "read %0 at frame+0 bytes 64 float32(16) row\n      write %1",
                  "read %2 at frame+0 bytes 64 float32(16) row\n      write %1");
  EXPECT_EQ(all_of(violations(exe::plans::plan(text))), "");
  refuse(text, {{"channel", "\"received\" 3 message 0", "\"received\" 3 message 1"},
                {"channel", "\"received\" 3 message 0", "\"x\" 0 message 1"},
                {"channel", "\"received\" 3 message 0", "\"x\" 0"},
                {"channel", "\"x\" 0 message 0", "\"x\" 0"}});
  refuse(exe::plans::two_devices(), {{"channel", " message 0\n", "\n"}});
}

TEST(Checker, RefusesDamagedOverlap) {
  refuse(exe::plans::overlapped_loop(),
         {
             {"overlap", "@ring(2,64,(it+1))", "@ring(2,64,it)"},
             {"overlap", "@ring(2,64,(it+1))", "@ring(1,64,it)"},
             {"overlap", "@ring(2,64,it)", "@ring(2,64,(it+1))"},
             {"overlap", "@ring(2,64,it)", "@ring(1,64,0)"},
             {"overlap", "@ring(2,64,(it+1))", "@ring(2,32,(it+1))"},
             {"remote", "entry (p0+1)", "entry (p0+2)"},
             {"remote", "entry p0", "entry (p0-1)"},
             {"remote", "remote_load 1 entry 5", "remote_load 1 entry 4"},
             {"remote", "found %5", "found %1"},
             // Every entry is still moved once, but by another transfer.
             {"remote", "entry (p0+1)", "entry ((p0+2)%6)"},
             {"remote", "entry p0", "entry (4-p0)"},
             {"remote", "remote_load 0 entry 0", "remote_load 0 entry 1"},
             {"remote", "loads 6 stores 0", "loads 7 stores 0"},
             {"remote", "  remote 0 loads 6 stores 0 found 2321755625203056276\n", ""},
             {"remote", "@ring(2,64,0) bytes 64 float32(16) row\n",
              "@ring(2,64,0) bytes 64 float32(16) row\n"
              "      entry_from read %6 at frame+192 bytes 4 uint32() row\n"},
             {"remote", "found 525889790539027997", "found 525889790539027996"},
             {"remote", "  remote 1 loads 1 stores 6 found 525889790539027997",
              "  remote 0 loads 1 stores 6 found 525889790539027997"},
             {"overlap", "offset 512", "offset 256"},
             {"bounds", "bytes 1024", "bytes 512"},
             {"budget", "budget 4096", "budget 1023"},
             {"race", "read %2 at param0+0", "read %3 at param1+0"},
             {"race", "remote_store 1 entry p0", "remote_store 0 entry (p0+1)"},
             {"race", "write %4 at frame+0 bytes 64 float32(16) row task 32",
              "write %4 at param1+0 bytes 64 float32(16) row task 32"},
             {"sync", "1 sync kernel", "1 kernel"},
             {"sync", "2 sync issue", "2 issue"},
             {"wait", "3 wait queue 1", "3 wait queue 2"},
             {"value", "read %1 at frame+128", "read %1 at frame+64"},
             {"value", "trips 5", "trips 4"},
             {"value", "carry 0:1\n", "carry 1:0\n"},
             {"loop", "carry 0:1\n", "carry 1:0\n"},
             {"value", "      carry 0:1\n", ""},
             {"remote", "float32(16) entries 6 arena 1 offset 0 stride 64",
              "float32(16) entries 6 arena 1 offset 0 stride 32"},
             {"remote", "kind tier", "kind frames"},
             {"access", "param 1 \"next\" write", "param 1 \"next\" read"},
         });
}

TEST(Checker, RefusesDamagedRings) {
  refuse(exe::plans::carried_ring(),
         {
             {"value", "trips 1000001", "trips 1000002"},
             {"value", "carry 0:1 2:2", "carry 0:1"},
             {"value", "carry 0:1 2:2", "carry 2:2"},
             {"value", "carry 0:1 2:2", "carry 0:1 2:0"},
             {"loop", "carry 0:1 2:2", "carry 0:1 0:1 2:2"},
             {"overlap", "@ring(2,64,(it+1))", "@ring(3,64,(it*2))"},
             {"bounds", "@ring(2,64,(it+1))", "@ring(3,64,(it+1))"},
             {"sync", "0 sync kernel cpu.scale", "0 kernel cpu.scale"},
             {"bounds", "frame arena0+64", "frame arena0+128"},
             {"final", "final 0 value %1", "final 0 value %0"},
             {"overlap", "update %0>%1 at arena1+0", "update %0>%1 at arena0+128"},
             {"tasks", "update %6>%7 at param2+0 bytes 64 float32(16) row task 32",
              "update %6>%7 at param2+0 bytes 64 float32(16) row"},
             {"value", "param 2 \"acc\" update %6>%7", "param 2 \"acc\" update %6>%6"},
         });
}

TEST(Checker, RefusesDamagedCalls) {
  refuse(exe::plans::by_reference(),
         {
             {"value", "update %1>%3 at arena1+64", "update %1>%3 at arena1+0"},
             {"value", "update %1>%3 at arena1+64", "update %0>%3 at arena1+64"},
             {"value", "read %5 at frame+64 bytes 64 float32(16) row\nprogram",
              "read %4 at frame+0 bytes 64 float32(16) row\nprogram"},
             {"value", "write %11 at param1+0", "write %10 at param1+0"},
             {"final", "final 0 value %2", "final 0 value %3"},
             {"overlap", "write %5 at frame+64", "write %5 at frame+0"},
             {"access", "update %4 at frame+0", "read %4 at frame+0"},
             {"access", "param 0 \"v\" update %6>%7", "param 0 \"v\" read %6"},
             {"value", "update %4 at frame+0", "update %4>%4 at frame+0"},
             {"access", "update %0>%2 at arena1+0 bytes 64", "update %0>%2 at arena1+0 bytes 128"},
         });
  refuse(
      exe::plans::branch(),
      {
          {"value", "write %11 at param1+0", "write %10 at param1+0"},
          {"value", "read %2 at frame+192", "read %2 at frame+128"},
          {"overlap",
           "call 2 frame frame+128\n      read %0 at frame+0 bytes 1 bool(1) row\n      read %2",
           "call 2 frame frame+192\n      read %0 at frame+0 bytes 1 bool(1) row\n      read %2"},
          {"bounds", "frame 64 bound 64\n  param 0 \"flag\"",
           "frame 0 bound 64\n  param 0 \"flag\""},
      });
}

TEST(Checker, RefusesMissingAndMovedSteps) {
  const auto erase = [](int f, int64_t s) {
    return [f, s](exe::Executable& e) {
      auto& steps = e.functions[exe::FunctionId(f)].steps;
      steps.erase(steps.begin() + s);
    };
  };
  const auto swap = [](int f, size_t a, size_t b) {
    return [f, a, b](exe::Executable& e) {
      auto& steps = e.functions[exe::FunctionId(f)].steps;
      std::swap(steps[a], steps[b]);
    };
  };
  refuse(exe::plans::train_step(), "race", "no wait for the load", erase(0, 1));
  refuse(exe::plans::train_step(), "wait", "no wait for the load", erase(0, 1));
  refuse(exe::plans::train_step(), "value", "no load", [](exe::Executable& e) {
    e.functions[exe::FunctionId(0)].steps.erase(e.functions[exe::FunctionId(0)].steps.begin(),
                                                e.functions[exe::FunctionId(0)].steps.begin() + 2);
  });
  refuse(exe::plans::train_step(), "value", "gemm and relu swapped", swap(0, 2, 3));
  refuse(exe::plans::train_step(), "race", "wait after gemm", swap(0, 1, 2));
  refuse(exe::plans::train_step(), "final", "no update", erase(0, 5));
  refuse(exe::plans::overlapped_loop(), "wait", "no wait in the loop", erase(0, 3));
  refuse(exe::plans::overlapped_loop(), "wait", "no wait for the store", erase(0, 4));
  refuse(exe::plans::overlapped_loop(), "race", "kernel before the wait", swap(1, 1, 2));
  refuse(exe::plans::two_devices(), "deadlock", "no send", erase(0, 1));
  refuse(exe::plans::two_devices(), "deadlock", "no receive", erase(1, 0));
  refuse(exe::plans::branch(), "value", "an arm makes nothing", erase(1, 0));
  refuse(exe::plans::branch(), "wait", "a load in flight across a branch", [](exe::Executable& e) {
    exe::Function& f = e.functions[exe::FunctionId(3)];
    e.devices[exe::DeviceId(0)].queues.push_back({"io"});
    std::get<exe::Issue>(f.steps[1].body).queue = 1;
    exe::Step wait;
    wait.body = exe::Wait{1, 1};
    exe::Step inner = e.functions[exe::FunctionId(2)].steps[0];
    auto& b = std::get<exe::Branch>(inner.body);
    b.condition = std::get<exe::Call>(f.steps[2].body).args[exe::ParamId(0)];
    b.then_call = exe::Call{exe::FunctionId(0),
                            {std::get<exe::Call>(f.steps[2].body).args[exe::ParamId(1)],
                             std::get<exe::Call>(f.steps[2].body).args[exe::ParamId(2)]},
                            {},
                            {}};
    b.then_call.frame.offset = 128;
    b.else_call = b.then_call;
    b.else_call.function = exe::FunctionId(1);
    f.steps[2] = inner;
    f.steps.insert(f.steps.begin() + 3, wait);
  });
}

TEST(Checker, BranchArmsMustAgree) {
  refuse(exe::plans::branch(), "value", "results at different addresses", [](exe::Executable& e) {
    e.functions[exe::FunctionId(2)].frame_bytes = 128;
    auto& b = std::get<exe::Branch>(e.functions[exe::FunctionId(2)].steps[0].body);
    b.else_call.args[exe::ParamId(1)].at = exe::Address{};
    b.else_call.args[exe::ParamId(1)].at.offset = 64;
  });
  refuse(exe::plans::branch(), "value", "results under different names", [](exe::Executable& e) {
    std::get<exe::Branch>(e.functions[exe::FunctionId(2)].steps[0].body)
        .else_call.args[exe::ParamId(1)]
        .value = exe::ValueId(5);
  });
  refuse(exe::plans::branch(), "branch", "an arm reads a stream", [](exe::Executable& e) {
    exe::Step s;
    exe::Issue i;
    i.memory = std::get<exe::Kernel>(e.functions[exe::FunctionId(1)].steps[0].body).operands[1];
    i.object = 1;
    i.entry = 1;
    s.body = i;
    e.functions[exe::FunctionId(1)].steps[0] = s;
  });
  refuse(exe::plans::branch(), "value", "one arm overwrites what is read after it",
         [](exe::Executable& e) {
           // The frame of 'then' overlaps x, which the second call still reads.
           auto& b = std::get<exe::Branch>(e.functions[exe::FunctionId(2)].steps[0].body);
           b.then_call.frame.base = exe::Address::Base::kArena;
           b.then_call.frame.offset = 192;
         });
  refuse(exe::plans::branch(), "sync", "the condition is written by worker 0 and read by all",
         [](exe::Executable& e) {
           e.functions[exe::FunctionId(3)].steps[2].sync = false;
           e.functions[exe::FunctionId(2)].steps[0].sync = false;
         });
}

TEST(Checker, ValuesUpdatedInOneArmOnly) {
  // 'then' negates in place, 'else' leaves the argument unchanged. The result is one value,
  // whichever arm ran.
  const std::string text = R"plan(sluice executable 1
device 0 kind cpu isa avx2 memory -1 workers 1 queues compute
arena 0 "frames" kind frames space device device 0 bytes 128 stride 0
arena 1 "persistent" kind persistent space device device 0 bytes 64 stride 0
stream 0 "flag" in bool(1)
variable 0 "a" float32(16) arena 1 offset 0 bytes 64 row value %0 shard 0 group -1 buffer -1 entry 0 init "zeros"
value 0 "a" 0
value 1 "a" 1
value 2 "flag" 0
value 3 "then.v" 0
value 4 "then.v" 1
value 5 "else.v" 0
function 0 "then" memo "" device 0 index_params 0 frame 0 bound 0
  param 0 "v" update %3>%4 bytes 64 float32(16) row
  0 kernel cpu.neg Neg tasks 1 workspace 0
      update %3>%4 at param0+0 bytes 64 float32(16) row
function 1 "else" memo "" device 0 index_params 0 frame 0 bound 0
  param 0 "v" update %5>%5 bytes 64 float32(16) row
function 2 "main" memo "" device 0 index_params 0 frame 64 bound 64
  0 issue stream_in 0 entry 0 queue 0 token 0
      write %2 at frame+0 bytes 1 bool(1) row
  1 sync branch then 0 frame frame+0 else 1 frame frame+0
      condition read %2 at frame+0 bytes 1 bool(1) row
      then
      update %0>%1 at arena1+0 bytes 64 float32(16) row
      else
      update %0>%1 at arena1+0 bytes 64 float32(16) row
program "run"
  entry device 0 function 2 frame arena0+0
  stream 0 entries 1
  final 0 value %1
end
)plan";
  EXPECT_EQ(all_of(violations(exe::plans::plan(text))), "");
  refuse(text, {{"final", "final 0 value %1", "final 0 value %0"}});
  refuse(text, "final", "one arm only names the value", [](exe::Executable& e) {
    std::get<exe::Branch>(e.functions[exe::FunctionId(2)].steps[1].body)
        .else_call.args[exe::ParamId(0)]
        .made = exe::kNoValue;
  });
}

TEST(Checker, TiersNeedOrderAcrossDevices) {
  // Device 0 stores an entry and sends a message to device 1, which then loads the entry.
  const std::string text = R"plan(sluice executable 1
device 0 kind cpu isa avx2 memory -1 workers 1 queues compute io
device 1 kind cpu isa avx2 memory -1 workers 1 queues compute
tier 0 "host" space host budget -1
arena 0 "f0" kind frames space device device 0 bytes 64 stride 0
arena 1 "f1" kind frames space device device 1 bytes 64 stride 0
arena 2 "host" kind tier space host device -1 bytes 64 stride 0
arena 3 "slots" kind slots space device device 1 bytes 0 stride 0
stream 0 "x" in float32(16)
remote 0 "r" float32(16) entries 1 arena 2 offset 0 stride 64
channel 0 "stored" from 0 to 1 capacity 1 arena 3 offset 0 slot 0
value 0 "x" 0
function 0 "main 0" memo "" device 0 index_params 0 frame 64 bound 64
  0 issue stream_in 0 entry 0 queue 0 token 0
      write %0 at frame+0 bytes 64 float32(16) row
  1 issue remote_store 0 entry 0 queue 1 token 1
      read %0 at frame+0 bytes 64 float32(16) row
  2 wait queue 1 token 1
  3 send 0 message 0
      read %- at frame+0 bytes 0 float32(0) row
function 1 "main 1" memo "" device 1 index_params 0 frame 64 bound 64
  0 receive 0 message 0
      write %- at frame+0 bytes 0 float32(0) row
  1 issue remote_load 0 entry 0 queue 0 token 0
      write %0 at frame+0 bytes 64 float32(16) row
program "run"
  entry device 0 function 0 frame arena0+0
  entry device 1 function 1 frame arena1+0
  stream 0 entries 1
  remote 0 loads 1 stores 1 found 8167355863902291966
end
)plan";
  EXPECT_EQ(all_of(violations(exe::plans::plan(text))), "");
  refuse(text, "race", "the message is sent before the store has ended", [](exe::Executable& e) {
    std::swap(e.functions[exe::FunctionId(0)].steps[2], e.functions[exe::FunctionId(0)].steps[3]);
  });
  refuse(text, "race", "no message", [](exe::Executable& e) {
    e.functions[exe::FunctionId(0)].steps.pop_back();
    e.functions[exe::FunctionId(1)].steps.erase(e.functions[exe::FunctionId(1)].steps.begin());
  });
  refuse(text, "race", "loaded before the message is taken", [](exe::Executable& e) {
    std::swap(e.functions[exe::FunctionId(1)].steps[0], e.functions[exe::FunctionId(1)].steps[1]);
  });
}

TEST(Checker, BadIndicesAreFoundFirst) {
  refuse(exe::plans::train_step(), "index", "no such arena",
         [](exe::Executable& e) { e.programs[0].starts[0].frame.index = 9; });
  refuse(exe::plans::train_step(), "index", "overflow", [](exe::Executable& e) {
    exe::Address& at =
        std::get<exe::Issue>(e.functions[exe::FunctionId(0)].steps[0].body).memory.at;
    at.depth = 2;
    at.slot = (exe::IndexExpr::replica() + INT64_MAX) + 1;
  });
  refuse(exe::plans::carried_ring(), "index", "division by nothing", [](exe::Executable& e) {
    std::get<exe::Loop>(e.functions[exe::FunctionId(1)].steps[1].body)
        .body.args[exe::ParamId(0)]
        .at.slot = exe::IndexExpr::iteration() % exe::IndexExpr(0);
  });
}

TEST(Checker, CollectivesComeInOneOrderForAllReplicas) {
  refuse(exe::plans::collectives(),
         {{"collective", "group 0 sequence p1", "group 0 sequence (p1+1)"},
          {"collective", "group 1 sequence p2", "group 1 sequence (p2+rep)"},
          {"collective", "index it it it", "index it it 0"},
          {"collective", "group 0 sequence p1", "group 1 sequence p1"},
          {"collective", "collectives 3 device 0 group 0", "collectives 2 device 0 group 0"},
          {"collective", "  collectives 3 device 0 group 1\n", ""},
          {"collective", "collectives 3 device 0 group 1",
           "collectives 3 device 0 group 1\n  collectives 3 device 0 group 1"}});
  refuse(exe::plans::collectives(), "collective", "both sequences", [](exe::Executable& e) {
    auto& steps = e.functions[exe::FunctionId(0)].steps;
    std::swap(std::get<exe::Collective>(steps[2].body).group,
              std::get<exe::Collective>(steps[3].body).group);
    e.programs[0].collectives.pop_back();
  });
  refuse(exe::plans::collectives(), "collective", "a dropped one", [](exe::Executable& e) {
    e.functions[exe::FunctionId(0)].steps.erase(e.functions[exe::FunctionId(0)].steps.begin() + 2);
  });
  refuse(exe::plans::collectives(), "value", "a dropped one", [](exe::Executable& e) {
    e.functions[exe::FunctionId(0)].steps.erase(e.functions[exe::FunctionId(0)].steps.begin() + 2);
  });
}

TEST(Checker, CollectivesFindTheirOperands) {
  const char* const in = "read %2 at frame+64 bytes 60 float32(15) row\n      write %3";
  refuse(exe::plans::collectives(),
         {{"value", in, "read %1 at frame+64 bytes 60 float32(15) row\n      write %3"},
          {"overlap", "write %3 at frame+128 bytes 32 float32(8)of(15) row",
           "write %3 at frame+64 bytes 32 float32(8)of(15) row"},
          {"collective", "write %3 at frame+128 bytes 32 float32(8)of(15) row",
           "write %3 at frame+128 bytes 28 float32(7)of(15) row"},
          {"collective", "group 1 stride 2 size 2", "group 1 stride 1 size 4"},
          {"layout", "write %3 at frame+128 bytes 32 float32(8)of(15) row",
           "write %3 at frame+128 bytes 32 float32(8)of(15) panel"},
          {"access", "update %1>%2 at frame+64", "read %1>%2 at frame+64"},
          {"workspace", "group 0 sequence p1", "group 0 sequence p1 workspace 1"},
          // A collective is also a barrier for the workers of its own device.
          {"sync", "2 collective ReplicatedAllReduceInplace group 0 sequence p1",
           "2 kernel cpu.all ReplicatedAllReduceInplace tasks 1 workspace 0"}});
}

TEST(Checker, CollectivesDoNotStandInBranches) {
  refuse(exe::plans::branch(), "branch", "a collective in an arm", [](exe::Executable& e) {
    e.groups.push_back({1, 1});
    exe::Step s;
    const exe::Step& kernel = e.functions[exe::FunctionId(0)].steps[0];
    exe::Operand o = std::get<exe::Kernel>(kernel.body).operands.back();
    o.access = exe::Access::kUpdate;
    o.made = o.value;
    s.body = exe::Collective{"ReplicatedAllReduceInplace", {}, exe::GroupId(0), 0, {o}, {}};
    e.functions[exe::FunctionId(0)].steps.push_back(s);
  });
}

TEST(Checker, StepLimitEndsEndlessPlans) {
  const std::vector<Violation> found =
      violations(exe::plans::plan(exe::plans::replaced(exe::plans::two_devices(),
                                                       "loop 1 frame frame+0 trips 5",
                                                       "loop 1 frame frame+0 trips 0")),
                 {.max_steps = 10});
  ASSERT_FALSE(found.empty());
  const std::string ring = exe::plans::replaced(exe::plans::carried_ring(), "@ring(2,64,(it+1))",
                                                "@ring(2,64,((it*it)/(it+1)))");
  const std::vector<Violation> limited =
      violations(exe::plans::plan(ring), {.max_steps = 1000, .max_violations = 5000});
  EXPECT_EQ(limited.back().rule, "limit");
}

/// Returns a plan with `calls` calls of a function that runs `kernels` kernels on two buffers.
exe::Executable many_calls(int calls, int kernels) {
  std::string f =
      "function 0 \"f\" memo \"\" device 0 index_params 0 frame 64 bound 64\n"
      "  param 0 \"x\" read %0 bytes 64 float32(16) row\n  param 1 \"y\" write %1 bytes 64 "
      "float32(16) row\n";
  for (int k = 0; k < kernels; ++k) {
    f += fmt::format(
        "  {} sync kernel k K tasks 2 workspace 0\n      read %{} at {}+0 bytes 64 float32(16) row "
        "task 32\n"
        "      write %{} at {}+0 bytes 64 float32(16) row task 32\n",
        k, k == 0 ? 0 : k + 3,
        k == 0       ? "param0"
        : k % 2 == 1 ? "frame"
                     : "param1",
        k + 1 == kernels ? 1 : k + 4, k % 2 == 0 ? "frame" : "param1");
  }
  std::string main =
      "function 1 \"main\" memo \"\" device 0 index_params 0 frame 192 bound 192\n"
      "  0 issue stream_in 0 entry 0 queue 0 token 0\n      write %2 at frame+0 bytes 64 "
      "float32(16) row\n";
  for (int c = 0; c < calls; ++c) {
    main += fmt::format(
        "  {} call 0 frame frame+128\n      read %{} at frame+{} bytes 64 float32(16) row\n"
        "      write %{} at frame+{} bytes 64 float32(16) row\n",
        c + 1, 2 + c % 2, c % 2 * 64, 3 - c % 2, 64 - c % 2 * 64);
  }
  std::string values;
  for (int v = 0; v < kernels + 4; ++v) values += fmt::format("value {} \"v{}\" 0\n", v, v);
  return exe::plans::plan(
      "sluice executable 1\ndevice 0 kind cpu isa avx2 memory -1 workers 2 queues compute\n"
      "arena 0 \"a\" kind frames space device device 0 bytes 192 stride 0\nstream 0 \"x\" in "
      "float32(16)\n" +
      values + f + main +
      "program \"run\"\n  entry device 0 function 1 frame arena0+0\n  stream 0 entries 1\nend\n");
}

TEST(Checker, DamagedTextIsRefusedOrChecked) {
  int checked = 0;
  for (const std::string& text :
       {exe::plans::train_step(), exe::plans::two_devices(), exe::plans::overlapped_loop(),
        exe::plans::carried_ring(), exe::plans::rotating_ring(), exe::plans::branch(),
        exe::plans::by_reference()}) {
    for (size_t i = 0; i < text.size(); ++i) {
      for (const char c : {'9', '0', '-'}) {
        std::string damaged = text;
        damaged[i] = c;
        try {
          violations(exe::plans::plan(damaged), {.max_steps = 2000});
          ++checked;
        } catch (const Error& e) {
          EXPECT_EQ(e.kind(), ErrorKind::kBadFile) << e.what();
        }
      }
    }
  }
  EXPECT_GT(checked, 2000);
}

// tests/counts counts the instructions of this test, which grow with the steps.
TEST(Checker, WalksEachStepOnce) {
  // A call, its ten kernels, and the load and store of the entry.
  const exe::Executable calls = many_calls(1000, 10);
  EXPECT_EQ(all_of(violations(calls, {.max_steps = 1000 * 11 + 3})), "");
  EXPECT_EQ(violations(calls, {.max_steps = 1000 * 10}).back().rule, "limit");
}

// A loop is left once its state repeats, whatever its number of iterations.
TEST(Checker, LeavesALoopWhoseStateRepeats) {
  const std::string ring = exe::plans::carried_ring();
  EXPECT_EQ(all_of(violations(exe::plans::plan(ring), {.max_steps = 100})), "");
}

}  // namespace
}  // namespace sluice::check
