/// Lesson 9: replicated tensor sharding. If a tensor has equal values on all replicas, each replica
/// can hold only a shard of it. The whole tensor is on the device only while it is used.
#include <fmt/core.h>

#include <sluice/sluice.h>

using namespace sluice;

constexpr int kReplicas = 2;

int main() {
  Ir ir(kReplicas);
  Graph& main = ir.main_graph();

  // Seven elements on two replicas make shards of four; the last shard is padded. The host sees the
  // whole tensor.
  const TensorSpec whole{{7}, f32};
  const TensorSpec shard = nn::replica_sharded_spec(ir, whole, {.threshold = 4});
  fmt::print("whole {}, shard {} of {}\n", to_string(whole.shape), to_string(shard.shape),
             to_string(shard.meta_shape));
  nn::VariableFactory factory(whole,
                              nn::array(HostTensor::of<float>({7}, f32, {1, 2, 3, 4, 5, 6, 7})));
  auto factories = nn::NamedVariableFactories::from_dict({{"weight", factory}});
  nn::NamedRemoteBuffers buffers = nn::named_variable_buffers(ir, factories, 1, 4);
  nn::NamedTensors variables = factories.init_remote(main, buffers, 0);

  // Each replica loads its own entry of the buffer. Then all replicas gather the shards.
  nn::NamedTensors shards = nn::load_remote(main, buffers);
  auto [gather, names] = nn::all_gather_replica_sharded_graph(ir, shards);
  nn::NamedTensors gathered = nn::NamedTensors::pack(names, gather.bind(shards).call(&main));
  D2hStream own = main.host_store(shards["weight"], "own");
  D2hStream all = main.host_store(gathered["weight"], "all");

  // Gradients differ between replicas. Each replica gets its shard of their mean and updates its
  // shard of the weight.
  H2dStream gradients = ir.h2d_stream(whole, "gradients");
  auto grads = nn::NamedTensors::from_dict({{"weight", main.host_load(gradients)}});
  auto [reduce, reduced_names] =
      nn::reduce_replica_sharded_graph(ir, grads, ops::CollectiveOp::kMean, {.threshold = 4});
  nn::NamedTensors means = nn::NamedTensors::pack(reduced_names, reduce.bind(grads).call(&main));
  ops::scaled_add_(shards["weight"], means["weight"], 1.0, -1.0);
  nn::store_remote(main, buffers, shards);

  fmt::print("{}\n{}\n", gather.print_schedule(), reduce.print_schedule());
  Session session(ir, {.device = cpu_device({.threads = 2})});
  HostTensor each =
      HostTensor::of<float>({kReplicas, 7}, f32, {0, 0, 0, 0, 0, 0, 0, 2, 2, 2, 2, 2, 2, 2});
  HostTensors results = session.run({{gradients, each}});
  fmt::print("shards of the replicas\n{}\n", ops::array_text(results[own]));
  fmt::print("gathered on each\n{}\n", ops::array_text(results[all]));
  fmt::print("after the update\n{}\n", ops::array_text(session.read(variables["weight"])));
}
