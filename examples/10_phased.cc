/// Lesson 10: phased execution. Two replicas train four layers. Weights and optimizer state are in
/// remote memory, as shards, and are loaded one layer at a time. Uses the digits of lesson 5.
/// `--io-mode compute|io|io_overlapped` may follow the folder.
#include <fmt/core.h>

#include <sluice/data/loader.h>
#include <sluice/data/mnist.h>
#include <sluice/data/synthetic_digits.h>
#include <sluice/sluice.h>
#include <algorithm>
#include <string>

using namespace sluice;

namespace {

constexpr int64_t kMicroBatch = 8;
constexpr int64_t kAccumulate = 4;
constexpr int kReplicas = 2;
constexpr int64_t kInnerLayers = 2;
constexpr int64_t kShardThreshold = 512;
constexpr int64_t kTestBatch = 80;
constexpr double kLearningRate = 1e-3;

enum class Activation { kNone, kGelu };

class Linear : public nn::Module {
 public:
  explicit Linear(int64_t features, Activation activation = Activation::kGelu)
      : features_(features), activation_(activation) {}
  Tensor build(nn::Builder& b, Tensor x) const {
    const Tensor y = nn::Linear(features_).build(b, x);
    return activation_ == Activation::kGelu ? ops::gelu(y) : y;
  }

 private:
  int64_t features_;
  Activation activation_;
};

// Runs the last layer forward, the loss, and the layer backward.
struct OutputLayerWithBwd : nn::Module {
  Tensors build(nn::Builder& b, Tensor x, Tensor labels) const {
    const auto [factories, forward] =
        nn::create_graph(b.ir(), Linear(10, Activation::kNone), x.spec());
    const auto [grad_factories, backward] = nn::autodiff_with_accumulation(
        forward, forward.args().tensors(), {.grads_required = {forward.graph().inputs()[0]}});
    const nn::NamedTensors weights = b.add_variable_inputs("fwd", factories);
    const CallSiteInfo call = forward.bind(weights).call_with_info(x);
    const auto [loss, dy] = ops::cross_entropy_with_grad(call.output(0), labels);
    const nn::NamedTensors accumulators = b.add_variable_inputs("bwd", grad_factories);
    const Tensor dx =
        backward.bind(accumulators).call(dy, backward.grad_graph_info().inputs_dict(call))[0];
    return {dx, loss};
  }
};

struct Training {
  Ir ir{kReplicas};
  H2dStream image = ir.h2d_stream({{kMicroBatch, 28 * 28}, f32}, "image");
  H2dStream labels = ir.h2d_stream({{kMicroBatch}, i32}, "labels");
  D2hStream loss = ir.d2h_stream({{}, f32}, "loss");
  nn::NamedTensors variables;  // Weights: fc1.weight, …

  explicit Training(IoMode io) {
    Graph& main = ir.main_graph();
    const Graph::IoScope scope(main, io);
    const TensorSpec inner_spec{{kMicroBatch, 512}, f32};
    nn::Optimizer adam = nn::Optimizer::adam_f16();

    // There are three kinds of layers. The two inner layers share graphs and buffers, with one row
    // each.
    auto [factories1, graph1] = nn::create_graph(ir, Linear(512), image.spec);
    auto [factories2, graph2] = nn::create_graph(ir, Linear(512), inner_spec);
    auto [factories4, graph4] = nn::create_graph(ir, OutputLayerWithBwd(), inner_spec, labels.spec);
    train::PhasedLayer fc1(
        factories1, graph1, adam,
        {.input_gradient = train::InputGradient::kNo, .shard_threshold = kShardThreshold});
    train::PhasedLayer inner(factories2, graph2, adam,
                             {.rows = kInnerLayers, .shard_threshold = kShardThreshold});
    auto fc4 =
        train::PhasedLayer::joint(factories4, graph4, adam, {.shard_threshold = kShardThreshold});

    // Tensors that one phase stores for another: outputs of layers (x) and their gradients (dx).
    const RemoteBuffer x =
        nn::batch_serial_buffer(graph1.graph().outputs()[0], kAccumulate, kInnerLayers + 1);
    const RemoteBuffer dx =
        nn::batch_serial_buffer(graph1.graph().outputs()[0], kAccumulate, kInnerLayers + 1);
    const auto in = [](const auto& g) { return g.graph().inputs(); };
    const auto out = [](const auto& g) { return g.graph().outputs(); };
    fc1.serialise(
        {.steps = kAccumulate,
         .loads = {{in(fc1.forward())[0], image}, {in(fc1.backward())[0], nn::BatchHandle{dx, 0}}},
         .store_buffers = {{out(fc1.forward())[0], nn::BatchHandle{x, 0}}},
         .io_mode = io});
    inner.serialise({.steps = kAccumulate,
                     .loads = {{in(inner.forward())[0], nn::BatchHandle{x, 0}},
                               {in(inner.backward())[0], nn::BatchHandle{dx, 1}}},
                     .store_buffers = {{out(inner.forward())[0], nn::BatchHandle{x, 1}},
                                       {out(inner.backward())[0], nn::BatchHandle{dx, 0}}},
                     .io_mode = io});
    fc4.serialise(
        {.steps = kAccumulate,
         .loads = {{in(fc4.backward())[0], nn::BatchHandle{x, 2}}, {in(fc4.backward())[1], labels}},
         .store_streams = {{out(fc4.backward())[1], loss}},
         .store_buffers = {{out(fc4.backward())[0], nn::BatchHandle{dx, 2}}},
         .io_mode = io});

    variables.insert("fc1", fc1.init(main, 0, {.prefix = "fc1"}).weights);
    variables.insert("fc2", inner.init(main, 0, {.prefix = "fc2"}).weights);
    variables.insert("fc3", inner.init(main, 1, {.prefix = "fc3"}).weights);
    variables.insert("fc4", fc4.init(main, 0, {.prefix = "fc4"}).weights);

    // Seven phases.
    const Tensor step_size = main.scalar(-kLearningRate, f32, "step_size");
    fc1.forward_phase(main, 0);
    inner.forward_phase(main, 0);
    inner.forward_phase(main, 1);
    fc4.backward_phase(main, 0, step_size);
    inner.backward_phase(main, 1, step_size);
    inner.backward_phase(main, 0, step_size);
    fc1.backward_phase(main, 0, step_size);
  }
};

struct Net : nn::Module {
  Tensor build(nn::Builder& b, Tensor x) const { return fc4(b, fc3(b, fc2(b, fc1(b, x)))); }
  nn::Child<Linear> fc1{*this, "fc1", 512};
  nn::Child<Linear> fc2{*this, "fc2", 512};
  nn::Child<Linear> fc3{*this, "fc3", 512};
  nn::Child<Linear> fc4{*this, "fc4", 10, Activation::kNone};
};

struct Testing {
  Ir ir;
  H2dStream image = ir.h2d_stream({{kTestBatch, 28 * 28}, f32}, "image");
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

IoMode io_mode(const std::string& word) {
  if (word == "compute") return IoMode::kCompute;
  if (word == "io_overlapped") return IoMode::kIoOverlapped;
  return IoMode::kIo;
}

}  // namespace

int main(int argc, char** argv) {
  const auto folder = data::find_mnist(argc > 1 ? argv[1] : "");
  const data::Dataset train_digits =
      folder ? data::load_mnist(*folder, data::Split::kTrain) : data::synthetic_digits(20000, 1);
  const data::Dataset test_digits =
      folder ? data::load_mnist(*folder, data::Split::kTest) : data::synthetic_digits(4000, 2);

  const Training training(io_mode(argc > 3 ? argv[3] : "io"));
  Session train(training.ir, {.device = cpu_device()});
  const int64_t samples = kMicroBatch * kAccumulate * kReplicas;
  data::DataLoader batches(train_digits, {.batch = samples});
  HostTensor images({{kAccumulate, kReplicas, kMicroBatch, 28 * 28}, f32});
  HostTensor labels({{kAccumulate, kReplicas, kMicroBatch}, i32});
  HostTensor losses({{kAccumulate, kReplicas}, f32});
  Binding step =
      train.bind({{training.image, images}, {training.labels, labels}}, {{training.loss, losses}});
  float mean = 0;
  for (int64_t i = 0; i < batches.batches(); ++i) {
    batches.fill(i, images, labels);
    train.run_into(step);
    mean = 0;
    for (const float loss : losses.as<float>()) mean += loss / (kAccumulate * kReplicas);
  }
  fmt::print("trained {} steps on {}, last loss {:.4f}\n", batches.batches(),
             folder ? "MNIST" : "generated digits", mean);

  const Testing testing;
  Session test(testing.ir, {.device = cpu_device()});
  for (const auto& [key, variable] : training.variables.to_dict())
    test.write(testing.variables[key], train.read(variable));
  fmt::print("train session\n{}\n", to_string(train::evaluate_throughput(train, samples)));

  data::DataLoader tests(test_digits, {.batch = kTestBatch, .shuffle = false});
  HostTensor digits(testing.image.spec);
  HostTensor truths({{kTestBatch}, i32});
  int64_t right = 0;
  for (int64_t i = 0; i < tests.batches(); ++i) {
    tests.fill(i, digits, truths);
    const HostTensors outputs = test.run({{testing.image, digits}});
    const auto logits = outputs[testing.outputs].as<float>();
    for (size_t k = 0; k < kTestBatch; ++k) {
      const auto row = logits.subspan(k * 10, 10);
      right += std::max_element(row.begin(), row.end()) - row.begin() == truths.as<int32_t>()[k];
    }
  }
  const double accuracy =
      100.0 * static_cast<double>(right) / static_cast<double>(tests.batches() * kTestBatch);
  fmt::print("Accuracy on test set: {:.2f}%\n", accuracy);
  fmt::print("test session\n{}\n", to_string(train::evaluate_throughput(test, kTestBatch)));
  return accuracy >= 95.0 ? 0 : 1;
}
