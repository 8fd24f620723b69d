// Errors of the runtime for an executable that the compiler did not make for it.

#include "sluice/base/test_refusals.h"
#include "sluice/cpu/device/cpu.h"
#include "sluice/cpu/simd/isa.h"
#include "sluice/devices/cpu_device.h"
#include "sluice/exe/text.h"
#include "sluice/runtime/executor.h"
#include "sluice/session/session.h"
#include "sluice/sluice.h"

namespace sluice {
namespace {

class RuntimeRefusals : public testing::Test {
 protected:
  // Returns a function that changes a copy of `executable` and loads it, on one worker of one CPU.
  std::function<void()> loaded(const std::function<void(exe::Executable&)>& change) const {
    return [=, this] {
      exe::Executable changed = executable;
      change(changed);
      runtime::Executor(std::move(changed), {cpu::make_device()}, {.threads = 1});
    };
  }
  static exe::Kernel& first_kernel(exe::Executable& e) {
    for (exe::Function& f : e.functions) {
      for (exe::Step& s : f.steps) {
        if (auto* k = std::get_if<exe::Kernel>(&s.body)) return *k;
      }
    }
    fail(ErrorKind::kInternal, "no kernel");
  }

  exe::Executable executable = [] {
    Ir ir;
    Graph& main = ir.main_graph();
    main.host_store(ops::relu(main.host_load(ir.h2d_stream(f32_spec({2}), "x"))), "y");
    return Session(ir, {.device = cpu_device({.threads = 1})}).executable();
  }();
};

TEST_F(RuntimeRefusals, Machines) {
  expect_refused({
      {"devices", [&] { runtime::Executor(executable, {}, {.threads = 1}); },
       "executable: number of devices must be 1, got 0"},
      {"another kind", loaded([](exe::Executable& e) { e.devices[exe::DeviceId(0)].kind = "gpu"; }),
       "executable: device 0 must be of kind 'gpu', got 'cpu'"},
      {"workers", [&] { runtime::Executor(executable, {cpu::make_device()}, {.threads = 2}); },
       "executable: workers a device must be 1 as planned, got 2"},
      {"no worker", [] { runtime::Pool pool(0); }, "threads: must be in [1, 1024], got 0"},
      {"many workers", [] { runtime::Pool pool(1025); }, "threads: must be in [1, 1024], got 1025"},
      {"the file tier", loaded([](exe::Executable& e) {
         e.arenas.push_back(
             {"disk", exe::ArenaKind::kTier, exe::Space::kFile, exe::DeviceId(), 64, 0});
       }),
       "executable: a file tier requires a folder, got none"},
  });
#if !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)  // Allocators of sanitizers end the program.
  expect_refused(
      {{"host memory", loaded([](exe::Executable& e) {
          e.arenas.push_back({"host", exe::ArenaKind::kTier, exe::Space::kHost, exe::DeviceId(),
                              int64_t{1} << 58, 0});
        }),
        "the system refuses 288230376151711744 bytes of host memory", ErrorKind::kDoesNotFit}});
#endif
}

TEST_F(RuntimeRefusals, Kernels) {
  expect_refused({
      {"an operator", loaded([](exe::Executable& e) { first_kernel(e).op = "Nosuch"; }),
       "executable: there is no operator 'Nosuch'"},
      {"a kernel", loaded([](exe::Executable& e) { first_kernel(e).key = "cpu.nosuch"; }),
       "executable: the cpu has no kernel 'cpu.nosuch'"},
      {"a kernel for it", loaded([](exe::Executable& e) { first_kernel(e).key = "cpu.gemm"; }),
       "executable: kernel cpu.gemm does not support Relu on these operands"},
  });
}

// Returns the plan of a program with kernels of one op and of several, a layout, a copy and a call.
exe::Executable plan_of_many_kernels() {
  Ir ir;
  Graph& main = ir.main_graph();
  const Tensor x = main.host_load(ir.h2d_stream(f32_spec({4, 8}), "x"));
  const Tensor w = main.variable(f32_spec({8, 6}), Initializer::constant(1), "w");
  const Tensor b = main.variable(f32_spec({6}), Initializer::constant(2), "b");
  const Tensor y = ops::softmax(ops::gelu(ops::matmul(x, w) + b), 0);
  main.host_store(ops::concat({y, ops::exp(y)}, 1), "y");
  const H2dStream rows = ir.h2d_stream(f32_spec({3}), "rows");
  Graph& body = ir.create_graph(
      "turn", [&](Graph& g, Tensor t) { return g.host_load(rows) + t; }, f32_spec({3}));
  const Tensor first = main.host_load(rows);
  main.host_store(ops::repeat(main, body, 2, {first})[0], "last");
  main.host_store(first, "first");  // The loop gets a copy.
  return Session(ir, {.device = cpu_device({.threads = 1})}).executable();
}

constexpr ErrorKind kBad = ErrorKind::kBadFile;
const std::string kCopied = "write %11 at frame+64 bytes 12 float32(3) row";
const std::string kSecond = "read %8 at frame+128 bytes 96 float32(4,6) row";

// Loads the plan's text with its first `from` replaced by `to`.
std::function<void()> read_back(std::string from, std::string to) {
  return [from = std::move(from), to = std::move(to)] {
    static const std::string text = exe::to_text(plan_of_many_kernels());
    std::string changed = text;
    const size_t at = changed.find(from);
    ASSERT_NE(at, std::string::npos) << from << " in\n" << text;
    runtime::Executor(
        exe::parse_text(changed.replace(at, from.size(), to), "plan", exe::Fingerprints::kIgnored),
        {cpu::make_device()}, {.threads = 1});
  };
}

// Kernels trust their operands, so that a plan from a file is checked before it runs.
TEST_F(RuntimeRefusals, SignaturesOfPlansFromFiles) {
  runtime::Executor(exe::parse_text(exe::to_text(plan_of_many_kernels()), "plan"),
                    {cpu::make_device()}, {.threads = 1});
  expect_refused({
      {"no input", read_back("      read %10 at frame+0 bytes 12 float32(3) row", "#"),
       "kernel cpu.copy (Copy): must have 1 inputs, 1 outputs, 0 scalars and 0 stages, got 0, 1, 0 "
       "and 0",
       kBad},
      {"an input that is updated", read_back(kCopied, "update %11>%12" + kCopied.substr(9)),
       "kernel cpu.copy (Copy): operands must be inputs that are read, then outputs that are "
       "written, got operand 1 updated",
       kBad},
      {"another size", read_back(kCopied, "write %11 at frame+64 bytes 8 float32(2) row"),
       "kernel cpu.copy (Copy): result must be (3,) float32, got (2,) float32", kBad},
      {"too few inputs", read_back("Exp tasks", "Add tasks"),
       "kernel cpu.elementwise (Add): inputs of Add must be 2, got 1", kBad},
      {"too many inputs", read_back("stage Gelu from -2 to", "stage Gelu from -2 -2 to"),
       "kernel cpu.fused (MatMul+Add+Gelu): inputs of Gelu must be 1, got 2", kBad},
      {"options of another operator", read_back("cpu.concat Concat", "cpu.concat Exp"),
       "executable: options of Exp must have the names and types of '', got 'axis=1'", kBad},
      {"an option of another type", read_back("axis=1\n", "axis=1.0\n"),
       "executable: options of Concat must have the names and types of 'axis=0', got 'axis=1.0'",
       kBad},
      {"another operator", read_back("\"MatMul+Add+Gelu\"", "\"MatMul+Add+Tanh\""),
       "kernel cpu.fused (MatMul+Add+Tanh): operator must be MatMul+Add+Gelu with options '', got "
       "MatMul+Add+Tanh with ''",
       kBad},
      {"stages of a kernel of one operator", loaded([](exe::Executable& e) {
         first_kernel(e).stages.push_back({"Neg", {}, {0}, 1, f32_spec({2})});
       }),
       "kernel cpu.elementwise (Relu): must have 1 inputs, 1 outputs, 0 scalars and 0 stages, got "
       "1, 1, 0 and 1",
       kBad},
      {"a copy that draws seeds", read_back("cpu.copy Copy", "cpu.copy ModifyRandomSeed"),
       "kernel cpu.copy (ModifyRandomSeed): operator must be Copy with options '', got "
       "ModifyRandomSeed with ''",
       kBad},
  });
}

TEST_F(RuntimeRefusals, SizesOfPlansFromFiles) {
  expect_refused({
      {"options", read_back("axis=1\n", "axis=7\n"),
       "kernel cpu.concat (Concat): inputs are invalid for Concat: ", kBad},
      {"fewer inputs", read_back("      " + kSecond, "#"),
       "result must be (4, 6) float32, got (4, 12) float32", kBad},
      {"a result as an input", read_back("stage Add from -1 2 to", "stage Add from -1 3 to"),
       "(MatMul+Add+Gelu): stages must read inputs or earlier stages, got output 3", kBad},
      {"no result", read_back("stage Gelu from -2 to 3", "stage Gelu from -2 to -1"),
       "(MatMul+Add+Gelu): operand 3 must be the result of 1 stage, got 0", kBad},
      {"a stage's size",
       read_back("stage MatMul from 0 1 to -1 float32(4,6)",
                 "stage MatMul from 0 1 to -1 float32(6,4)"),
       "result must be (4, 6) float32, got (6, 4) float32", kBad},
      {"tasks", read_back("Concat tasks 1", "Concat tasks 2"),
       "kernel cpu.concat (Concat): tasks must be 1, got 2", kBad},
      {"workspace", read_back("Gelu\" tasks 1 workspace 1024", "Gelu\" tasks 1 workspace 8"),
       "workspace must be at least 1024 bytes, got 8", kBad},
      {"parts", read_back(kCopied, kCopied + " task 4"),
       "operand 1: tasks must be 0 bytes apart (pitch 0), got 4 (pitch 0)", kBad},
      {"what coincides", read_back("origin 107", "origin 107\n      coincide 0:2\n#"),
       "operands 0 and 2 must not coincide: it may write one before it reads the other", kBad},
      {"bytes", read_back("write %9 at frame+256 bytes 192", "write %9 at frame+256 bytes 96"),
       "operand 2 ((4, 12) float32 'row') must have 192 bytes, got 96", kBad},
      {"padding", read_back("bytes 512 float32(8,6) panels16", "bytes 256 float32(8,6) panels16"),
       "operand 1 ((8, 6) float32 'panels16') must have 512 bytes, got 256", kBad},
      {"a layout", read_back(kSecond, "read %8 at frame+128 bytes 512 float32(4,6) panels32"),
       "layout of operand 1 must be 'row', got 'panels32'", kBad},
      {"a scalar of no index", loaded([](exe::Executable& e) { first_kernel(e).scalars = {1}; }),
       "kernel cpu.elementwise (Relu): must have 1 inputs, 1 outputs, 0 scalars and 0 stages, got "
       "1, 1, 1 and 0",
       kBad},
      {"another operator than an index",
       loaded([](exe::Executable& e) { first_kernel(e).key = "cpu.index"; }),
       "kernel cpu.index (Relu): operator must be Index with options '', got Relu with ''", kBad},
      {"an index", loaded([](exe::Executable& e) {
         first_kernel(e).key = "cpu.index";
         first_kernel(e).op = "Index";
       }),
       "kernel cpu.index (Index): must have 0 inputs, 1 outputs, 1 scalars and 0 stages, got 1, 1, "
       "0 "
       "and 0",
       kBad},
      {"a large index", loaded([](exe::Executable& e) {
         first_kernel(e).key = "cpu.index";
         first_kernel(e).op = "Index";
         first_kernel(e).operands.erase(first_kernel(e).operands.begin());
         first_kernel(e).scalars = {1};
       }),
       "kernel cpu.index (Index): result must have 4 bytes, got (2,) float32", kBad},
  });
}

TEST_F(RuntimeRefusals, Collectives) {
  executable = [] {
    Ir ir(2);
    Graph& main = ir.main_graph();
    main.host_store(ops::replicated_all_reduce(main.host_load(ir.h2d_stream(f32_spec({2}), "x"))),
                    "y");
    return Session(ir, {.device = cpu_device({.threads = 1})}).executable();
  }();
  const auto changed = [&](const std::function<void(exe::Collective&)>& change) {
    return loaded([=](exe::Executable& e) {
      for (exe::Step& s : e.functions.back().steps) {
        if (auto* c = std::get_if<exe::Collective>(&s.body)) change(*c);
      }
    });
  };
  expect_refused({
      {"an operator", changed([](exe::Collective& c) { c.op = "Relu"; }),
       "executable: operator of a collective step must be a collective, got 'Relu'"},
      {"operands", changed([](exe::Collective& c) { c.operands.clear(); }),
       "executable: access to the operands of ReplicatedAllReduce must be 'read, write', got ''"},
      {"an operand that is updated",
       changed([](exe::Collective& c) { c.op = "ReplicatedAllReduceInplace"; }),
       "executable: access to the operands of ReplicatedAllReduceInplace must be 'update', got "
       "'read, write'"},
      {"an option of another type",
       changed([](exe::Collective& c) { c.attrs = parse_attrs("stride=1.5 size=2 op=\"add\""); }),
       "executable: options of ReplicatedAllReduce must have the names and types of '",
       ErrorKind::kBadFile},
      {"an option less",
       changed([](exe::Collective& c) { c.attrs = parse_attrs("stride=1 op=\"add\""); }),
       "', got 'stride=1 op=\"add\"'", ErrorKind::kBadFile},
      {"another distance",
       changed([](exe::Collective& c) { c.attrs = parse_attrs("stride=2 size=2 op=\"add\""); }),
       "options of ReplicatedAllReduce must match the group (size 2, stride 1), got 'stride=2"},
      {"operands that coincide", changed([](exe::Collective& c) {
         c.may_coincide = {{1, 0}};
       }),
       "executable: operands 1 and 0 of ReplicatedAllReduce must not coincide"},
      {"a result", changed([](exe::Collective& c) { c.operands[1].spec = f32_spec({3}); }),
       "result of ReplicatedAllReduce of (2,) float32 must be (2,) float32, got (3,) float32"},
      {"a group", loaded([](exe::Executable& e) { e.groups[exe::GroupId(0)].size = 1; }),
       "options of ReplicatedAllReduce must match the group (size 1, stride 1)"},
  });
}

TEST(InstructionSets, Refused) {
  expect_refused({{"a name", [] { cpu::isa_from_name("mmx"); },
                   "instruction set: must be base, avx2 or avx512, got 'mmx'"}});
  for (const cpu::Isa isa : {cpu::Isa::kAvx2, cpu::Isa::kAvx512}) {
    if (isa <= cpu::detect_isa()) continue;
    expect_refused({{"one that the machine lacks", [&] { cpu::set_isa(isa); },
                     "this machine lacks " + std::string(cpu::to_string(isa))}});
  }
}

}  // namespace
}  // namespace sluice
