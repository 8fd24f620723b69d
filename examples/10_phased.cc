/// Lesson 10: phased execution (document 000). Two replicas train four layers. Weights and
/// optimizer state are in remote memory, as shards, and are loaded one layer at a time. Uses the
/// digits of lesson 5. `--io-mode compute|io|io_overlapped` may follow the folder, then
/// `--calls N`, which ends the training after N calls.
#include <fmt/core.h>

#include <sluice/sluice.h>
#include <optional>
#include <string>

using namespace sluice;

namespace {

constexpr int64_t kMicroBatch = 8;
constexpr int64_t kAccumulate = 4;
constexpr int kReplicas = 2;
constexpr int64_t kTestBatch = 80;
constexpr auto kRemote = train::Location::kRemote;

// Four linear layers whose first weights are N(0, 0.02), with GELU between them. Each is a block.
class Net : public nn::Module {
 public:
  Tensor build(nn::Builder& b, Tensor x) const {
    for (const auto* layer : {&fc1_, &fc2_, &fc3_}) x = ops::gelu((*layer)(b, x));
    return fc4_(b, x);
  }

 private:
  using Layer = nn::Child<nn::Linear>;
  static constexpr auto kNormal = nn::WeightInit::kNormal;
  Layer fc1_{*this, "fc1", 512, nn::Bias::kAdd, kNormal};
  Layer fc2_{*this, "fc2", 512, nn::Bias::kAdd, kNormal};
  Layer fc3_{*this, "fc3", 512, nn::Bias::kAdd, kNormal};
  Layer fc4_{*this, "fc4", 10, nn::Bias::kAdd, kNormal};
};

IoMode io_mode(const std::string& word) {
  if (word == "compute") return IoMode::kCompute;
  if (word == "io_overlapped") return IoMode::kIoOverlapped;
  return IoMode::kIo;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string folder = argc > 1 ? argv[1] : "";
  const data::Samples digits = data::load_digits(data::Split::kTrain, folder);
  const data::Samples tests = data::load_digits(data::Split::kTest, folder);

  // A step has seven phases: fc1, fc2 and fc3 forward; fc4 forward, the loss and fc4 backward; fc3,
  // fc2 and fc1 backward. A phase loads the shards of its layer and gathers them. Then it runs all
  // micro-batches, and remote buffers hold the activations between phases. A backward phase reduces
  // the gradients into shards, updates the layer and stores it. The graphs and buffers of fc2 and
  // fc3 are shared, with one row for each.
  train::TrainingModel model = train::training_model(
      train::classifier(Net(), {{kMicroBatch, 28 * 28}, f32},
                        {.eval_input = TensorSpec{{kTestBatch, 28 * 28}, f32}}),
      {.strategy = train::phased(),
       .accumulate = kAccumulate,
       .replicas = kReplicas,
       .locations = {.optimizer = kRemote,
                     .weights = kRemote,
                     .activations = kRemote,
                     .min_elements_sharded = 512},
       .io_mode = io_mode(argc > 3 ? argv[3] : "io"),
       .learning_rate = 1e-3},
      nn::Optimizer::adam_f16());
  train::InferenceModel test = train::inference_model(model);
  std::optional<int64_t> calls;  // An epoch without it.
  if (argc > 5) calls = std::stoll(argv[5]);
  const train::FitResult fit = train::fit(model, data::from_samples(digits), {.calls = calls});
  fmt::print("trained {} steps on {}, last loss {:.4f}\n", fit.updates, digits.source, fit.loss);
  if (calls) {
    fmt::print("bits of the last loss: {:a}\n", fit.loss);
    return 0;
  }
  const double accuracy = *train::evaluate(test, data::from_samples(tests))["accuracy"];
  fmt::print("Accuracy on test set: {:.2f}%\n", accuracy);

  // Throughput is measured on arrays of ones. The variables keep their values.
  const auto speed = [&](int64_t samples, const char* program) {
    return to_string(train::evaluate_throughput(model.session(), samples, 5, program));
  };
  fmt::print("train session\n{}\n", speed(kMicroBatch * kAccumulate * kReplicas, "train"));
  fmt::print("test session\n{}\n", speed(test.call_size().samples(), "eval"));
  return accuracy >= 95.0 ? 0 : 1;
}
