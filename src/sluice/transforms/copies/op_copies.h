#pragma once
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "sluice/ir/ir.h"

namespace sluice::transforms {

/// Copies ops of one graph into another one, in program order.
class OpCopies {
 public:
  /// `capture` returns the tensor of `to` for a tensor of `from` that no copied op makes. It is
  /// called once for each.
  OpCopies(const Graph& from, Graph& to, std::function<Tensor(TensorId)> capture)
      : from_(from), to_(to), capture_(std::move(capture)) {}

  /// Appends a copy of an op, with its device and provenance. It calls `callees`; empty:
  /// the callees of the op. Its effects are numbered among the effects of the copies.
  void copy(const Op& op, std::vector<GraphId> callees = {});
  /// Returns the tensor that represents a tensor of the first graph.
  Tensor operator[](TensorId t);
  void set(TensorId t, const Tensor& copy) { copies_[t] = copy; }

 private:
  const Graph& from_;
  Graph& to_;
  std::function<Tensor(TensorId)> capture_;
  std::map<TensorId, Tensor> copies_;
  std::map<std::pair<Effect::Action, int32_t>, int64_t> effects_;
};

}  // namespace sluice::transforms
