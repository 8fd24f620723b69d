#include "sluice/transforms/copies/split_stores.h"

#include <gtest/gtest.h>

#include "sluice/base/test_refusals.h"
#include "sluice/interp/interpreter.h"
#include "sluice/ir/call.h"
#include "sluice/ir/verify.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/basic.h"
#include "sluice/ops/updates.h"
#include "sluice/transforms/loops/loops.h"

namespace sluice::transforms {
namespace {

HostTensor floats(Shape shape, const std::vector<float>& of) {
  return HostTensor::of(std::move(shape), f32, of);
}

// Stores in a loop, in a graph that the loop calls, and in the entry graph.
class SplitStores : public ::testing::Test {
 protected:
  SplitStores() {
    Graph& main = ir_.main_graph();
    sum_ = main.variable(floats({2}, {1, 2}), "sum");
    Graph& plain = ir_.create_graph(
        "plain", [](Graph&, const Tensor& t) { return t + t; }, f32_spec({2}));
    Graph& inner = ir_.create_graph(
        "inner",
        [&](Graph& g, const Tensor& t) {
          const Tensor twice = ops::call(g, plain, {t})[0];
          g.host_store(seen_, twice);
          return twice - g.constant(floats({2}, {1, 1}));
        },
        f32_spec({2}));
    Graph& body = ir_.create_empty_graph("body");
    const Tensor carried = body.input(f32_spec({2}), "carried");
    const Tensor total = body.input(f32_spec({2}), "total", Pass::kByReference);
    const Tensor next = ops::call(body, inner, {carried + body.host_load(x_)})[0];
    ops::add_(total, next);
    body.host_store(kept_, total);
    body.set_outputs({next});
    const Tensor last = ops::repeat(main, body, 3, {ops::identity(sum_)}, {{total, sum_}})[0];
    main.host_store(end_, last);
    main.host_store(seen_, last);
  }

  std::vector<std::vector<double>> entries(const std::string& program, const D2hStream& stream) {
    Interpreter interpreter(ir_);
    const auto out = interpreter.run({{x_, floats({3, 2}, {1, 2, 3, 4, 5, 6})}}, program);
    std::vector<std::vector<double>> all;
    for (const HostTensor& entry : out.entries(stream)) all.push_back(entry.to_doubles());
    all.push_back(interpreter.read(sum_).to_doubles());
    return all;
  }

  Ir ir_;
  Tensor sum_;
  const H2dStream x_ = ir_.h2d_stream(f32_spec({2}), "x");
  const D2hStream seen_ = ir_.d2h_stream(f32_spec({2}), "seen");
  const D2hStream kept_ = ir_.d2h_stream(f32_spec({2}), "kept");
  const D2hStream end_ = ir_.d2h_stream(f32_spec({2}), "end");
};

TEST_F(SplitStores, MovesStoresToACopyAndChangesNoOtherValue) {
  const auto seen = entries("main", seen_), kept = entries("main", kept_);
  const int graphs = ir_.graph_count();
  split_stores(ir_, "main", "copy", {seen_.id, end_.id});
  verify(ir_);
  EXPECT_EQ(ir_.graph_count(), graphs + 5);  // The entry, the loop's wrapper, and three more.
  EXPECT_EQ(entries("copy", seen_), seen);
  EXPECT_EQ(entries("copy", kept_), kept);
  EXPECT_EQ(entries("main", kept_), kept);
  EXPECT_EQ(entries("main", seen_).size(), 1u);  // The variable alone.
  EXPECT_EQ(entries("main", end_).size(), 1u);
}

TEST_F(SplitStores, RefusesOtherEntriesAndStreamsWithoutAStore) {
  const D2hStream unused = ir_.d2h_stream(f32_spec({2}), "unused");
  expect_refused(
      {{"no entry", [&] { split_stores(ir_, "train", "copy", {seen_.id}); },
        "split_stores: 'train' must be an entry graph of the Ir"},
       {"taken", [&] { split_stores(ir_, "main", "main", {seen_.id}); },
        "split_stores: entry graph 'main' exists already"},
       {"no store",
        [&] {
          split_stores(ir_, "main", "copy", {seen_.id, unused.id});
        },
        "split_stores: entry graph 'main' must store to each stream, got no store to unused"}});
  EXPECT_FALSE(ir_.entries().contains("copy"));
}

}  // namespace
}  // namespace sluice::transforms
