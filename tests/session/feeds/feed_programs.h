#pragma once
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "sluice/base/test_refusals.h"
#include "sluice/core.h"
#include "sluice/data/feed_queues.h"
#include "sluice/data/test_wait.h"
#include "sluice/exe/executable.h"
#include "sluice/runtime/events.h"

/// Sources, sinks and programs for tests of feeds.
namespace sluice::test {

inline TensorSpec f32_of(Shape shape) { return {std::move(shape), f32, {}}; }

inline void fill(const ArrayView& view, float value) {
  auto* const at = reinterpret_cast<float*>(view.data);
  for (int64_t i = 0; i < view.spec.elements(); ++i) at[i] = value;
}
inline float first_of(const ConstArrayView& view) {
  return *reinterpret_cast<const float*>(view.data);
}

/// Returns a constant whose elements are all `value`.
inline Tensor filled(Graph& graph, Shape shape, float value) {
  HostTensor t(f32_of(std::move(shape)));
  for (float& v : t.as<float>()) v = value;
  return graph.constant(std::move(t), "v");
}

/// Returns field `field` of element i of a feed whose elements repeat after 11.
inline float element(size_t field, int64_t i) {
  return (static_cast<float>((i * 7 + 3) % 11) - 5) * (field == 0 ? 0.25f : 0.3f);
}

/// The numbers of several arrays.
using Arrays = std::vector<std::vector<float>>;
inline std::vector<float> floats(const HostTensor& t) {
  return {t.as<float>().begin(), t.as<float>().end()};
}

/// Element i has the value i mod `period` in each field, or what `value(field, i mod period)`
/// returns. Ends after `max` elements.
struct Counting : FeedSource {
  using Value = std::function<float(size_t field, int64_t i)>;
  explicit Counting(int64_t period, int64_t max = INT64_MAX, Value value = {})
      : period(period), max(max), value(std::move(value)) {}
  bool next(std::span<const ArrayView> fields) override {
    const int64_t i = made.load();
    if (i >= max) return false;
    for (size_t f = 0; f < fields.size(); ++f) {
      const int64_t k = i % period;
      fill(fields[f], value ? value(f, k) : static_cast<float>(k));
    }
    made = i + 1;
    return true;
  }
  const int64_t period, max;
  const Value value;
  std::atomic<int64_t> made{0};
};

/// Makes `max` elements. Each is made once the program waits for it, and then takes `kPause`.
struct Late : Counting {
  static constexpr std::chrono::milliseconds kPause{1};
  /// `session` must outlive the source. `name` is the name of the feed.
  Late(const Session& session, std::string name, int64_t max)
      : Counting(100, max), session(session), name(std::move(name)) {}
  bool next(std::span<const ArrayView> fields) override {
    if (made == max) return false;
    EXPECT_TRUE(wait_until([&] { return waits() > made; }));
    seen.push_back(runtime::EventRing::now());
    std::this_thread::sleep_for(kPause);
    ready.push_back(runtime::EventRing::now());
    return Counting::next(fields);
  }
  /// Returns how often the program has waited for an element, a wait in progress included.
  int64_t waits() const {
    for (const report::FeedReport& f : session.feed_statistics()) {
      if (f.name == name) return f.waits_for_host.count;
    }
    return 0;
  }
  const Session& session;
  const std::string name;
  /// For each element: the time at which its wait was observed, and the time before it was made,
  /// after the pause.
  std::vector<int64_t> seen, ready;
};

/// Stores the first number of each field of each element.
struct Numbers : FeedSink {
  void take(std::span<const ConstArrayView> fields) override {
    const std::lock_guard hold(lock);
    std::vector<float> element;
    for (const ConstArrayView& field : fields) element.push_back(first_of(field));
    taken.push_back(element);
  }
  std::vector<float> field(size_t f) {
    const std::lock_guard hold(lock);
    std::vector<float> values;
    for (const auto& element : taken) values.push_back(element[f]);
    return values;
  }
  std::mutex lock;
  std::vector<std::vector<float>> taken;
};

/// A source that blocks in next() from element `from` on, until it is cancelled or released.
struct Blocking : FeedSource {
  explicit Blocking(int64_t from) : from(from) {}
  bool next(std::span<const ArrayView> fields) override {
    if (made >= from) {
      std::unique_lock hold(lock);
      blocks = true;
      wake.wait(hold, [&] { return open; });
    }
    for (const ArrayView& field : fields) fill(field, static_cast<float>(made));
    ++made;
    return true;
  }
  void cancel() override { release(); }
  void release() {
    const std::lock_guard hold(lock);
    open = true;
    wake.notify_all();
  }
  const int64_t from;
  int64_t made = 0;
  std::atomic<bool> blocks{false};  ///< Whether next() has blocked.
  bool open = false;
  std::mutex lock;
  std::condition_variable wake;
};

/// Programs "<n>" for each of `trips`, which adds n elements of the feed "x" to a variable and
/// enqueues each sum in "sums".
struct Sums {
  explicit Sums(const std::vector<int64_t>& trips, Shape shape = {4, 4}, int replicas = 1,
                int depth = 3)
      : ir(replicas) {
    in = ir.infeed("x", {{"x", f32_of(shape)}}, {.prefetch_depth = depth});
    out = ir.outfeed("sums", {{"sum", f32_of(shape)}}, {.depth = depth});
    Graph& body = ir.create_empty_graph("body");
    const Tensor v = body.input(f32_of(shape), "v");
    Tensor sum = v + body.dequeue(in)[0];
    if (replicas > 1) sum = ops::replicated_all_reduce(sum);
    body.enqueue(out, Tensors{sum});
    body.add_output(sum);
    for (const int64_t n : trips) {
      Graph& main = ir.entry_graph(std::to_string(n));
      total = !total.valid() ? main.variable(f32_of(shape), Initializer::constant(0), "total")
                             : ir.share_variable(total, main);
      ops::copy_var_update_(total, ops::repeat(main, body, n, {total})[0]);
    }
  }
  float value(const Session& session) const { return session.read(total).as<float>()[0]; }
  void reset(Session& session) const { session.write(total, HostTensor(total.spec())); }

  Ir ir;
  Infeed in;
  Outfeed out;
  Tensor total;
};

inline SessionOptions with(int threads, int devices = 1) {
  SessionOptions options{.device = cpu_device({.threads = threads})};
  for (int d = 1; d < devices; ++d)
    options.more_devices.push_back(cpu_device({.threads = threads}));
  return options;
}

/// Returns options of a session that trusts its plan.
inline SessionOptions trusted(int threads) {
  SessionOptions options = with(threads);
  options.proof = SessionOptions::Proof::kTrust;
  return options;
}

inline std::string error_text(ErrorKind kind, const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& e) {
    EXPECT_EQ(to_string(e.kind()), to_string(kind)) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

/// Checks that all elements of an array are equal, and returns them.
inline float all_equal(const HostTensor& t) {
  const auto values = t.as<float>();
  for (const float v : values) EXPECT_EQ(v, values[0]);
  return values[0];
}

/// Runs the programs "ordered", whose output `sum` adds both fields of five elements, and "named",
/// which adds each field to an output of its own. The elements are (i, (i + 10) / 2), i below 3.
inline void expect_sums_of_pairs(Session& session, const Infeed& in, const D2hStream& sum,
                                 const D2hStream& a, const D2hStream& b) {
  const auto pairs = [](size_t field, int64_t i) {
    return field == 0 ? static_cast<float>(i) : static_cast<float>(i + 10) / 2;
  };
  session.bind_feed(in, std::make_shared<Counting>(3, INT64_MAX, pairs));
  EXPECT_EQ(all_equal(session.run({}, "ordered")[sum]), 31);
  session.bind_feed(in, std::make_shared<Counting>(3, INT64_MAX, pairs));
  const HostTensors results = session.run({}, "named");
  EXPECT_EQ(all_equal(results[a]), 4);
  EXPECT_EQ(all_equal(results[b]), 27);
}

/// Checks the five sums that two replicas store, each the last one and all elements so far.
inline void expect_sums_of_replicas(const HostTensor& sums) {
  ASSERT_EQ(sums.shape(), Shape({5, 2, 4, 4}));
  const float expected[] = {1, 4, 11, 23, 48};
  for (size_t i = 0; i < 5 * 2 * 16; ++i) EXPECT_EQ(sums.as<float>()[i], expected[i / 32]);
}

}  // namespace sluice::test
