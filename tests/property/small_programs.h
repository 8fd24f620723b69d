#pragma once
#include "sluice/sluice.h"

namespace sluice::property {

/// A program with a loop that reads a stream and updates a variable, a conditional, entries of a
/// remote buffer, and a second device.
inline Ir control_flow_program() {
  Ir ir;
  const TensorSpec spec{{4, 64}, f32, {}};
  Graph& main = ir.main_graph();
  const H2dStream in = ir.h2d_stream(spec, "in");
  const Tensor sum = main.variable(HostTensor(spec), "sum");
  Graph& body = ir.create_empty_graph("turn");
  const Tensor state = body.input(spec, "state");
  const Tensor before = body.input(spec, "before");
  const Tensor total = body.input(spec, "total", Pass::kByReference);
  const Tensor x = body.host_load(in);
  const Tensor next = ops::tanh(state + x);
  ops::scaled_add_(total, next - before);
  body.set_outputs({next, state});
  const Tensor first = main.host_load(in);
  const Tensor last = ops::repeat(main, body, 5, {first, first, sum})[0];
  const RemoteBuffer shelf = ir.remote_buffer(spec, 3);
  main.remote_store(shelf, 1, last);
  const auto arm = [&](const char* name, bool negate) -> Graph& {
    return ir.create_graph(
        name, [&](Graph&, Tensor t) { return negate ? ops::neg(ops::exp(t)) : ops::exp(t); }, spec);
  };
  const Tensor flag = main.host_load(ir.h2d_stream({{}, boolean, {}}, "flag"));
  const Tensor chosen =
      ops::conditional(main, flag, arm("then", true), arm("else", false), {last}, {first})[0];
  main.set_device(1);
  const Tensor far = ops::sigmoid(chosen);
  main.set_device(0);
  const Tensor back = main.remote_load(shelf, 1) + far;
  main.host_store(back, "out");
  return ir;
}

/// Layers that load a weight, use it and store the updated weight, inside and outside a loop. The
/// next load and the last store overlap with the computation.
inline Ir overlapped_program() {
  Ir ir;
  const TensorSpec spec{{16, 16}, f32, {}};
  Graph& main = ir.main_graph();
  const RemoteBuffer weights = ir.remote_buffer(spec, 8);
  Tensor x = main.host_load(ir.h2d_stream(spec, "in"));
  const Graph::IoScope io(main, IoMode::kIoOverlapped);
  const auto layer = [&](Graph& g, const RemoteEntry& row, const Tensor& t) {
    const Tensor w = g.remote_load(weights, row);
    const Tensor y = ops::tanh(ops::matmul(t, w));
    g.remote_store(weights, row, w - ops::matmul(t, y, {.lhs_transposed = true}) * 0.01);
    return y;
  };
  Graph& body = ir.create_empty_graph("turn");
  const Graph::IoScope inside(body, IoMode::kIoOverlapped);
  const Tensor t = body.input(spec, "t");
  const Tensor row = body.input({{}, i32, {}}, "row");
  body.add_output(layer(body, row * 2 + 1, layer(body, row * 2, t)));
  for (int k = 0; k < 3; ++k) x = layer(main, k, x);
  x = ops::repeat(main, body, 4, {x}, {}, {.iteration = row})[0];
  main.host_store(layer(main, 7, layer(main, 0, x)), "out");
  return ir;
}

/// Device 0 computes a value, device 1 uses it to update a variable, and device 0 uses the result.
inline Ir two_device_program() {
  Ir ir;
  Graph& main = ir.main_graph();
  main.set_device(0);
  const Tensor y = ops::tanh(main.host_load(ir.h2d_stream({{3, 3}, f32, {}}, "in")));
  main.set_device(1);
  const Tensor w = main.variable({{3, 3}, f32, {}}, Initializer::constant(0.5), "w");
  const Tensor z = ops::matmul(y, w);
  ops::scaled_add_(w, z, 1.0, 0.25);
  main.set_device(0);
  main.host_store(z + y, "out");
  return ir;
}

/// A function, called twice, loops over both devices. It carries a value on each device and updates
/// a variable of device 0 on device 1. Several messages wait at one time.
inline Ir two_device_loop_program() {
  Ir ir;
  const TensorSpec spec = f32_spec({3, 4});
  Graph& body = ir.create_empty_graph("turn");
  const Tensor a = body.input(spec, "a");
  const Tensor b = body.input(spec, "b");
  const Tensor w = body.input(spec, "w", Pass::kByReference);
  body.set_device(0);
  const Tensor c = ops::tanh(a) * w;
  const Tensor d = ops::exp(a);
  body.set_device(1);
  const Tensor e = ops::sigmoid(b + c) - d;
  ops::scaled_add_(w, e, 1.0, 0.125);
  body.set_device(0);
  body.set_outputs({c + e, e});
  Graph& twice = ir.create_empty_graph("twice");
  const Tensor x = twice.input(spec, "x");
  const Tensor total = twice.input(spec, "total", Pass::kByReference);
  twice.set_outputs(ops::repeat(twice, body, 4, {x, x, total}));
  Graph& main = ir.main_graph();
  const Tensor sum = main.variable(spec, Initializer::normal(0, 1).keyed({2, 3}), "sum");
  main.set_device(0);
  const Tensors first = ops::call(main, twice, {main.host_load(ir.h2d_stream(spec, "in")), sum});
  main.host_store(ops::call(main, twice, {first[1], sum})[0], "out");
  return ir;
}

/// Device 0 sends two messages to device 1 and one to device 2. Device 1 waits for device 2 before
/// it receives the two. Without a slot for each of them, all devices wait for each other.
inline Ir three_device_program() {
  Ir ir;
  const TensorSpec spec = f32_spec({2, 3});
  Graph& main = ir.main_graph();
  main.set_device(0);
  const Tensor x = main.host_load(ir.h2d_stream(spec, "in"));
  const Tensor a = ops::exp(x);
  const Tensor b = ops::tanh(x);
  const Tensor c = ops::sigmoid(x);
  main.set_device(2);
  const Tensor d = ops::exp(c);
  main.set_device(1);
  main.host_store(ops::tanh(d) * a - b, "out");
  return ir;
}

/// A loop of data-parallel steps. Each replica reduces gradients over all replicas and over its
/// pair. It updates a variable of all replicas, one of its group, and its shard of another.
inline Ir data_parallel_program(int replicas) {
  Ir ir(replicas);
  Graph& main = ir.main_graph();
  const TensorSpec spec = f32_spec({6, 5});
  const H2dStream in = ir.h2d_stream(spec, "x");
  const ReplicaGrouping pairs = ir.replica_grouping(replicas / 2, 2);
  VariableInfo by_group;
  by_group.group = pairs;
  by_group.initializer = Initializer::normal(0, 1).keyed({1, 2});
  VariableInfo sharded;
  sharded.shard = replicas;
  sharded.initializer = Initializer::normal(0, 1).keyed({3, 4});
  const TensorSpec shard{{(30 + replicas - 1) / replicas}, f32, spec.shape};
  const Tensor w = main.variable(spec, Initializer::normal(0, 1).keyed({5, 6}), "w");
  const Tensor v = main.variable(spec, by_group, "v");
  const Tensor s = main.variable(shard, sharded, "s");
  Graph& step = ir.create_empty_graph("step");
  const Tensor a = step.input(spec, "a", Pass::kByReference);
  const Tensor b = step.input(spec, "b", Pass::kByReference);
  const Tensor c = step.input(shard, "c", Pass::kByReference);
  const Tensor x = ops::tanh(step.host_load(in) * a + b);
  const Tensor y = x * ops::replicated_all_gather(c);
  ops::scaled_add_(a, ops::replicated_all_reduce(y, ops::CollectiveOp::kMean), 1, -0.1);
  ops::replicated_all_reduce_(y, ops::CollectiveOp::kMax, pairs);
  ops::scaled_add_(b, y, 1, -0.1);
  ops::scaled_add_(
      c, ops::replicated_reduce_scatter(x, ops::CollectiveOp::kAdd, {}, ops::Sharding::kReplicated),
      1, -0.1);
  ops::repeat(main, step, 3, {w, v, s});
  ops::call(main, step, {w, v, s});
  main.host_store(w + v, "out");
  return ir;
}

}  // namespace sluice::property
