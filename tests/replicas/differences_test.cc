// Replicas whose copies of a variable differ are found, and named in the error of a training.
#include <gtest/gtest.h>

#include <cmath>

#include "replicas_util.h"
#include "sluice/base/test_refusals.h"
#include "sluice/data/samples.h"
#include "sluice/train/fit.h"

namespace sluice::test {
namespace {

constexpr int kCopies = 4;

/// Adds the sum of x over the replicas to "a", and each replica's own x to "b", "c" and "shard".
/// The sums over two groups are added to "group".
struct Program {
  explicit Program(VariableLocation location) : ir(kCopies) {
    Graph& main = ir.main_graph();
    in = ir.h2d_stream(f32_spec({8}), "x");
    const Tensor x = main.host_load(in);
    const auto variable = [&](const std::string& path, const TensorSpec& spec,
                              VariableInfo info = {}) {
      info.path = path;
      info.initializer = Initializer::normal(0, 1).keyed({1, 1});
      return main.variable(spec, info, path);
    };
    ops::scaled_add_(variable("a", x.spec()), ops::replicated_all_reduce(x));
    VariableInfo away;
    if (location.remote()) {
      const RemoteBuffer buffer = ir.remote_buffer(x.spec(), 3);
      away.location = {buffer.id, location.entry};
      variable("b", x.spec(), away);
      const Tensor b = main.remote_load(buffer, location.entry);
      ops::scaled_add_(b, x);
      main.remote_store(buffer, location.entry, b);
    } else {
      ops::scaled_add_(variable("b", x.spec()), x);
    }
    ops::scaled_add_(variable("c", x.spec()), x);
    VariableInfo group;
    group.group = ir.replica_grouping(2, 2);
    ops::scaled_add_(
        variable("group", x.spec(), group),
        ops::replicated_all_reduce(x, ops::CollectiveOp::kAdd, ir.replica_grouping(2, 2)));
    VariableInfo shard;
    shard.shard = kCopies;
    const Tensor part = ops::replica_sharded_slice(x);
    ops::scaled_add_(variable("shard", part.spec(), shard), part);
  }
  Ir ir;
  H2dStream in;
};

TEST(ReplicaDifferences, AreFoundInCopiesOnly) {
  for (const VariableLocation location : {VariableLocation{}, VariableLocation{1, 2}}) {
    const Program p(location);
    const auto check = [&](const std::shared_ptr<runtime::ProcessGroup>& group) {
      Session session(p.ir, {.device = cpu_device(), .group = group, .remote = "host"});
      EXPECT_FALSE(session.find_replica_difference());
      HostTensor x(f32_spec({kCopies, 8}));
      session.run({{p.in, x}});
      EXPECT_FALSE(session.find_replica_difference());
      x.as<float>()[3 * 8 + 5] = 1e-3f;  // Replica 3 reads another sample.
      session.run({{p.in, x}});
      const auto found = session.find_replica_difference();
      ASSERT_TRUE(found);
      EXPECT_EQ(found->path, "b");
      EXPECT_EQ(found->replica, 0);
      EXPECT_EQ(found->other, 3);
    };
    check(nullptr);
    for_each_group(kCopies, check);
  }
}

class ComparedNet : public nn::Module {
 public:
  Tensor build(nn::Builder& b, Tensor x) const { return out_(b, ops::gelu(hidden_(b, x))); }

 private:
  nn::Child<nn::Linear> hidden_{*this, "hidden", 8};
  nn::Child<nn::Linear> out_{*this, "out", 3};
};

data::Samples samples() {
  data::Samples set{HostTensor(f32_spec({48, 6})), HostTensor(i32_spec({48})), "a test"};
  float next = 0;
  for (float& x : set.images.as<float>()) x = std::sin(next += 1);
  int32_t label = 0;
  for (int32_t& l : set.labels.as<int32_t>()) l = label++ % 3;
  return set;
}

enum class Damage { kNone, kWeight, kState };

/// Trains on two replicas. Damage adds a number of its own replica to a variable.
std::vector<float> train_with(Damage damage, std::optional<int64_t> check_replicas) {
  Ir ir(2);
  const train::Network network = train::classifier(ComparedNet(), f32_spec({2, 6}));
  const train::Options options{.accumulate = 2,
                               .replicas = 2,
                               .output = train::Output::all(),
                               .session = {.device = cpu_device({.threads = 1})}};
  const train::Training t = build_training(ir, network, nn::Optimizer::adam(), options);
  const Tensor hidden = t.variables["hidden.weight"];
  const Tensor own = ops::mean(ops::replica_sharded_slice(hidden));
  if (damage == Damage::kWeight) ops::copy_var_update_(hidden, hidden + own);
  if (damage == Damage::kState) {
    const Tensor state = t.state.values_flat().at(0);
    ops::copy_var_update_(state, state + own);
  }
  train::TrainingModel model = train::training_model(network, options, ir, t);
  return train::fit(model, data::from_samples(samples()),
                    {.calls = 5, .check_replicas = check_replicas})
      .losses;
}

TEST(ReplicaDifferences, EndATraining) {
  const std::vector<float> right = train_with(Damage::kNone, std::nullopt);
  EXPECT_EQ(train_with(Damage::kNone, 1), right);
  EXPECT_EQ(train_with(Damage::kWeight, std::nullopt).size(), right.size());
  expect_refused({{"a weight", [] { train_with(Damage::kWeight, 2); },
                   "variable 'hidden.weight' differs between replicas 0 and 1 after step 1",
                   ErrorKind::kDiverged},
                  {"a state", [] { train_with(Damage::kState, 3); },
                   "differs between replicas 0 and 1 after step 2", ErrorKind::kDiverged},
                  {"a count of 0", [] { train_with(Damage::kNone, 0); },
                   "check_replicas must be at least 1, got 0"}});
}

}  // namespace
}  // namespace sluice::test
