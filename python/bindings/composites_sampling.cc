#include "python/bindings/arrays.h"
#include "python/bindings/composites.h"
#include "sluice/ops/ops.h"

namespace sluice::python {
namespace {

void bind_random(nb::module_& m) {
  bind_function(
      m,
      "def random_uniform(seed: Tensor, shape: Ints, low: float = 0.0, high: float = 1.0, "
      "dtype: Any = dtype.float32) -> Tensor",
      "Uniform random numbers in [low, high); rounding may give high. A seed is uint32 of shape "
      "(2,); the same seed produces the same numbers.",
      +[](Tensor seed, Ints shape, double low, double high, nb::object dtype) {
        return ops::random_uniform(seed, shape_of(shape), low, high, dtype_argument(dtype));
      });
  bind_function(
      m,
      "def random_normal(seed: Tensor, shape: Ints, mean: float = 0.0, std: float = 1.0, "
      "dtype: Any = dtype.float32) -> Tensor",
      "Normal random numbers. A seed is uint32 of shape (2,); the same seed produces the same "
      "numbers.",
      +[](Tensor seed, Ints shape, double mean, double std, nb::object dtype) {
        return ops::random_normal(seed, shape_of(shape), mean, std, dtype_argument(dtype));
      });
  bind_function(
      m, "def fold_seed(seed: Tensor, data: Union[int, str, Tensor]) -> Tensor",
      "Makes a new seed from a seed and a word: an integer scalar tensor (a step, a replica), a "
      "number, or a path.",
      +[](Tensor seed, std::variant<Tensor, int64_t, std::string> data) {
        return std::visit([&](const auto& word) { return ops::fold_seed(seed, word); }, data);
      });
  bind_function(
      m, "def split_random_seed(seed: Tensor, n: int = 2) -> List[Tensor]",
      "Makes n seeds that differ from each other and from the seeds that other functions make.",
      +[](Tensor seed, int n) { return ops::split_random_seed(seed, n); });
}

void bind_counting(nb::module_& m) {
  bind_function(
      m,
      "def index_reduce(t: Tensor, source: Tensor, indices: Tensor, axis: int = -1, "
      "reduction: Literal['sum', 'mean', 'max', 'min'] = 'sum', include_self: bool = True) "
      "-> Tensor",
      "scatter_reduce() of whole slices, as torch.Tensor.index_reduce: `indices` has one axis, and "
      "`source` the shape of t with the axis replaced by that of the indices.",
      +[](Tensor t, Tensor source, Tensor indices, int64_t axis, std::string word,
          bool include_self) {
        return ops::index_reduce(
            t, source, indices,
            {.axis = axis,
             .reduction = from_word<ops::ScatterReduction>(word, "index_reduce: reduction"),
             .include_self = include_self});
      });
  bind_function(
      m, "def bincount(indices: Tensor, size: int) -> Tensor",
      "The number of occurrences of each of 0, 1, …, size - 1 among the elements of an int32 or "
      "uint32 tensor, as float32. Other elements are not counted.",
      +[](Tensor indices, int64_t size) { return ops::bincount(indices, size); });
  bind_function(
      m, "def histogram(t: Tensor, bins: int, min: float, max: float) -> Tensor",
      "The number of elements in each of `bins` equal parts of [min, max], as float32, like "
      "torch.histc (the last part includes max). Elements outside and NaN are not counted.",
      +[](Tensor t, int64_t bins, double min, double max) {
        return ops::histogram(t, bins, min, max);
      });
}

void bind_resampling(nb::module_& m) {
  bind_function(
      m,
      "def interpolate(t: Tensor, sizes: Ints, "
      "mode: Literal['nearest', 'nearest_exact', 'linear', 'cubic'] = 'nearest', "
      "align_corners: bool = False, scales: Sequence[float] = ()) -> Tensor",
      "Resizes the last axes of t to `sizes`, as torch.nn.functional.interpolate without "
      "antialiasing. With align_corners, the outermost elements of operand and result have the "
      "same positions (linear and cubic). `scales` are the elements of the operand for one of the "
      "result along each axis; default: the quotient of the sizes.",
      +[](Tensor t, Ints sizes, std::string mode, bool align_corners, std::vector<double> scales) {
        return ops::interpolate(t, sizes.values,
                                {.mode = from_word<ops::Interpolation>(mode, "interpolate: mode"),
                                 .align_corners = align_corners,
                                 .scales = scales});
      });
  bind_function(
      m, "def adaptive_average_pool(t: Tensor, sizes: Ints) -> Tensor",
      "The means of windows of the last axes, as torch.nn.functional.adaptive_avg_pool1d to 3d.",
      +[](Tensor t, Ints sizes) { return ops::adaptive_average_pool(t, sizes.values); });
  bind_function(
      m, "def adaptive_max_pool(t: Tensor, sizes: Ints) -> Tensor",
      "The maxima of windows of the last axes, as torch.nn.functional.adaptive_max_pool1d to 3d.",
      +[](Tensor t, Ints sizes) { return ops::adaptive_max_pool(t, sizes.values); });
  bind_function(
      m, "def global_average_pool(x: Tensor) -> Tensor",
      "The mean over all spatial axes, which keep size 1.",
      +[](Tensor x) { return ops::global_average_pool(x); });
  bind_function(
      m, "def global_max_pool(x: Tensor) -> Tensor",
      "The maximum over all spatial axes, which keep size 1.",
      +[](Tensor x) { return ops::global_max_pool(x); });
  bind_function(
      m,
      "def grid_sample(t: Tensor, grid: Tensor, mode: Literal['linear', 'nearest'] = 'linear', "
      "padding: Literal['zeros', 'border', 'reflect'] = 'zeros', align_corners: bool = False) "
      "-> Tensor",
      "Samples images or volumes at positions that are data, as torch.nn.functional.grid_sample. "
      "For images, t is (batch, channels, height, width), grid is (batch, rows, columns, 2) with "
      "(x, y) in [-1, 1], and the result is (batch, channels, rows, columns). `padding` gives the "
      "values outside of t. With align_corners, -1 and 1 are the centres of the outermost "
      "elements, instead of their outer edges.",
      +[](Tensor t, Tensor grid, std::string mode, std::string padding, bool align_corners) {
        return ops::grid_sample(
            t, grid,
            {.mode = from_word<ops::Interpolation>(mode, "grid_sample: mode"),
             .padding = from_word<ops::GridPadding>(padding, "grid_sample: padding"),
             .align_corners = align_corners});
      });
}

}  // namespace

void bind_sampling_functions(nb::module_& m) {
  bind_random(m);
  bind_counting(m);
  bind_resampling(m);
}

}  // namespace sluice::python
