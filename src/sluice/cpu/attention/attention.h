#pragma once
#include <cstdint>

#include "sluice/base/rng.h"
#include "sluice/ops/attention_shape.h"

/// Attention in f32. A block of queries has all its scores in the workspace, so that memory is
/// linear in the length.
namespace sluice::cpu {

/// The work that a call of attention_forward() or attention_backward() is a part of.
struct AttentionJob {
  explicit AttentionJob(const OpView& op);

  ops::AttentionOpOptions options;
  ops::AttentionShape shape;
  int64_t max_rows = 0;    ///< Queries of a block.
  int64_t score_cols = 0;  ///< Keys of a row of scores; a multiple of a panel's columns.
  /// Floats of the parts of the workspace.
  int64_t key_panels = 0;    ///< kᵀ.
  int64_t value_panels = 0;  ///< v, or vᵀ backward.
  int64_t extra_panels = 0;  ///< k, backward.
  int64_t scores = 0;        ///< A block of queries.
  int64_t query_panels = 0;  ///< q of a block, and then its gradient, backward.
  bool backward = false;

  int64_t workspace_bytes() const;
};

struct AttentionArrays {
  const float* grad = nullptr;
  const float* q = nullptr;
  const float* k = nullptr;
  const float* v = nullptr;
  const std::byte* mask = nullptr;
  bool mask_adds = false;  ///< The mask has floats, not bools.
  int64_t position = 0;
  Seed seed = {};
  float* y = nullptr;
  float *top = nullptr, *total = nullptr;  ///< Results of the forward pass.
  float *dq = nullptr, *dk = nullptr, *dv = nullptr;
  float* workspace = nullptr;
};

/// Computes the results of the queries that share one head of k, in one batch.
void attention_forward(const AttentionJob& job, const AttentionArrays& arrays, int64_t batch,
                       int64_t kv_head);
/// Computes the gradients of a head of k and v, and of the queries that share it, in one batch.
void attention_backward(const AttentionJob& job, const AttentionArrays& arrays, int64_t batch,
                        int64_t kv_head);

}  // namespace sluice::cpu
