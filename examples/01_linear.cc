/// Lesson 1: a layer with state. A module builds a graph. Factories make the variables that the
/// graph needs. bind() connects the graph with them, and then the graph can be called.
#include <fmt/core.h>

#include <sluice/sluice.h>

using namespace sluice;

class Linear : public nn::Module {
 public:
  explicit Linear(int64_t out_features) : out_features_(out_features) {}

  Tensor build(nn::Builder& b, Tensor x) const {
    // Each call adds an input to the graph, and a factory that can make the variable in the main
    // graph.
    Tensor w = b.add_variable_input("weight", nn::normal(0.0, 0.02), {x.dim(-1), out_features_});
    Tensor bias = b.add_variable_input("bias", nn::zeros(), {out_features_});
    return ops::matmul(x, w) + bias;
  }

 private:
  int64_t out_features_;
};

int main() {
  Ir ir;
  Graph& main = ir.main_graph();

  auto [factories, linear] = nn::create_graph(ir, Linear(32), TensorSpec{{2, 4}, f32});
  fmt::print("factories:\n {}\n", to_string(factories));
  fmt::print("\n graph:\n {}\n", linear.print_schedule());

  nn::NamedTensors variables = factories.init(main);
  fmt::print("\n variables:\n {}\n", to_string(variables));

  // The bound graph is called with the unnamed inputs.
  nn::BoundGraph bound = linear.bind(variables);
  Tensor x = main.variable({{2, 4}, f32}, nn::uniform(0, 1), "x");
  Tensor y = bound.call(x)[0];
  D2hStream out = main.host_store(y, "out");

  // Compiling plans all memory. A run returns an array for every output stream.
  Session session(ir, {.device = cpu_device({.memory = 64_KiB})});
  HostTensors results = session.run();
  require(results[out].shape() == Shape{2, 32}, "the result must be (2, 32) float32, got {}",
          to_string(results[out].spec()));
}
