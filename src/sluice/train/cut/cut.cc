#include "sluice/train/cut/cut.h"

#include <algorithm>
#include <map>
#include <set>

#include "sluice/base/provenance.h"
#include "sluice/ir/graph_editor.h"
#include "sluice/transforms/copies/op_copies.h"
#include "sluice/transforms/values.h"

namespace sluice::train {
namespace {

// Number of a block in the order of appearance of its name, or one of the values below.
using Number = Id<struct NumberTag>;
constexpr Number kNoBlock(-1);
constexpr Number kSeeds(-2);

std::string scope_of(const std::string& submodule) {
  std::string scope = submodule;
  std::replace(scope.begin(), scope.end(), '.', '/');
  return scope;
}

class Cutter {
 public:
  Cutter(const NetworkGraph& network, SeedOps seeds)
      : network_(network), graph_(network.graph.graph()), ir_(graph_.ir()), seeds_(seeds) {
    network.graph.args().for_each(
        [&](const std::string& key, const Tensor& t) { weights_.emplace(t.id(), key); });
    for (const std::string& name : network.submodules) submodules_.emplace(scope_of(name), name);
  }

  Cut run() {
    name_blocks();
    check_writes();
    order_blocks();
    if (seeds_ == SeedOps::kApart) take_seed_ops_apart();
    sort_ops();
    find_uses();
    Cut result;
    if (std::find(block_.begin(), block_.end(), kSeeds) != block_.end())
      result.seeds = copy(kSeeds, "seeds");
    for (const Number b : order_) result.blocks.push_back(copy(b, names_[b]));
    if (seeds_ == SeedOps::kApart) pass_seed(result);
    return result;
  }

 private:
  const Op& op(OpIndex i) const { return graph_.ops()[i]; }
  // The op that made the value which `operand` reads; invalid for inputs and constants.
  OpIndex maker(const Operand& o) const {
    const transforms::Value v = transforms::value_read(graph_, o);
    const OpId id = graph_.storage(v.storage).writers[v.version].op;
    return id.valid() ? graph_.op_index(id) : OpIndex();
  }
  std::string name_of(Number block) const { return block.valid() ? names_[block] : "seeds"; }
  static std::string text(const Op& op) {
    return fmt::format("{} ({})", op.label(), op.provenance->line);
  }

  void name_blocks();
  Number block_named(const std::string& name);
  std::string submodule_of(const Op& op) const;
  void check_writes() const;
  void order_blocks();
  [[noreturn]] void fail_cycle(const std::set<Number>& rest) const;
  void take_seed_ops_apart();
  void pass_seed(Cut& cut);
  void sort_ops();
  void find_uses();
  BlockGraph copy(Number block, const std::string& name);

  const NetworkGraph& network_;
  Graph& graph_;
  Ir ir_;
  SeedOps seeds_;
  std::map<TensorId, std::string> weights_;        ///< Keys of the weights.
  std::map<std::string, std::string> submodules_;  ///< Submodules by scope.
  Ids<Number, std::string> names_;                 ///< Names of the blocks, in order of appearance.
  std::map<std::string, Number> numbers_;          ///< Block by name.
  Ids<OpIndex, Number> block_;                     ///< The block of each op.
  std::vector<Number> order_;                      ///< Blocks in the order of the cut.
  std::map<Number, std::vector<OpIndex>> ops_;     ///< The ops of each block.
  std::set<TensorId> crossing_;  ///< Results, and tensors that another block reads.
  /// Number of the use by weight, block and module path.
  std::map<std::tuple<TensorId, Number, std::string>, int> uses_;
};

Number Cutter::block_named(const std::string& name) {
  const auto [found, added] = numbers_.emplace(name, names_.end_id());
  if (added) names_.push_back(name);
  return found->second;
}

// The submodule of the network's module that made the op; empty if there is none.
std::string Cutter::submodule_of(const Op& op) const {
  std::string scope = op.provenance->module_path;
  for (;;) {
    const auto found = submodules_.find(scope);
    if (found != submodules_.end()) return found->second;
    const size_t parent = scope.rfind('/');
    if (parent == std::string::npos) return "";
    scope.resize(parent);
  }
}

void Cutter::name_blocks() {
  const auto named = std::find_if(graph_.ops().begin(), graph_.ops().end(),
                                  [](const Op& op) { return !op.provenance->block.empty(); });
  const bool explicitly = named != graph_.ops().end();
  Number last = kNoBlock;
  block_.assign(graph_.ops().size(), kNoBlock);
  for (const OpIndex i : block_.ids()) {
    if (explicitly) {
      require(!op(i).provenance->block.empty(),
              "No active Block: {} is outside all blocks, but {} is in block '{}'; open a block "
              "around it",
              text(op(i)), text(*named), named->provenance->block);
      block_[i] = block_named(op(i).provenance->block);
      continue;
    }
    const std::string name = submodule_of(op(i));
    if (!name.empty()) last = block_named(name);
    block_[i] = last;
  }
  const auto index = [this](OpId id) { return graph_.op_index(id); };
  for (const auto& [id, origin] : network_.added) block_[index(id)] = block_[index(origin)];
  if (names_.empty()) names_.emplace_back("model");
  for (Number& b : block_) {
    if (b == kNoBlock) b = Number(0);
  }
}

void Cutter::check_writes() const {
  for (const OpIndex i : block_.ids()) {
    for (const Effect& e : op(i).effects) {
      require(e.kind == Effect::Action::kPrint,
              "cut of graph {}: {} uses a stream or a remote buffer; give the network a field",
              graph_.name(), text(op(i)));
    }
    for (const Operand& o : op(i).inputs) {
      const Storage& storage = graph_.storage(graph_.info(o.tensor).storage);
      const OpId root = storage.writers.front().op;
      const std::string& name = graph_.info(storage.root).name;
      if (o.new_version.valid()) {
        require(root.valid(),
                "cut of graph {}: {} writes '{}', an input of the network; write a copy",
                graph_.name(), text(op(i)), name);
        const Number owner = block_[graph_.op_index(root)];
        require(owner == block_[i],
                "cut of graph {}: {} of block '{}' writes '{}' of block '{}'; write a copy",
                graph_.name(), text(op(i)), name_of(block_[i]), name, name_of(owner));
      }
      const OpIndex m = maker(o);
      if (!m.valid() || block_[m] == block_[i]) continue;
      if (o.version == storage.version()) continue;
      const Op& writer = graph_.op(storage.writers[Version(o.version + 1)].op);
      fail(ErrorKind::kUsage,
           "cut of graph {}: {} reads '{}' of another block before {} writes it again; read a copy",
           graph_.name(), text(op(i)), name, text(writer));
    }
  }
}

void Cutter::order_blocks() {
  std::map<Number, std::set<Number>> reads;  // Blocks that a block reads.
  std::set<Number> rest;
  for (const OpIndex i : block_.ids()) {
    rest.insert(block_[i]);
    for (const Operand& o : op(i).inputs) {
      const OpIndex m = maker(o);
      if (!m.valid()) continue;
      const Number from = block_[m];
      if (from != block_[i]) reads[block_[i]].insert(from);
    }
  }
  while (!rest.empty()) {
    const auto ready = std::find_if(rest.begin(), rest.end(), [&](Number b) {
      return std::none_of(reads[b].begin(), reads[b].end(),
                          [&](Number from) { return rest.contains(from); });
    });
    if (ready == rest.end()) fail_cycle(rest);
    order_.push_back(*ready);
    rest.erase(ready);
  }
}

// Fails with two ops of a cycle of blocks. The first op reads a block; the second op, in that
// block, reads the next block of the cycle.
void Cutter::fail_cycle(const std::set<Number>& rest) const {
  std::map<Number, std::map<Number, OpIndex>> edges;  // For each block: {block it reads, the op}.
  for (const OpIndex i : block_.ids()) {
    if (!rest.contains(block_[i])) continue;
    for (const Operand& o : op(i).inputs) {
      const OpIndex m = maker(o);
      if (!m.valid()) continue;
      const Number from = block_[m];
      if (from != block_[i] && rest.contains(from)) edges[block_[i]].emplace(from, i);
    }
  }
  // Every block here reads another one of `rest`, so that a walk closes a cycle.
  std::vector<Number> walk{*rest.begin()};
  for (;;) {
    const Number next = edges[walk.back()].begin()->first;
    const bool closed = std::find(walk.begin(), walk.end(), next) != walk.end();
    walk.push_back(next);
    if (!closed) continue;
    const Number a = walk[walk.size() - 2];
    const Number b = walk.back();
    const auto at = std::find(walk.begin(), walk.end(), b);
    const Op& first = op(edges[a].begin()->second);
    const Op& second = op(edges[b].begin()->second);
    fail(ErrorKind::kUsage,
         "cut of graph {}: blocks must not read results of each other, but {} of block '{}' reads "
         "block '{}', and {} of block '{}' reads block '{}'; give one of the ops another block",
         graph_.name(), text(first), name_of(a), name_of(b), text(second), name_of(b),
         name_of(*(at + 1)));
  }
}

// Moves ops that read nothing but the seed and values derived from it out of their blocks. The
// order of the blocks stays, so that it does not depend on where these ops are.
void Cutter::take_seed_ops_apart() {
  if (network_.seed.empty()) return;
  for (const OpIndex i : block_.ids()) {
    bool seeded = false;
    bool other = false;
    for (const Operand& o : op(i).inputs) {
      const OpIndex m = maker(o);
      const bool constant = graph_.info(o.tensor).kind == TensorKind::kConstant;
      const bool seed = m.valid() ? block_[m] == kSeeds : o.tensor == network_.seed[0].id();
      seeded = seeded || seed;
      other = other || (!seed && !constant) || o.new_version.valid();
    }
    const bool makes_seeds =
        std::all_of(op(i).outputs.begin(), op(i).outputs.end(),
                    [&](TensorId t) { return graph_.spec(t) == network_.seed[0].spec(); });
    if (seeded && !other && makes_seeds) block_[i] = kSeeds;
  }
  check_writes();
  std::erase_if(order_, [this](Number b) {
    return std::find(block_.begin(), block_.end(), b) == block_.end();
  });
}

// A block that reads the network's seed itself gets it as an output of the seeds.
void Cutter::pass_seed(Cut& cut) {
  if (network_.seed.empty()) return;
  const Tensor& seed = network_.seed[0];
  if (std::none_of(cut.blocks.begin(), cut.blocks.end(),
                   [&](const BlockGraph& block) { return block.input(seed).valid(); }))
    return;
  if (!cut.seeds) cut.seeds = copy(kSeeds, "seeds");
  if (!cut.seeds->input(seed).valid()) {
    Graph& g = cut.seeds->graph.graph();
    cut.seeds->inputs.push_back({seed, g.input(seed.spec(), seed.name())});
  }
  cut.seeds->outputs.push_back({seed, cut.seeds->input(seed)});
}

void Cutter::sort_ops() {
  std::map<TensorId, Number> maker;
  for (const OpIndex i : block_.ids()) {
    ops_[block_[i]].push_back(i);
    for (const TensorId t : op(i).outputs) maker.emplace(t, block_[i]);
    for (const Operand& o : op(i).inputs) {
      const auto made = maker.find(o.tensor);
      if (made != maker.end() && made->second != block_[i]) crossing_.insert(o.tensor);
    }
  }
  for (const TensorId t : graph_.output_ids()) crossing_.insert(t);
}

void Cutter::find_uses() {
  std::map<TensorId, int> count;
  for (const Number b : order_) {
    for (const OpIndex i : ops_[b]) {
      for (const Operand& o : op(i).inputs) {
        if (!weights_.contains(o.tensor)) continue;
        const auto [use, added] =
            uses_.emplace(std::tuple(o.tensor, b, op(i).provenance->module_path), 0);
        if (added) use->second = count[o.tensor]++;
      }
    }
  }
}

BlockGraph Cutter::copy(Number block, const std::string& name) {
  Graph& g = ir_.create_empty_graph(name);
  BlockGraph result{.name = name, .graph = nn::GraphWithNamedArgs(g)};
  GraphEditor editor(g);
  std::map<std::pair<TensorId, int>, Tensor> weights;
  const auto weight = [&](TensorId t, const Op& reader) {
    const int use = uses_.at({t, block, reader.provenance->module_path});
    Tensor& input = weights[{t, use}];
    if (!input.valid()) {
      WeightUse w{.key = weights_.at(t), .use = use};
      input = w.input = g.input(graph_.spec(t), w.name());
      result.weights.push_back(std::move(w));
    }
    return input;
  };
  transforms::OpCopies copies(graph_, g, [&](TensorId t) {
    const TensorInfo& info = graph_.info(t);
    if (info.kind == TensorKind::kConstant) return editor.share_constant(graph_.handle(t));
    const Tensor input = g.input(info.spec, info.name);
    result.inputs.push_back({graph_.handle(t), input});
    return input;
  });
  for (const OpIndex i : ops_[block]) {
    Op origin = op(i);
    auto provenance = std::make_shared<Provenance>(*origin.provenance);
    provenance->block = block == kSeeds ? "" : name;
    if (block == kSeeds) provenance->role = OpRole::kSeed;
    origin.provenance = std::move(provenance);
    // Each use of a weight has an input of its own. Inputs are in the order of the operands.
    for (const Operand& o : origin.inputs)
      copies.set(o.tensor,
                 weights_.contains(o.tensor) ? weight(o.tensor, origin) : copies[o.tensor]);
    copies.copy(origin);
  }
  for (const OpIndex i : ops_[block]) {
    for (const TensorId t : op(i).outputs) {
      if (!crossing_.contains(t)) continue;
      result.outputs.push_back({graph_.handle(t), copies[t]});
      g.add_output(copies[t]);
    }
  }
  for (const nn::internal::RunningUpdate& u : network_.updates) {
    if (block_[graph_.op_index(graph_.info(u.value).producer)] != block) continue;
    result.updates.push_back(
        {u.key, network_.factories[u.key].spec(), {u.value, copies[u.value.id()]}, u.rule});
  }
  return result;
}

}  // namespace

std::string WeightUse::name() const { return use == 0 ? key : fmt::format("{}.u{}", key, use); }

Tensor BlockGraph::output(const Tensor& whole) const {
  for (const BlockValue& v : outputs) {
    if (v.whole == whole) return v.part;
  }
  return {};
}

Tensor BlockGraph::input(const Tensor& whole) const {
  for (const BlockValue& v : inputs) {
    if (v.whole == whole) return v.part;
  }
  return {};
}

const WeightUse& BlockGraph::use(const std::string& name) const {
  const auto found = std::find_if(weights.begin(), weights.end(),
                                  [&](const WeightUse& w) { return w.name() == name; });
  SLUICE_CHECK(found != weights.end());
  return *found;
}

int Cut::uses(const std::string& key) const {
  int count = 0;
  for (const BlockGraph& block : blocks) {
    for (const WeightUse& w : block.weights) {
      if (w.key == key) count = std::max(count, w.use + 1);
    }
  }
  return count;
}

Cut cut(const NetworkGraph& network, SeedOps seeds) { return Cutter(network, seeds).run(); }

}  // namespace sluice::train
