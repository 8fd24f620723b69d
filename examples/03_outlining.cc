/// Lesson 3: inlining and outlining. Nested modules are inlined: each layer has its own ops. Layers
/// that call one graph share its code.
#include <fmt/core.h>

#include <sluice/sluice.h>

using namespace sluice;

class Net : public nn::Module {
 public:
  Tensor build(nn::Builder& b, Tensor x) const {
    x = ops::reshape(x, {-1, 28 * 28});
    x = ops::gelu(fc1_(b, x));
    x = ops::gelu(fc2_(b, x));
    x = ops::gelu(fc3_(b, x));
    return fc4_(b, x);
  }

 private:
  nn::Child<nn::Linear> fc1_{*this, "fc1", 512};
  nn::Child<nn::Linear> fc2_{*this, "fc2", 512};
  nn::Child<nn::Linear> fc3_{*this, "fc3", 512};
  nn::Child<nn::Linear> fc4_{*this, "fc4", 10};
};

class NetOutlined : public nn::Module {
 public:
  Tensor build(nn::Builder& b, Tensor x) const {
    x = ops::reshape(x, {-1, 28 * 28});
    x = ops::gelu(fc1_(b, x));

    // fc2 and fc3 call one graph. Each has its own inputs for the variables.
    auto [factories, layer] = nn::create_graph(b.ir(), nn::Linear(512), x);
    nn::BoundGraph fc2 = layer.bind(b.add_variable_inputs("fc2", factories));
    nn::BoundGraph fc3 = layer.bind(b.add_variable_inputs("fc3", factories));
    x = ops::gelu(fc2.call(x)[0]);
    x = ops::gelu(fc3.call(x)[0]);

    return fc4_(b, x);
  }

 private:
  nn::Child<nn::Linear> fc1_{*this, "fc1", 512};
  nn::Child<nn::Linear> fc4_{*this, "fc4", 10};
};

int main() {
  {
    Ir ir;
    auto [factories, net] = nn::create_graph(ir, Net(), TensorSpec{{28, 28}, f32});
    fmt::print("{}\n\n {}\n", keys_text(factories), net.print_schedule());
  }
  {
    Ir ir;
    auto [factories, net] = nn::create_graph(ir, NetOutlined(), TensorSpec{{28, 28}, f32});
    fmt::print("{}\n\n {}\n", keys_text(factories), net.print_schedule());
  }
}
