#pragma once
#include "sluice/ops/op.h"

namespace sluice::ops {

struct ConcatOptions {
  int64_t axis = 0;
  static auto fields(auto&& use) {
    return use(
        field("axis", &ConcatOptions::axis, "Axis to join along; negative counts from the end."));
  }
};

struct SplitOptions {
  std::vector<int64_t> sizes = {};
  int64_t axis = 0;
  static auto fields(auto&& use) {
    return use(required_field("sizes", &SplitOptions::sizes, "Sizes of the parts along the axis."),
               field("axis", &SplitOptions::axis, "Axis to cut; negative counts from the end."));
  }
};

const OpDef& concat_def();
const OpDef& concat_in_place_def();
const OpDef& split_def();

/// Joins one or more tensors along `axis`; all other axes must have equal sizes. Error{kUsage} if
/// `ts` is empty.
Tensor concat(const std::vector<TensorArg>& ts, int64_t axis = 0,
              std::source_location where = std::source_location::current());
/// Joins one or more tensors of equal shapes along a new axis, which is `axis` of the result, as
/// numpy.stack. Error{kUsage} if `ts` is empty.
Tensor stack(const std::vector<TensorArg>& ts, int64_t axis = 0,
             std::source_location where = std::source_location::current());
/// concat as a view: a later write to the view changes the tensors `ts`, and a later write to one
/// of `ts` changes the view.
Tensor concat_(const std::vector<TensorArg>& ts, int64_t axis = 0,
               std::source_location where = std::source_location::current());

/// Repeats t `counts[a]` times along each axis a, as torch.Tensor.repeat and numpy.tile. Counts for
/// axes that t lacks come first. Error{kUsage} for a negative count or fewer counts than axes.
Tensor tile(TensorArg t, const std::vector<int64_t>& counts);

/// Moves the elements along each of `axes` by `shifts[i]` places, the last ones to the front, as
/// numpy.roll. A negative shift moves them to the front. Without axes, shifts has one number, for
/// the elements in row-major order. Error{kUsage} for lists of different lengths or an axis out of
/// range.
Tensor roll(TensorArg t, const std::vector<int64_t>& shifts, const std::vector<int64_t>& axes = {});

/// The elements with which pad() extends an axis.
enum class PadMode {
  kConstant,   ///< One value.
  kReflect,    ///< The elements inside, mirrored at the outermost one: c b | a b c.
  kReplicate,  ///< The outermost element.
  kCircular,   ///< The elements of the other end.
};
constexpr std::string_view words_of(PadMode) { return "constant,reflect,replicate,circular"; }

/// Elements to add before and after an axis. Negative numbers remove elements, before others are
/// added (kConstant, kCircular) or after it.
struct PadWidth {
  int64_t before = 0;
  int64_t after = 0;
};

/// Extends axis a by `widths[a]` elements, as torch.nn.functional.pad and numpy.pad do, one axis
/// after the other. `value` is used by kConstant only. Error{kUsage} unless there is one width for
/// each axis and the axis has enough elements: one more than the width (kReflect), as many
/// (kCircular), or one (kReplicate).
Tensor pad(TensorArg t, const std::vector<PadWidth>& widths, PadMode mode = PadMode::kConstant,
           double value = 0);

/// Cuts t into `parts` equal parts along `axis`. Error{kUsage} unless `parts` divides the size of
/// the axis.
Tensors split(TensorArg t, int64_t parts, int64_t axis = 0);
/// Cuts t along `axis` into parts of the given sizes. Error{kUsage} unless they sum to the size of
/// the axis.
Tensors split(TensorArg t, const std::vector<int64_t>& sizes, int64_t axis = 0);

}  // namespace sluice::ops
