#include "network_writer.h"

#include <fmt/format.h>

#include <algorithm>

#include "sluice/base/provenance.h"
#include "sluice/ir/op_def.h"

namespace sluice::property {

using train::Inputs;
using train::Loss;
using train::Results;

bool NetworkWriter::reaches(const std::string& from, const std::string& to) const {
  if (from == to) return true;
  const auto found = reads_.find(from);
  return found != reads_.end() && std::any_of(found->second.begin(), found->second.end(),
                                              [&](const auto& b) { return reaches(b, to); });
}

void NetworkWriter::note_reads() {
  for (; noted_ < graph_.ops().size(); ++noted_) {
    const Op& op = graph_.ops()[noted_];
    for (const Operand& o : op.inputs) {
      const OpId maker = graph_.info(o.tensor).producer;
      if (maker.valid() && graph_.op(maker).provenance->block != op.provenance->block)
        reads_[op.provenance->block].insert(graph_.op(maker).provenance->block);
    }
  }
}

// Values that ops of a block may read without a cycle of blocks.
Tensors NetworkWriter::readable(const std::string& block) const {
  Tensors found;
  for (const Tensor& t : values_) {
    const std::string& from = producer_block(t);
    if (from.empty() || from == block || !reaches(from, block)) found.push_back(t);
  }
  return found;
}

template <typename Act>
void NetworkWriter::with_scope(Dice& dice, const Act& act) {
  Scope s{.graph = graph_, .values = readable(block_), .weights = {}};
  s.differentiable = true;
  s.pure = true;
  const size_t known = s.values.size();
  act(s, dice);
  values_.insert(values_.end(), s.values.begin() + static_cast<std::ptrdiff_t>(known),
                 s.values.end());
  note_reads();
}

Tensor NetworkWriter::any(Dice& dice) {
  Tensor found;
  with_scope(dice, [&](Scope& s, Dice& d) {
    const auto t = s.find(d, [](const Tensor& v) { return v.dtype() == f32 && v.rank() > 0; });
    found = *t;
  });
  return found;
}

Tensor NetworkWriter::with_shape(Dice& dice, const Shape& shape) {
  Tensor found;
  with_scope(dice, [&](Scope& s, Dice& d) { found = s.with_shape(d, shape); });
  return found;
}

void NetworkWriter::visit(size_t v) {
  const uint64_t key = v * kBlockStride;
  if (!decide(key)) return;
  fresh_ = graph_.ops().size();
  if (outline_.stacks[v]) return stack(v);
  Dice dice(network_key(recipe_.seed, "visit", v));
  block_ = outline_.named ? outline_.blocks[v] : "";
  if (std::any_of(outline_.blocks.begin(), outline_.blocks.begin() + static_cast<std::ptrdiff_t>(v),
                  [&](const std::string& b) { return outline_.named && b == block_; }))
    ++record.census.reopened;
  const bool begun = open_marked(v, dice);
  std::optional<nn::Block> scope;
  if (outline_.named && !begun) scope.emplace(b_, block_);
  if (!outline_.named) linear(dice, key);
  const int count = 1 + dice(6);
  for (int d = 1; d <= count; ++d) {
    const uint64_t own = key + static_cast<uint64_t>(d);
    if (!decide(own)) continue;
    Dice mine(network_key(recipe_.seed, "decision", own));
    decision(mine, own);
    note_reads();
  }
}

// Builds a submodule that opens the block. Returns whether the block stays open.
bool NetworkWriter::open_marked(size_t v, Dice& dice) {
  if (outline_.forms[v] == NetworkOutline::BlockSyntax::kScope) return false;
  const size_t own = marks_++;
  const Tensor x = [&] {
    const Tensors all = readable(block_);
    Tensors fit;
    for (const Tensor& t : all) {
      if (t.dtype() == f32 && t.rank() > 0) fit.push_back(t);
    }
    return fit[static_cast<size_t>(dice(static_cast<int>(fit.size())))];
  }();
  keep(marked_[own](b_, x));
  note_reads();
  return outline_.forms[v] == NetworkOutline::BlockSyntax::kBegin;
}

void NetworkWriter::decision(Dice& dice, uint64_t key) {
  const int kind = dice(26);
  if (kind < 9) return with_scope(dice, add_plain_op);
  if (kind < 12) return linear(dice, key);
  switch (kind) {
    case 12:
      return own_weight(dice, key);
    case 13:
    case 14:
    case 15:
      return tied(dice, key);
    case 16:
    case 17:
      return in_place(dice);
    case 18:
      return outlined(dice, key);
    case 19:
      return conditional(dice);
    case 20:
      return draw(dice, key);
    case 21:
      return integers(dice);
    case 22:
      return loss(dice, key);
    case 23:
    case 24:
      return running(dice, key);
    default:
      keep(dice.one_in(2) ? in_["scale"] * 2.0
                          : ops::cast(in_[dice.one_in(2) ? "labels" : "index"], f32) * 0.25);
  }
}

void NetworkWriter::linear(Dice& dice, uint64_t key) {
  const Tensor x = ops::clip(any(dice), {.min = -4, .max = 4});
  const nn::Linear layer(1 + dice(5), dice.one_in(3) ? nn::Bias::kNone : nn::Bias::kAdd,
                         nn::WeightInit::kHe);
  const Tensor y = b_.inlined(fmt::format("l{}", key), layer, x);
  keep(dice.one_in(2) ? ops::tanh(y) : ops::gelu(y));
}

void NetworkWriter::own_weight(Dice& dice, uint64_t key) {
  const Tensor x = any(dice);
  const Shape shape = dice.one_in(2) ? Shape{x.dim(-1), 1 + dice(5)} : Shape{x.dim(-1)};
  weights_.push_back(b_.add_variable_input(fmt::format("w{}", key), nn::normal(0, 0.5), shape));
  keep(use(dice, dice.one_in(6) ? ops::detach(weights_.back()) : weights_.back()));
}

// Uses a weight of any block, in the module path of the block or in one of its own.
void NetworkWriter::tied(Dice& dice, uint64_t key) {
  if (weights_.empty()) return own_weight(dice, key);
  const Tensor w = weights_[static_cast<size_t>(dice(static_cast<int>(weights_.size())))];
  ++record.census.tied;
  const bool detached = dice.one_in(6);
  const auto body = [&](nn::Builder&) { return use(dice, detached ? ops::detach(w) : w); };
  if (dice.one_in(2) && outline_.named) {
    keep(b_.inlined(fmt::format("t{}", key), Written(body)));
  } else {
    keep(body(b_));
  }
}

Tensor NetworkWriter::use(Dice& dice, const Tensor& w) {
  if (w.rank() == 1) return dice.one_in(4) ? w * w : with_shape(dice, {2, w.dim(0)}) * w;
  const int64_t rows = dice.one_in(2) ? kBatch : 3;
  const auto clipped = [&](int64_t k) {
    return ops::clip(with_shape(dice, {rows, k}), {.min = -4, .max = 4});
  };
  switch (dice(4)) {
    case 0:
      return ops::tanh(ops::matmul(clipped(w.dim(1)), w, {.rhs_transposed = true}));
    case 1:
      return ops::matmul(clipped(w.dim(1)), ops::transpose(w));
    case 2:
      return ops::softmax(w * 2.0);
    default:
      return ops::matmul(clipped(w.dim(0)), w);
  }
}

// Overwrites a value that the open block made since it was opened. Which values may be overwritten
// depends on whether the network trains. The shape of the new value must not, or weights would
// differ in shape between training and evaluation.
void NetworkWriter::in_place(Dice& dice) {
  const Tensor like = any(dice);
  const int chosen = dice(1 << 20);
  std::vector<size_t> found;
  for (size_t i = 0; i < values_.size(); ++i) {
    const Tensor& t = values_[i];
    if (t.spec() != like.spec()) continue;
    const TensorInfo& root = graph_.info(graph_.storage(graph_.info(t).storage).root);
    const bool read = std::any_of(graph_.ops().begin(), graph_.ops().end(), [&](const Op& op) {
      return std::any_of(op.inputs.begin(), op.inputs.end(), [&](const Operand& o) {
        return graph_.info(o.tensor).storage == graph_.info(t).storage;
      });
    });
    // A gradient may need a value that other ops read, or a result of its own op.
    static const std::set<std::string_view> kFree{"Add", "Sub", "Mul", "MatMul", "Neg", "Clip"};
    const OpId own = graph_.info(t).producer;
    if (own < 0 || !kFree.contains(graph_.op(own).def->name) || (read && chosen % 8 != 0)) continue;
    if (t.dtype() == f32 && root.producer.valid() &&
        graph_.op_index(root.producer) >= static_cast<int64_t>(fresh_) &&
        graph_.op(root.producer).provenance->block == block_)
      found.push_back(i);
  }
  const bool fresh = found.empty() || dice.one_in(2);
  if (fresh) found = {values_.size()};
  const size_t at = found[static_cast<size_t>(chosen) % found.size()];
  const Tensor t = fresh ? like * 0.5 : values_[at];
  const Tensor made = dice.one_in(3)   ? ops::relu_(t)
                      : dice.one_in(2) ? ops::add_(t, with_shape(dice, t.shape()))
                                       : ops::gelu_(t);
  ++record.census.in_place;
  // The old handle has the new value, too. Sometimes both are read.
  if (dice.one_in(2) && !fresh) values_[at] = made;
  keep(made);
}

// Calls a graph that other blocks may call, too.
void NetworkWriter::outlined(Dice& dice, uint64_t key) {
  const Tensor x = ops::clip(any(dice), {.min = -4, .max = 4});
  ++record.census.calls;
  if (dice.one_in(2)) {
    keep(cache_.create_graph(b_.ir(), Shared(dice(2)), x.spec()).second.call(x)[0]);
    return;
  }
  const nn::Linear layer(1 + dice(3), nn::Bias::kAdd, nn::WeightInit::kHe);
  const auto& [factories, graph] = cache_.create_graph(b_.ir(), layer, x.spec());
  const nn::NamedTensors weights = b_.add_variable_inputs(fmt::format("o{}", key), factories);
  Tensor y = graph.bind(weights).call(x)[0];
  if (dice.one_in(3)) y = ops::tanh(y) * graph.bind(weights).call(x * 0.5)[0];
  keep(y);
}

void NetworkWriter::conditional(Dice& dice) {
  const Tensor x = any(dice);
  const auto arm = [&](const char* name, bool first) -> Graph& {
    return b_.ir().create_graph(
        name, [&](Graph&, Tensor t) { return first ? ops::tanh(t) * t : ops::exp(-ops::abs(t)); },
        x.spec());
  };
  const Tensor which = ops::greater(ops::detach(ops::mean(x)), 0.0);
  ++record.census.conditionals;
  keep(ops::conditional(graph_, which, arm("then", true), arm("else", false), {x}, {x})[0]);
}

void NetworkWriter::draw(Dice& dice, uint64_t key) {
  const Tensor x = any(dice);
  ++record.census.draws;
  switch (dice(4)) {
    case 0: {  // Another block may read this seed.
      const Tensor seed = ops::fold_seed(seed_, dice(3));
      keep(seed);
      keep(ops::dropout(x, seed, 0.25));
      break;
    }
    case 1:
      keep(ops::dropout(x, seed_, 0.25));
      break;
    default:
      if (!outline_.named) fresh_ = graph_.ops().size();  // The layer is a block of its own.
      // In evaluation, the value has the same block.
      keep(training() ? b_.inlined(fmt::format("d{}", key), nn::Dropout(0.25), x, seed_)
                      : b_.inlined(fmt::format("d{}", key),
                                   Written([&](nn::Builder&) { return ops::identity(x); })));
  }
}

// Subtracts the mean of the micro-batch, and in evaluation a running mean. Sometimes training reads
// the running mean instead of updating it.
void NetworkWriter::running(Dice& dice, uint64_t key) {
  const Tensor x = any(dice);
  const bool normalizes = dice.one_in(3), fixed = dice.one_in(5), shows = dice.one_in(3);
  const nn::RunningRule rule{.keep = 0.25 * dice(4), .take = 0.25 * (1 + dice(4))};
  ++record.census.running;
  if (!outline_.named) fresh_ = graph_.ops().size();  // The layer is a block of its own.
  const std::string name = fmt::format("n{}", key);
  if (normalizes && x.rank() > 1 && x.elements() > x.dim(1)) {
    keep(b_.inlined(name, nn::BatchNorm(), x));
    return;
  }
  Tensor mean;
  keep(b_.inlined(name, Written([&](nn::Builder& b) {
                    const Shape shape{x.dim(-1)};
                    const Tensor running =
                        b.add_running_input("running_mean", nn::normal(0, 0.5), shape);
                    // In evaluation, the mean has the same block, too.
                    mean = fixed || training() ? running : running * 1.0;
                    if (fixed || !training()) return x - running;
                    mean = ops::mean(ops::reshape(x, {-1, x.dim(-1)}), {.axes = {0}});
                    b.update_running(running, mean, rule);
                    return x - mean;
                  })));
  if (shows) keep(mean);
}

void NetworkWriter::integers(Dice& dice) {
  const Tensor x = any(dice);
  const Tensor i = ops::argmax(ops::detach(x), {.axis = -1});
  switch (dice(3)) {
    case 0:
      keep(i);
      keep(ops::gather(x, in_["index"], {.axis = 0, .zero_out_of_range = true}));
      break;
    case 1:
      keep(ops::cast(i, f32) * 0.125);
      break;
    default:
      keep(ops::detach(x));
  }
}

void NetworkWriter::loss(Dice& dice, uint64_t key) {
  if (losses_.size() >= 3) return;
  Loss made{.name = fmt::format("loss{}", key), .weight = dice.one_in(2) ? 1 : 0.25};
  switch (dice(3)) {
    case 0: {
      const Tensor x = with_shape(dice, {kBatch, 3});
      const Tensor logits = b_.inlined(fmt::format("out{}", key), nn::Linear(3), x);
      keep(logits);
      made = train::cross_entropy(logits, in_["labels"], made.name, made.weight);
      break;
    }
    case 1: {
      const Tensor x = any(dice);
      made.value = ops::mean(ops::tanh(x) * x);
      break;
    }
    default: {
      const Tensor a = any(dice);
      const Tensor b = with_shape(dice, a.shape());
      made.value = ops::mean(a * b);
      const Tensor gradient = ops::tanh(ops::detach(a) - 0.5) * made.weight;
      made.gradients = {{a, gradient}};
      if (a != b) made.gradients.emplace_back(b, dice.one_in(2) ? gradient : ops::neg(gradient));
      for (const auto& [t, g] : made.gradients) {
        if (!graph_.info(t).producer.valid()) made.gradients.clear();
      }
    }
  }
  note_reads();
  record.census.own_gradients += !made.gradients.empty();
  keep(made.value);
  losses_.push_back(std::move(made));
}

}  // namespace sluice::property
