/// Lesson 5: train on the digits, copy the weights to a second program, and test there. Uses the
/// MNIST files in the folder given as argument, in $SLUICE_DATA or in data/mnist. Without such
/// files it uses generated digits.
#include <fmt/core.h>

#include <sluice/data/loader.h>
#include <sluice/data/mnist.h>
#include <sluice/data/synthetic_digits.h>
#include <sluice/sluice.h>
#include <algorithm>

using namespace sluice;

namespace {

constexpr int64_t kTrainBatch = 8;
constexpr int64_t kTestBatch = 80;
constexpr double kLearningRate = 0.05;

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

// One training step: forward, loss and its gradient, backward, update of every variable.
struct Training {
  Ir ir;
  H2dStream image = ir.h2d_stream({{kTrainBatch, 28, 28}, f32}, "image");
  H2dStream labels = ir.h2d_stream({{kTrainBatch}, i32}, "labels");
  D2hStream loss;
  nn::NamedTensors variables;

  Training() {
    Graph& main = ir.main_graph();
    const Tensor img = main.host_load(image);
    const Tensor label = main.host_load(labels);
    const auto [factories, forward] = nn::create_graph(ir, Net(), img);
    const nn::GraphWithNamedArgs backward = nn::autodiff(forward);
    variables = factories.init(main);

    const CallSiteInfo fwd = forward.bind(variables).call_with_info(img);
    const auto [mean_loss, gradient] = ops::cross_entropy_with_grad(fwd.output(0), label);
    loss = main.host_store(mean_loss, "loss");
    const auto& info = backward.grad_graph_info();
    const CallSiteInfo bwd = backward.call_with_info(gradient, info.inputs_dict(fwd));
    const auto grads = info.fwd_parent_ins_to_grad_parent_outs(fwd, bwd);
    for (const Tensor& t : variables.tensors())
      ops::scaled_add_(t, grads.at(t), 1.0, -kLearningRate);
  }
};

struct Testing {
  Ir ir;
  H2dStream image = ir.h2d_stream({{kTestBatch, 28, 28}, f32}, "image");
  D2hStream outputs;
  nn::NamedTensors variables;

  Testing() {
    Graph& main = ir.main_graph();
    const Tensor img = main.host_load(image);
    const auto [factories, graph] = nn::create_graph(ir, Net(), img);
    variables = factories.init(main);
    outputs = main.host_store(graph.bind(variables).call(img)[0], "outputs");
  }
};

int64_t correct(const HostTensor& logits, const HostTensor& labels) {
  int64_t right = 0;
  for (int64_t i = 0; i < kTestBatch; ++i) {
    const auto row = logits.as<float>().subspan(static_cast<size_t>(i * 10), 10);
    right += std::max_element(row.begin(), row.end()) - row.begin() ==
             labels.as<int32_t>()[static_cast<size_t>(i)];
  }
  return right;
}

}  // namespace

int main(int argc, char** argv) {
  const auto folder = data::find_mnist(argc > 1 ? argv[1] : "");
  const data::Dataset train_digits =
      folder ? data::load_mnist(*folder, data::Split::kTrain) : data::synthetic_digits(20000, 1);
  const data::Dataset test_digits =
      folder ? data::load_mnist(*folder, data::Split::kTest) : data::synthetic_digits(4000, 2);

  const Training training;
  Session train(training.ir, {.device = cpu_device({.memory = 16_MiB})});
  data::DataLoader batches(train_digits, {.batch = kTrainBatch});
  HostTensor image(training.image.spec);
  HostTensor labels(training.labels.spec);
  HostTensor loss(training.loss.spec);
  Binding step =
      train.bind({{training.image, image}, {training.labels, labels}}, {{training.loss, loss}});
  for (int64_t i = 0; i < batches.batches(); ++i) {
    batches.fill(i, image, labels);
    train.run_into(step);
  }
  fmt::print("trained {} steps on {}, last loss {:.4f}\n", batches.batches(),
             folder ? "MNIST" : "generated digits", loss.as<float>()[0]);

  // Both programs use the same keys for their variables.
  const Testing testing;
  Session test(testing.ir, {.device = cpu_device()});
  for (const auto& [key, variable] : training.variables.to_dict()) {
    test.write(testing.variables[key], train.read(variable));
  }
  data::DataLoader tests(test_digits, {.batch = kTestBatch, .shuffle = false});
  HostTensor digits(testing.image.spec);
  HostTensor truths({{kTestBatch}, i32});
  int64_t right = 0;
  for (int64_t i = 0; i < tests.batches(); ++i) {
    tests.fill(i, digits, truths);
    right += correct(test.run({{testing.image, digits}})[testing.outputs], truths);
  }
  const double accuracy =
      100.0 * static_cast<double>(right) / static_cast<double>(tests.batches() * kTestBatch);
  fmt::print("Accuracy on test set: {:.2f}%\n", accuracy);
  return accuracy >= 96.0 ? 0 : 1;
}
