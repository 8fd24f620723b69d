#include <algorithm>
#include <cmath>

#include "sluice/base/checked.h"
#include "sluice/base/numbers/number_text.h"
#include "sluice/nn/update/optimizers.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/cast.h"
#include "sluice/ops/extended.h"
#include "sluice/ops/reductions.h"
#include "sluice/ops/reshape.h"
#include "sluice/ops/slice.h"

namespace sluice::nn {

// Empty chunks are omitted. Members of the group exchange the sums of shards.
Tensors squares_of_chunks(const Tensor& t, const ops::Group& group) {
  const Tensor flat = ops::flatten(ops::cast(t, f32));
  const int replicas = t.graph().ir().fix_replication("a norm");
  const int count = group ? group->size() : replicas;
  const bool shard = !t.meta_shape().empty();
  const int64_t elements = shard ? t.meta_shape().elements() : t.elements();
  const int64_t size = ceil_div(elements, count);
  require(!shard || t.elements() == size,
          "norm: '{}', a shard of {} over {} replicas, must have {} elements, got {}", t.name(),
          to_string(t.meta_shape()), count, size, t.elements());
  if (count == 1) return {ops::sumsquare_extended(flat)};
  Tensors result;
  Tensor shares;
  if (shard)
    shares =
        ops::replicated_all_gather(ops::sumsquare_extended(flat), 0, group, ops::Gather::kNewAxis);
  for (int64_t begin = 0; begin < elements; begin += size) {
    const auto chunk = static_cast<int64_t>(result.size());
    result.push_back(shard ? ops::reshape(ops::slice(shares, {chunk}, {chunk + 1}), {})
                           : ops::sumsquare_extended(
                                 ops::slice(flat, {begin}, {std::min(begin + size, elements)})));
  }
  return result.empty() ? Tensors{ops::sumsquare_extended(flat)} : result;
}

namespace {

class ChunkSquares : public Module {
 public:
  explicit ChunkSquares(const ops::Group& group) : group_(group) {}
  Tensors build(Builder&, Tensor t) const { return squares_of_chunks(t, group_); }
  std::string cache_key() const { return group_ ? to_string(*group_) : "all"; }

 private:
  ops::Group group_;
};

}  // namespace

Tensor squared_norm(const Tensor& t, const ops::Group& group) {
  const Tensors squares = squares_of_chunks(t, group);
  Tensor total = squares[0];
  for (size_t chunk = 1; chunk < squares.size(); ++chunk)
    total = ops::add_extended(total, squares[chunk]);
  return total;
}

Tensors squares_of_chunks(const Tensor& t, GraphCache& cache, const ops::Group& group) {
  return cache.create_graph(t.graph().ir(), ChunkSquares(group), t).second.call(t);
}

Tensor global_norm(const Tensors& tensors, GraphCache& cache,
                   const std::vector<ops::Group>& groups) {
  require(!tensors.empty(), "global_norm: requires at least one tensor, got none");
  SLUICE_CHECK(groups.empty() || groups.size() == tensors.size());
  std::vector<Tensors> squares;
  for (size_t i = 0; i < tensors.size(); ++i)
    squares.push_back(
        squares_of_chunks(tensors[i], cache, groups.empty() ? std::nullopt : groups[i]));
  return norm_of_chunks(squares);
}

Tensor norm_of_chunks(const std::vector<Tensors>& squares) {
  size_t max = 0;
  for (const Tensors& s : squares) max = std::max(max, s.size());
  Tensor total;
  for (size_t chunk = 0; chunk < max; ++chunk) {
    for (const Tensors& s : squares) {
      if (chunk < s.size()) total = total.valid() ? ops::add_extended(total, s[chunk]) : s[chunk];
    }
  }
  return ops::sqrt_extended(total);
}

Tensor clip_factor(const Tensor& norm, double max_norm) {
  const auto max = static_cast<float>(max_norm);
  require(max > 0 && std::isfinite(max),
          "clip_factor: the largest norm must be a float32 above 0, got {}", number_text(max_norm));
  return max_norm / ops::maximum(norm, ops::scalar_like(norm, max_norm));
}

}  // namespace sluice::nn
