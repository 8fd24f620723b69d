#include "sluice/train/cut/cut.h"

#include <gtest/gtest.h>

#include "sluice/base/test_refusals.h"
#include "sluice/train/cut/block_groups.h"
#include "sluice/train/cut/test_networks.h"
#include "sluice/transforms/autodiff.h"

namespace sluice::train {
namespace {

struct Squares : nn::Module {
  Tensor build(nn::Builder&, Tensor x) const { return ops::mean(x * x); }
};

// Skips over several layers, a field that two blocks read, and equal neighbours with dropout.
Network with_skips() {
  return network([](nn::Builder& b, const Inputs& in) {
    const Tensor a = ops::gelu(linear(b, "in", in["x"] * in["scale"]));
    Tensor x = a;
    for (const char* name : {"l0", "l1", "l2", "l3"})
      x = drop(b, fmt::format("{}_drop", name), x + ops::relu(linear(b, name, x)));
    const Tensor late = linear(b, "late", x * in["scale"] + a);
    return results(in, linear(b, "out", late + x + a, 3));
  });
}

// Two losses, one of them without a gradient of its own in a middle block, and a tied weight.
Network with_two_losses() {
  return network([](nn::Builder& b, const Inputs& in) {
    std::optional<nn::Block> block(std::in_place, b, "first");
    const Tensor w = b.add_variable_input("w", nn::normal(0, 0.5), {kWidth, kWidth});
    const Tensor x = ops::tanh(ops::matmul(in["x"], w));
    block.reset();
    block.emplace(b, "middle");
    const Tensor y = ops::tanh(linear(b, "fc", x));
    const Tensor aside = ops::mean(y * y);
    block.reset();
    block.emplace(b, "last");
    const Tensor z = ops::matmul(y, ops::transpose(w)) + x;
    return results(in, linear(b, "out", z, 3), {{.name = "aside", .value = aside, .weight = 0.25}});
  });
}

// Blocks by all three forms; the first is opened again by the loss of the last one.
class Mixed : public nn::Module {
 public:
  Mixed() {
    a_.in_block("A");
    nn::begin_block(b_, "B");
  }
  Results build(nn::Builder& b, const Inputs& in) const {
    Tensor x = a_(b, in["x"]);
    {
      const nn::Block block(b, "A");
      x = ops::gelu(x);
    }
    x = ops::relu(b_(b, x));  // Block B continues.
    const Tensor logits = c_(b, x);
    return results(in, logits);
  }

 private:
  nn::Child<nn::Linear> a_{*this, "a", 8};
  nn::Child<nn::Linear> b_{*this, "b", 8};
  nn::Child<nn::Linear> c_{*this, "c", 3};
};

TEST(Cut, SkipsHaveTheBitsOfTheResidentStepInPhases) { expect_one_digest(with_skips()); }
TEST(Cut, LossesAndTiedWeightsHaveTheBitsOfTheResidentStepInPhases) {
  expect_one_digest(with_two_losses());
}
TEST(Cut, BlocksOfEveryFormHaveTheBitsOfTheResidentStepInPhases) {
  expect_one_digest({Mixed(), fields()});
}

// Each of some equal rows returns a prediction or a loss.
TEST(Cut, RowsWithResultsHaveTheBitsOfTheResidentStepInPhases) {
  for (const bool losses : {false, true}) {
    expect_bits_of_resident(network([=](nn::Builder& b, const Inputs& in) {
      std::optional<nn::Block> block(std::in_place, b, "in");
      Tensor x = linear(b, "in", in["x"]);
      Results all;
      for (int i = 0; i < 3; ++i) {
        block.emplace(b, fmt::format("l{}", i));
        x = ops::tanh(linear(b, fmt::format("l{}", i), x));
        if (losses && in.mode() == nn::RunMode::kTrain)
          all.losses.push_back({.name = fmt::format("loss{}", i), .value = ops::mean(x * x)});
        if (!losses) all.predictions.push_back({fmt::format("p{}", i), x});
      }
      block.emplace(b, "out");
      Results last = results(in, linear(b, "out", x, 3), all.losses);
      last.predictions.insert(last.predictions.end(), all.predictions.begin(),
                              all.predictions.end());
      return last;
    }));
  }
}

// Several blocks draw from the network's seed itself.
TEST(Cut, TheSeedOfTheNetworkReachesBlocks) {
  expect_bits_of_resident(network([](nn::Builder& b, const Inputs& in) {
    const auto draw = [&](const Tensor& x) {
      return in.seed().empty() ? x : ops::dropout(x, in.seed()[0], 0.25);
    };
    const Tensor x = draw(linear(b, "a", in["x"]));
    return results(in, linear(b, "out", draw(drop(b, "drop", linear(b, "b", x))), 3));
  }));
}

// The first use of a weight has no gradient, but the gradient of its block reads the weight.
TEST(Cut, AWeightIsTrainedWhereItsFirstUseHasNoGradient) {
  expect_bits_of_resident(network([](nn::Builder& b, const Inputs& in) {
    const Tensor w = b.add_variable_input("w", nn::normal(0, 0.5), {kWidth, kWidth});
    Tensor x = ops::matmul(linear(b, "a", in["x"]), ops::detach(w));
    x = ops::matmul(linear(b, "b", x), w);
    return results(in, linear(b, "out", x, 3));
  }));
}

// A result that only the seed decides.
TEST(Cut, ASeedMayBeAResult) {
  expect_bits_of_resident(network([](nn::Builder& b, const Inputs& in) {
    const Tensor x = drop(b, "drop", linear(b, "a", in["x"]));
    Results all = results(in, linear(b, "b", x, 3));
    if (!in.seed().empty())
      all.predictions.push_back({"seed", nn::fold_seed(in.seed()[0], "drop")});
    return all;
  }));
}

// A network has the same bits with its blocks on one device and on two.
TEST(Cut, BlocksMayNameDevices) {
  const auto on = [](int second) {
    return network([second](nn::Builder& b, const Inputs& in) {
      std::optional<nn::Block> block(std::in_place, b, "A", nn::BlockOptions{.device = 0});
      const Tensor x = ops::gelu(linear(b, "a", in["x"]));
      block.reset();
      block.emplace(b, "B", nn::BlockOptions{.device = second});
      const Tensor y = ops::gelu(linear(b, "b", x));
      block.reset();
      block.emplace(b, "C", nn::BlockOptions{.device = 0});
      return results(in, linear(b, "c", y + x, 3));
    });
  };
  for (const int64_t accumulate : {1, 3}) {
    const Options options{.accumulate = accumulate};
    const auto one = run(on(0), options);
    const auto two = run(on(1), options, 1, 2, 1);
    EXPECT_EQ(one.digest, two.digest);
    EXPECT_NE(one.planned, two.planned);
  }
}

std::vector<std::string> block_names(const Network& n, SeedOps seeds = SeedOps::kInBlocks) {
  Ir ir;
  std::vector<std::string> names;
  for (const BlockGraph& block : cut(n.build(ir, nn::RunMode::kTrain), seeds).blocks)
    names.push_back(block.name);
  return names;
}

using Names = std::vector<std::string>;

TEST(Cut, NamesBlocks) {
  EXPECT_EQ(block_names(with_two_losses()), (Names{"first", "middle", "last"}));
  EXPECT_EQ(block_names({Mixed(), fields()}), (Names{"A", "B"}));
  EXPECT_EQ(block_names(with_skips()), (Names{"in", "l0", "l0_drop", "l1", "l1_drop", "l2",
                                              "l2_drop", "l3", "l3_drop", "late", "out"}));
  EXPECT_EQ(block_names(network([](nn::Builder& b, const Inputs& in) {
              const Tensor w = b.add_variable_input("w", nn::zeros(), {kWidth, 3});
              return results(in, ops::matmul(in["x"], w));
            })),
            Names{"model"});
}

// A block that is opened again appears once, after the blocks that it reads.
TEST(Cut, OrdersBlocksByTheirReads) {
  EXPECT_EQ(block_names(network([](nn::Builder& b, const Inputs& in) {
              std::optional<nn::Block> block(std::in_place, b, "late");
              const Tensor a = linear(b, "a", in["x"]);
              block.reset();
              block.emplace(b, "early");
              const Tensor c = linear(b, "c", in["x"]);
              block.reset();
              block.emplace(b, "late");
              return results(in, linear(b, "d", a + c, 3));
            })),
            (Names{"early", "late"}));
}

// A block begins with its first op, whether or not that op derives a seed.
TEST(Cut, OrdersBlocksAlikeWhereverSeedsAreDerived) {
  const Network n = network([](nn::Builder& b, const Inputs& in) {
    std::optional<nn::Block> block(std::in_place, b, "first");
    const Tensors seeds = in.seed().empty() ? Tensors() : Tensors{ops::fold_seed(in.seed()[0], 1)};
    block.emplace(b, "second");
    const Tensor x = linear(b, "a", in["x"]);
    block.emplace(b, "first");
    Tensor y = linear(b, "b", in["x"]);
    if (!seeds.empty()) y = ops::dropout(y, seeds[0], 0.25);
    block.emplace(b, "third");
    return results(in, linear(b, "out", x + y, 3));
  });
  EXPECT_EQ(block_names(n), (Names{"first", "second", "third"}));
  EXPECT_EQ(block_names(n, SeedOps::kApart), block_names(n));
}

// Without names, the gradient of a loss is in the block of the loss, however many losses there are.
TEST(Cut, LossesOutsideSubmodulesHaveTheirGradientsBesideThem) {
  const Network n = network([](nn::Builder& b, const Inputs& in) {
    const Tensor x = linear(b, "a", in["x"]);
    const Loss first{.name = "first", .value = ops::mean(x * x)};
    const Tensor y = ops::tanh(linear(b, "b", x));
    const Loss second{.name = "second", .value = b.inlined("tail", Squares(), y)};
    const Tensor logits = linear(b, "out", y, 3);
    const Loss third{.name = "third", .value = ops::mean(logits)};
    return results(in, logits, {second, first, third});
  });
  EXPECT_EQ(block_names(n), (Names{"a", "b", "tail", "out"}));
  expect_bits_of_resident(n);
}

TEST(Cut, GroupsEqualNeighbours) {
  Ir ir;
  const NetworkGraph n = network([](nn::Builder& b, const Inputs& in) {
                           Tensor x = linear(b, "in", in["x"]);
                           const Tensor first = x;
                           for (int i = 0; i < 5; ++i)
                             x = linear(b, fmt::format("l{}", i), x) * first;
                           return results(in, linear(b, "out", x, 3));
                         }).build(ir, nn::RunMode::kTrain);
  const Cut parts = cut(n);
  std::vector<int64_t> rows;
  for (const BlockGroup& g : group_blocks(n, parts, {}).groups) rows.push_back(g.rows);
  // The first row reads one value; the others read two.
  EXPECT_EQ(rows, (std::vector<int64_t>{1, 1, 4, 1}));
}

// The gradients of the cut are those of the whole graph.
TEST(Cut, HasTheBitsOfTheUncutGraph) {
  for (const Network& n : {with_skips(), with_two_losses(), Network(Mixed(), fields())}) {
    const auto weights = [&](bool uncut) {
      Ir ir;
      Training t;
      if (!uncut) {
        t = build_training(ir, n, nn::Optimizer::sgd(), {.learning_rate = 0.5, .seed = 3});
      } else {
        const NetworkGraph g = n.build(ir, nn::RunMode::kTrain);
        Graph& main = ir.entry_graph("train");
        t.variables = g.factories.init(main, {.seed = 3});
        Tensors given;
        for (const auto& [tensor, gradient] : g.loss_gradients) given.push_back(tensor);
        const auto gradient =
            g.graph.autodiff({.grads_provided = given, .grads_required = g.graph.args().tensors()});
        TensorMap arguments;
        for (const auto& [name, input] : g.fields) {
          t.fields.push_back(ir.h2d_stream(input.spec(), name));
          arguments.emplace_back(input, main.host_load(t.fields.back()));
        }
        if (!g.seed.empty()) {
          t.seed = ir.h2d_stream(g.seed[0].spec(), "seed");
          arguments.emplace_back(g.seed[0], main.host_load(*t.seed));
        }
        const CallSiteInfo call = g.graph.bind(t.variables).call_with_info(&main, arguments);
        Tensors seeds;
        for (const auto& [tensor, own] : g.loss_gradients)
          seeds.push_back(call.graph_to_parent(own));
        const auto& info = gradient.grad_graph_info();
        const CallSiteInfo back = gradient.call_with_info(seeds, info.inputs_dict(call));
        nn::Optimizer::sgd().apply(main, t.variables,
                                   info.fwd_parent_ins_to_grad_parent_outs(call, back), 0.5);
      }
      Session session(ir);
      StepArrays arrays(t);
      float next = 0;
      for (float& x : arrays.fields[0].as<float>()) x = std::sin(next += 1);
      if (t.fields.size() > 2)
        for (float& x : arrays.fields[2].as<float>()) x = std::sin(next += 1);
      arrays.seed(3, 0);
      session.run(arrays.inputs(t), "train");
      Digest digest;
      session.each_variable(
          [&](const std::string&, const HostTensor& value) { digest.add(value.bytes()); });
      return digest.hex();
    };
    EXPECT_EQ(weights(false), weights(true));
  }
}

TEST(Cut, Refusals) {
  const auto of = [](Written::Build build) {
    return [=] {
      Ir ir;
      cut(network(build).build(ir, nn::RunMode::kTrain));
    };
  };
  const auto train = [](Written::Build build) {
    return [=] { build_training(Ir(), network(build), nn::Optimizer::sgd(), {}); };
  };
  expect_refused({
      {"an op outside all blocks", of([](nn::Builder& b, const Inputs& in) {
         Tensor x = in["x"];
         {
           const nn::Block block(b, "B1");
           x = linear(b, "fc", x);
         }
         return results(in, linear(b, "out", x, 3));
       }),
       "No active Block: MatMul."},
      {"a cycle", of([](nn::Builder& b, const Inputs& in) {
         std::optional<nn::Block> block(std::in_place, b, "B1");
         const Tensor x = linear(b, "a", in["x"]);
         block.reset();
         block.emplace(b, "B2");
         const Tensor y = linear(b, "b", x);
         block.reset();
         block.emplace(b, "B1");
         return results(in, linear(b, "c", y, 3));
       }),
       "blocks must not read results of each other"},
      {"a write to another block's tensor", of([](nn::Builder& b, const Inputs& in) {
         std::optional<nn::Block> block(std::in_place, b, "B1");
         const Tensor x = linear(b, "a", in["x"], 3);
         block.reset();
         block.emplace(b, "B2");
         return results(in, ops::scaled_add_(x, x, 1.0, 1.0));
       }),
       "of block 'B2' writes 'add"},
      {"a write to a field", of([](nn::Builder& b, const Inputs& in) {
         return results(in, linear(b, "a", ops::scaled_add_(in["x"], in["x"], 1.0, 1.0), 3));
       }),
       "writes 'x', an input of the network"},
      {"a name without letters", of([](nn::Builder& b, const Inputs& in) {
         const nn::Block block(b, "");
         return results(in, in["x"]);
       }),
       "block: the name must not be empty"},
      {"an unknown field", of([](nn::Builder&, const Inputs& in) { return results(in, in["y"]); }),
       "network: 'y' must be one of its fields, which are 'x', 'labels', 'scale'"},
      {"no loss", of([](nn::Builder&, const Inputs& in) {
         return Results{.predictions = {{"y", in["x"] * 2.0}}};
       }),
       "network: training requires at least one loss, got none"},
      {"a loss of several elements", of([](nn::Builder&, const Inputs& in) {
         return Results{.losses = {{.value = in["x"] * 2.0}}};
       }),
       "network: loss 'loss' must be a floating-point scalar"},
      {"results of one name", of([](nn::Builder& b, const Inputs& in) {
         const Tensor y = ops::mean(linear(b, "a", in["x"]));
         return Results{.losses = {{.value = y}, {.value = y}}};
       }),
       "must have different names, got 'loss' twice"},
      {"a loss's gradient of a weight", of([](nn::Builder& b, const Inputs& in) {
         const Tensor w = b.add_variable_input("w", nn::zeros(), {kWidth, kWidth});
         const Tensor y = ops::matmul(in["x"], w);
         return Results{.losses = {{.value = ops::mean(y), .gradients = {{w, w * 2.0}}}}};
       }),
       "network: a gradient of loss 'loss', and the tensor that it belongs to, must be tensors "
       "that"},
      {"a weight without a gradient", train([](nn::Builder& b, const Inputs& in) {
         Results all = results(in, linear(b, "a", in["x"], 3));
         all.predictions.push_back({"aside", linear(b, "unused", in["x"])});
         return all;
       }),
       "training: a loss must depend on each weight, but none depends on 'unused.bias'"},
  });
}

TEST(Block, Refusals) {
  expect_refused({
      {"a layer begun twice",
       [] {
         struct Twice : nn::Module {
           Twice() {
             nn::begin_block(a, "B1");
             nn::begin_block(a, "B2");
           }
           nn::Child<nn::Linear> a{*this, "a", 3};
         };
         Twice();
       },
       "block 'B2': submodule 'a' must have one block at most, but it already has block 'B1'"},
  });
}

}  // namespace
}  // namespace sluice::train
