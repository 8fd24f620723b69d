// Compiled collectives compute the bits of the interpreter, for every grouping, op, dtype and size.
#include <functional>

#include "../support/thread_sanitizer.h"
#include "replicas_util.h"

namespace sluice::test {
namespace {

/// Stores the results of collectives on one input.
class Collectives {
 public:
  Collectives(int replicas, const Shape& shape, DType dtype)
      : ir_(replicas),
        name_(to_string(TensorSpec{shape, dtype, {}})),
        in_(ir_.h2d_stream({shape, dtype, {}}, "x")),
        x_(ir_.main_graph().host_load(in_)) {
    std::vector<int64_t> dims{replicas};
    dims.insert(dims.end(), shape.begin(), shape.end());
    if (replicas == 1) dims.erase(dims.begin());
    array_ = drawn(Shape(dims), dtype, static_cast<uint32_t>(shape.elements()));
  }

  const Tensor& x() const { return x_; }
  void store(const std::string& what, const ReplicaGrouping& group, const Tensor& y) {
    outputs_.emplace_back(
        fmt::format("{} of {} in groups of {} by {}", what, name_, group.size(), group.stride()),
        ir_.main_graph().host_store(y, "y"));
  }
  void run(Orders orders) const {
    expect_the_interpreters_bits(ir_, {{in_, array_}}, outputs_, orders);
  }
  size_t count() const { return outputs_.size(); }

 private:
  Ir ir_;
  std::string name_;
  H2dStream in_;
  Tensor x_;
  HostTensor array_;
  Outputs outputs_;
};

using Op = ops::CollectiveOp;

std::vector<Op> ops_of(DType dtype) {
  if (dtype == boolean) return {Op::kAnd, Op::kOr};
  std::vector<Op> all{Op::kAdd, Op::kMul, Op::kMin, Op::kMax, Op::kSquareAdd};
  if (is_float(dtype)) {
    all.push_back(Op::kMean);
  } else {
    all.insert(all.end(), {Op::kAnd, Op::kOr});
  }
  return all;
}

void add_all(Collectives& c, int replicas) {
  const Tensor& x = c.x();
  for (const ReplicaGrouping& g : groupings(replicas)) {
    for (const Op op : ops_of(x.dtype())) {
      const std::string word(ops::word_of(op));
      c.store("all-reduce " + word, g, ops::replicated_all_reduce(x, op, g));
      c.store("reduce-scatter " + word, g, ops::replicated_reduce_scatter(x, op, g));
      const Tensor own = ops::identity(x);
      ops::replicated_all_reduce_(own, op, g);
      c.store("all-reduce in place " + word, g, own);
    }
    if (x.dtype() != boolean) {
      c.store("identical inputs", g,
              ops::replicated_all_reduce_identical_inputs(x, ops::CollectiveOp::kAdd, g));
      c.store("identical grad inputs", g,
              ops::replicated_all_reduce_identical_grad_inputs(x, ops::CollectiveOp::kAdd, g));
    }
    c.store("local", g, ops::replicated_reduce_scatter(x, ops::CollectiveOp::kLocal, g));
    const Tensor shard = ops::replica_sharded_slice(x, g);
    c.store("shard", g, shard);
    c.store("whole of shards", g, ops::replicated_all_gather(shard, 0, g));
    for (int axis = 0; axis < x.rank(); ++axis) {
      c.store("gather", g, ops::replicated_all_gather(x, axis, g));
      c.store("gather apart", g, ops::replicated_all_gather(x, axis, g, ops::Gather::kNewAxis));
      if (x.dim(axis) % g.size() == 0) c.store("slice", g, ops::replicated_slice(x, axis, g));
    }
  }
}

/// Runs all collectives on one shape. Returns their number.
size_t run_all(int replicas, const Shape& shape, DType dtype, Orders orders) {
  SCOPED_TRACE(fmt::format("{} replicas", replicas));
  Collectives c(replicas, shape, dtype);
  add_all(c, replicas);
  c.run(orders);
  return c.count();
}

TEST(Collectives, GiveTheInterpretersBits) {
  size_t count = 0;
  for (const int replicas : {1, 2, 4, 6}) {
    for (const Shape& shape : {Shape{1}, Shape{7}, Shape{6, 4}, Shape{3, 1000}}) {
      // The threads of 7 or 24 elements are those of 3000.
      if (kThreadSanitizer && shape != Shape{1} && shape != Shape{3, 1000}) continue;
      count += run_all(replicas, shape, f32, Orders::kAll);
    }
  }
  EXPECT_GT(count, kThreadSanitizer ? 300u : 1000u);
}

// The order of threads does not depend on the dtype.
TEST(Collectives, TakeEveryDType) {
  for (const DType dtype : {f16, u32, u8, boolean}) run_all(4, {5, 8}, dtype, Orders::kOne);
  if (kThreadSanitizer) return;
  const Shape shapes[] = {{7}, {6, 4}, {3, 1000}};
  for (size_t i = 0; i < 3; ++i) {
    const int replicas = 1 << i;
    run_all(replicas, shapes[i], bf16, Orders::kOne);
    run_all(replicas, shapes[(i + 1) % 3], i32, Orders::kOne);
  }
}

TEST(Collectives, TakeEmptyTensors) { run_all(2, {0, 4}, f32, Orders::kAll); }

// Every element is added in ascending order of the replicas, in a scatter as in the whole sum.
TEST(Collectives, ScatterIsTheSliceOfTheSum) {
  Ir ir(4);
  const H2dStream in = ir.h2d_stream(f32_spec({1003}), "x");
  const Tensor x = ir.main_graph().host_load(in);
  const Tensor sum = ops::replicated_all_reduce(x, ops::CollectiveOp::kMean);
  const D2hStream sliced = ir.main_graph().host_store(ops::replica_sharded_slice(sum), "sliced");
  const D2hStream scattered = ir.main_graph().host_store(
      ops::replicated_reduce_scatter(x, ops::CollectiveOp::kMean), "scattered");
  const HostTensor array = drawn({4, 1003}, f32, 1);
  Session session(ir, {.device = cpu_device()});
  const HostTensors got = session.run({{in, array}});
  EXPECT_EQ(got[sliced].shape(), (Shape{4, 251}));
  EXPECT_TRUE(got[sliced].same_bits(got[scattered]));
  const auto x0 = array.as<float>();
  const auto y = got[scattered].as<float>();
  for (size_t i = 0; i < 251; ++i)
    EXPECT_EQ(y[i], (((x0[i] + x0[1003 + i]) + x0[2006 + i]) + x0[3009 + i]) / 4) << i;
}

/// Maps a replica's (4, 3) tensor to a result. The replica's loss is the sum of the cubes of the
/// result.
using Function = std::function<Tensor(Tensor)>;

/// Returns the loss of each of two replicas. With `gradient`, returns the derivative of their sum
/// by each element.
HostTensor evaluate(const Function& f, const std::vector<double>& values, bool gradient) {
  Ir ir(2);
  Graph& main = ir.main_graph();
  const TensorSpec spec = f32_spec({4, 3});
  const H2dStream in = ir.h2d_stream(spec, "x");
  const Tensor x = main.host_load(in);
  Graph& forward = ir.create_graph(
      "forward",
      [&](Graph&, Tensor t) {
        const Tensor y = f(t);
        return ops::sum(y * y * y);
      },
      spec);
  const CallSiteInfo call = ops::call_with_info(main, forward, {x});
  Tensor result = call.outputs()[0];
  if (gradient) {
    const transforms::GradGraphInfo info = transforms::autodiff(forward);
    const CallSiteInfo backward =
        ops::call_with_info(main, info.graph(), {main.scalar(1, f32)}, info.inputs_dict(call));
    result = info.fwd_parent_ins_to_grad_parent_outs(call, backward).at(x);
  }
  const D2hStream out = main.host_store(result, "result");
  Interpreter run(ir, Precision::kDouble);
  return run.run({{in, HostTensor::of<double>({2, 4, 3}, f64, values)}})[out];
}

/// Compares gradients with central differences. With `alike`, both replicas have equal inputs, and
/// an element changes in both.
void expect_slopes(const std::string& what, const Function& f, bool alike = false) {
  std::vector<double> values(24);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = 0.3 + 0.07 * static_cast<double>(alike ? i % 12 : i);
  const auto gradient = evaluate(f, values, true).to_doubles();
  for (const size_t i : {size_t{0}, size_t{5}, size_t{11}, size_t{16}}) {
    const auto loss = [&](double step) {
      std::vector<double> moved = values;
      moved[i] += step;
      if (alike) moved[(i + 12) % 24] += step;
      const auto losses = evaluate(f, moved, false).to_doubles();
      return losses[0] + losses[1];
    };
    const double slope = (loss(1e-4) - loss(-1e-4)) / 2e-4;
    EXPECT_NEAR(gradient[i], slope, 1e-5 * std::max(1.0, std::fabs(slope))) << what << " " << i;
  }
}

TEST(CollectiveGradients, AreThoseOfTheSumOfAllLosses) {
  const ops::Group pair = ReplicaGrouping::make(2, 1, 2);
  expect_slopes("gather", [&](Tensor x) { return ops::replicated_all_gather(x, 0, pair); });
  expect_slopes("gather along 1", [&](Tensor x) { return ops::replicated_all_gather(x, 1, pair); });
  expect_slopes("gather apart", [&](Tensor x) {
    return ops::replicated_all_gather(x, 2, pair, ops::Gather::kNewAxis);
  });
  for (const Op op : {Op::kAdd, Op::kMean}) {
    expect_slopes(fmt::format("scatter {}", ops::word_of(op)), [&](Tensor x) {
      return ops::replicated_reduce_scatter(ops::slice(x, {1}), op, pair);
    });
  }
}

TEST(CollectiveGradients, OfWhatReplicasHaveAlikeAreOfTheOneTensor) {
  const ops::Group pair = ReplicaGrouping::make(2, 1, 2);
  expect_slopes(
      "slice", [&](Tensor x) { return ops::replicated_slice(x, 0, pair); }, true);
  expect_slopes(
      "local", [&](Tensor x) { return ops::replica_sharded_slice(x, pair); }, true);
}

// The two collectives of tensor parallelism: each replica has a part of the weights, and the
// results of the parts are added.
TEST(CollectiveGradients, OfIdenticalInputsAndGradients) {
  const ops::Group pair = ReplicaGrouping::make(2, 1, 2);
  const Function split = [&](Tensor x) {
    const Tensor weights = x.graph().constant(drawn({2, 4, 3}, f32, 5));
    const Tensor same =
        ops::replicated_all_reduce_identical_inputs(x, ops::CollectiveOp::kAdd, pair);
    const Tensor part = ops::tanh(same * ops::replicated_slice(weights, 0, pair));
    return ops::replicated_all_reduce_identical_grad_inputs(part, ops::CollectiveOp::kAdd, pair);
  };
  std::vector<double> values(24);
  for (size_t i = 0; i < values.size(); ++i) values[i] = 0.3 + 0.07 * static_cast<double>(i % 12);
  const auto gradient = evaluate(split, values, true).to_doubles();
  for (const size_t i : {size_t{0}, size_t{11}}) {
    const auto loss = [&](double step) {
      std::vector<double> moved = values;
      moved[i] += step;
      moved[i + 12] += step;
      return evaluate(split, moved, false).to_doubles()[0];  // All replicas have this one loss.
    };
    const double slope = (loss(1e-4) - loss(-1e-4)) / 2e-4;
    EXPECT_NEAR(gradient[i], slope, 1e-5) << i;
    EXPECT_NEAR(gradient[i + 12], slope, 1e-5) << i;
  }
}

TEST(CollectiveGradients, DoNotPassThroughPlainSums) {
  Ir ir(2);
  Graph& forward = ir.create_graph(
      "forward", [](Graph&, Tensor x) { return ops::replicated_all_reduce(x); }, f32_spec({3}));
  try {
    transforms::autodiff(forward);
    FAIL() << "a gradient";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kUsage);
    EXPECT_NE(std::string(e.what()).find("gradient"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace sluice::test
