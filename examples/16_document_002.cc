/// Lesson 16: the program of document 002. A convolutional network of four blocks is trained on
/// four devices, ten updates a call, and tested with calls of a hundred micro-batches. Uses the
/// digits of lesson 5.
#include <fmt/core.h>

#include <sluice/sluice.h>

using namespace sluice;

namespace {

// A 5 x 5 convolution, the largest of 2 x 2 elements, and ReLU.
class ConvLayer : public nn::Module {
 public:
  explicit ConvLayer(int64_t channels)
      : conv_(*this, "conv",
              nn::ConvOptions{
                  .channels = channels, .kernel = {5}, .init = nn::WeightInit::kUniform}) {}
  Tensor build(nn::Builder& b, Tensor x) const { return ops::relu(pool_(b, conv_(b, x))); }

 private:
  nn::Child<nn::Conv2d> conv_;
  nn::Child<nn::MaxPool2d> pool_{*this, "pool", ops::PoolOptions{.kernel = {2}}};
};

class Network : public nn::Module {
 public:
  train::Results build(nn::Builder& b, const train::Inputs& in) const {
    Tensor x = in["input"];
    {
      const nn::Block block(b, "B1");
      x = layer1_(b, x);
    }
    {
      const nn::Block block(b, "B2");
      x = layer2_(b, x);
    }
    {
      const nn::Block block(b, "B3");
      x = ops::relu(layer3_(b, ops::flatten(x, 1)));
    }
    const nn::Block block(b, "B4");
    x = layer4_(b, x);
    if (in.mode() == nn::RunMode::kEvaluate) return {.predictions = {{"output", x, "labels"}}};
    return {.losses = {train::cross_entropy(x, in["labels"])},
            .predictions = {{"output", x, "labels"}}};
  }

 private:
  nn::Child<ConvLayer> layer1_{*this, "layer1", 10};
  nn::Child<ConvLayer> layer2_{*this, "layer2", 20};
  nn::Child<nn::Linear> layer3_{*this, "layer3", 256, nn::Bias::kAdd, nn::WeightInit::kUniform};
  nn::Child<nn::Linear> layer4_{*this, "layer4", 10, nn::Bias::kAdd, nn::WeightInit::kUniform};
};

constexpr int64_t kBatch = 40, kTestBatch = 8;

}  // namespace

int main(int argc, char** argv) {
  const std::string folder = argc > 1 ? argv[1] : "";
  train::Options options{.strategy = train::pipelined("B1", "B2", "B3", "B4"),
                         .accumulate = 10,
                         .device_iterations = 10,
                         .output = train::Output::all(),  // Results of all micro-batches.
                         .learning_rate = 0.001};
  train::Options test_options = options;
  test_options.accumulate = 1;
  test_options.device_iterations = 100;

  train::DataLoader train_data(
      options, data::from_samples(data::load_digits(data::Split::kTrain, folder)),
      {.batch_size = kBatch, .shuffle = data::Shuffle::kYes, .workers = 2});
  train::DataLoader test_data(test_options,
                              data::from_samples(data::load_digits(data::Split::kTest, folder)),
                              {.batch_size = kTestBatch, .workers = 2});

  const train::Network network(Network(), {{.name = "input",
                                            .spec = f32_spec({kBatch, 1, 28, 28}),
                                            .eval_spec = f32_spec({kTestBatch, 1, 28, 28})},
                                           {.name = "labels", .spec = i32_spec({kBatch})}});
  train::TrainingModel model = train::training_model(network, options, nn::Optimizer::adamw());
  train::InferenceModel test = train::inference_model(model, test_options);

  bool learns = true;
  for (const double min : {94, 96, 97}) {
    const train::FitResult result = train::fit(model, train_data, {.show = train::Show::kAll});
    fmt::print("Loss:{:.4f} | Accuracy:{:.2f}%\n", result.loss, *result.accuracy);
    learns = learns && *result.accuracy >= min;
  }
  const train::Evaluation tested = train::evaluate(test, test_data, train::Show::kProgress);
  fmt::print("{}\n", to_string(tested));
  return learns && *tested["accuracy"] > 97.5 && *tested["accuracy"] < 99.9 ? 0 : 1;
}
