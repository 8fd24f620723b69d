#include "sluice/exe/test_plans.h"

#include "sluice/base/error.h"
#include "sluice/exe/text.h"

namespace sluice::exe::plans {

Executable plan(const std::string& text) {
  return parse_text(text, "plan", Fingerprints::kIgnored);
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const size_t at = text.find(from);
  require(at != std::string::npos, "the plan has no '{}'", from);
  require(text.find(from, at + 1) == std::string::npos, "the plan has '{}' twice", from);
  return text.replace(at, from.size(), to);
}

std::string train_step() {
  return R"plan(sluice executable 1
device 0 kind cpu isa avx512 memory 1024 workers 2 queues compute io
arena 0 "persistent" kind persistent space device device 0 bytes 128 stride 0
arena 1 "frames" kind frames space device device 0 bytes 192 stride 0
arena 2 "workspace" kind workspace space device device 0 bytes 256 stride 128
stream 0 "image" in float32(4,4)
stream 1 "grad" out float32(4,4)
variable 0 "fc.weight" float32(4,4) arena 0 offset 0 bytes 64 row value %0 shard 0 group -1 buffer -1 entry 0 init "normal(0, 0.02)"
constant 0 "scale" float32(2) arena 0 offset 64 value %1 data 0000803f00000040
value 0 "fc.weight" 0
value 1 "scale" 0
value 2 "x" 0
value 3 "y" 0
value 4 "z" 0
value 5 "dw" 0
value 6 "fc.weight" 1
function 0 "main" memo "" device 0 index_params 0 frame 192 bound 192
  buffer "x" offset 0 bytes 64 steps 0 5
  buffer "y" offset 64 bytes 64 steps 2 5
  buffer "dw" offset 128 bytes 64 steps 4 7
  0 sync issue stream_in 0 entry 0 queue 1 token 0
      write %2 at frame+0 bytes 64 float32(4,4) row
  1 wait queue 1 token 0
  2 sync kernel cpu.gemm MatMul tasks 2 workspace 128 origin 104 where "fc (mlp.cc:7)"
      read %2 at frame+0 bytes 64 float32(4,4) row task 32
      read %0 at arena0+0 bytes 64 float32(4,4) row
      write %3 at frame+64 bytes 64 float32(4,4) row task 32
  3 kernel cpu.relu Relu tasks 2 workspace 0 origin 105
      coincide 0:1
      read %3 at frame+64 bytes 64 float32(4,4) row task 32
      write %4 at frame+64 bytes 64 float32(4,4) row task 32
  4 sync kernel cpu.gemm MatMul tasks 1 workspace 64 origin 106
      attrs trans_a=true
      read %2 at frame+0 bytes 64 float32(4,4) row
      read %4 at frame+64 bytes 64 float32(4,4) row
      write %5 at frame+128 bytes 64 float32(4,4) row
  5 kernel cpu.scaled_add ScaledAdd tasks 1 workspace 0 origin 107
      coincide 0:3
      read %0 at arena0+0 bytes 64 float32(4,4) row
      read %5 at frame+128 bytes 64 float32(4,4) row
      read %1 at arena0+64 bytes 8 float32(2) row
      write %6 at arena0+0 bytes 64 float32(4,4) row
  6 issue stream_out 1 entry 0 queue 0 token 1
      read %5 at frame+128 bytes 64 float32(4,4) row
program "train"
  entry device 0 function 0 frame arena1+0
  stream 0 entries 1
  stream 1 entries 1
  final 0 value %6
end
)plan";
}

std::string two_devices() {
  return R"plan(sluice executable 1
device 0 kind cpu isa avx2 memory -1 workers 1 queues compute
device 1 kind cpu isa avx2 memory -1 workers 1 queues compute
arena 0 "frames 0" kind frames space device device 0 bytes 64 stride 0
arena 1 "frames 1" kind frames space device device 1 bytes 128 stride 0
arena 2 "slots" kind slots space device device 1 bytes 128 stride 0
stream 0 "in" in float32(16)
stream 1 "out" out float32(16)
channel 0 "0 to 1" from 0 to 1 capacity 2 arena 2 offset 0 slot 64
value 0 "x" 0 message 0
value 1 "y" 0
function 0 "produce" memo "" device 0 index_params 1 frame 64 bound 64
  0 issue stream_in 0 entry p0 queue 0 token 0
      write %0 at frame+0 bytes 64 float32(16) row
  1 send 0 message p0
      read %0 at frame+0 bytes 64 float32(16) row
function 1 "consume" memo "" device 1 index_params 1 frame 128 bound 128
  0 receive 0 message p0
      write %0 at frame+0 bytes 64 float32(16) row
  1 kernel cpu.neg Neg tasks 1 workspace 0
      read %0 at frame+0 bytes 64 float32(16) row
      write %1 at frame+64 bytes 64 float32(16) row
  2 issue stream_out 1 entry p0 queue 0 token 0
      read %1 at frame+64 bytes 64 float32(16) row
function 2 "main 0" memo "" device 0 index_params 0 frame 64 bound 64
  0 sync loop 0 frame frame+0 trips 5
      index it
function 3 "main 1" memo "" device 1 index_params 0 frame 128 bound 128
  0 sync loop 1 frame frame+0 trips 5
      index it
program "run"
  entry device 1 function 3 frame arena1+0
  entry device 0 function 2 frame arena0+0
  stream 0 entries 5
  stream 1 entries 5
end
)plan";
}

std::string overlapped_loop() {
  return R"plan(sluice executable 1
device 0 kind cpu isa avx2 memory 512 workers 2 queues compute load store
tier 0 "host" space host budget 4096
arena 0 "frames" kind frames space device device 0 bytes 256 stride 0
arena 1 "host" kind tier space host device -1 bytes 1024 stride 0
remote 0 "acts" float32(16) entries 6 arena 1 offset 0 stride 64
remote 1 "out" float32(16) entries 6 arena 1 offset 512 stride 64
value 0 "x" 0
value 1 "x" 5
value 2 "body.x" 0
value 3 "body.next" 0
value 4 "body.y" 0
value 5 "y" 5
value 6 "again" 0
function 0 "body" memo "" device 0 index_params 1 frame 64 bound 64
  param 0 "x" read %2 bytes 64 float32(16) row
  param 1 "next" write %3 bytes 64 float32(16) row
  0 issue remote_load 0 entry (p0+1) queue 1 token 0
      write %3 at param1+0 bytes 64 float32(16) row
  1 sync kernel cpu.neg Neg tasks 2 workspace 0
      read %2 at param0+0 bytes 64 float32(16) row task 32
      write %4 at frame+0 bytes 64 float32(16) row task 32
  2 sync issue remote_store 1 entry p0 queue 2 token 1
      read %4 at frame+0 bytes 64 float32(16) row
  3 wait queue 1 token 0
  4 wait queue 2 token 1
function 1 "main" memo "" device 0 index_params 0 frame 256 bound 192
  0 sync issue remote_load 0 entry 0 queue 1 token 0
      write %0 at frame+64@ring(2,64,0) bytes 64 float32(16) row
  1 wait queue 1 token 0
  2 loop 0 frame frame+0 trips 5
      carry 0:1
      index it
      read %0 at frame+64@ring(2,64,it) bytes 64 float32(16) row
      write %1 at frame+64@ring(2,64,(it+1)) bytes 64 float32(16) row
  3 sync kernel cpu.neg Neg tasks 2 workspace 0
      read %1 at frame+128 bytes 64 float32(16) row task 32
      write %5 at frame+0 bytes 64 float32(16) row task 32
  4 sync issue remote_store 1 entry 5 queue 0 token 1
      read %5 at frame+0 bytes 64 float32(16) row
  5 issue remote_load 1 entry 5 queue 0 token 2 found %5
      write %6 at frame+192 bytes 64 float32(16) row
program "run"
  entry device 0 function 1 frame arena0+0
  remote 0 loads 6 stores 0 found 2321755625203056276
  remote 1 loads 1 stores 6 found 525889790539027997
end
)plan";
}

std::string carried_ring() {
  return R"plan(sluice executable 1
device 0 kind cpu isa avx2 memory -1 workers 2 queues compute
arena 0 "frames" kind frames space device device 0 bytes 256 stride 0
arena 1 "persistent" kind persistent space device device 0 bytes 64 stride 0
stream 0 "out" out float32(16)
variable 0 "acc" float32(16) arena 1 offset 0 bytes 64 row value %0 shard 0 group -1 buffer -1 entry 0 init "zeros"
value 0 "acc" 0
value 1 "acc" 7
value 2 "s" 0
value 3 "s" 9
value 4 "body.s" 0
value 5 "body.next" 0
value 6 "body.acc" 0
value 7 "body.acc" 1
function 0 "body" memo "" device 0 index_params 1 frame 0 bound 0
  param 0 "s" read %4 bytes 64 float32(16) row
  param 1 "next" write %5 bytes 64 float32(16) row
  param 2 "acc" update %6>%7 bytes 64 float32(16) row
  0 sync kernel cpu.scale Scale tasks 2 workspace 0
      scalars p0
      read %4 at param0+0 bytes 64 float32(16) row
      write %5 at param1+0 bytes 64 float32(16) row task 32
  1 kernel cpu.add AddLhsInplace tasks 2 workspace 0
      update %6>%7 at param2+0 bytes 64 float32(16) row task 32
      read %4 at param0+0 bytes 64 float32(16) row task 32
function 1 "main" memo "" device 0 index_params 0 frame 192 bound 192
  0 sync kernel cpu.fill Fill tasks 1 workspace 0
      write %2 at frame+64 bytes 64 float32(16) row
  1 loop 0 frame frame+0 trips 1000001
      carry 0:1 2:2
      index it
      read %2 at frame+64@ring(2,64,it) bytes 64 float32(16) row
      write %3 at frame+64@ring(2,64,(it+1)) bytes 64 float32(16) row
      update %0>%1 at arena1+0 bytes 64 float32(16) row
  2 sync issue stream_out 0 entry 0 queue 0 token 0
      read %3 at frame+128 bytes 64 float32(16) row
program "run"
  entry device 0 function 1 frame arena0+64
  stream 0 entries 1
  final 0 value %1
end
)plan";
}

std::string rotating_ring() {
  return R"plan(sluice executable 1
device 0 kind cpu isa avx2 memory -1 workers 2 queues compute
arena 0 "frames" kind frames space device device 0 bytes 192 stride 0
stream 0 "in" in float32(16)
stream 1 "out" out float32(16)
value 0 "old" 0
value 1 "young" 0
value 2 "young" 9
value 3 "old" 9
value 4 "body.young" 0
value 5 "body.old" 0
value 6 "body.next" 0
function 0 "body" memo "" device 0 index_params 0 frame 0 bound 0
  param 0 "young" read %4 bytes 64 float32(16) row
  param 1 "old" read %5 bytes 64 float32(16) row
  param 2 "next" write %6 bytes 64 float32(16) row
  0 sync kernel cpu.add Add tasks 2 workspace 0
      read %4 at param0+0 bytes 64 float32(16) row task 32
      read %5 at param1+0 bytes 64 float32(16) row task 32
      write %6 at param2+0 bytes 64 float32(16) row task 32
function 1 "main" memo "" device 0 index_params 0 frame 192 bound 192
  0 sync issue stream_in 0 entry 0 queue 0 token 0
      write %0 at frame+0 bytes 64 float32(16) row
  1 issue stream_in 0 entry 1 queue 0 token 1
      write %1 at frame+64 bytes 64 float32(16) row
  2 loop 0 frame frame+0 trips 1000000
      carry 0:2 1:0 %3
      read %1 at frame+0@ring(3,64,(it+1)) bytes 64 float32(16) row
      read %0 at frame+0@ring(3,64,it) bytes 64 float32(16) row
      write %2 at frame+0@ring(3,64,(it+2)) bytes 64 float32(16) row
  3 sync issue stream_out 1 entry 0 queue 0 token 2
      read %2 at frame+128 bytes 64 float32(16) row
  4 issue stream_out 1 entry 1 queue 0 token 3
      read %3 at frame+64 bytes 64 float32(16) row
program "run"
  entry device 0 function 1 frame arena0+0
  stream 0 entries 2
  stream 1 entries 2
end
)plan";
}

std::string branch() {
  return R"plan(sluice executable 1
device 0 kind cpu isa avx2 memory -1 workers 2 queues compute
arena 0 "frames" kind frames space device device 0 bytes 512 stride 0
stream 0 "flag" in bool(1)
stream 1 "x" in float32(16)
stream 2 "out" out float32(16)
value 0 "flag" 0
value 1 "x" 0
value 2 "a" 0
value 3 "b" 0
value 4 "f.flag" 0
value 5 "f.x" 0
value 6 "f.y" 0
value 7 "then.x" 0
value 8 "then.t" 0
value 9 "then.y" 0
value 10 "else.x" 0
value 11 "else.y" 0
function 0 "then" memo "" device 0 index_params 0 frame 64 bound 64
  param 0 "x" read %7 bytes 64 float32(16) row
  param 1 "y" write %9 bytes 64 float32(16) row
  0 sync kernel cpu.neg Neg tasks 2 workspace 0
      read %7 at param0+0 bytes 64 float32(16) row task 32
      write %8 at frame+0 bytes 64 float32(16) row task 32
  1 sync kernel cpu.neg Neg tasks 2 workspace 0
      read %8 at frame+0 bytes 64 float32(16) row task 32
      write %9 at param1+0 bytes 64 float32(16) row task 32
function 1 "else" memo "" device 0 index_params 0 frame 0 bound 0
  param 0 "x" read %10 bytes 64 float32(16) row
  param 1 "y" write %11 bytes 64 float32(16) row
  0 sync kernel cpu.abs Abs tasks 2 workspace 0
      read %10 at param0+0 bytes 64 float32(16) row task 32
      write %11 at param1+0 bytes 64 float32(16) row task 32
function 2 "f" memo "" device 0 index_params 0 frame 64 bound 64
  param 0 "flag" read %4 bytes 1 bool(1) row
  param 1 "x" read %5 bytes 64 float32(16) row
  param 2 "y" write %6 bytes 64 float32(16) row
  0 sync branch then 0 frame frame+0 else 1 frame frame+0
      condition read %4 at param0+0 bytes 1 bool(1) row
      then
      read %5 at param1+0 bytes 64 float32(16) row
      write %6 at param2+0 bytes 64 float32(16) row
      else
      read %5 at param1+0 bytes 64 float32(16) row
      write %6 at param2+0 bytes 64 float32(16) row
function 3 "main" memo "" device 0 index_params 0 frame 384 bound 320
  0 sync issue stream_in 0 entry 0 queue 0 token 0
      write %0 at frame+0 bytes 1 bool(1) row
  1 issue stream_in 1 entry 0 queue 0 token 1
      write %1 at frame+64 bytes 64 float32(16) row
  2 sync call 2 frame frame+128
      read %0 at frame+0 bytes 1 bool(1) row
      read %1 at frame+64 bytes 64 float32(16) row
      write %2 at frame+192 bytes 64 float32(16) row
  3 sync call 2 frame frame+128
      read %0 at frame+0 bytes 1 bool(1) row
      read %2 at frame+192 bytes 64 float32(16) row
      write %3 at frame+256 bytes 64 float32(16) row
  4 sync issue stream_out 2 entry 0 queue 0 token 2
      read %3 at frame+256 bytes 64 float32(16) row
program "run"
  entry device 0 function 3 frame arena0+0
  stream 0 entries 1
  stream 1 entries 1
  stream 2 entries 1
end
)plan";
}

std::string by_reference() {
  return R"plan(sluice executable 1
device 0 kind cpu isa avx2 memory -1 workers 1 queues compute
arena 0 "frames" kind frames space device device 0 bytes 512 stride 0
arena 1 "persistent" kind persistent space device device 0 bytes 128 stride 0
stream 0 "x" in float32(16)
stream 1 "out" out float32(16)
variable 0 "a" float32(16) arena 1 offset 0 bytes 64 row value %0 shard 0 group -1 buffer -1 entry 0 init "zeros"
variable 1 "b" float32(16) arena 1 offset 64 bytes 64 row value %1 shard 0 group -1 buffer -1 entry 0 init "zeros"
value 0 "a" 0
value 1 "b" 0
value 2 "a" 1
value 3 "b" 1
value 4 "x" 0
value 5 "y" 0
value 6 "add.v" 0
value 7 "add.v" 1
value 8 "add.x" 0
value 9 "clobber.x" 0
value 10 "clobber.t" 0
value 11 "clobber.y" 0
function 0 "add" memo "" device 0 index_params 0 frame 0 bound 0
  param 0 "v" update %6>%7 bytes 64 float32(16) row
  param 1 "x" read %8 bytes 64 float32(16) row
  0 sync kernel cpu.add AddLhsInplace tasks 1 workspace 0
      update %6>%7 at param0+0 bytes 64 float32(16) row
      read %8 at param1+0 bytes 64 float32(16) row
function 1 "clobber" memo "x clobbered" device 0 index_params 0 frame 0 bound 0
  param 0 "x" update %9 bytes 64 float32(16) row
  param 1 "y" write %11 bytes 64 float32(16) row
  0 sync kernel cpu.neg Neg tasks 1 workspace 0
      coincide 0:1
      read %9 at param0+0 bytes 64 float32(16) row
      write %10 at param0+0 bytes 64 float32(16) row
  1 kernel cpu.neg Neg tasks 1 workspace 0
      read %10 at param0+0 bytes 64 float32(16) row
      write %11 at param1+0 bytes 64 float32(16) row
function 2 "main" memo "" device 0 index_params 0 frame 128 bound 128
  0 sync issue stream_in 0 entry 0 queue 0 token 0
      write %4 at frame+0 bytes 64 float32(16) row
  1 call 0 frame frame+0
      update %0>%2 at arena1+0 bytes 64 float32(16) row
      read %4 at frame+0 bytes 64 float32(16) row
  2 call 0 frame frame+0
      update %1>%3 at arena1+64 bytes 64 float32(16) row
      read %4 at frame+0 bytes 64 float32(16) row
  3 call 1 frame frame+0
      update %4 at frame+0 bytes 64 float32(16) row
      write %5 at frame+64 bytes 64 float32(16) row
  4 sync issue stream_out 1 entry 0 queue 0 token 1
      read %5 at frame+64 bytes 64 float32(16) row
program "run"
  entry device 0 function 2 frame arena0+0
  stream 0 entries 1
  stream 1 entries 1
  final 0 value %2
  final 1 value %3
end
)plan";
}

std::string collectives() {
  return R"plan(sluice executable 1
replicas 4
device 0 kind cpu isa avx2 memory -1 workers 2 queues compute
arena 0 "frames" kind frames space device device 0 bytes 192 stride 0
stream 0 "in" in float32(15)
stream 1 "out" out float32(8)
group 0 stride 1 size 4
group 1 stride 2 size 2
value 0 "x" 0
value 1 "g" 0
value 2 "sum" 0
value 3 "shard" 0
function 0 "body" memo "" device 0 index_params 3 frame 192 bound 192
  0 sync issue stream_in 0 entry p0 queue 0 token 0
      write %0 at frame+0 bytes 60 float32(15) row
  1 sync kernel cpu.neg Neg tasks 2 workspace 0
      read %0 at frame+0 bytes 60 float32(15) row task 32
      write %1 at frame+64 bytes 60 float32(15) row task 32
  2 collective ReplicatedAllReduceInplace group 0 sequence p1
      attrs op="add" stride=1 size=4
      update %1>%2 at frame+64 bytes 60 float32(15) row
  3 collective ReplicatedReduceScatter group 1 sequence p2
      attrs op="mean" stride=2 size=2
      read %2 at frame+64 bytes 60 float32(15) row
      write %3 at frame+128 bytes 32 float32(8)of(15) row
  4 issue stream_out 1 entry p0 queue 0 token 1
      read %3 at frame+128 bytes 32 float32(8)of(15) row
function 1 "main" memo "" device 0 index_params 0 frame 192 bound 192
  0 sync loop 0 frame frame+0 trips 3
      index it it it
program "run"
  entry device 0 function 1 frame arena0+0
  stream 0 entries 3
  stream 1 entries 3
  collectives 3 device 0 group 0
  collectives 3 device 0 group 1
end
)plan";
}

constexpr const char* kEverything = R"plan(sluice executable 1
replicas 4
device 0 kind cpu isa avx512 memory 1048576 workers 3 queues compute io collectives
device 1 kind "odd kind" isa "" memory -1 workers 1 queued queues compute
tier 0 "host" space host budget 65536
tier 1 "file" space file budget -1
arena 0 "persistent \"a\"" kind persistent space device device 0 bytes 4096 stride 0
arena 1 "workspace" kind workspace space device device 0 bytes 384 stride 128
arena 2 "tier" kind tier space file device -1 bytes 65536 stride 0
arena 3 "slots" kind slots space pinned device 1 bytes 256 stride 0
stream 0 "s\\n\x0a" in float16(2,3)
stream 1 "o" out int32()
remote 0 "r" float32(4)of(8) entries 2 arena 2 offset 4096 stride 4096
variable 0 "w" float32(4)of(8) arena 2 offset 0 bytes 16 panel value %0 shard 2 group 0 buffer 0 entry 1 init "normal(0, 1)" role update of 0
constant 0 "c" uint8(3) arena 0 offset 64 value %1 data 00ff1a
constant 1 "none" uint8(0) arena 0 offset 128 value %- data -
channel 0 "ch" from 0 to 1 capacity 2 arena 3 offset 128 slot 64
group 0 stride 2 size 2
provenance 0 gradient op "gelu" block "b 1" module "m/fc" line "a.cc:1" variable "w" at 1 2 per_iteration 3 -1
provenance 1 running
rows_of_block "b 1" "b 1" "b\\2"
value 0 "w" 0
value 1 "c # no comment" -3 message 2 provenance 1
function 0 "callee" memo "g0 clobbers 0" device 0 index_params 2 frame 64 bound 32
  param 0 "x" update %0>%1 bytes 16 float32(4) panel
  param 1 "y" write %- bytes 0 bool() row
  buffer "t" offset 0 bytes 64 steps 0 1 value %1
  0 sync kernel cpu.k "Odd Op" tasks 7 workspace 12 flops 34 origin 104 where "m/fc (a.cc:1)" provenance 0
      attrs a=1 b=0.5 c="x y # \"\\" d=[1,2] e=[1.0,2.5] f=[.] g=float32 h=true i=[]
      coincide 0:1 2:1
      scalars 5 (p0*-2) ((p1/3)%4)
      update %0>%1 at param0+8 bytes 8 float32(2) row task 1 pitch 4
      read %1 at arena0+64@ring(3,1,(rep+p1)) bytes 1 uint8(1) row
      write %- at frame+0 bytes 4 bfloat16(2) "odd layout"
      stage MatMul from 0 1 to -1 float32(2)
      stage_attrs lhs_transposed=true
      stage "Odd Op" from -1 0 to 2 bfloat16(2)
function 1 "main" memo "" device 0 index_params 0 frame 256 bound 256
  0 call 0 frame frame+0
      index 1 rep
      update %0>%1 at arena0+0 bytes 16 float32(4) panel
      write %- at frame+0 bytes 0 bool() row
  1 loop 0 frame arena0+128@ring(2,64,(it%2)) trips 3
      carry 0:0
      index it ((it*2)+1)
      update %0>%1 at arena0+0 bytes 16 float32(4) panel
      write %- at frame+0 bytes 0 bool() row
  2 branch then 0 frame frame+0 else 0 frame frame+64
      condition read %1 at frame+0 bytes 1 bool() row
      then
      index 0 0
      update %0>%1 at arena0+0 bytes 16 float32(4) panel
      write %- at frame+0 bytes 0 bool() row
      else
      index 1 1
      update %0>%1 at arena0+0 bytes 16 float32(4) panel
      write %- at frame+0 bytes 0 bool() row
  3 issue stream_in 0 entry 0 queue 1 token 0
      write %1 at frame+0 bytes 12 float16(2,3) row
  4 issue remote_load 0 entry 0 queue 1 token 1 found %0
      write %1 at frame+0 bytes 16 float32(4) row
      entry_from read %0 at frame+64 bytes 4 uint32() row
  5 wait queue 1 token 0
  6 sync send 0 message 0
      read %1 at frame+0 bytes 64 float32(16) row
  7 collective ReplicatedAllReduce group 0 sequence 0 workspace 64
      attrs op="add"
      coincide 0:1
      read %0 at frame+0 bytes 16 float32(4) row
      write %1 at frame+64 bytes 16 float32(4) row
function 2 "peer" memo "" device 1 index_params 0 frame 64 bound 64
  0 receive 0 message 0 origin 7
      write %1 at frame+0 bytes 64 float32(16) row
program "load"
program "train"
  entry device 0 function 1 frame arena0+2048
  entry device 1 function 2 frame arena3+0
  stream 0 entries 1
  stream 1 entries 0
  collectives 1 device 0 group 0
  final 0 value %1
end
)plan";
std::string everything() { return kEverything; }

}  // namespace sluice::exe::plans
