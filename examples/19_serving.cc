/// Lesson 19: serving. A model with dropout is trained, then answers eight threads. Their calls
/// queue: the model runs one at a time, and each thread gets the results of its own samples.
#include <fmt/core.h>

#include <sluice/sluice.h>
#include <atomic>
#include <thread>
#include <vector>

using namespace sluice;

namespace {

constexpr int64_t kBatch = 10;
constexpr int64_t kFeatures = 20;
constexpr int kThreads = 8;
constexpr int kRequests = 25;  // Number of calls of each thread.

class Net : public nn::Module {
 public:
  // Dropout changes nothing in evaluation.
  Tensor build(nn::Builder& b, Tensor x) const {
    x = ops::relu(fc1_(b, x));
    x = b.inlined("dropout", nn::Dropout(0.2), x);
    return fc2_(b, x);
  }

 private:
  nn::Child<nn::Linear> fc1_{*this, "fc1", 32};
  nn::Child<nn::Linear> fc2_{*this, "fc2", 3};
};

// Sample k: twenty features with noise; those of its class are larger.
data::Element sample(int64_t k) {
  HostTensor x({{kFeatures}, f32});
  for (int64_t i = 0; i < kFeatures; ++i)
    x.as<float>()[i] = static_cast<float>(i % 3 == k % 3) + static_cast<float>((k * i * i) % 7) / 7;
  const auto label = HostTensor::of<int32_t>({}, i32, {static_cast<int32_t>(k % 3)});
  return {{"input", x}, {"labels", label}};
}

// The request of a thread: kBatch samples from its own part of the data.
data::Element request(int thread, int number) {
  HostTensor x({{kBatch, kFeatures}, f32});
  const int64_t first = 1000 * (thread + 1) + kBatch * number;
  for (int64_t row = 0; row < kBatch; ++row) {
    const data::Element one = sample(first + row);
    const auto from = one.arrays[0].as<float>();
    std::copy(from.begin(), from.end(), x.as<float>().begin() + row * kFeatures);
  }
  return {{"input", x}};
}

}  // namespace

int main() {
  train::TrainingModel training = train::training_model(
      train::classifier(Net(), {{kBatch, kFeatures}, f32}), {}, nn::Optimizer::adam());
  train::fit(training, data::from_function(1000, sample), {.epochs = 3});
  train::InferenceModel model = train::inference_model(training);

  // The results that each thread must get, from this thread alone.
  std::vector<std::vector<data::Element>> expected(kThreads);
  for (int t = 0; t < kThreads; ++t) {
    for (int n = 0; n < kRequests; ++n) expected[t].push_back(model(request(t, n)));
  }

  std::atomic<int> served{0}, equal{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    // A copy of a model is a handle to the same one.
    threads.emplace_back([&, t, handle = model]() mutable {
      for (int n = 0; n < kRequests; ++n) {
        const data::Element scores = handle(request(t, n));
        ++served;
        if (scores.arrays[0].same_bits(expected[t][n].arrays[0])) ++equal;
      }
    });
  }
  for (std::thread& t : threads) t.join();
  fmt::print("{} threads, {} requests served, {} with the bits of one thread\n", kThreads,
             served.load(), equal.load());
  return equal == served ? 0 : 1;
}
