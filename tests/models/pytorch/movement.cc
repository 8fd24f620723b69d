// Movement and indices of PyTorch: a row builds each.
#include <optional>

#include "operators.h"

namespace sluice::test {
namespace {

using List = Call::List;

List dims_of(const Tensor& t) { return t.shape().dims(); }

// --- Axes.

Tensor movedim(const Call& c) {
  const auto rank = static_cast<size_t>(c.x().rank());
  const List from = c.list("source"), to = c.list("destination");
  List order(rank, -1), rest;
  for (size_t i = 0; i < from.size(); ++i)
    order[static_cast<size_t>(Call::from_front(to[i], c.x().rank()))] =
        Call::from_front(from[i], c.x().rank());
  for (int64_t axis = 0; axis < c.x().rank(); ++axis) {
    if (std::find(order.begin(), order.end(), axis) == order.end()) rest.push_back(axis);
  }
  for (size_t i = 0, next = 0; i < rank; ++i) {
    if (order[i] < 0) order[i] = rest[next++];
  }
  return ops::transpose(c.x(), order);
}

Tensor matrix_transpose(const Call& c) { return ops::swap_axes(c.x(), -2, -1); }

Tensor rot90(const Call& c) {
  const int64_t quarter = ((c.integer("k", 1) % 4) + 4) % 4;
  const List axes = c.given("dims") ? c.list("dims") : List{0, 1};
  if (quarter == 0) return ops::identity(c.x());
  if (quarter == 2) return ops::flip(c.x(), axes);
  if (quarter == 3) return ops::flip(ops::swap_axes(c.x(), axes[0], axes[1]), {axes[1]});
  return ops::swap_axes(ops::flip(c.x(), {axes[1]}), axes[0], axes[1]);
}

Tensor squeeze(const Call& c) {
  if (!c.given("dim")) return ops::squeeze(c.x());
  List axes;
  for (int64_t axis : c.list("dim")) {
    if (c.x().rank() > 0 && c.x().dim(static_cast<int>(axis)) == 1) axes.push_back(axis);
  }
  return axes.empty() ? ops::identity(c.x()) : ops::squeeze(c.x(), axes);
}

void add_axes(BuildTable& t) {
  t["transpose"] = row([](const Call& c) {
    return ops::swap_axes(c.x(), c.integer("dim0", 0), c.integer("dim1", 1));
  });
  t["permute"] = row([](const Call& c) { return ops::transpose(c.x(), c.list("dims")); });
  t["movedim"] = row(movedim);
  t["t"] = t["T"] = t["H"] = row([](const Call& c) { return ops::transpose(c.x()); });
  t["mT"] = t["mH"] = row(matrix_transpose);
  t["fliplr"] = row([](const Call& c) { return ops::flip(c.x(), {1}); });
  t["flipud"] = row([](const Call& c) { return ops::flip(c.x(), {0}); });
  t["rot90"] = row(rot90);
  t["squeeze"] = row(squeeze);
  t["unsqueeze"] = row([](const Call& c) { return ops::unsqueeze(c.x(), c.integer("dim", 0)); });
}

// --- Shapes.

Tensor at_least(const Tensor& x, int64_t rank) {
  List dims = dims_of(x);
  if (rank > 1 && dims.size() == 1) dims.insert(dims.begin(), 1);
  while (std::ssize(dims) < rank) dims.push_back(1);
  return dims == dims_of(x) ? ops::identity(x) : ops::reshape(x, Shape(dims));
}

Build at_least(int64_t rank) {
  return [rank](const Call& c) {
    Tensors all;
    for (const Tensor& x : c.tensors()) all.push_back(at_least(x, rank));
    return all;
  };
}

Tensor unflatten(const Call& c) {
  List dims = dims_of(c.x());
  const List sizes = c.list("sizes");
  const auto at = dims.erase(dims.begin() + c.axis("dim", 0));
  dims.insert(at, sizes.begin(), sizes.end());
  return ops::reshape(c.x(), Shape(dims));
}

Tensor sum_to_size(const Call& c) {
  const List size = c.list("size");
  const int64_t more = c.x().rank() - std::ssize(size);
  List axes;
  for (int64_t axis = 0; axis < c.x().rank(); ++axis) {
    const bool kept =
        axis >= more && size[static_cast<size_t>(axis - more)] == c.x().dim(static_cast<int>(axis));
    if (!kept) axes.push_back(axis);
  }
  if (axes.empty()) return ops::identity(c.x());
  return ops::reshape(ops::sum(c.x(), {.axes = axes}), Shape(size));
}

Tensors broadcast_tensors(const Call& c) {
  Shape shape;
  for (const Tensor& t : c.tensors()) shape = broadcast(shape, t.shape(), "broadcast_tensors");
  Tensors all;
  for (const Tensor& t : c.tensors()) all.push_back(ops::broadcast_to(t, shape));
  return all;
}

Tensors meshgrid(const Call& c) {
  const Tensors axes = c.tensors();
  List dims;
  for (const Tensor& t : axes) dims.push_back(t.rank() == 0 ? 1 : t.dim(0));
  const bool swapped = c.text("indexing") == "xy" && dims.size() > 1;
  Tensors grids;
  for (size_t i = 0; i < axes.size(); ++i) {
    List own(dims.size(), 1);
    own[i] = dims[i];
    const Tensor grid = ops::broadcast_to(ops::reshape(axes[i], Shape(own)), Shape(dims));
    grids.push_back(swapped ? ops::swap_axes(grid, 0, 1) : grid);
  }
  return grids;
}

/// Reshapes to `split`, permutes the axes and reshapes to `merged`.
Tensor shuffled(const Tensor& x, const List& split, const List& order, const List& merged) {
  return ops::reshape(ops::transpose(ops::reshape(x, Shape(split)), order), Shape(merged));
}

Tensor pixel_shuffle(const Call& c) {
  const List d = dims_of(c.x());
  const int64_t r = c.integer("upscale_factor", 1), channels = d[1] / (r * r);
  return shuffled(c.x(), {d[0], channels, r, r, d[2], d[3]}, {0, 1, 4, 2, 5, 3},
                  {d[0], channels, d[2] * r, d[3] * r});
}

Tensor pixel_unshuffle(const Call& c) {
  const List d = dims_of(c.x());
  const int64_t r = c.integer("downscale_factor", 1);
  return shuffled(c.x(), {d[0], d[1], d[2] / r, r, d[3] / r, r}, {0, 1, 3, 5, 2, 4},
                  {d[0], d[1] * r * r, d[2] / r, d[3] / r});
}

Tensor channel_shuffle(const Call& c) {
  const List d = dims_of(c.x());
  const int64_t groups = c.integer("groups", 1);
  return shuffled(c.x(), {d[0], groups, d[1] / groups, d[2], d[3]}, {0, 2, 1, 3, 4}, d);
}

Tensor repeat_interleave(const Call& c) {
  const Tensor x = c.given("dim") ? c.x() : ops::flatten(c.x());
  const auto axis = static_cast<size_t>(c.integer("dim", 0));
  List dims = dims_of(x), merged = dims;
  dims.insert(dims.begin() + static_cast<int64_t>(axis) + 1, c.integer("repeats", 1));
  merged[axis] *= c.integer("repeats", 1);
  const Tensor wide = ops::unsqueeze(x, static_cast<int64_t>(axis) + 1);
  return ops::reshape(ops::broadcast_to(wide, Shape(dims)), Shape(merged));
}

Tensor constant_pad(const Call& c) {
  const List pad = c.list("pad");  // Pairs, the last axis first.
  std::vector<ops::PadWidth> widths(static_cast<size_t>(c.x().rank()));
  for (size_t i = 0; i + 1 < pad.size(); i += 2)
    widths[widths.size() - 1 - i / 2] = {pad[i], pad[i + 1]};
  return ops::pad(c.x(), widths, ops::PadMode::kConstant, c.number("value", 0));
}

void add_shapes(BuildTable& t) {
  t["reshape"] = t["view"] =
      row([](const Call& c) { return ops::reshape(c.x(), Shape(c.list("shape"))); });
  t["reshape_as"] = t["view_as"] =
      row([](const Call& c) { return ops::reshape(c.x(), c["other"].shape()); });
  t["ravel"] = row([](const Call& c) { return ops::flatten(c.x()); });
  t["flatten"] = row([](const Call& c) {
    return ops::flatten(c.x(), c.integer("start_dim", 0), c.integer("end_dim", -1));
  });
  t["unflatten"] = row(unflatten);
  t["atleast_1d"] = at_least(1);
  t["atleast_2d"] = at_least(2);
  t["atleast_3d"] = at_least(3);
  t["expand"] = row([](const Call& c) { return ops::expand(c.x(), Shape(c.list("shape"))); });
  t["broadcast_to"] =
      row([](const Call& c) { return ops::broadcast_to(c.x(), Shape(c.list("shape"))); });
  t["expand_as"] = row([](const Call& c) { return ops::broadcast_to(c.x(), c["other"].shape()); });
  t["broadcast_tensors"] = row(broadcast_tensors);
  t["meshgrid"] = row(meshgrid);
  t["sum_to_size"] = row(sum_to_size);
  t["pixel_shuffle"] = row(pixel_shuffle);
  t["pixel_unshuffle"] = row(pixel_unshuffle);
  t["channel_shuffle"] = row(channel_shuffle);
  t["repeat_interleave"] = row(repeat_interleave);
  t["constant_pad_nd"] = row(constant_pad);
}

// --- Parts.

Tensor slice(const Tensor& x, int64_t axis, std::optional<int64_t> start,
             std::optional<int64_t> stop, int64_t step = 1) {
  return ops::slice(x, {start}, {stop}, {step}, {axis});
}

Tensor narrow(const Call& c) {
  int64_t start = c.has("start") ? c.line().labels.at(0) : c.integer("start", 0);
  const int64_t axis = c.axis("dim", 0);
  if (start < 0) start += c.x().dim(static_cast<int>(axis));
  return slice(c.x(), axis, start, start + c.integer("length", 0));
}

Tensor sliced(const Call& c) {
  const auto bound = [&](const char* name) {
    return c.given(name) ? std::optional<int64_t>(c.integer(name, 0)) : std::nullopt;
  };
  return slice(c.x(), c.integer("dim", 0), bound("start"), bound("end"), c.integer("step", 1));
}

/// Splits x into parts of `size` elements; the last part may have fewer.
Tensors in_parts(const Tensor& x, int64_t size, int64_t axis) {
  const int64_t n = x.dim(static_cast<int>(axis));
  List sizes;
  for (int64_t at = 0; at < n; at += size) sizes.push_back(std::min(size, n - at));
  return ops::split(x, sizes, axis);
}

Tensors split_parts(const Call& c) {
  const char* name = c.given("size") ? "size" : "split_size_or_sections";
  const List sizes = c.list(name);
  const int64_t axis = c.axis("dim", 0);
  if (sizes.size() == 1) return in_parts(c.x(), sizes[0], axis);
  return ops::split(c.x(), sizes, axis);
}

Tensors chunk(const Call& c) {
  const int64_t axis = c.axis("dim", 0), n = c.x().dim(static_cast<int>(axis));
  const int64_t chunks = c.integer("chunks", 1);
  return in_parts(c.x(), (n + chunks - 1) / chunks, axis);
}

/// Splits x into `sections` parts whose sizes differ by 1 at most, or before given indices.
Tensors in_sections(const Call& c, int64_t axis) {
  const int64_t n = c.x().dim(static_cast<int>(axis));
  List ends = c.list("sections");
  const bool tensor = c.has("sections");
  if (tensor) ends = List(c.line().labels.begin(), c.line().labels.end());
  const bool counted =
      tensor ? c["sections"].rank() == 0 : ends.size() == 1;  // Samples have no list of one index.
  if (counted) {
    const int64_t parts = ends.at(0);
    ends.clear();
    for (int64_t i = 0, at = 0; i + 1 < parts; ++i)
      ends.push_back(at += n / parts + (i < n % parts ? 1 : 0));
  }
  ends.push_back(n);
  Tensors all;
  for (size_t i = 0; i < ends.size(); ++i)
    all.push_back(slice(c.x(), axis, i == 0 ? 0 : ends[i - 1], ends[i]));
  return all;
}

Tensors unbind(const Call& c) {
  const int64_t axis = c.axis("dim", 0);
  Tensors all;
  for (int64_t i = 0; i < c.x().dim(static_cast<int>(axis)); ++i)
    all.push_back(ops::select(c.x(), i, axis));
  return all;
}

std::vector<TensorArg> arguments(const Tensors& tensors) {
  return {tensors.begin(), tensors.end()};
}

/// Joins the tensors, each with at least `rank` axes, along an axis.
Tensor joined(const Call& c, int64_t rank, int64_t axis) {
  Tensors all;
  for (const Tensor& x : c.tensors()) all.push_back(at_least(x, rank));
  return ops::concat(arguments(all), axis);
}

Tensor column_stack(const Call& c) {
  Tensors columns;
  for (const Tensor& x : c.tensors())
    columns.push_back(x.rank() < 2 ? ops::reshape(x, {-1, 1}) : ops::identity(x));
  return ops::concat(arguments(columns), 1);
}

void add_parts(BuildTable& t) {
  t["narrow"] = row(narrow);
  t["select"] = row(
      [](const Call& c) { return ops::select(c.x(), c.integer("index", 0), c.integer("dim", 0)); });
  t["slice"] = row(sliced);
  t["split"] = row(split_parts);
  t["chunk"] = row(chunk);
  t["tensor_split"] = row([](const Call& c) { return in_sections(c, c.axis("dim", 0)); });
  t["hsplit"] = row([](const Call& c) { return in_sections(c, c.x().rank() > 1 ? 1 : 0); });
  t["vsplit"] = row([](const Call& c) { return in_sections(c, 0); });
  t["dsplit"] = row([](const Call& c) { return in_sections(c, 2); });
  t["unbind"] = row(unbind);
  t["cat"] =
      row([](const Call& c) { return ops::concat(arguments(c.tensors()), c.integer("dim", 0)); });
  t["stack"] =
      row([](const Call& c) { return ops::stack(arguments(c.tensors()), c.integer("dim", 0)); });
  t["hstack"] = row([](const Call& c) { return joined(c, 1, c["x0"].rank() > 1 ? 1 : 0); });
  t["vstack"] = row([](const Call& c) { return joined(c, 2, 0); });
  t["dstack"] = row([](const Call& c) { return joined(c, 3, 2); });
  t["column_stack"] = row(column_stack);
}

// --- Indices.

/// Returns the first elements of x along all axes but one, as many as `like` has.
Tensor cut(Tensor x, const Tensor& like, int64_t axis) {
  for (int64_t a = 0; a < x.rank(); ++a) {
    const int64_t size = like.dim(static_cast<int>(a));
    if (a != axis && size < x.dim(static_cast<int>(a))) x = slice(x, a, 0, size);
  }
  return x;
}

/// Reshapes a scalar to one element.
Tensor at_least_one_axis(const Tensor& x) { return x.rank() == 0 ? ops::reshape(x, {1}) : x; }

/// Makes indices below 0, which count from the end of an axis, count from its front.
Tensor from_front(const Tensor& index, int64_t size) {
  return ops::where(ops::less(index, 0.0), index + static_cast<double>(size), index);
}

Tensor gathered(const Call& c) {
  const Tensor& index = c["index"];
  const int64_t axis = c.axis("dim", 0);
  const Tensor x = index.rank() == 1 ? at_least_one_axis(c.x()) : c.x();
  return ops::take_along_axis(x.rank() == index.rank() ? cut(x, index, axis) : x, index,
                              {.axis = axis});
}

Tensor take_along_dim(const Call& c) {
  if (!c.given("dim"))
    return ops::take_along_axis(ops::flatten(c.x()), ops::flatten(c["index"]), {.axis = 0});
  const int64_t axis = c.axis("dim", 0);
  List x = dims_of(c.x()), index = dims_of(c["index"]);
  for (size_t a = 0; a < x.size(); ++a) {
    if (static_cast<int64_t>(a) != axis) x[a] = index[a] = std::max(x[a], index[a]);
  }
  const Tensor all = ops::broadcast_to(c["index"], Shape(index));
  return ops::take_along_axis(ops::broadcast_to(c.x(), Shape(x)),
                              from_front(all, x[static_cast<size_t>(axis)]), {.axis = axis});
}

/// Returns zeros of x's shape to which `source`, whose first elements count, is added at `index`.
Tensor scattered(const Call& c, const Tensor& source) {
  const Tensor& index = c["index"];
  if (c.x().rank() == 0) return ops::add_along_axis(source, index, {.axis = 0, .size = 1});
  const int64_t axis = c.axis("dim", 0), size = c.x().dim(static_cast<int>(axis));
  const Tensor part = slice(cut(source, index, axis), axis, 0, index.dim(static_cast<int>(axis)));
  const Tensor sum = ops::add_along_axis(part, index, {.axis = axis, .size = size});
  std::vector<ops::PadWidth> widths;
  for (int a = 0; a < sum.rank(); ++a) widths.push_back({0, c.x().dim(a) - sum.dim(a)});
  return ops::pad(sum, widths);
}

Tensor filled(const Tensor& like, double value) {
  return ops::broadcast_to(ops::scalar_like(like, value), like.shape());
}

Tensor scatter(const Call& c) {
  const Tensor ones = filled(ops::cast(c["index"], c.x().dtype()), 1);
  const Tensor source = c.has("src") ? c["src"] : ones * c.number("src", 0);
  if (c.text("reduce") == "add") return c.x() + scattered(c, source);
  const Tensor hits = scattered(c, ones);  // Indices are unique.
  return ops::where(ops::greater(hits, 0.0), scattered(c, source), c.x());
}

Tensor index_select(const Call& c) {
  const Tensor y = ops::gather(at_least_one_axis(c.x()), c["index"], {.axis = c.integer("dim", 0)});
  return c.x().rank() == 0 ? ops::reshape(y, {}) : y;
}

Tensor index_add(const Call& c) {
  const Tensor x = at_least_one_axis(c.x());
  const int64_t axis = c.axis("dim", 0);
  const Tensor sum =
      ops::gather_grad(at_least_one_axis(c["source"]) * c.number("alpha", 1), c["index"],
                       {.axis = axis, .size = x.dim(static_cast<int>(axis))});
  const Tensor y = x + sum;
  return c.x().rank() == 0 ? ops::reshape(y, {}) : y;
}

Tensor one_hot(const Call& c) {
  int64_t classes = c.integer("num_classes", -1);
  if (classes < 0) {
    const auto& labels = c.line().labels;
    classes = *std::max_element(labels.begin(), labels.end()) + 1;
  }
  const Tensor values = c.x().graph().constant(f32_array({2}, {0, 1}), "values");
  return ops::onehot(c.x(), values, {.classes = classes});
}

void add_indices(BuildTable& t) {
  t["gather"] = row(gathered);
  t["take_along_dim"] = row(take_along_dim);
  t["index_select"] = row(index_select);
  t["take"] = row([](const Call& c) {
    return ops::gather(ops::flatten(c.x()), from_front(c["index"], c.x().shape().elements()));
  });
  t["embedding"] = row([](const Call& c) { return ops::gather(c.x(), c["index"]); });
  t["scatter"] = row(scatter);
  t["scatter_add"] = row([](const Call& c) { return c.x() + scattered(c, c["src"]); });
  t["index_add"] = row(index_add);
  t["one_hot"] = row(one_hot);
}

}  // namespace

BuildTable movement_operators() {
  BuildTable table;
  add_axes(table);
  add_shapes(table);
  add_parts(table);
  add_indices(table);
  return table;
}

}  // namespace sluice::test
