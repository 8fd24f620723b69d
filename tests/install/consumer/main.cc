// A program outside the project: the first program of the README, with weights that it makes itself.
#include <fmt/core.h>
#include <sluice/exe/report.h>
#include <sluice/sluice.h>

using namespace sluice;

class Linear : public nn::Module {
 public:
  explicit Linear(int64_t out_features) : out_features_(out_features) {}

  Tensor build(nn::Builder& b, Tensor x) const {
    Tensor w = b.add_variable_input("weight", nn::normal(0.0f, 0.02f), {x.dim(-1), out_features_});
    Tensor bias = b.add_variable_input("bias", nn::zeros(), {out_features_});
    return ops::matmul(x, w) + bias;
  }

 private:
  int64_t out_features_;
};

int main() {
  Ir ir;
  Graph& main = ir.main_graph();
  H2dStream image = ir.h2d_stream({{8, 784}, f32}, "image");
  Tensor x = main.host_load(image);

  auto [facts, linear] = nn::create_graph(ir, Linear(10), x.spec());
  nn::NamedTensors vars = facts.init(main);
  Tensor y = linear.bind(vars).call(x)[0];
  D2hStream out = main.host_store(y, "logits");

  Session session(ir, {.device = cpu_device({.memory = 4_MiB, .threads = 2})});
  fmt::print("{}\n", exe::summary(exe::report(session.executable())));
  HostTensor batch(TensorSpec{{8, 784}, f32});
  HostTensors results = session.run({{image, batch}});
  fmt::print("logits: {}\n", to_string(results[out].spec()));
}
