#include <fmt/core.h>

#include "sluice/base/sys.h"
#include "sluice/cpu/simd/isa.h"
#include "sluice/data/mnist.h"
#include "sluice/interp/interpreter.h"
#include "sluice/sluice.h"
#include "tools/machine/measure.h"
#include "tools/options.h"

namespace sluice::tool {
namespace {

// A small training step, compiled and interpreted: the bits must agree on this machine.
bool same_bits_as_interpreter(int threads) {
  Ir ir;
  Graph& main = ir.main_graph();
  const H2dStream stream = ir.h2d_stream({{3, 17}, f32, {}}, "x");
  const Tensor x = main.host_load(stream);
  Tensor w = main.variable({{17, 33}, f32, {}}, Initializer::normal(0, 1).keyed({1, 2}), "w");
  const D2hStream out = main.host_store(ops::gelu(ops::matmul(x, w)), "y");
  const HostTensor input = Initializer::normal(0, 1).keyed({3, 4}).evaluate(stream.spec);
  Session session(ir, {.device = cpu_device({.threads = threads})});
  const HostTensors got = session.run({{stream, input}});
  Interpreter interpreter(ir);
  return got[out].same_bits(interpreter.run({{stream, input}})[out]);
}

}  // namespace

int run_doctor(const ToolOptions& o) {
  if (!o.measure.empty()) {
    fmt::print("{}", measure_machine(o.measure));
    return 0;
  }
  bool healthy = true;
  fmt::print("usable cores      {}\n", sys::usable_cores());
  std::string isas;
  for (const cpu::Isa isa : cpu::available_isas()) isas += fmt::format("{} ", cpu::to_string(isa));
  fmt::print("instruction sets  {}(in use: {})\n", isas, cpu::to_string(cpu::current_isa()));
  for (const cpu::Isa isa : cpu::available_isas()) {
    cpu::set_isa(isa);
    for (const int threads : {1, 2}) {
      const bool same = same_bits_as_interpreter(threads);
      healthy = healthy && same;
      fmt::print("same bits         {} {} threads: {}\n", cpu::to_string(isa), threads,
                 same ? "yes" : "NO");
    }
  }
  const auto folder = data::find_mnist(o.model.data);
  fmt::print("MNIST             {}\n",
             folder ? *folder : "not found: generated digits will be used");
  fmt::print("{}\n", healthy ? "healthy" : "this machine or build computes wrong bits");
  return healthy ? 0 : 1;
}

}  // namespace sluice::tool
