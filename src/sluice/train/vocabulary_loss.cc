#include <algorithm>

#include "sluice/base/checked.h"
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

VocabularySizes sizes_of(const Tensor& x, const Tensor& weight, const Tensor& labels,
                         const VocabularyLossOptions& o) {
  require(x.dtype() == f32 && x.rank() >= 2,
          "vocabulary_cross_entropy: x must be float32 of shape (..., width), got '{}' {}",
          x.name(), to_string(x.spec()));
  const int64_t width = x.dim(-1);
  require(weight.dtype() == f32 && weight.rank() == 2 && weight.dim(o.transposed ? 1 : 0) == width,
          "vocabulary_cross_entropy: weight must be float32 of shape {} with the width of x, {}, "
          "got '{}' {}",
          o.transposed ? "(vocabulary, width)" : "(width, vocabulary)", width, weight.name(),
          to_string(weight.spec()));
  const Shape rows(std::vector<int64_t>(x.shape().begin(), x.shape().end() - 1));
  require((labels.dtype() == i32 || labels.dtype() == u32) && labels.shape() == rows,
          "vocabulary_cross_entropy: labels must be int32 or uint32 of shape {}, got '{}' {}",
          to_string(rows), labels.name(), to_string(labels.spec()));
  require(o.chunk_rows >= 0 && o.chunk_rows % kChunkMultiple == 0,
          "vocabulary_cross_entropy: chunk_rows must be a multiple of {} or 0, got {}",
          kChunkMultiple, o.chunk_rows);
  return {rows.elements(), width, weight.dim(o.transposed ? 0 : 1)};
}

// Returns the rows of a chunk (VocabularyLossOptions::chunk_rows).
int64_t rows_of_chunk(const VocabularySizes& s, int64_t requested) {
  if (requested > 0) return requested;
  const int64_t max = std::max(kMinChunk, round_up(s.width, kChunkMultiple));
  if (s.rows <= 2 * max || s.vocabulary <= kMaxLogitsOfOneChunk / s.rows) return s.rows;
  for (int64_t chunk = max; 2 * chunk > max; chunk -= kChunkMultiple) {
    if (s.rows % chunk == 0) return chunk;
  }
  return max;
}

// The losses of some rows and the gradient of the rows.
struct ChunkResults {
  Tensor losses;
  Tensor dx;
};

class ChunkedLoss {
 public:
  // `factor`: gradient of the result by the loss of a row.
  ChunkedLoss(const VocabularyLossOptions& options, double factor)
      : transposed_(options.transposed),
        gradient_{.reduction = ops::LossReduction::kNone,
                  .has_ignore_index = options.ignore_index.has_value(),
                  .ignore_index = options.ignore_index.value_or(0),
                  .loss_grad = factor} {}

  // Computes the rows x of shape (rows, width) in chunks. Adds the gradient of the weight to
  // `dweight`.
  ChunkResults run(const Tensor& x, const Tensor& weight, const Tensor& labels, int64_t chunk,
                   const Tensor& dweight) const {
    const int64_t rows = x.dim(0), chunks = rows / chunk, whole = chunks * chunk;
    const auto part = [&](const Tensor& t, int64_t begin, int64_t end) {
      return end - begin == rows ? t : ops::slice(t, {begin}, {end});
    };
    std::vector<TensorArg> losses, dx;
    const auto add = [&](const Tensor& of_losses, const Tensor& of_x) {
      losses.emplace_back(of_losses);
      dx.emplace_back(of_x);
    };
    if (chunks == 1) {
      const ChunkResults r = compute(part(x, 0, whole), weight, part(labels, 0, whole), dweight);
      add(r.losses, r.dx);
    } else if (chunks > 1) {
      const Tensors r = loop(ops::reshape(part(x, 0, whole), {chunks, chunk, x.dim(1)}), weight,
                             ops::reshape(part(labels, 0, whole), {chunks, chunk}), dweight);
      add(ops::reshape(r[0], {whole}), ops::reshape(r[1], {whole, x.dim(1)}));
    }
    if (whole < rows) {
      const ChunkResults r =
          compute(part(x, whole, rows), weight, part(labels, whole, rows), dweight);
      add(r.losses, r.dx);
    }
    if (losses.size() == 1) return {losses[0].tensor, dx[0].tensor};
    return {ops::concat(losses), ops::concat(dx)};
  }

 private:
  ChunkResults compute(const Tensor& x, const Tensor& weight, const Tensor& labels,
                       const Tensor& dweight) const {
    const Tensor logits = ops::matmul(x, weight, {.rhs_transposed = transposed_});
    const auto [losses, dlogits] = ops::cross_entropy_with_grad(logits, labels, gradient_);
    if (transposed_) {
      ops::matmul_accumulate_(dweight, dlogits, x, {.lhs_transposed = true});
    } else {
      ops::matmul_accumulate_(dweight, x, dlogits, {.lhs_transposed = true});
    }
    return {losses, ops::matmul(dlogits, weight, {.rhs_transposed = !transposed_})};
  }

  // Returns the losses (chunks, rows) and the gradient of x (chunks, rows, width).
  Tensors loop(const Tensor& x, const Tensor& weight, const Tensor& labels,
               const Tensor& dweight) const {
    Graph& graph = x.graph();
    Graph& body = graph.ir().create_empty_graph("vocabulary_loss");
    const Tensor rows = body.input({{x.dim(1), x.dim(2)}, x.dtype(), {}}, "x");
    const Tensor of_rows = body.input({{x.dim(1)}, labels.dtype(), {}}, "labels");
    const Tensor w = body.input(weight.spec(), "weight");
    const Tensor dw = body.input(dweight.spec(), "weight_gradient", Pass::kByReference);
    const ChunkResults r = compute(rows, w, of_rows, dw);
    body.set_outputs({r.losses, r.dx});
    return ops::scan(graph, body, {}, {x, labels}, {{w, weight}, {dw, dweight}}).rows;
  }

  bool transposed_;
  ops::NllSoftmaxGradOptions gradient_;
};

// The number of labels that are not ignored.
Tensor counted_labels(const Tensor& labels, int64_t ignored) {
  if (!can_store(labels.dtype(), static_cast<double>(ignored))) {
    const auto count = static_cast<double>(labels.shape().elements());
    return labels.graph().scalar(count, f32, "samples");
  }
  return ops::sum(ops::cast(ops::not_equal(labels, static_cast<double>(ignored)), f32));
}

}  // namespace

Loss vocabulary_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& labels,
                              const VocabularyLossOptions& o) {
  const VocabularySizes s = sizes_of(x, weight, labels, o);
  const int64_t chunk = rows_of_chunk(s, o.chunk_rows);
  const Tensor flat_labels = ops::reshape(labels, {s.rows});
  if (chunk >= s.rows) {
    const Tensor logits = ops::reshape(ops::matmul(x, weight, {.rhs_transposed = o.transposed}),
                                       {s.rows, s.vocabulary});
    if (!o.ignore_index) return cross_entropy(logits, flat_labels, o.name, o.weight);
    const nn::CrossEntropyOptions ignoring{.ignore_index = *o.ignore_index};
    return cross_entropy(logits, flat_labels, ignoring, o.name, o.weight);
  }
  // The kernel of the whole loss divides in float32.
  const double factor =
      o.ignore_index ? o.weight : static_cast<float>(o.weight) / static_cast<float>(s.rows);
  const Tensor dweight = ops::init(x.graph(), {weight.shape(), f32, {}}, ops::InitType::kZero,
                                   weight.name() + "_gradient");
  const ChunkResults r = ChunkedLoss(o, factor).run(ops::reshape(x, {s.rows, s.width}), weight,
                                                    flat_labels, chunk, dweight);
  const ops::NllTotalOptions total{
      .reduction = o.ignore_index ? ops::LossReduction::kSum : ops::LossReduction::kMean,
      .has_ignore_index = o.ignore_index.has_value(),
      .ignore_index = o.ignore_index.value_or(0)};
  Loss loss{.name = o.name,
            .value = ops::emit_one(ops::nll_total_def(), {r.losses, flat_labels}, total),
            .weight = o.weight,
            .gradients = {{x, ops::reshape(r.dx, x.shape())}, {ops::identity(weight), dweight}}};
  if (o.ignore_index) loss.total_weight = counted_labels(flat_labels, *o.ignore_index);
  return loss;
}

}  // namespace sluice::train
