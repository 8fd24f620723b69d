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

/// `t`, reshaped if it has another shape.
Tensor in_shape(const Tensor& t, const Shape& shape);

/// Forward values as tensors of the gradient graph: inputs for those that must cross, views of such
/// inputs, and copies of constants. The forward graph is left as it is until finish(), except for
/// ops at its end.
class KeptValues {
 public:
  KeptValues(Graph& forward, Graph& gradient);

  /// The value that `handle` shows at a version of its storage. `reader` is the forward op whose
  /// gradient needs it.
  Tensor get(TensorId handle, int64_t version, const Op& reader);

  using Function = std::function<Tensor(const Tensors& inputs, const Tensors& outputs)>;
  /// The result of `f` on the operands of a forward op, computed in the forward graph next to it.
  Tensor compute(const Op& op, const Function& f);

  struct Kept {
    Tensor forward;  ///< An input or output of the forward graph.
    Tensor input;    ///< Its place in the gradient graph.
  };
  /// Drops what the gradient graph does not use (now that its dead ops are gone), appends the rest
  /// to the outputs of the forward graph, and returns it by name. Error{kUsage} if a value was
  /// overwritten.
  std::vector<Kept> finish();

 private:
  struct Link {
    TensorId handle;  ///< Of the forward graph.
    Tensor input;
    OpId overwriter;  ///< -1 if the value is still there when the forward graph ends.
    bool needs_copy;  ///< The handle alone would mean another value.
    std::string reader;
  };

  bool is_kept_free(TensorId handle, int64_t version) const;
  bool is_available(TensorId handle, int64_t version) const;
  /// The out-of-place view that made a handle's value, null if it must be kept itself.
  const Op* view_behind(TensorId handle, int64_t version) const;
  TensorId canonical(TensorId handle, int64_t version) const;
  Tensor link(TensorId handle, int64_t version, const Op& reader);
  Tensor view_from_root(TensorId handle, const Tensor& root, int64_t version, const Op& reader);
  TensorId equivalent(TensorId made, const Op& anchor) const;
  bool same_value(const std::pair<TensorId, int64_t>& a,
                  const std::pair<TensorId, int64_t>& b) const;
  TensorId final_copy(TensorId handle);
  std::string overwritten(const Link& link) const;

  Graph& forward_;
  Graph& gradient_;
  OpId first_op_;
  TensorId first_tensor_;
  std::unordered_set<TensorId> outputs_;  ///< The original ones.
  std::vector<Link> links_;
  std::map<std::pair<TensorId, int64_t>, Tensor> known_;
  std::map<std::pair<TensorId, int64_t>, size_t> link_of_;
  std::vector<GraphEditor::Placement> inserted_;
};

}  // namespace sluice::transforms
