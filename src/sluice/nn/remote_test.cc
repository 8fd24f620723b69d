#include "sluice/nn/remote.h"

#include "sluice/interp/interpreter.h"
#include "sluice/nn/module.h"
#include "sluice/nn/test_util.h"
#include "sluice/ops/arithmetic.h"

namespace sluice::nn {
namespace {

struct Add : Module {
  Tensor build(Builder& b, Tensor x) const {
    const Tensor w = b.add_variable_input("weight", constant(1.0), x.shape(), x.dtype());
    const Tensor bias = b.add_variable_input("bias", zeros(), {}, x.dtype());
    return w + x + bias;
  }
};

TEST(Remote, GraphsLoadAndStoreARow) {
  Ir ir;
  Graph& main = ir.main_graph();
  const auto [factories, add] = create_graph(ir, Add(), f32_spec({3}));
  const NamedRemoteBuffers buffers = named_variable_buffers(ir, factories);
  const auto [load, names] = load_remote_graph(ir, buffers, 2);
  const GraphWithNamedArgs store = store_remote_graph(ir, buffers, 3);
  EXPECT_EQ(names, (std::vector<std::string>{"bias", "weight"}));
  EXPECT_EQ(ir.remote_entries(buffers["weight"]), 3);
  EXPECT_EQ(load.print_schedule(),
            "Graph : load_remote_subgraph(1)\n"
            "  (%1) -> (%3, %5) {\n"
            "    Init.102 () -> (%2 [() float32])\n"
            "    RemoteLoad.103 (%2 [() float32], %1 [() int32]) -> (%3 [() float32])\n"
            "    Init.104 () -> (%4 [(3,) float32])\n"
            "    RemoteLoad.105 (%4 [(3,) float32], %1 [() int32]) -> (%5 [(3,) float32])\n"
            "  }");
  EXPECT_EQ(store.print_schedule(),
            "Graph : store_remote_subgraph(2)\n"
            "  (%1, bias=%2, weight=%3) -> () {\n"
            "    RemoteStore.106 (%2 [() float32], %1 [() int32]) -> ()\n"
            "    RemoteStore.107 (%3 [(3,) float32], %1 [() int32]) -> ()\n"
            "  }");

  const NamedTensors first = factories.init_remote(main, buffers, 0, {.prefix = "a"});
  const NamedTensors second = factories.init_remote(main, buffers, 2, {.prefix = "b"});
  const NamedTensors local = NamedTensors::pack(names, load.call(&main, 0));
  const Tensor sum = add.bind(local).call(local["weight"])[0];
  store.bind(NamedTensors::from_dict({{"weight", sum}, {"bias", local["bias"]}})).call(&main, 2);
  const NamedTensors again = load_remote(main, buffers, 2);
  store_remote(main, buffers, NamedTensors::from_dict({{"weight", again["weight"] + 1.0}}), 0);
  Interpreter run(ir);
  run.run();
  EXPECT_EQ(run.read(second["weight"]).to_doubles(), (std::vector<double>{2, 2, 2}));
  EXPECT_EQ(run.read(first["weight"]).to_doubles(), (std::vector<double>{3, 3, 3}));
}

TEST(Remote, Refusals) {
  Ir ir;
  Graph& main = ir.main_graph();
  const auto [factories, add] = create_graph(ir, Add(), f32_spec({3}));
  const NamedRemoteBuffers buffers = named_variable_buffers(ir, factories);
  NamedRemoteBuffers fewer = buffers;
  fewer.pop("bias");
  std::string error = usage_error([&, f = factories] { f.init_remote(main, fewer, 0); });
  EXPECT_NE(error.find("init_remote: variable 'bias' has no buffer; buffers are weight"),
            std::string::npos)
      << error;
  const NamedTensors wrong =
      NamedTensors::from_dict({{"weight", main.constant(HostTensor(f32_spec({4})))}});
  error = usage_error([&] { store_remote(main, buffers, wrong); });
  EXPECT_NE(error.find("does not match buffer 1"), std::string::npos) << error;
  error = usage_error([&, f = factories] { named_variable_buffers(ir, f, 0); });
  EXPECT_NE(error.find("entries must be a positive integer, got 0"), std::string::npos) << error;
}

}  // namespace
}  // namespace sluice::nn
