// Errors of the compiler for valid graphs: devices, streams, tiers, operators without a kernel,
// sizes.

#include "sluice/compiler/compile.h"
#include "sluice/base/test_refusals.h"
#include "sluice/devices/cpu_device.h"
#include "sluice/session/session.h"
#include "sluice/sluice.h"

namespace sluice {
namespace {

constexpr ErrorKind kFit = ErrorKind::kDoesNotFit;

// Returns a function that compiles and loads the program of `build`, for two devices.
std::function<void()> session_of(const std::function<void(Ir&, Graph&)>& build,
                                 const SessionOptions& options = {}) {
  return [=] {
    Ir ir;
    build(ir, ir.main_graph());
    SessionOptions with = options;
    with.device = options.device.target != nullptr ? options.device : cpu_device({.threads = 1});
    with.more_devices = {cpu_device({.threads = 1})};
    Session session(ir, with);
  };
}

Tensor load(Ir& ir, Graph& main, const std::string& name) {
  return main.host_load(ir.h2d_stream(f32_spec({2}), name));
}

// Makes variable 'w' in a program with one remote buffer of one entry (2,) float32.
Tensor remote_variable(Ir& ir, Graph& main, const TensorSpec& spec,
                       const VariableLocation& location = {1, 0}) {
  ir.remote_buffer(f32_spec({2}));
  VariableInfo info;
  info.location = location;
  return main.variable(spec, info, "w");
}

TEST(Compile, RefusesPlacesThatAreNot) {
  expect_refused({
      {"no device at all", [] { compile(Ir(), {}); },
       "compile: options.devices must have at least 1 device, got 0"},
      {"an op", session_of([](Ir& ir, Graph& main) {
         const Tensor x = load(ir, main, "x");
         main.set_device(2);
         main.host_store(ops::relu(x), "y");
       }),
       "there is no device 2, the program has 2"},
      {"a variable", session_of([](Ir&, Graph& main) {
         main.set_device(3);
         main.host_store(main.variable(HostTensor(f32_spec({2})), "w"), "y");
       }),
       "there is no device 3, the program has 2"},
      {"a variable in a tier, read", session_of([](Ir& ir, Graph& main) {
         main.host_store(remote_variable(ir, main, f32_spec({2})), "y");
       }),
       "variable 'w' lives in entry 0 of remote buffer 1 and must be read with remote_load"},
      {"a variable in no entry", session_of([](Ir& ir, Graph& main) {
         remote_variable(ir, main, f32_spec({2}), {1, 1});
       }),
       "variable 'w': entry 1 is outside the 1 entries of remote buffer 1"},
      {"a variable in no buffer", session_of([](Ir& ir, Graph& main) {
         remote_variable(ir, main, f32_spec({2}), {2, 0});
       }),
       "variable 'w': there is no remote buffer 2, the program has 1"},
      {"a variable in no buffer of a tier", session_of([](Ir& ir, Graph& main) {
         remote_variable(ir, main, f32_spec({2}), {0, 0});
       }),
       "variable 'w': there is no remote buffer 0, the program has 1"},
      {"a variable that is no entry",
       session_of([](Ir& ir, Graph& main) { remote_variable(ir, main, f32_spec({3})); }),
       "variable 'w': must be (2,) float32 like the entries of remote buffer 1, got (3,) float32"},
      {"two variables in one entry", session_of([](Ir& ir, Graph& main) {
         remote_variable(ir, main, f32_spec({2}));
         VariableInfo info;
         info.location = {1, 0};
         main.variable(f32_spec({2}), info, "v");
       }),
       "variables 'w' and 'v' both live in entry 0 of remote buffer 1"},
      {"a conditional over two devices", session_of([](Ir& ir, Graph& main) {
         const Tensor x = load(ir, main, "x");
         const auto arm = [&](int device) -> Graph& {
           Graph& g = ir.create_empty_graph(device == 0 ? "then" : "else");
           const Tensor t = g.input(f32_spec({2}), "t");
           g.set_device(device);
           g.add_output(ops::relu(t));
           return g;
         };
         const Tensor condition = main.host_load(ir.h2d_stream({{}, boolean, {}}, "condition"));
         main.host_store(ops::conditional(main, condition, arm(0), arm(1), {x}, {x})[0], "y");
       }),
       "its branches must run on one device, got devices 0 and 1"},
  });
}

std::vector<TensorSpec> same_spec(const OpView& op) { return {op.input(0)}; }

TEST(Compile, RefusesOps) {
  OpDef odd;  // A user-defined operator without a kernel.
  odd.type = "Odd";
  odd.name = "odd";
  odd.inputs = {{"x"}};
  odd.outputs = {"y"};
  odd.infer = same_spec;
  expect_refused({
      {"without a kernel", session_of([&](Ir& ir, Graph& main) {
         main.host_store(main.emit(odd, {load(ir, main, "x")}, {})[0], "y");
       }),
       "the cpu has no kernel for Odd on (2,) float32"},
      {"a stream in a branch", session_of([](Ir& ir, Graph& main) {
         const H2dStream in = ir.h2d_stream(f32_spec({2}), "in");
         Graph& g = ir.create_empty_graph("g");
         g.add_output(g.host_load(in));
         const Tensor yes = main.constant(HostTensor::of<bool>({}, boolean, {true}));
         main.host_store(ops::conditional(main, yes, g, g, {}, {})[0], "y");
       }),
       "its branch g_subgraph(0) uses stream 'in'; a conditional may not communicate"},
      {"an entry that is a constant", session_of([](Ir& ir, Graph& main) {
         const RemoteBuffer buffer = ir.remote_buffer(f32_spec({2}), 3);
         const Tensor three = main.constant(HostTensor::of<int32_t>({}, i32, {3}));
         main.remote_store(buffer, three, load(ir, main, "x"));
       }),
       "entry must be 0 to 2, got 3 (made at "},
      {"graphs that changed", session_of([](Ir& ir, Graph& main) {
         Graph& g = ir.create_graph(
             "g", [](Graph&, Tensor a) { return a; }, f32_spec({2}));
         main.host_store(ops::call(main, g, {load(ir, main, "x")})[0], "y");
         g.input(f32_spec({2}));
       }),
       "graph g_subgraph(0) was changed after Call."},
      {"more stream entries than can be counted", session_of([](Ir& ir, Graph& main) {
         const H2dStream in = ir.h2d_stream(f32_spec({2}), "in");
         Graph* g = &ir.create_graph(
             "g", [&](Graph& graph, Tensor a) { return a + graph.host_load(in); }, f32_spec({2}));
         for (int i = 0; i < 3; ++i) {
           g = &ir.create_graph(
               "loops",
               [&](Graph& graph, Tensor a) { return ops::repeat(graph, *g, 2147483647, {a}); },
               f32_spec({2}));
         }
         main.host_store(ops::call(main, *g, {load(ir, main, "x")})[0], "y");
       }),
       "must use stream 'in' at most"},
  });
}

TEST(Compile, RefusesPasses) {
  const auto nothing = [](Ir& ir, Graph& main) { main.host_store(load(ir, main, "x"), "y"); };
  expect_refused({
      {"disabled", session_of(nothing, {.disable = {"nosuch"}}),
       "disable: must be optional passes of inline, "},
      {"a pass that is needed", session_of(nothing, {.disable = {"offsets"}}), "got 'offsets'"},
      {"printed", session_of(nothing, {.print_after = "nosuch"}),
       "print-after: must be all or one of functionalise, place, inline, "},
  });
}

TEST(Compile, RefusesSizes) {
  const auto variable = [](int64_t elements) {
    return [=](Ir&, Graph& main) {
      Tensor v = main.variable(f32_spec({elements}), Initializer::constant(0), "v");
      ops::add_(v, v);
    };
  };
  const auto remote = [](Ir& ir, Graph& main) {
    const RemoteBuffer buffer = ir.remote_buffer(f32_spec({2}), 100);
    main.remote_store(buffer, 0, load(ir, main, "x"));
  };
  expect_refused({
      {"the device's budget",
       session_of(variable(1000), {.device = cpu_device({.memory = 3999, .threads = 1})}),
       "device 0 (cpu) needs 4000 bytes, its budget is 3999 (1 short)", kFit},
      {"its holders",
       session_of(variable(1000), {.device = cpu_device({.memory = 3999, .threads = 1})}),
       "4000 B  v", kFit},
      {"the host's budget", session_of(remote, {.remote_memory = 100}), "its budget is 100 (",
       kFit},
      {"more than any plan has", session_of(variable(int64_t{1} << 60)),
       "needs 4611686018427387904 bytes, the largest possible arena has 1152921504606846976", kFit},
  });
  expect_refused({{"more than the machine has", session_of(variable(int64_t{1} << 56)),
                   "got 288230376151711744: 288230376151711744 of devices", kFit}});
}

}  // namespace
}  // namespace sluice
