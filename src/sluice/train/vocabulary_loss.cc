#include <algorithm>
#include <functional>

#include "sluice/base/checked.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/basic.h"
#include "sluice/ops/cast.h"
#include "sluice/ops/compare.h"
#include "sluice/ops/concat.h"
#include "sluice/ops/losses.h"
#include "sluice/ops/matmul.h"
#include "sluice/ops/reductions.h"
#include "sluice/ops/reshape.h"
#include "sluice/ops/slice.h"
#include "sluice/train/network.h"
#include "sluice/transforms/loops/loops.h"

namespace sluice::train {
namespace {

constexpr int64_t kChunkMultiple = 32;
// Each chunk reads the weight twice, and reads and writes its gradient.
constexpr int64_t kMinChunk = 512;
// Maximum number of elements of logits that are one chunk: 16 MiB.
constexpr int64_t kMaxLogitsOfOneChunk = int64_t{1} << 22;

struct VocabularySizes {
  int64_t rows = 0;
  int64_t width = 0;
  int64_t vocabulary = 0;
};

VocabularySizes sizes_of(const char* caller, const Tensor& x, const Tensor& weight,
                         const Tensor& labels, const VocabularyLossOptions& o) {
  require(x.dtype() == f32 && x.rank() >= 2,
          "{}: x must be float32 of shape (..., width), got '{}' {}", caller, x.name(),
          to_string(x.spec()));
  const int64_t width = x.dim(-1);
  require(weight.dtype() == f32 && weight.rank() == 2 && weight.dim(o.transposed ? 1 : 0) == width,
          "{}: weight must be float32 of shape {} with the width of x, {}, "
          "got '{}' {}",
          caller, o.transposed ? "(vocabulary, width)" : "(width, vocabulary)", width,
          weight.name(), to_string(weight.spec()));
  const Shape rows(std::vector<int64_t>(x.shape().begin(), x.shape().end() - 1));
  require((labels.dtype() == i32 || labels.dtype() == u32) && labels.shape() == rows,
          "{}: labels must be int32 or uint32 of shape {}, got '{}' {}", caller, to_string(rows),
          labels.name(), to_string(labels.spec()));
  require(o.chunk_rows >= 0 && o.chunk_rows % kChunkMultiple == 0,
          "{}: chunk_rows must be a multiple of {} or 0, got {}", caller, kChunkMultiple,
          o.chunk_rows);
  const VocabularySizes sizes{rows.elements(), width, weight.dim(o.transposed ? 0 : 1)};
  const TensorSpec bias{{sizes.vocabulary}, f32, {}};
  if (o.bias.valid()) {
    require(o.bias.spec() == bias, "{}: bias must be {}, got '{}' {}", caller, to_string(bias),
            o.bias.name(), to_string(o.bias.spec()));
  }
  return sizes;
}

// Returns the largest multiple of 32 in (max/2, max] that divides the rows, or `max`.
int64_t even_chunk(int64_t rows, int64_t max) {
  for (int64_t chunk = max; 2 * chunk > max; chunk -= kChunkMultiple) {
    if (rows % chunk == 0) return chunk;
  }
  return max;
}

// Returns the rows of a chunk (VocabularyLossOptions::chunk_rows).
int64_t rows_of_chunk(const VocabularySizes& s, int64_t requested) {
  if (requested > 0) return requested;
  const int64_t max = std::max(kMinChunk, round_up(s.width, kChunkMultiple));
  if (s.rows <= 2 * max || s.vocabulary <= kMaxLogitsOfOneChunk / s.rows) return s.rows;
  return even_chunk(s.rows, max);
}

// Returns the rows of a chunk of predictions, which have no gradients.
int64_t rows_of_predictions(const VocabularySizes& s, int64_t requested) {
  if (requested > 0) return requested;
  if (s.rows == 0 || s.vocabulary <= kMaxLogitsOfOneChunk / s.rows) return s.rows;
  const int64_t max = std::max(
      kMaxLogitsOfOneChunk / s.vocabulary / kChunkMultiple * kChunkMultiple, kChunkMultiple);
  return even_chunk(s.rows, max);
}

// A tensor that all chunks use.
struct Shared {
  Tensor tensor;
  Pass pass = Pass::kByValue;  // By reference if chunks write it.
};

// Computes results of rows x (rows, width) with their labels; the results have the rows as first
// axis. The last operand has the shared tensors.
using ChunkResults = std::function<Tensors(const Tensor&, const Tensor&, const Tensors&)>;

// Computes results of x (chunks, rows, width) in a loop over the chunks.
Tensors scan_chunks(const Tensor& x, const Tensor& labels, const std::vector<Shared>& shared,
                    const ChunkResults& compute) {
  Graph& graph = x.graph();
  Graph& body = graph.ir().create_empty_graph("vocabulary_loss");
  const Tensor rows = body.input({{x.dim(1), x.dim(2)}, x.dtype(), {}}, "x");
  const Tensor of_rows = body.input({{x.dim(1)}, labels.dtype(), {}}, "labels");
  Tensors inputs;
  TensorMap named;
  for (const auto& [t, pass] : shared) {
    inputs.push_back(body.input(t.spec(), t.name(), pass));
    named.emplace_back(inputs.back(), t);
  }
  body.set_outputs(compute(rows, of_rows, inputs));
  Tensors results = ops::scan(graph, body, {}, {x, labels}, named).rows;
  for (Tensor& t : results) {
    std::vector<int64_t> dims(t.shape().begin() + 1, t.shape().end());
    dims[0] *= x.dim(0);
    t = ops::reshape(t, Shape(std::move(dims)));
  }
  return results;
}

// Computes results of x (rows, width) in chunks of rows.
Tensors in_chunks(const Tensor& x, const Tensor& labels, int64_t chunk,
                  const std::vector<Shared>& shared, const ChunkResults& compute) {
  Tensors tensors;
  for (const Shared& s : shared) tensors.push_back(s.tensor);
  const int64_t rows = x.dim(0);
  if (chunk >= rows) return compute(x, labels, tensors);
  const int64_t chunks = rows / chunk, whole = chunks * chunk;
  const auto part = [&](const Tensor& t, int64_t begin, int64_t end) {
    return end - begin == rows ? t : ops::slice(t, {begin}, {end});
  };
  std::vector<Tensors> parts;
  if (chunks == 1) parts.push_back(compute(part(x, 0, whole), part(labels, 0, whole), tensors));
  if (chunks > 1) {
    parts.push_back(scan_chunks(ops::reshape(part(x, 0, whole), {chunks, chunk, x.dim(1)}),
                                ops::reshape(part(labels, 0, whole), {chunks, chunk}), shared,
                                compute));
  }
  if (whole < rows)
    parts.push_back(compute(part(x, whole, rows), part(labels, whole, rows), tensors));
  if (parts.size() == 1) return parts[0];
  Tensors joined;
  for (size_t i = 0; i < parts[0].size(); ++i)
    joined.push_back(ops::concat({parts[0][i], parts[1][i]}));
  return joined;
}

// Ones (1, rows) for a tensor of rows, whose product with it is the sum of the rows in their order.
Tensor ones(const Tensor& rows) {
  return ops::init(rows.graph(), {{1, rows.dim(0)}, f32, {}}, 1.0);
}

ops::NllTotalOptions total_options(const VocabularyLossOptions& o) {
  return {.reduction = o.ignore_index ? ops::LossReduction::kSum : ops::LossReduction::kMean,
          .has_ignore_index = o.ignore_index.has_value(),
          .ignore_index = o.ignore_index.value_or(0)};
}

// The number of labels that are not ignored.
Tensor counted_labels(const Tensor& labels, int64_t ignored) {
  if (!can_store(labels.dtype(), static_cast<double>(ignored))) {
    const auto count = static_cast<double>(labels.shape().elements());
    return labels.graph().scalar(count, f32, "samples");
  }
  return ops::sum(ops::cast(ops::not_equal(labels, static_cast<double>(ignored)), f32));
}

// The loss of all logits at once.
Loss whole_loss(const Tensor& x, const Tensor& weight, const Tensor& labels,
                const VocabularySizes& s, const VocabularyLossOptions& o) {
  const Tensor product = ops::reshape(ops::matmul(x, weight, {.rhs_transposed = o.transposed}),
                                      {s.rows, s.vocabulary});
  const Tensor logits = o.bias.valid() ? product + o.bias : product;
  Loss loss =
      o.ignore_index
          ? cross_entropy(logits, labels, nn::CrossEntropyOptions{.ignore_index = *o.ignore_index},
                          o.name, o.weight)
          : cross_entropy(logits, labels, o.name, o.weight);
  if (!o.bias.valid()) return loss;
  const Tensor gradient = loss.gradients.at(0).second;
  loss.gradients = {
      {product, gradient},
      {ops::identity(o.bias), ops::reshape(ops::matmul(ones(gradient), gradient), o.bias.shape())}};
  return loss;
}

}  // namespace

Loss vocabulary_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& labels,
                              const VocabularyLossOptions& o) {
  const VocabularySizes s = sizes_of("vocabulary_cross_entropy", x, weight, labels, o);
  const int64_t chunk = rows_of_chunk(s, o.chunk_rows);
  const Tensor flat_labels = ops::reshape(labels, {s.rows});
  if (chunk >= s.rows) return whole_loss(x, weight, flat_labels, s, o);
  // The kernel of the whole loss divides in float32.
  const double factor =
      o.ignore_index ? o.weight : static_cast<float>(o.weight) / static_cast<float>(s.rows);
  const ops::NllSoftmaxGradOptions gradient{.reduction = ops::LossReduction::kNone,
                                            .has_ignore_index = o.ignore_index.has_value(),
                                            .ignore_index = o.ignore_index.value_or(0),
                                            .loss_grad = factor};
  const auto compute = [&](const Tensor& rows, const Tensor& of_rows, const Tensors& shared) {
    const Tensor &w = shared[0], &dw = shared[1];
    Tensor logits = ops::matmul(rows, w, {.rhs_transposed = o.transposed});
    if (o.bias.valid()) logits = logits + shared[2];
    const auto [losses, dlogits] = ops::cross_entropy_with_grad(logits, of_rows, gradient);
    if (o.transposed) {
      ops::matmul_accumulate_(dw, dlogits, rows, {.lhs_transposed = true});
    } else {
      ops::matmul_accumulate_(dw, rows, dlogits, {.lhs_transposed = true});
    }
    if (o.bias.valid()) ops::matmul_accumulate_(shared[3], ones(rows), dlogits);
    return Tensors{losses, ops::matmul(dlogits, w, {.rhs_transposed = !o.transposed})};
  };
  const auto zeros = [&](const Shape& shape, const Tensor& t) {
    return ops::init(x.graph(), {shape, f32, {}}, ops::InitType::kZero, t.name() + "_gradient");
  };
  const Tensor dweight = zeros(weight.shape(), weight);
  std::vector<Shared> shared{{weight}, {dweight, Pass::kByReference}};
  if (o.bias.valid()) {
    shared.push_back({o.bias});
    shared.push_back({zeros({1, s.vocabulary}, o.bias), Pass::kByReference});
  }
  const Tensors results =
      in_chunks(ops::reshape(x, {s.rows, s.width}), flat_labels, chunk, shared, compute);
  Loss loss{
      .name = o.name,
      .value = ops::emit_one(ops::nll_total_def(), {results[0], flat_labels}, total_options(o)),
      .weight = o.weight,
      .gradients = {{x, ops::reshape(results[1], x.shape())}, {ops::identity(weight), dweight}},
      .mean_cross_entropy = true};
  if (o.bias.valid()) {
    loss.gradients.emplace_back(ops::identity(o.bias),
                                ops::reshape(shared[3].tensor, o.bias.shape()));
  }
  if (o.ignore_index) loss.total_weight = counted_labels(flat_labels, *o.ignore_index);
  return loss;
}

VocabularyPredictions vocabulary_predictions(const Tensor& x, const Tensor& weight,
                                             const Tensor& labels, const VocabularyLossOptions& o) {
  const VocabularySizes s = sizes_of("vocabulary_predictions", x, weight, labels, o);
  const int64_t chunk = rows_of_predictions(s, o.chunk_rows);
  const auto compute = [&](const Tensor& rows, const Tensor& of_rows, const Tensors& shared) {
    Tensor logits = ops::matmul(rows, shared[0], {.rhs_transposed = o.transposed});
    if (o.bias.valid()) logits = logits + shared[1];
    const ops::NllLossOptions options{.reduction = ops::LossReduction::kNone,
                                      .has_ignore_index = o.ignore_index.has_value(),
                                      .ignore_index = o.ignore_index.value_or(0)};
    return Tensors{ops::nll_loss(ops::softmax(logits), of_rows, options),
                   ops::argmax(logits, {.axis = 1})};
  };
  std::vector<Shared> shared{{weight}};
  if (o.bias.valid()) shared.push_back({o.bias});
  const Tensor of_rows = ops::reshape(labels, {s.rows});
  const Tensors results =
      in_chunks(ops::reshape(x, {s.rows, s.width}), of_rows, chunk, shared, compute);
  VocabularyPredictions p{.losses = ops::reshape(results[0], labels.shape()),
                          .classes = ops::reshape(results[1], labels.shape())};
  p.loss = {.name = o.name,
            .value = ops::emit_one(ops::nll_total_def(),
                                   {ops::reshape(p.losses, {s.rows}), of_rows}, total_options(o)),
            .weight = o.weight,
            .mean_cross_entropy = true};
  if (o.ignore_index) p.loss.total_weight = counted_labels(of_rows, *o.ignore_index);
  return p;
}

}  // namespace sluice::train
