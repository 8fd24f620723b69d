/// Lesson 8: variables in remote memory. Each copy of a layer has one entry of a buffer.
#include <fmt/core.h>

#include <sluice/sluice.h>

using namespace sluice;

class Add : public nn::Module {
 public:
  Tensor build(nn::Builder& b, Tensor x) const {
    return b.add_variable_input("weight", nn::constant(1.0), x.shape()) + x;
  }
};

int main() {
  Ir ir;
  Graph& main = ir.main_graph();
  Tensor x = main.constant(HostTensor::of<float>({5}, f32, {1, 1, 1, 1, 1}), "x");
  auto [factories, graph] = nn::create_graph(ir, Add(), x);

  // Two entries for two copies of the layer. The graphs load and store any of the entries.
  nn::NamedRemoteBuffers buffers = nn::named_variable_buffers(ir, factories, 2);
  auto [load_graph, names] = nn::load_remote_graph(ir, buffers, 2);
  nn::GraphWithNamedArgs store_graph = nn::store_remote_graph(ir, buffers, 2);
  fmt::print("{}\n{}\n", load_graph.print_schedule(), store_graph.print_schedule());
  factories.init_remote(main, buffers, 0, {.prefix = "layer0"});
  factories.init_remote(main, buffers, 1, {.prefix = "layer1"});

  // Loaded weights are tensors on the device. Each layer is bound to its own.
  auto w0 = nn::NamedTensors::pack(names, load_graph.call(&main, 0));
  auto w1 = nn::NamedTensors::pack(names, load_graph.call(&main, 1));
  nn::BoundGraph layer0 = graph.bind(w0);
  nn::BoundGraph layer1 = graph.bind(w1);
  D2hStream w0_initial = main.host_store(w0["weight"], "w0_initial");
  D2hStream w1_initial = main.host_store(w1["weight"], "w1_initial");
  D2hStream x0 = main.host_store(layer0.call(x)[0], "x0");
  D2hStream x1 = main.host_store(layer1.call(x)[0], "x1");

  // Ops change the loaded tensors. Remote memory changes when they are stored.
  ops::add_(w0["weight"], main.constant(HostTensor::of<float>({5}, f32, {1, 1, 1, 1, 1})));
  ops::add_(w1["weight"], main.constant(HostTensor::of<float>({5}, f32, {2, 2, 2, 2, 2})));
  store_graph.bind(w0).call(&main, 0);
  store_graph.bind(w1).call(&main, 1);

  // Other tensors are loaded from remote memory. The bound graphs still read w0 and w1, which hold
  // the same values.
  auto w0_again = nn::NamedTensors::pack(names, load_graph.call(&main, 0));
  auto w1_again = nn::NamedTensors::pack(names, load_graph.call(&main, 1));
  D2hStream w0_after = main.host_store(w0_again["weight"], "w0_after");
  D2hStream w1_after = main.host_store(w1_again["weight"], "w1_after");
  D2hStream x0_new = main.host_store(layer0.call(x)[0], "x0_new");
  D2hStream x1_new = main.host_store(layer1.call(x)[0], "x1_new");

  Session session(ir, {.device = cpu_device()});
  HostTensors outputs = session.run();
  auto show = [&](const char* name, const D2hStream& stream) {
    fmt::print("\t {}:  {}\n", name, ops::array_text(outputs[stream]));
  };
  fmt::print("initial values\n");
  show("w_0", w0_initial);
  show("output0", x0);
  show("w_1", w1_initial);
  show("output1", x1);
  fmt::print("updated values\n");
  show("w_0", w0_after);
  show("output0", x0_new);
  show("w_1", w1_after);
  show("output1", x1_new);
}
