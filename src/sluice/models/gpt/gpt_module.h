#pragma once
#include <cstdint>
#include <vector>

#include "sluice/models/gpt.h"
#include "sluice/nn/layers.h"

/// The module of gpt(), which generation builds with a cache.
namespace sluice::models::internal {

/// The keys and values of a block: tensors (cache rows, kv_heads · elements of a head).
struct KvCache {
  Tensor keys;
  Tensor values;
};

/// The rows that a step of generation computes: n successive positions of one sample. n divides the
/// cache rows, and the first position is a multiple of n.
struct CachedRows {
  Tensor step;                  ///< The first position / n: an int32 scalar.
  Tensor first;                 ///< The first position: an int32 scalar.
  Tensor angles = {};           ///< Rows of ops::rotary_table() of the positions, for Llama.
  std::vector<KvCache> caches;  ///< One for each block. The step writes its rows of them.
};

class SelfAttention : public nn::Module {
 public:
  explicit SelfAttention(const GptSizes& s) : s_(s) {}
  /// x is (samples, rows, width). With `cache`, the rows of x follow those in the cache.
  Tensor build(nn::Builder& b, const Tensor& x, const CachedRows* rows = nullptr,
               const KvCache* cache = nullptr) const;

 private:
  /// Returns t (samples, rows, heads · size) as (samples, heads, rows, size).
  Tensor in_heads(const Tensor& t, int64_t heads) const;
  /// The inverse of in_heads().
  Tensor merged(const Tensor& t) const;
  Tensor attend_to_cache(const Tensor& q, const Tensor& k, const Tensor& v, const CachedRows& rows,
                         const KvCache& cache) const;

  GptSizes s_;
};

class TransformerBlock : public nn::Module {
 public:
  explicit TransformerBlock(const GptSizes& s) : s_(s) {}
  Tensor build(nn::Builder& b, Tensor x, const CachedRows* rows = nullptr,
               const KvCache* cache = nullptr) const;

 private:
  GptSizes s_;
};

/// The network of gpt(). `s` has been completed.
class Gpt : public nn::Module {
 public:
  explicit Gpt(const GptSizes& s);
  train::Results build(nn::Builder& b, const train::Inputs& in) const;

  /// Returns the results of the last block (1, n, width) for tokens (1, n), and writes the caches.
  Tensor build_cached(nn::Builder& b, const Tensor& tokens, CachedRows rows) const;
  /// Returns the logits of the results (…, width) of the last block.
  Tensor logits(nn::Builder& b, const Tensor& x) const;

 private:
  /// The operands of the logits, and how they are multiplied.
  struct Head {
    Tensor rows;
    Tensor weight;
    train::VocabularyLossOptions options;
  };
  Head head(nn::Builder& b, const Tensor& x) const;
  train::Results logit_results(nn::Builder& b, const train::Inputs& in, const Tensor& logits) const;
  Tensor embedded(nn::Builder& b, const Tensor& tokens, const Tensor& positions) const;

  GptSizes s_;
  nn::Children<TransformerBlock> blocks_;
};

}  // namespace sluice::models::internal
