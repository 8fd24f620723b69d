#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <iostream>
#include <span>

#include "../random_graph_ops.h"
#include "random_network.h"
#include "random_order.h"
#include "sluice/base/provenance.h"
#include "sluice/ops/ops.h"
#include "sluice/train/cut/cut.h"
#include "training_outcome.h"
#include "uncut_network.h"

namespace sluice::property {
namespace {

using train::Location;
using train::Training;

struct Verdict {
  std::string wrong;
  bool exact = false;
  bool nonfinite = false;
};

// Compares the resident step with the network that is not cut.
std::string compare_with_uncut(const train::Network& network, TrainingWay way, bool exact) {
  // The uncut network adds the gradients of a tied weight before they are rounded.
  way.step.accumulator_dtype = {};
  way.step.gradient_hook = nullptr;
  way.step.ema_decay.reset();
  if (!exact) way.optimizer = 0;
  if (!exact) way.step.learning_rate = 1.0;
  if (!exact) way.step.max_grad_norm.reset();
  const int updates = exact ? 2 : 1;
  Ir whole(way.replicas);
  const Training uncut = uncut_training(whole, network, optimizer_of(way), way.step);
  Ir ir(way.replicas);
  const Training t = built(ir, network, way);
  const Precision precision = exact ? Precision::kFloat : Precision::kDouble;
  const Outcome want = in_interpreter(whole, uncut, updates, precision);
  const Outcome got = without_evaluation(in_interpreter(ir, t, updates, precision), t);
  return exact ? difference(want, got) : numeric_difference(want, got);
}

using Names = std::vector<std::string>;

train::Options drawn_step(Dice& dice, const train::Options& base, const Names& blocks) {
  train::Options step = base;
  const auto location = [&] { return dice.one_in(2) ? Location::kRemote : Location::kDevice; };
  step.io_mode = std::array{IoMode::kCompute, IoMode::kIo,
                            IoMode::kIoOverlapped}[static_cast<size_t>(dice(3))];
  step.locations = {.optimizer = location(),
                    .weights = location(),
                    .activations = location(),
                    .accumulators = location(),
                    .min_elements_off_device = dice.one_in(2) ? 2 : dice(12),
                    .min_elements_sharded = dice.one_in(2) ? nn::kNeverShard : dice(16)};
  switch (dice(3)) {
    case 0:
      break;
    case 1:
      step.recompute = train::Recompute::every_block();
      break;
    default:
      for (const std::string& name : blocks)
        if (dice.one_in(2)) step.recompute.blocks.push_back(name);
  }
  return step;
}

// Cuts blocks into two to five stages on five devices at most.
std::vector<train::Stage> drawn_stages(Dice& dice, TrainingWay& way, const Names& blocks) {
  const int count = std::min<int>(2 + dice(4), static_cast<int>(blocks.size()));
  std::set<size_t> begins{0};
  while (static_cast<int>(begins.size()) < count)
    begins.insert(1 + static_cast<size_t>(dice(static_cast<int>(blocks.size()) - 1)));
  std::vector<train::Stage> stages;
  for (const size_t begin : begins) {
    const auto next = begins.upper_bound(begin);
    const size_t end = next == begins.end() ? blocks.size() : *next;
    train::Stage stage(Names(blocks.begin() + static_cast<ptrdiff_t>(begin),
                             blocks.begin() + static_cast<ptrdiff_t>(end)));
    const int device = dice(5);
    way.devices = std::max(way.devices, device + 1);
    stages.push_back(stage.device(device));
  }
  return stages;
}

enum class StrategyKind : uint8_t { kResident, kPhased, kSharded, kPipelined, kGrouped, kOrdered };

// Phases in stages, in groups or in both.
void draw_groups(Dice& dice, TrainingWay& way, const Names& blocks) {
  train::PhasedExecution phases;
  const auto n = static_cast<int>(way.step.accumulate);
  do {
    phases.group = 1 + dice(n);
  } while (n % phases.group != 0);
  if (dice.one_in(2)) phases.stages = drawn_stages(dice, way, blocks);
  way.step.strategy = phases;
  way.step.locations.activations = Location::kRemote;
}

// An order that is drawn. Its text parses back to it.
void draw_order(Dice& dice, TrainingWay& way, const Names& blocks) {
  const auto form = static_cast<OrderForm>(dice(3));
  const std::vector<train::Stage> stages = drawn_stages(dice, way, blocks);
  if (form == OrderForm::kLoops) way.step.locations.activations = Location::kRemote;
  way.order = std::make_shared<std::string>();
  way.step.strategy = train::OrderedExecution{
      stages, [form, seed = dice(1 << 20), text = way.order](const train::StepDependences& step) {
        Dice own(fold(Seed{17, 5}, static_cast<uint64_t>(seed)));
        const train::Order order = random_order(own, form, step);
        *text = to_string(order);
        if (train::parse_order(to_string(order)) != order)
          fail(ErrorKind::kInternal, "an order does not parse back:\n{}", to_string(order));
        return order;
      }};
}

// Returns one way of each kind, and with several micro-batches a second one of most kinds. Stages
// need several blocks.
std::vector<TrainingWay> drawn_ways(Dice& dice, const TrainingWay& base, const Names& blocks) {
  constexpr std::array kKinds{
      StrategyKind::kResident,  StrategyKind::kPhased,    StrategyKind::kSharded,
      StrategyKind::kPipelined, StrategyKind::kOrdered,   StrategyKind::kGrouped,
      StrategyKind::kPhased,    StrategyKind::kPipelined, StrategyKind::kOrdered};
  const bool several = base.step.accumulate > 1;
  std::vector<TrainingWay> ways;
  for (const StrategyKind kind : std::span(kKinds).first(several ? kKinds.size() : 5)) {
    if (kind >= StrategyKind::kSharded && blocks.size() < 2) continue;
    TrainingWay way = base;
    if (!several || !ways.empty()) way.step = drawn_step(dice, base.step, blocks);
    way.threads = 1 + dice(3);
    way.io_queues = dice.one_in(3) ? 3 : 1;
    using train::Schedule;
    if (kind == StrategyKind::kResident) {
      way.step.strategy = train::resident();
    } else if (kind == StrategyKind::kPhased) {
      way.step.strategy = train::phased();
    } else if (kind == StrategyKind::kSharded) {
      way.step.strategy = train::ShardedExecution{drawn_stages(dice, way, blocks)};
    } else if (kind == StrategyKind::kGrouped) {
      draw_groups(dice, way, blocks);
    } else if (kind == StrategyKind::kOrdered) {
      draw_order(dice, way, blocks);
    } else {
      const auto schedule =
          std::array{Schedule::kGrouped, Schedule::kInterleaved, Schedule::kSequential,
                     Schedule::kAuto}[static_cast<size_t>(dice(4))];
      way.step.strategy = train::PipelinedExecution{drawn_stages(dice, way, blocks), schedule};
    }
    ways.push_back(std::move(way));
  }
  return ways;
}

// A network without weights is refused.
std::string judge_untrainable(const train::Network& network) {
  try {
    Ir ir;
    train::build_training(ir, network, nn::Optimizer::sgd(), {});
  } catch (const Error& e) {
    const bool right = e.kind() == ErrorKind::kUsage &&
                       std::string_view(e.what()).find("got 0 weights") != std::string_view::npos;
    return right ? "" : fmt::format("without weights: {}", e.what());
  }
  return "a network without weights is not refused";
}

// Draws the reductions of gradients, which all ways share.
void draw_reductions(uint64_t seed, train::Options& step) {
  Dice dice(fold(Seed{7, 8}, seed));
  step.accumulation_reduction =
      std::array{train::Accumulation::kSum, train::Accumulation::kMean,
                 train::Accumulation::kRunningMean}[static_cast<size_t>(dice(3))];
  if (dice.one_in(2)) step.replica_reduction = train::ReplicaReduction::kSum;
  switch (dice(5)) {
    case 0:
      step.accumulator_dtype = f16;
      break;
    case 1:
      step.accumulator_dtype = bf16;
      break;
    case 2:
      step.accumulator_dtype = [](const std::string& path, const TensorSpec&) {
        return path.size() % 2 == 0 ? f32 : f16;
      };
      break;
    default:
      break;
  }
  if (!dice.one_in(3)) return;
  step.gradient_hook = [kind = dice(3)](const Tensor& g, const Tensor& v) {
    if (kind == 0) return ops::cast(g, f32) + 0.01 * ops::cast(v, f32);
    if (kind == 1) return ops::minimum(ops::maximum(g, -0.5), 0.5);
    const Tensor norm = ops::sqrt(ops::sumsquare(ops::cast(g, f32)));
    return ops::cast(g, f32) / ops::maximum(norm, 1.0);
  };
}

// Draws the frozen weights and averages of the others, which all ways share.
void draw_weights(uint64_t seed, const nn::NamedTensors& weights, train::Options& step) {
  Dice dice(fold(Seed{7, 9}, seed));
  if (dice.one_in(3)) {
    const Names keys = weights.keys_flat();
    const int trained = dice(static_cast<int>(keys.size()));
    for (size_t i = 0; i < keys.size(); ++i) {
      if (static_cast<int>(i) != trained && dice.one_in(2)) step.freeze.push_back(keys[i]);
    }
  }
  const auto is_f32 = [](const Tensor& t) { return t.dtype() == f32; };
  const Tensors all = weights.tensors();
  if (dice.one_in(3) && std::all_of(all.begin(), all.end(), is_f32)) step.ema_decay = 0.75;
}

std::string judge(const train::Network& network, uint64_t seed, Verdict& verdict) {
  Dice dice(fold(Seed{7, 7}, seed));
  TrainingWay base{.replicas = 1 + dice(2), .optimizer = dice(4)};
  // Long schedules of stages have a loop between their ramps.
  const int64_t several = std::array{2, 3, 4, 9}[static_cast<size_t>(dice(4))];
  if (dice.one_in(3)) base.step.max_grad_norm = 0.25;
  draw_reductions(seed, base.step);
  Names blocks;
  {
    Ir ir;
    const train::NetworkGraph graph = network.build(ir, nn::RunMode::kTrain);
    const nn::NamedTensors weights = graph.factories.select(graph.graph.args(), nn::Role::kWeight);
    if (weights.keys_flat().empty()) return judge_untrainable(network);
    draw_weights(seed, weights, base.step);
    verdict.exact = rounded_differently(graph).empty();
    for (const train::BlockGraph& block : train::cut(graph).blocks) blocks.push_back(block.name);
  }
  for (const int64_t accumulate : {int64_t{1}, several}) {
    base.step.accumulate = accumulate;
    const bool exact = verdict.exact && accumulate == 1;
    if (const std::string wrong = compare_with_uncut(network, base, exact); !wrong.empty())
      return fmt::format("uncut network{}, {}:\n{}", exact ? "" : " (numeric)", base.text(), wrong);
    Ir ir(base.replicas);
    const Training t = built(ir, network, base);
    const Outcome want = in_interpreter(ir, t);
    verdict.nonfinite |= has_nonfinite(want);
    for (const TrainingWay& way : drawn_ways(dice, base, blocks)) {
      try {
        const std::string wrong = difference(want, in_session(network, way));
        if (!wrong.empty()) return way.text() + ": " + wrong;
      } catch (const std::exception& e) {
        return way.text() + ": " + e.what();
      }
    }
  }
  return "";
}

Verdict judge(const NetworkRecipe& recipe, NetworkCensus* census = nullptr) {
  Verdict verdict;
  try {
    const RandomNetwork made = random_network(recipe);
    if (census != nullptr) *census += made.census;
    verdict.wrong = judge(made.network, recipe.seed, verdict);
  } catch (const std::exception& e) {
    verdict.wrong = std::string("building: ") + e.what();
  }
  return verdict;
}

/// Leaves out decisions as long as the network fails: halves first, then single decisions.
NetworkRecipe shrink(NetworkRecipe recipe) {
  for (bool smaller = true; smaller;) {
    smaller = false;
    std::vector<uint64_t> decisions;
    try {
      decisions = random_network(recipe).decisions;
    } catch (const std::exception&) {
      return recipe;
    }
    for (size_t chunk = std::max<size_t>(decisions.size() / 2, 1); chunk >= 1; chunk /= 2) {
      for (size_t end = decisions.size(); end > 0; end -= std::min(chunk, end)) {
        NetworkRecipe trial = recipe;
        for (size_t i = end - std::min(chunk, end); i < end; ++i)
          trial.skipped.insert(decisions[i]);
        if (trial.skipped.size() == recipe.skipped.size() || judge(trial).wrong.empty()) continue;
        recipe = std::move(trial);
        smaller = true;
      }
    }
  }
  return recipe;
}

std::string text(const NetworkRecipe& recipe) {
  try {
    Ir ir;
    const train::NetworkGraph n = random_network(recipe).network.build(ir, nn::RunMode::kTrain);
    std::string blocks = "blocks of ops:";
    for (const Op& op : n.graph.graph().ops())
      blocks += fmt::format("\n  {} [{}] in '{}'", op.label(), op.provenance->module_path,
                            op.provenance->block);
    return n.graph.print_schedule() + "\n" + blocks;
  } catch (const std::exception&) {
    return "";
  }
}

void report_failure(const NetworkRecipe& recipe, const std::string& wrong) {
  const NetworkRecipe min = shrink(recipe);
  const std::string still = judge(min).wrong;
  ADD_FAILURE() << "SLUICE_SEED=" << recipe.seed << ": " << wrong << "\n--- with "
                << min.skipped.size() << " decisions left out: " << still << "\n"
                << text(min);
}

uint64_t number(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// The seeds are divided into equal parts, which CTest runs in parallel.
constexpr uint64_t kParts = 4;

class RandomNetworkParts : public testing::TestWithParam<uint64_t> {};
INSTANTIATE_TEST_SUITE_P(Parts, RandomNetworkParts, testing::Range(uint64_t{0}, kParts));

// Every strategy trains a network to the bits of the interpreter, and the interpreter computes what
// the network computes that is not cut.
TEST_P(RandomNetworkParts, TrainAlikeInEveryStrategy) {
  const bool seeded = std::getenv("SLUICE_SEED") != nullptr;
  const uint64_t first = number("SLUICE_SEED", 0);
  const uint64_t last = first + number("SLUICE_NETWORKS", seeded ? 1 : 60);
  NetworkCensus census;
  int exact = 0, nonfinite = 0, failures = 0;
  int count = 0;
  for (uint64_t seed = first + GetParam(); seed < last; seed += kParts, ++count) {
    const Verdict verdict = judge({seed, {}}, &census);
    exact += verdict.exact;
    nonfinite += verdict.nonfinite;
    if (verdict.wrong.empty()) continue;
    report_failure({seed, {}}, verdict.wrong);
    if (++failures == 5) break;
  }
  std::cout << fmt::format(
      "{} networks, {} compared with the uncut bits, {} with infinities; {} blocks opened again, "
      "{} rows, {} tied uses, {} losses, {} with gradients, {} predictions, {} calls, {} "
      "conditionals, {} updates in place, {} draws, {} running variables\n",
      count, exact, nonfinite, census.reopened, census.rows, census.tied, census.losses,
      census.own_gradients, census.predictions, census.calls, census.conditionals, census.in_place,
      census.draws, census.running);
}

TEST(RandomNetworks, HaveEveryFeature) {
  constexpr int kNetworks = 60;
  NetworkCensus census;
  int exact = 0;  // Networks that have the uncut network's bits.
  for (uint64_t seed = 0; seed < kNetworks; ++seed) {
    const RandomNetwork made = random_network({seed, {}});
    census += made.census;
    Ir ir;
    const train::NetworkGraph graph = made.network.build(ir, nn::RunMode::kTrain);
    const bool trains =
        !graph.factories.select(graph.graph.args(), nn::Role::kWeight).keys_flat().empty();
    exact += trains && rounded_differently(graph).empty();
  }
  EXPECT_GE(3 * exact, kNetworks);
  for (const int feature :
       {census.reopened, census.rows, census.tied, census.own_gradients, census.predictions,
        census.calls, census.conditionals, census.in_place, census.draws, census.running}) {
    EXPECT_GT(feature, 0);
  }
}

}  // namespace
}  // namespace sluice::property
