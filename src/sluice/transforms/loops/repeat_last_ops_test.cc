#include "sluice/transforms/loops/repeat_last_ops.h"

#include <gtest/gtest.h>

#include "sluice/base/test_refusals.h"
#include "sluice/interp/interpreter.h"
#include "sluice/ir/verify.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/basic.h"
#include "sluice/ops/updates.h"

namespace sluice::transforms {
namespace {

HostTensor values(Shape shape, const std::vector<float>& of) {
  return HostTensor::of(std::move(shape), f32, of);
}

TEST(RepeatLastOps, RepeatsUpdatesAndTransfersButNotTheOpsBefore) {
  Ir ir;
  Graph& main = ir.main_graph();
  const H2dStream rate = ir.h2d_stream({{}, f32, {}}, "rate");
  const H2dStream x = ir.h2d_stream(f32_spec({2}), "x");
  const D2hStream seen = ir.d2h_stream(f32_spec({2}), "seen");
  const Tensor sum = main.variable(values({2}, {1, 2}), "sum");
  const Tensor factor = main.variable(values({2}, {10, 100}), "factor");
  const Tensor step = main.host_load(rate);
  const OpIndex first = main.ops().end_id();
  const Tensor copy = ops::identity(sum);
  ops::add_(sum, main.host_load(x) * factor * step);
  main.host_store(seen, copy + sum);
  repeat_last_ops(main, first, 3);
  verify(ir);
  EXPECT_EQ(main.ops().size(), first + 1);
  Interpreter interpreter(ir);
  const auto out =
      interpreter.run({{rate, values({}, {2})}, {x, values({3, 2}, {1, 1, 2, 0, 3, 1})}});
  EXPECT_EQ(interpreter.read(sum).to_doubles(), (std::vector<double>{121, 402}));
  std::vector<std::vector<double>> entries;
  for (const HostTensor& entry : out.entries(seen)) entries.push_back(entry.to_doubles());
  EXPECT_EQ(entries, (std::vector<std::vector<double>>{{22, 204}, {82, 404}, {182, 604}}));
}

TEST(RepeatLastOps, RunsAtLeastOnce) {
  Ir ir;
  Graph& main = ir.main_graph();
  main.variable(values({2}, {1, 2}), "x");
  expect_refused({{"trips", [&] { repeat_last_ops(main, main.ops().end_id(), 0); },
                   "repeat_last_ops: must run at least once, got 0"}});
}

}  // namespace
}  // namespace sluice::transforms
