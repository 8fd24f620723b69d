#pragma once
#include "sluice/ops/op.h"

namespace sluice::ops {

struct SortOptions {
  int64_t axis = -1;
  bool descending = false;
  static auto fields(auto&& use) {
    return use(
        field("axis", &SortOptions::axis, "Axis to sort along; negative counts from the end."),
        field("descending", &SortOptions::descending, "Largest elements first."));
  }
};

const OpDef& sort_def();

/// The elements of a tensor in an order, and their positions (int32) in the tensor before.
struct Sorted {
  Tensor values;
  Tensor indices;
};

/// Sorts the elements along an axis. The sort is stable. NaN is larger than every number, as in
/// numpy and PyTorch. A scalar has one axis.
Sorted sort(TensorArg t, const SortOptions& options = {});
/// The positions of the elements in sorted order, as numpy.argsort.
Tensor argsort(TensorArg t, const SortOptions& options = {});
/// The k largest elements along an axis, largest first, as torch.topk; or the k smallest. Of equal
/// elements, the first ones are taken. Error{kUsage} unless the axis has k elements.
Sorted topk(TensorArg t, int64_t k, int64_t axis = -1, bool largest = true);
/// The middle element along an axis in the order of sort(), the lower one of two.
/// Error{kUsage} if the axis has no element.
Sorted median(TensorArg t, int64_t axis = -1);

}  // namespace sluice::ops
