#pragma once
#include <functional>
#include <map>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "sluice/ir/graph_editor.h"
#include "sluice/transforms/values.h"

namespace sluice::transforms {

/// Returns `t`, reshaped if its shape is not `shape`.
Tensor in_shape(const Tensor& t, const Shape& shape);

/// Makes forward values available in the gradient graph: as its inputs, as views of its inputs, or
/// as copies of constants. Until finish(), the forward graph changes only by ops appended at its
/// end.
class KeptValues {
 public:
  KeptValues(Graph& forward, Graph& gradient);

  /// Returns the value that `handle` has at a version of its storage. `reader` is the forward op
  /// whose gradient needs it.
  Tensor get(TensorId handle, Version version, const Op& reader);

  using Function = std::function<Tensor(const Tensors& inputs, const Tensors& outputs)>;
  /// Returns the result of `f` on the operands of a forward op. It is computed in the forward
  /// graph, next to that op.
  Tensor compute(const Op& op, const Function& f);

  struct Kept {
    Tensor forward;  ///< An input or output of the forward graph; see Keep.
    Tensor input;    ///< The input of the gradient graph that receives it.
  };
  enum class Keep {
    kOutputs,  ///< Append the values to the outputs of the forward graph.
    kInside,   ///< Leave them inside; they are tensors of the forward graph.
  };
  /// Removes values that the gradient graph does not use; call it after dead ops are removed from
  /// that graph. Keeps the other values and returns them sorted by name. Error{kUsage} if a value
  /// was overwritten.
  std::vector<Kept> finish(Keep keep);

 private:
  struct Link {
    TensorId handle;  ///< Tensor of the forward graph.
    Tensor input;
    OpId overwriter;  ///< -1 if the forward graph still holds the value at its end.
    bool needs_copy;  ///< Whether the handle is an input that would pass another value, so that a
                      ///< copy is kept.
    std::string reader;
  };

  bool is_kept_free(TensorId handle, Version version) const;
  bool is_available(TensorId handle, Version version) const;
  /// Returns the out-of-place view that made the value. Returns null if the value itself must be
  /// kept.
  const Op* view_that_made(TensorId handle, Version version) const;
  TensorId canonical(TensorId handle, Version version) const;
  Tensor link(TensorId handle, Version version, const Op& reader);
  Tensor view_from_root(TensorId handle, const Tensor& root, Version version, const Op& reader);
  TensorId equivalent(TensorId made, const Op& anchor) const;
  bool same_value(const std::pair<TensorId, Version>& a,
                  const std::pair<TensorId, Version>& b) const;
  TensorId final_copy(TensorId handle);
  std::string overwritten(const Link& link) const;

  Graph& forward_;
  Graph& gradient_;
  OpId first_op_;
  TensorId first_tensor_;
  std::unordered_set<TensorId> outputs_;  ///< The outputs before differentiation.
  std::vector<Link> links_;
  std::map<std::pair<TensorId, Version>, Tensor> known_;
  std::map<std::pair<TensorId, Version>, size_t> link_of_;
  std::vector<GraphEditor::Placement> inserted_;
};

}  // namespace sluice::transforms
