/// Lesson 2: one graph, several sets of variables. Both bound graphs call the same code.
#include <fmt/core.h>

#include <sluice/sluice.h>

using namespace sluice;

int main() {
  Ir ir;
  Graph& main = ir.main_graph();

  auto [factories, linear] = nn::create_graph(ir, nn::Linear(32), TensorSpec{{2, 4}, f32});
  nn::NamedTensors variables1 = factories.init(main);
  nn::NamedTensors variables2 = factories.init(main);

  nn::BoundGraph bound1 = linear.bind(variables1);
  nn::BoundGraph bound2 = linear.bind(variables2);
  fmt::print("\n two different bound graphs:\n {} {}\n", to_string(bound1), to_string(bound2));

  Tensor x = main.variable({{2, 4}, f32}, nn::uniform(0, 1), "x");
  Tensor y1 = bound1.call(x)[0];
  Tensor y2 = bound2.call(x)[0];
  D2hStream difference = main.host_store(ops::l2(y1 - y2), "difference");

  Session session(ir, {.device = cpu_device()});
  HostTensors results = session.run();
  require(results[difference].to_doubles()[0] > 0,
          "the results of the two bound graphs must differ, got equal results");
}
