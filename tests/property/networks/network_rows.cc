#include "network_writer.h"

#include <fmt/format.h>

#include <algorithm>

#include "sluice/transforms/dependence.h"

namespace sluice::property {

using train::Inputs;
using train::Loss;
using train::Results;

// Rows of equal blocks.
void NetworkWriter::stack(size_t v) {
  Dice dice(network_key(recipe_.seed, "stack", v));
  block_ = outline_.named ? outline_.blocks[v] : "";
  std::optional<nn::Block> scope;
  if (outline_.named) scope.emplace(b_, block_);
  const int64_t width = 2 + dice(4);
  const int64_t rows = 2 + dice(5);
  const Shape shape{kBatch, width};
  Tensors streams{with_shape(dice, shape)};
  if (dice.one_in(3)) streams.push_back(with_shape(dice, shape));
  Tensors fixed;
  if (dice.one_in(2)) fixed.push_back(dice.one_in(4) ? in_["scale"] : with_shape(dice, shape));
  Tensors outside;
  if (dice.one_in(4)) {
    const Tensor all = ops::broadcast_to(with_shape(dice, {kBatch, 1}), {kBatch, width * rows});
    for (const Tensor& t : ops::split(ops::sigmoid(all), rows, 1)) outside.push_back(keep(t));
  }
  note_reads();
  scope.reset();
  for (int64_t r = 0; r < rows; ++r) {
    if (!decide(v * kBlockStride + 1 + static_cast<uint64_t>(r))) continue;
    block_ = outline_.named ? fmt::format("R{}_{}", v, r) : "";
    if (outline_.named) scope.emplace(b_, block_);
    row(v, r, outside.empty() ? Tensor() : outside[static_cast<size_t>(r)], streams, fixed);
    scope.reset();
    note_reads();
    ++record.census.rows;
  }
  values_.insert(values_.end(), streams.begin(), streams.end());
}

// All rows draw the same numbers, but one row may differ.
void NetworkWriter::row(size_t v, int64_t r, const Tensor& outside, Tensors& streams,
                        const Tensors& fixed) {
  Dice dice(network_key(recipe_.seed, "row", v));
  const std::string name = fmt::format("{}{}_{}", dice.one_in(2) ? "R" : "row", v, r);
  const bool other = dice.one_in(6) && r == dice(6);
  const bool reads_tied = dice.one_in(8) && !weights_.empty();
  const bool has_result = dice.one_in(5);
  const bool calls = dice.one_in(4), draws = dice.one_in(3), adds = !dice.one_in(3);
  const bool normalizes = dice.one_in(3);
  const int64_t width = streams[0].dim(1);
  Tensor h =
      b_.inlined(name, Written([&](nn::Builder& b) {
                   Tensor y = b.inlined(
                       "fc", nn::Linear(width, nn::Bias::kAdd, nn::WeightInit::kHe), streams[0]);
                   if (outside.valid()) y = y * outside;
                   for (const Tensor& t : fixed) y = y + t * 0.5;
                   if (normalizes) y = b.inlined("norm", nn::BatchNorm(), y);
                   y = other ? ops::sigmoid(y) : ops::tanh(y);
                   if (calls)
                     y = cache_.create_graph(b.ir(), Shared(0), y.spec()).second.call(y)[0];
                   if (draws && training()) y = b.inlined("drop", nn::Dropout(0.25), y, seed_);
                   if (reads_tied) y = y * ops::mean(weights_[0]);
                   if (adds) y = y + streams[0];
                   if (streams.size() > 1) streams[1] = ops::tanh(streams[1] + y) * 0.5;
                   return y;
                 }));
  streams[0] = h;
  record.census.running += normalizes;
  if (has_result && dice.one_in(2)) {
    shown_.push_back(h);
  } else if (has_result && losses_.size() < 2) {
    const Tensor value = b_.inlined(
        name + "_aux", Written([&](nn::Builder&) { return ops::mean(ops::tanh(h) * h); }));
    losses_.push_back({.name = name + "_loss", .value = value, .weight = 0.125});
  }
  if (dice.one_in(2)) keep(h);
  if (streams.size() > 1 && dice.one_in(2)) keep(streams[1]);
}

void NetworkWriter::end() {
  Dice dice(network_key(recipe_.seed, "end"));
  block_ = outline_.named ? "end" : "";
  std::optional<nn::Block> scope;
  if (outline_.named) scope.emplace(b_, block_);
  const bool joins = dice.one_in(4);
  const Tensor x = with_shape(dice, {kBatch, 4});
  if (losses_.empty() || !joins) {
    const Tensor logits = b_.inlined("out", nn::Linear(3), x);
    keep(logits);
    losses_.push_back(train::cross_entropy(logits, in_["labels"], "loss"));
    record.census.own_gradients += 1;
  } else {
    keep(ops::softmax(x));
  }
  if (training()) train_all_weights();
  note_reads();
}

// Adds a loss for the weights that no loss depends on.
void NetworkWriter::train_all_weights() {
  using transforms::Value;
  const auto value_of = [&](const Tensor& t) {
    const StorageId storage = graph_.info(t).storage;
    return Value{storage, graph_.storage(storage).version()};
  };
  std::vector<Value> ends;
  for (const Loss& l : losses_) {
    if (l.gradients.empty()) ends.push_back(value_of(l.value));
    for (const auto& [t, gradient] : l.gradients) ends.push_back(value_of(t));
  }
  Tensor rest;
  for (const Tensor& w : graph_.inputs()) {
    const bool field = w == seed_ || w == in_["x"] || w == in_["scale"] || w.dtype() != f32;
    const bool running = w.name().find("running_") != std::string::npos;
    if (field || running || transforms::Dependence().upstream(graph_, ends).at(value_of(w)) != 0)
      continue;
    const auto active = transforms::Dependence().downstream(graph_, {value_of(w)});
    Tensor last = w;
    for (const Tensor& t : readable(block_)) {
      if (t.dtype() == f32 && graph_.info(t).producer.valid() && active.at(value_of(t)) != 0)
        last = t;
    }
    const Tensor value = ops::mean(last * last);
    rest = rest.valid() ? rest + value : value;
    ends.push_back(value_of(rest));
  }
  if (rest.valid()) losses_.push_back({.name = "rest", .value = rest, .weight = 0.5});
}

Results NetworkWriter::results() {
  Dice dice(network_key(recipe_.seed, "results"));
  std::vector<train::Prediction> predictions;
  Tensors made;
  for (const Tensor& t : values_) {
    if (graph_.info(t).producer.valid() && (t.dtype() == f32 || t.dtype() == i32))
      made.push_back(t);
  }
  const int evaluated = 1 + dice(2);
  const int trained = dice(3);
  for (int i = 0; i < 4; ++i) {
    const Tensor& t = made[static_cast<size_t>(dice(static_cast<int>(made.size())))];
    if (i < (training() ? trained : evaluated)) predictions.push_back({fmt::format("p{}", i), t});
  }
  for (const Tensor& t : shown_)
    predictions.push_back({fmt::format("row{}", predictions.size()), t});
  record.census.losses = static_cast<int>(losses_.size());
  record.census.predictions = static_cast<int>(predictions.size());
  return {.losses = training() ? losses_ : std::vector<Loss>(),
          .predictions = std::move(predictions)};
}

}  // namespace sluice::property
