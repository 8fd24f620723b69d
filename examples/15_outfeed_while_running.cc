/// Lesson 15: read results while the device runs (document 001). One call runs 100 updates in a
/// loop on the device; meanwhile this thread prints the loss of each. Uses the MNIST files in the
/// folder given as argument, in $SLUICE_DATA or in data/mnist. Without such files it uses generated
/// digits.
#include <fmt/core.h>

#include <sluice/data/feed_queues.h>
#include <sluice/sluice.h>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

using namespace sluice;

namespace {

constexpr int64_t kBatch = 32;
constexpr int64_t kIterations = 100;
// Maximum number of losses that wait for this thread; then the device blocks.
constexpr int64_t kWaiting = 8;
constexpr double kPatience = 60;  // Seconds.

// The loss of a classifier with two layers.
class Loss : public nn::Module {
 public:
  Tensor build(nn::Builder& b, Tensor images, Tensor labels) const {
    const Tensor pixels = images * 0.3081f + 0.1307f;  // From normalised values back to [0, 1].
    const Tensor hidden = ops::relu(fc1_(b, ops::reshape(pixels, {kBatch, -1})));
    return b.inlined("loss", nn::CrossEntropyLoss(), fc2_(b, hidden), labels);
  }

 private:
  static constexpr auto kInit = nn::WeightInit::kXavierUniform;
  nn::Child<nn::Linear> fc1_{*this, "fc1", 128, nn::Bias::kAdd, kInit};
  nn::Child<nn::Linear> fc2_{*this, "fc2", 10, nn::Bias::kAdd, kInit};
};

float mean(std::span<const float> values) {
  return std::accumulate(values.begin(), values.end(), 0.0f) / static_cast<float>(values.size());
}

}  // namespace

int main(int argc, char** argv) {
  const data::Samples samples = data::load_digits(data::Split::kTrain, argc > 1 ? argv[1] : "");
  const data::Dataset digits =
      data::from_samples(samples).shuffle(1, samples.size()).batch(kBatch).repeat();

  Ir ir;
  Graph& main = ir.main_graph();
  const TensorSpec image{{kBatch, data::kDigitSide, data::kDigitSide}, f32};
  const auto source = std::make_shared<data::InfeedQueue>(digits);
  const Infeed in = ir.infeed("digits", source->fields(), {.prefetch_depth = source->depth()});
  const Outfeed out = ir.outfeed("losses", {{"loss", {{}, f32}}});

  const auto [factories, net] = nn::create_graph(ir, Loss(), image, TensorSpec{{kBatch}, i32});
  const nn::GraphWithNamedArgs backward = net.autodiff({.grads_required = net.args().tensors()});
  const nn::NamedTensors weights = factories.init(main);
  const auto& info = backward.grad_graph_info();

  // An update. The variables belong to the graph around the loop.
  const auto body = [&](const LoopArguments& digit) {
    const CallSiteInfo call = net.bind(weights).call_with_info(digit["input"], digit["labels"]);
    const CallSiteInfo back = backward.call_with_info(main.scalar(1, f32), info.inputs_dict(call));
    const auto gradients = info.fwd_parent_ins_to_grad_parent_outs(call, back);
    weights.for_each([&](const std::string&, const Tensor& weight) {
      ops::scaled_add_(weight, gradients.at(weight), 1, -0.01);
    });
    main.enqueue(out, {{"loss", call.output(0)}});
  };
  ops::repeat(main, kIterations, body, {}, in);

  Session session(ir, {.device = cpu_device({.threads = 2})});
  const auto queue =
      std::make_shared<data::OutfeedQueue>(data::OutfeedQueueOptions{.depth = kWaiting});
  session.bind_feed(in, source);
  session.bind_feed(out, queue);

  AsyncRun run = session.run_async();
  std::vector<float> losses;
  bool running = false;
  while (losses.size() < kIterations && queue->wait_for(kPatience)) {
    const HostTensor some = queue->dequeue()[0].array;
    if (losses.empty()) running = !run.done();
    for (const float loss : some.as<float>()) {
      losses.push_back(loss);
      fmt::print("{:.3f}{}", loss, losses.size() % 10 == 0 ? "\n" : " ");
    }
    std::fflush(stdout);
  }
  run.wait();
  const std::span<const float> all(losses);
  const bool fell = mean(all.last(10)) < 0.9f * mean(all.first(10));
  fmt::print("{} losses; the first came while the device ran: {}; the loss fell: {}\n",
             losses.size(), running ? "yes" : "no", fell ? "yes" : "no");
  return losses.size() == kIterations && running && fell ? 0 : 1;
}
