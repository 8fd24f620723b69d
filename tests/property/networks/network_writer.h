#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "../random_graph_ops.h"
#include "random_network.h"
#include "sluice/base/provenance.h"
#include "sluice/nn/graph_cache.h"
#include "sluice/nn/layers.h"
#include "sluice/ops/ops.h"
#include "sluice/train/network.h"

namespace sluice::property {

constexpr int64_t kBatch = 4;          ///< Samples of a micro-batch.
constexpr uint64_t kBlockStride = 64;  ///< Maximum number of decisions of a block.

/// Returns the key of the random numbers for one purpose.
Seed network_key(uint64_t seed, std::string_view what, uint64_t index = 0);

/// The properties of a network that do not depend on its ops.
struct NetworkOutline {
  enum class BlockSyntax : uint8_t { kScope, kProperty, kBegin };

  explicit NetworkOutline(uint64_t seed);

  bool named = true;                ///< Whether blocks have names of their own.
  std::vector<std::string> blocks;  ///< The name of each block.
  std::vector<BlockSyntax> forms;
  std::vector<bool> stacks;  ///< Whether a block is a stack of equal rows.
};

/// A module whose body is a function.
template <typename F>
struct Written : nn::Module {
  explicit Written(F f) : f(std::move(f)) {}
  auto build(nn::Builder& b) const { return f(b); }
  F f;
};

/// A graph without weights, shared by its callers.
struct Shared : nn::Module {
  explicit Shared(int kind) : kind(kind) {}
  Tensor build(nn::Builder&, Tensor x) const {
    return kind == 0 ? ops::gelu(x) * x : ops::tanh(ops::exp(ops::clip(x, {.max = 2})) - x);
  }
  std::string cache_key() const { return std::to_string(kind); }
  int kind;
};

/// The decisions and features of a build.
struct NetworkRecord {
  std::vector<uint64_t> decisions = {};
  NetworkCensus census = {};
};

using MarkedLayers = nn::Children<nn::Linear>;

/// Writes a network into the graph of a builder, one block after the other.
class NetworkWriter {
 public:
  NetworkWriter(const NetworkRecipe& recipe, const NetworkOutline& outline,
                const MarkedLayers& marked, nn::Builder& b, const train::Inputs& in)
      : recipe_(recipe), outline_(outline), marked_(marked), b_(b), in_(in), graph_(b.graph()) {
    for (const char* name : {"x", "scale"}) values_.push_back(in[name]);
    seed_ = in.seed().empty() ? graph_.constant(HostTensor::of<uint32_t>({2}, u32, {1, 2}))
                              : in.seed()[0];
  }

  train::Results run() {
    for (size_t v = 0; v < outline_.blocks.size(); ++v) visit(v);
    end();
    return results();
  }

  NetworkRecord record;

 private:
  bool training() const { return in_.mode() == nn::RunMode::kTrain; }
  const std::string& producer_block(const Tensor& t) const {
    static const std::string kNone;
    const OpId op = graph_.info(t).producer;
    return op < 0 ? kNone : graph_.op(op).provenance->block;
  }
  bool decide(uint64_t key) {
    if (recipe_.skipped.contains(key)) return false;
    record.decisions.push_back(key);
    return true;
  }
  bool reaches(const std::string& from, const std::string& to) const;
  void note_reads();
  Tensors readable(const std::string& block) const;
  template <typename Act>
  void with_scope(Dice& dice, const Act& act);
  Tensor any(Dice& dice);
  Tensor with_shape(Dice& dice, const Shape& shape);
  Tensor keep(const Tensor& t) {
    values_.push_back(t);
    return t;
  }

  void visit(size_t v);
  bool open_marked(size_t v, Dice& dice);
  void decision(Dice& dice, uint64_t key);
  void linear(Dice& dice, uint64_t key);
  void own_weight(Dice& dice, uint64_t key);
  void tied(Dice& dice, uint64_t key);
  Tensor use(Dice& dice, const Tensor& w);
  void in_place(Dice& dice);
  void outlined(Dice& dice, uint64_t key);
  void conditional(Dice& dice);
  void draw(Dice& dice, uint64_t key);
  void running(Dice& dice, uint64_t key);
  void integers(Dice& dice);
  void loss(Dice& dice, uint64_t key);
  void stack(size_t v);
  void row(size_t v, int64_t r, const Tensor& outside, Tensors& streams, const Tensors& fixed);
  void end();
  void train_all_weights();
  train::Results results();

  const NetworkRecipe& recipe_;
  const NetworkOutline& outline_;
  const MarkedLayers& marked_;
  nn::Builder& b_;
  const train::Inputs& in_;
  Graph& graph_;
  Tensor seed_;
  std::string block_;  ///< The open block.
  size_t fresh_ = 0;   ///< The first op of the block.
  size_t noted_ = 0;
  size_t marks_ = 0;
  Tensors values_;
  Tensors weights_;
  Tensors shown_;  ///< Results of rows that are predictions.
  std::vector<train::Loss> losses_;
  std::map<std::string, std::set<std::string>> reads_;  ///< Blocks that a block reads.
  nn::GraphCache cache_;
};

}  // namespace sluice::property
