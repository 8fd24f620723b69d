#include <atomic>
#include <memory>
#include <optional>

#include "sluice/data/feed_queues.h"
#include "sluice/data/pipeline/measure.h"
#include "sluice/train/fit.h"

namespace sluice::train {
namespace {

/// Produces the elements of a queue, and records whether they have ended.
class Elements : public FeedSource {
 public:
  explicit Elements(data::InfeedQueue& queue) : queue_(queue) {}
  void open(const FeedLayout& layout) override { queue_.open(layout); }
  bool next(std::span<const ArrayView> fields) override {
    const bool is_made = queue_.next(fields);
    ended_ = !is_made;
    return is_made;
  }
  void cancel() override { queue_.cancel(); }
  bool ended() const { return ended_; }

 private:
  data::InfeedQueue& queue_;
  std::atomic<bool> ended_{false};
};

}  // namespace

InfeedBenchmark infeed_benchmark(data::InfeedQueue& queue, const data::BenchmarkOptions& options) {
  data::internal::check_benchmark("infeed_benchmark", options);
  require(options.copy, "infeed_benchmark: copy must be true, because a feed copies; got false");
  Ir ir;
  const Infeed feed =
      ir.infeed("infeed_benchmark", queue.fields(), {.prefetch_depth = queue.depth()});
  ir.main_graph().dequeue(feed);
  Session session(ir);
  const auto elements = std::make_shared<Elements>(queue);
  session.bind_feed(feed, elements);
  Binding run = session.bind({}, {});
  int64_t bytes = 0;
  for (const FeedField& field : queue.fields()) bytes += field.spec.bytes();
  InfeedBenchmark result{data::internal::measure(options, [&]() -> std::optional<int64_t> {
    try {
      session.run_into(run);
    } catch (const Error&) {
      if (!elements->ended()) throw;
      return std::nullopt;
    }
    return bytes;
  })};
  result.feed = session.feed_statistics().front();
  return result;
}

}  // namespace sluice::train
