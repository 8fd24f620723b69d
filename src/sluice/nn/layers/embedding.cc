#include "sluice/nn/layers.h"
#include "sluice/ops/basic.h"
#include "sluice/ops/compare.h"
#include "sluice/ops/gather.h"
#include "sluice/ops/rules.h"

namespace sluice::nn {

Embedding::Embedding(int64_t rows, int64_t width, EmbeddingOptions options)
    : rows_(rows), width_(width), options_(options) {
  require(rows >= 1 && width >= 1, "Embedding: rows and width must be at least 1, got {} and {}",
          rows, width);
  if (!options_.padding_index) return;
  int64_t& padding = *options_.padding_index;
  require(padding >= -rows && padding < rows,
          "Embedding: padding_index must be in [{}, {}), got {}", -rows, rows, padding);
  if (padding < 0) padding += rows;
}

Tensor Embedding::build(Builder& b, Tensor indices) const {
  ops::require_index(indices.spec(), "Embedding: indices");
  const std::optional<int64_t>& padding = options_.padding_index;
  Initializer first = normal(0, 1);
  if (padding) first = first.zeroed(*padding * width_, (*padding + 1) * width_);
  const Tensor table =
      b.add_variable_input("weight", std::move(first), {rows_, width_}, options_.dtype);
  const Tensor y = ops::gather(table, indices);
  if (!padding || b.mode() == RunMode::kEvaluate) return y;
  const Tensor is_padding = ops::equal(indices, static_cast<double>(*padding));
  return ops::where(ops::unsqueeze(is_padding, -1), ops::detach(y), y);
}

std::string Embedding::cache_key() const {
  return fmt::format("{} {} {} {}", rows_, width_, options_.padding_index.value_or(-1),
                     name_of(options_.dtype));
}

}  // namespace sluice::nn
