#include <fmt/core.h>
#include <sluice/sluice.h>
#include <sluice/train/devices.h>
using namespace sluice;

class Net : public nn::Module {
 public:
  Tensor build(nn::Builder& b, Tensor x) const { return fc2_(b, ops::gelu(fc1_(b, x))); }

 private:
  nn::Child<nn::Linear> fc1_{*this, "fc1", 128};
  nn::Child<nn::Linear> fc2_{*this, "fc2", 10};
};

int main() {
  Ir ir;
  Graph& main = ir.main_graph();
  H2dStream image = ir.h2d_stream({{8, 784}, f32}, "image");
  Tensor x = main.host_load(image);
  auto [factories, net] = nn::create_graph(ir, Net(), x);
  nn::NamedTensors variables = factories.init(main);
  D2hStream logits = main.host_store(net.bind(variables).call(x)[0], "logits");

  Session session(ir, {.device = cpu_device({.memory = 1_MiB, .threads = 2})});
  fmt::print("{}\n", session.plan().summary());
  HostTensor batch(image.spec);
  HostTensors results = session.run({{image, batch}});
  fmt::print("logits: {}\n", to_string(results[logits].spec()));
  const SessionOptions two = train::with_devices({.device = cpu_device({.threads = 1})}, 2);
  fmt::print("devices: {}\n", 1 + two.more_devices.size());
}
