/// Lesson 14: a loop that runs on the device (document 001). A feed gives it an element of a
/// dataset in each iteration, and another one takes its results.
#include <fmt/core.h>

#include <sluice/data/feed_queues.h>
#include <sluice/sluice.h>
#include <algorithm>
#include <memory>
#include <utility>

using namespace sluice;

namespace {

constexpr int64_t kWidth = 800;
constexpr int64_t kIterations = 10;

// The minimum and the maximum of an array.
std::pair<float, float> range(const HostTensor& t) {
  const auto values = t.as<float>();
  const auto [min, max] = std::ranges::minmax_element(values);
  return {*min, *max};
}

}  // namespace

int main() {
  HostTensor ones({{1, kWidth}, f32});
  for (float& v : ones.as<float>()) v = 1;
  const data::Dataset pairs =
      data::from_tensors(ones)
          .map([](const data::Element& e) { return data::Element(e.arrays[0], e.arrays[0]); })
          .repeat();

  Ir ir;
  Graph& main = ir.main_graph();
  const TensorSpec vec{{kWidth}, f32};
  const auto queue = std::make_shared<data::InfeedQueue>(pairs);
  const Infeed in = ir.infeed("pairs", queue->fields(), {.prefetch_depth = queue->depth()});
  const Outfeed out = ir.outfeed("results", {{"d1", vec}, {"d2", vec}});

  // The function adds the ops of an iteration to the graph. It receives the carried value, then the
  // fields of an element, and returns the next carried value.
  const auto body = [&](Tensor counter, Tensor x1, Tensor x2) {
    main.enqueue(out, {{"d1", x1 + x2}, {"d2", x1 - x2}});
    return counter + main.scalar(1, i32);
  };
  const Tensors last = ops::repeat(main, kIterations, body, {main.scalar(0, i32)}, in);
  const D2hStream counter = main.host_store(last[0], "counter");

  Session session(ir, {.device = cpu_device({.threads = 2})});
  const auto results = std::make_shared<data::OutfeedQueue>();
  session.bind_feed(in, queue);
  session.bind_feed(out, results);
  fmt::print("counter: {}\n", session.run()[counter].as<int32_t>()[0]);
  for (const auto& [name, array] : results->dequeue()) {
    const auto [min, max] = range(array);
    fmt::print("{}: {}, from {:.1f} to {:.1f}\n", name, to_string(array.shape()), min, max);
  }
}
