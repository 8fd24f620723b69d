// What the runtime refuses of an executable that the compiler did not make for it.

#include "sluice/base/test_refusals.h"
#include "sluice/cpu/cpu.h"
#include "sluice/cpu/isa.h"
#include "sluice/session.h"
#include "sluice/sluice.h"

namespace sluice {
namespace {

class RuntimeRefusals : public testing::Test {
 protected:
  // Loads `executable` after a change, on one worker of one CPU.
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
       "executable: it needs 1 devices, 0 are given"},
      {"workers", [&] { runtime::Executor(executable, {cpu::make_device()}, {.threads = 2}); },
       "executable: planned for 1 workers a device, started with 2"},
      {"no worker", [] { runtime::Pool pool(0); }, "threads: 0 is outside [1, 1024]"},
      {"many workers", [] { runtime::Pool pool(1025); }, "threads: 1025 is outside [1, 1024]"},
      {"the file tier", loaded([](exe::Executable& e) {
         e.arenas.push_back({"disk", exe::ArenaKind::kTier, exe::Space::kFile, -1, 64, 0});
       }),
       "executable: it has a file tier, no folder is given"},
  });
#if !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)  // Their allocators end the program.
  expect_refused(
      {{"host memory", loaded([](exe::Executable& e) {
          e.arenas.push_back(
              {"host", exe::ArenaKind::kTier, exe::Space::kHost, -1, int64_t{1} << 58, 0});
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
       "executable: 'Relu' is no collective of the cpu"},
      {"operands", changed([](exe::Collective& c) { c.operands.clear(); }),
       "executable: ReplicatedAllReduce has no operands"},
      {"a result", changed([](exe::Collective& c) { c.operands[1].spec = f32_spec({3}); }),
       "among 2 replicas does not make (3,) float32"},
      {"a group", loaded([](exe::Executable& e) { e.groups[0].size = 1; }),
       "among 1 replicas does not make (2,) float32"},
  });
}

TEST(InstructionSets, Refused) {
  expect_refused({{"a name", [] { cpu::isa_from_name("mmx"); },
                   "unknown instruction set 'mmx': base, avx2 and avx512 are known"}});
  for (const cpu::Isa isa : {cpu::Isa::kAvx2, cpu::Isa::kAvx512}) {
    if (isa <= cpu::detect_isa()) continue;
    expect_refused({{"one that the machine lacks", [&] { cpu::set_isa(isa); },
                     "this machine lacks " + std::string(cpu::to_string(isa))}});
  }
}

}  // namespace
}  // namespace sluice
