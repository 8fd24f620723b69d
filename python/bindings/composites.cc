#include "python/bindings/composites.h"

#include "python/bindings/arrays.h"
#include "sluice/ops/ops.h"

namespace sluice::python {
namespace {

/// Returns bounds of a slice: none, an integer, or a list of integers and None.
ops::SliceBounds bounds_argument(nb::handle object, std::string_view what) {
  if (object.is_none()) return {};
  ops::SliceBounds bounds;
  if (!nb::hasattr(object, "__len__")) return {ints_argument(object, what)[0]};
  if (!nb::isinstance<nb::sequence>(object)) ints_argument(object, what);  // Raises the error.
  for (const nb::handle bound : object) {
    bounds.emplace_back();
    if (!bound.is_none()) bounds.back() = ints_argument(bound, what)[0];
  }
  return bounds;
}

template <typename F>
Tensor with_bounds(const std::string& name, nb::handle start, nb::handle stop, nb::handle step,
                   const std::optional<Ints>& axes, F&& slice) {
  return slice(bounds_argument(start, name + ": start"), bounds_argument(stop, name + ": stop"),
               bounds_argument(step, name + ": step"), ints_or_empty(axes));
}

/// Returns the graph of the innermost `with graph:` block.
Graph& current_graph() {
  const nb::object graph = nb::module_::import_("sluice._context").attr("current_graph")();
  return nb::cast<GraphHandle&>(graph).get();
}

void bind_reshaping(nb::module_& m) {
  bind_function(
      m, "def reshape(t: Tensor, shape: Ints) -> Tensor",
      "The elements of t in row-major order under another shape. One dimension may be -1; it is "
      "then inferred.",
      +[](Tensor t, Ints shape) { return ops::reshape(t, shape_of(shape)); });
  bind_function(
      m, "def reshape_(t: Tensor, shape: Ints) -> Tensor",
      "reshape as another handle to t's storage: a later write to either is visible through both.",
      +[](Tensor t, Ints shape) { return ops::reshape_(t, shape_of(shape)); });
  bind_function(
      m, "def flatten(t: Tensor, start: int = 0, end: int = -1) -> Tensor",
      "Merges the axes `start` to `end` (inclusive) into one, as torch.flatten; both may count "
      "from the end. A scalar becomes one element.",
      +[](Tensor t, int64_t start, int64_t end) { return ops::flatten(t, start, end); });
  bind_function(
      m, "def flatten_(t: Tensor) -> Tensor", "Another handle to t's storage, with one dimension.",
      +[](Tensor t) { return ops::flatten_(t); });
  bind_function(
      m, "def unsqueeze(t: Tensor, axes: Ints) -> Tensor",
      "Inserts axes of size 1, numbered in the result, as numpy.expand_dims. They may count from "
      "the end of the result.",
      +[](Tensor t, Ints axes) { return ops::unsqueeze(t, axes.values); });
  bind_function(
      m, "def squeeze(t: Tensor, axes: Optional[Ints] = None) -> Tensor",
      "Drops axes of size 1: the given ones, or all.", +[](Tensor t, std::optional<Ints> axes) {
        return axes ? ops::squeeze(t, axes->values) : ops::squeeze(t);
      });
  bind_function(
      m, "def broadcast_to(t: Tensor, shape: Ints) -> Tensor",
      "Broadcasts t to a shape, as numpy.broadcast_to. Returns t itself if it has that shape.",
      +[](Tensor t, Ints shape) { return ops::broadcast_to(t, shape_of(shape)); });
  bind_function(
      m, "def expand(t: Tensor, shape: Ints) -> Tensor",
      "broadcast_to, where -1 keeps the size of an axis of t, as torch.Tensor.expand.",
      +[](Tensor t, Ints shape) { return ops::expand(t, shape_of(shape)); });
  bind_function(
      m, "def reduce_to(t: Tensor, shape: Ints) -> Tensor",
      "Sums t over its broadcast axes, so that the result has `shape`, which must broadcast to the "
      "shape of t. This is the gradient of a broadcast operand.",
      +[](Tensor t, Ints shape) { return ops::reduce_to(t, shape_of(shape)); });
  bind_function(
      m, "def transpose(t: Tensor, permutation: Optional[Ints] = None) -> Tensor",
      "Permutes the axes, as numpy.transpose; axes may count from the end. Without a permutation, "
      "reverses them.",
      +[](Tensor t, std::optional<Ints> axes) {
        return axes ? ops::transpose(t, axes->values) : ops::transpose(t);
      });
  bind_function(
      m, "def transpose_(t: Tensor, permutation: Optional[Ints] = None) -> Tensor",
      "transpose as a view: a later write to t or to the view is visible through both.",
      +[](Tensor t, std::optional<Ints> axes) {
        return axes ? ops::transpose_(t, axes->values) : ops::transpose_(t);
      });
  bind_function(
      m, "def swap_axes(t: Tensor, a: int, b: int) -> Tensor",
      "Exchanges two axes, as numpy.swapaxes; axes may count from the end.",
      +[](Tensor t, int64_t a, int64_t b) { return ops::swap_axes(t, a, b); });
}

void bind_slicing(nb::module_& m) {
  bind_function(
      m,
      "def slice(t: Tensor, start: Bounds = None, stop: Bounds = None, step: Bounds = None, "
      "axes: Optional[Ints] = None) -> Tensor",
      "t[start:stop:step] along each of `axes` (default: axes 0, 1, and so on), as numpy. Bounds "
      "may count from the end and are clamped; None is absent; a negative step goes backwards. "
      "Returns t itself if no bound and no step is given.",
      +[](Tensor t, nb::object start, nb::object stop, nb::object step, std::optional<Ints> axes) {
        return with_bounds("slice", start, stop, step, axes,
                           [&](const auto&... bounds) { return ops::slice(t, bounds...); });
      });
  bind_function(
      m,
      "def slice_(t: Tensor, start: Bounds = None, stop: Bounds = None, step: Bounds = None, "
      "axes: Optional[Ints] = None) -> Tensor",
      "slice as a view: a later write to t or to the view is visible through both.",
      +[](Tensor t, nb::object start, nb::object stop, nb::object step, std::optional<Ints> axes) {
        return with_bounds("slice_", start, stop, step, axes,
                           [&](const auto&... bounds) { return ops::slice_(t, bounds...); });
      });
  bind_function(
      m,
      "def update_slice_(t: Tensor, y: Tensor, starts: Optional[Ints] = None, "
      "sizes: Optional[Ints] = None, steps: Optional[Ints] = None) -> Tensor",
      "Overwrites with y the elements of t that begin at `starts`, `sizes` elements along each "
      "axis, `steps` apart (default: 1). Without starts and sizes, overwrites all of t. Returns "
      "the new handle to t.",
      +[](Tensor t, Tensor y, std::optional<Ints> starts, std::optional<Ints> sizes,
          std::optional<Ints> steps) {
        require(starts.has_value() == sizes.has_value() && (starts || !steps),
                "update_slice_: starts and sizes must be given together");
        if (!starts) return ops::update_slice_(t, y);
        if (!steps) steps = Ints{std::vector<int64_t>(starts->values.size(), 1)};
        return ops::update_slice_(
            t, y, {.starts = starts->values, .sizes = sizes->values, .steps = steps->values});
      });
  bind_function(
      m, "def select(t: Tensor, index: int, axis: int = 0) -> Tensor",
      "t[index] along `axis`, which is dropped. Both may count from the end.",
      +[](Tensor t, int64_t index, int64_t axis) { return ops::select(t, index, axis); });
  bind_function(
      m, "def flip(t: Tensor, axes: Optional[Ints] = None) -> Tensor",
      "Reverses the order of the elements along the axes, or along all, as numpy.flip.",
      +[](Tensor t, std::optional<Ints> axes) { return ops::flip(t, ints_or_empty(axes)); });
  bind_function(
      m, "def unfold(t: Tensor, axis: int, size: int, step: int) -> Tensor",
      "The windows of `size` elements along an axis that begin `step` elements apart, as "
      "torch.Tensor.unfold: their elements are a new last axis.",
      +[](Tensor t, int64_t axis, int64_t size, int64_t step) {
        return ops::unfold(t, axis, size, step);
      });
}

void bind_joining(nb::module_& m) {
  bind_function(
      m, "def concat(ts: Sequence[Tensor], axis: int = 0) -> Tensor",
      "Joins one or more tensors along `axis`; all other axes must have equal sizes.",
      +[](std::vector<Tensor> ts, int64_t axis) { return ops::concat(tensor_args(ts), axis); });
  bind_function(
      m, "def concat_(ts: Sequence[Tensor], axis: int = 0) -> Tensor",
      "concat as a view: a later write to the view changes the tensors, and a later write to one "
      "of them changes the view.",
      +[](std::vector<Tensor> ts, int64_t axis) { return ops::concat_(tensor_args(ts), axis); });
  bind_function(
      m, "def stack(ts: Sequence[Tensor], axis: int = 0) -> Tensor",
      "Joins one or more tensors of equal shapes along a new axis, which is `axis` of the result, "
      "as numpy.stack.",
      +[](std::vector<Tensor> ts, int64_t axis) { return ops::stack(tensor_args(ts), axis); });
  bind_function(
      m, "def split(t: Tensor, parts: Ints, axis: int = 0) -> List[Tensor]",
      "Cuts t along `axis`: into a number of equal parts, or into parts of the given sizes, which "
      "sum to the size of the axis.",
      +[](Tensor t, nb::object parts, int64_t axis) {
        const std::vector<int64_t> given = ints_argument(parts, "split: parts");
        if (!nb::hasattr(parts, "__len__")) return ops::split(t, given[0], axis);
        return ops::split(t, given, axis);
      });
  bind_function(
      m, "def add_n(ts: Sequence[Tensor]) -> Tensor",
      "Adds one or more tensors of one spec, from left to right. float16 and bfloat16 results are "
      "rounded once.",
      +[](std::vector<Tensor> ts) { return ops::add_n(tensor_args(ts)); });
  bind_function(
      m, "def tile(t: Tensor, counts: Ints) -> Tensor",
      "Repeats t `counts[a]` times along each axis a, as torch.Tensor.repeat and numpy.tile. "
      "Counts for axes that t lacks come first.",
      +[](Tensor t, Ints counts) { return ops::tile(t, counts.values); });
  bind_function(
      m, "def roll(t: Tensor, shifts: Ints, axes: Optional[Ints] = None) -> Tensor",
      "Moves the elements along each of `axes` by `shifts[i]` places, the last ones to the front, "
      "as numpy.roll. Without axes, shifts has one number, for the elements in row-major order.",
      +[](Tensor t, Ints shifts, std::optional<Ints> axes) {
        return ops::roll(t, shifts.values, ints_or_empty(axes));
      });
  bind_function(
      m,
      "def pad(t: Tensor, widths: Sequence[Tuple[int, int]], "
      "mode: Literal['constant', 'reflect', 'replicate', 'circular'] = 'constant', "
      "value: float = 0.0) -> Tensor",
      "Extends axis a by widths[a] = (before, after) elements, as numpy.pad, one axis after the "
      "other: with `value`, or with the elements inside, mirrored at the outermost one (reflect), "
      "the outermost element (replicate), or those of the other end (circular). Negative numbers "
      "remove elements.",
      +[](Tensor t, std::vector<std::pair<int64_t, int64_t>> widths, std::string mode,
          double value) {
        std::vector<ops::PadWidth> all;
        for (const auto& [before, after] : widths) all.push_back({before, after});
        return ops::pad(t, all, from_word<ops::PadMode>(mode, "pad: mode"), value);
      });
}

void bind_choosing(nb::module_& m) {
  bind_function(
      m, "def where(condition: Tensor, lhs: Operand, rhs: Operand) -> Tensor",
      "Selects lhs where `condition` holds, else rhs; all three broadcast. A condition of another "
      "dtype is cast to bool first.",
      +[](Tensor condition, nb::object lhs, nb::object rhs) {
        const Tensor& like = first_tensor({lhs, rhs}, "where");
        return ops::where(condition, operand_like(like, lhs, "where: lhs"),
                          operand_like(like, rhs, "where: rhs"));
      });
  bind_function(
      m, "def logical_and(lhs: Operand, rhs: Operand) -> Tensor",
      "Whether both operands are true, elementwise with broadcasting. An operand of another dtype "
      "is cast to bool first.",
      +[](nb::object lhs, nb::object rhs) {
        const Tensor& like = first_tensor({lhs, rhs}, "logical_and");
        return ops::logical_and(operand_like(like, lhs, "logical_and: lhs"),
                                operand_like(like, rhs, "logical_and: rhs"));
      });
  bind_function(
      m, "def logical_or(lhs: Operand, rhs: Operand) -> Tensor",
      "Whether an operand is true, elementwise with broadcasting. An operand of another dtype is "
      "cast to bool first.",
      +[](nb::object lhs, nb::object rhs) {
        const Tensor& like = first_tensor({lhs, rhs}, "logical_or");
        return ops::logical_or(operand_like(like, lhs, "logical_or: lhs"),
                               operand_like(like, rhs, "logical_or: rhs"));
      });
  bind_function(
      m, "def logical_not(x: Tensor) -> Tensor",
      "Whether x is false. A tensor of another dtype is cast to bool first.",
      +[](Tensor x) { return ops::logical_not(x); });
  bind_function(
      m, "def cast(x: Tensor, dtype: Any) -> Tensor",
      "Casts x to a dtype; returns x itself if it has that dtype. Floating point rounds to nearest "
      "even. Casts from floating point to integers truncate toward zero and saturate; NaN becomes "
      "0. Casts between integers wrap around. A cast to bool returns x != 0.",
      +[](Tensor x, nb::object dtype) { return ops::cast(x, dtype_argument(dtype)); });
}

void bind_making(nb::module_& m) {
  bind_function(
      m,
      "def init(shape: Ints, dtype: Any = dtype.float32, value: Optional[float] = 0.0, "
      "name: str = '', meta_shape: Ints = ()) -> Tensor",
      "Makes a new tensor of the current graph, filled with `value`. None: its contents are "
      "undefined and must be overwritten.",
      +[](Ints shape, nb::object dtype, std::optional<double> value, std::string name,
          Ints meta_shape) {
        const TensorSpec spec{shape_of(shape), dtype_argument(dtype), shape_of(meta_shape)};
        Graph& graph = current_graph();
        if (!value) return ops::init(graph, spec, ops::InitType::kUndefined, name);
        if (*value == 0) return ops::init(graph, spec, ops::InitType::kZero, name);
        return ops::init(graph, spec, *value, name);
      });
  bind_function(
      m, "def scalar_like(t: Tensor, value: float) -> Tensor",
      "Makes a constant of t's dtype and shape () in t's graph.",
      +[](Tensor t, double value) { return ops::scalar_like(t, value); });
  bind_function(
      m, "def rotary_table(positions: int, size: int, base: float = 10000.0) -> Tensor",
      "The constant (positions, size) of the current graph: row p has the cosines of its size/2 "
      "angles p·base^(-2i/size) and then their sines.",
      +[](int64_t positions, int64_t size, double base) {
        return ops::rotary_table(current_graph(),
                                 {.positions = positions, .size = size, .base = base});
      });
  bind_function(
      m, "def rotary_rows(table: Tensor, first: Union[int, Tensor], length: int) -> Tensor",
      "`length` rows of a table from row `first` on: the position of the first query, if earlier "
      "keys are in a cache. It may be an int32 or uint32 scalar; rows outside of the table are "
      "then NaN.",
      +[](Tensor table, std::variant<Tensor, int64_t> first, int64_t length) {
        if (const auto* data = std::get_if<Tensor>(&first))
          return ops::rotary_rows(table, *data, length);
        return ops::rotary_rows(table, std::get<int64_t>(first), length);
      });
}

void bind_printing(nb::module_& m) {
  bind_function(
      m,
      "def print_tensor(x: Tensor, title: str = '', print_self: bool = True, "
      "print_gradient: bool = False, summarise_threshold: int = 1000, edge_items: int = 3, "
      "max_line_width: int = 75, digits: int = 8, "
      "float_format: Literal['auto', 'fixed', 'scientific'] = 'auto', separator: str = ' ', "
      "open_bracket: str = '[', close_bracket: str = ']') -> Tensor",
      "Returns x. When the program runs, prints it to standard error as \"title: [...]\", in "
      "program order with other prints. The title is the name of the tensor by default. The other "
      "arguments are those of numpy.array2string.",
      +[](Tensor x, std::string title, bool print_self, bool print_gradient,
          int64_t summarise_threshold, int64_t edge_items, int64_t max_line_width, int64_t digits,
          std::string float_format, std::string separator, std::string open_bracket,
          std::string close_bracket) {
        return ops::print_tensor(x, {.title = title,
                                     .print_self = print_self,
                                     .print_gradient = print_gradient,
                                     .summarise_threshold = summarise_threshold,
                                     .edge_items = edge_items,
                                     .max_line_width = max_line_width,
                                     .digits = digits,
                                     .float_format = float_format,
                                     .separator = separator,
                                     .open_bracket = open_bracket,
                                     .close_bracket = close_bracket});
      });
}

}  // namespace

void bind_shape_functions(nb::module_& m) {
  bind_reshaping(m);
  bind_slicing(m);
  bind_joining(m);
  bind_choosing(m);
  bind_making(m);
  bind_printing(m);
}

void bind_composites(nb::module_& m) {
  nb::module_ composites = m.def_submodule("composites", "Functions without a definition.");
  bind_shape_functions(composites);
  bind_math_functions(composites);
  bind_update_functions(composites);
  bind_sampling_functions(composites);
}

}  // namespace sluice::python
