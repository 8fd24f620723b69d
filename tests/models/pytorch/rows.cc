// Products of matrices, softmax, reductions, sorts and counts of PyTorch: a row builds each.
#include "operators.h"

namespace sluice::test {
namespace {

// --- Products.

Tensor inner(const Call& c) {
  if (c.x().rank() == 0 || c["other"].rank() == 0) return c.x() * c["other"];
  const bool matrix = c["other"].rank() > 1;
  return ops::matmul(c.x(), c["other"], {.rhs_transposed = matrix});
}

Tensor outer(const Tensor& a, const Tensor& b) {
  return ops::unsqueeze(a, 1) * ops::unsqueeze(b, 0);
}

/// Makes a Build of beta·x + alpha·f(a, b).
template <typename F>
Build added(F f) {
  return row([f](const Call& c) {
    return c.x() * c.number("beta", 1) + f(c["a"], c["b"]) * c.number("alpha", 1);
  });
}

Tensor multi_dot(const Call& c) {
  const Tensors all = c.tensors();
  Tensor y = all.at(0);
  for (size_t i = 1; i < all.size(); ++i) y = ops::matmul(y, all[i]);
  return y;
}

Tensor linear(const Call& c) {
  const bool matrix = c["weight"].rank() > 1;
  const Tensor y = ops::matmul(c.x(), c["weight"], {.rhs_transposed = matrix});
  return c.has("bias") ? y + c["bias"] : y;
}

void add_products(BuildTable& t) {
  for (const char* name : {"matmul", "mm", "bmm", "mv", "dot", "vdot"})
    t[name] = row([](const Call& c) { return ops::matmul(c.x(), c["other"]); });
  t["__rmatmul__"] = row([](const Call& c) { return ops::matmul(c["other"], c.x()); });
  t["inner"] = row(inner);
  t["outer"] = row([](const Call& c) { return outer(c.x(), c["other"]); });
  t["linalg.vecdot"] = row(
      [](const Call& c) { return ops::sum(c.x() * c["other"], {.axes = {c.integer("dim", -1)}}); });
  const auto product = [](const Tensor& a, const Tensor& b) { return ops::matmul(a, b); };
  t["addmm"] = t["addmv"] = t["baddbmm"] = added(product);
  t["addbmm"] = added([product](const Tensor& a, const Tensor& b) {
    return ops::sum(product(a, b), {.axes = {0}});
  });
  t["addr"] = added(outer);
  t["linalg.multi_dot"] = row(multi_dot);
  t["linear"] = row(linear);
}

// --- Rows.

void add_softmax(BuildTable& t) {
  t["softmax"] = row([](const Call& c) { return ops::softmax(c.x(), c.integer("dim", -1)); });
  t["softmin"] = row([](const Call& c) { return ops::softmax(-c.x(), c.integer("dim", -1)); });
  t["log_softmax"] =
      row([](const Call& c) { return ops::log_softmax(c.x(), c.integer("dim", -1)); });
  t["logcumsumexp"] = row([](const Call& c) {
    return ops::log(ops::cumsum(ops::exp(c.x()), {.axis = c.integer("dim", -1)}));
  });
  t["normalize"] = row([](const Call& c) {
    const Tensor norm =
        ops::norm(c.x(), c.number("p", 2), {.axes = {c.integer("dim", 1)}, .keepdims = true});
    return c.x() / ops::maximum(norm, c.number("eps", 1e-12));
  });
}

ops::ReduceOptions reduced(const Call& c) {
  return {.axes = c.list("dim"), .keepdims = c.flag("keepdim")};
}

/// The correction of a variance; `dim` of one sample is its second overload's `unbiased`.
double correction(const Call& c) {
  const bool biased = (c.given("unbiased") && !c.flag("unbiased")) || c.is_false("dim");
  return c.number("correction", biased ? 0 : 1);
}

/// Makes a Build of f(x, options) and of the mean.
template <typename F>
Build with_mean(F f) {
  return row([f](const Call& c) {
    return Tensors{f(c.x(), reduced(c), correction(c)), ops::mean(c.x(), reduced(c))};
  });
}

/// Makes a Build of a maximum or minimum: of all elements, along an axis with its index, or of two
/// tensors.
template <typename F, typename R, typename A>
Build extreme(F of_two, R reduce, A arg) {
  return row([=](const Call& c) -> Tensors {
    if (c.has("dim")) return {of_two(c.x(), c["dim"])};
    if (c.has("other")) return {of_two(c.x(), c["other"])};
    if (!c.given("dim")) return {reduce(c.x(), ops::ReduceOptions{})};
    return {reduce(c.x(), reduced(c)),
            arg(c.x(), {.axis = c.integer("dim", 0), .keepdims = c.flag("keepdim")})};
  });
}

/// Makes a Build of the index of the maximum or minimum.
template <typename A>
Build arg_extreme(A arg) {
  return row([=](const Call& c) {
    return arg(
        c.x(),
        {.axis = c.integer("dim", 0), .flatten = !c.given("dim"), .keepdims = c.flag("keepdim")});
  });
}

Tensor norm(const Call& c) {
  return ops::norm(c.x(), c.text("p") == "fro" ? 2 : c.number("p", 2), reduced(c));
}

Tensor nansum(const Call& c) {
  return ops::sum(ops::where(ops::isnan(c.x()), 0.0, c.x()), reduced(c));
}

Tensor distance(const Call& c) {
  return ops::norm(c.x() - c["other"] + c.number("eps", 1e-6), c.number("p", 2),
                   {.axes = {-1}, .keepdims = c.flag("keepdim")});
}

void add_reductions(BuildTable& t) {
  t["any"] = row([](const Call& c) { return ops::any(c.x(), reduced(c)); });
  t["all"] = row([](const Call& c) { return ops::all(c.x(), reduced(c)); });
  t["count_nonzero"] = row([](const Call& c) {
    return ops::sum(ops::cast(ops::cast(c.x(), boolean), i32), reduced(c));
  });
  t["nansum"] = row(nansum);
  t["norm"] = row(norm);
  t["dist"] = row([](const Call& c) { return ops::norm(c.x() - c["other"], c.number("p", 2)); });
  t["pairwise_distance"] = row(distance);
  t["std_mean"] = with_mean(ops::standard_deviation);
  t["var_mean"] = with_mean(ops::var);
  t["aminmax"] = row([](const Call& c) {
    return Tensors{ops::min(c.x(), reduced(c)), ops::max(c.x(), reduced(c))};
  });
  t["argmax"] = arg_extreme(ops::argmax);
  t["argmin"] = arg_extreme(ops::argmin);
  t["max"] = extreme([](const Tensor& a, const Tensor& b) { return ops::maximum(a, b); }, ops::max,
                     ops::argmax);
  t["min"] = extreme([](const Tensor& a, const Tensor& b) { return ops::minimum(a, b); }, ops::min,
                     ops::argmin);
}

// --- Sorts and counts.

ops::SortOptions sort_options(const Call& c) {
  return {.axis = c.integer("dim", -1), .descending = c.flag("descending")};
}

Tensors both(const ops::Sorted& sorted) { return {sorted.values, sorted.indices}; }

Tensors median(const Call& c) {
  if (!c.given("dim")) return {ops::median(ops::flatten(c.x())).values};
  const Tensors found = both(ops::median(c.x(), c.integer("dim", -1)));
  if (!c.flag("keepdim") || c.x().rank() == 0) return found;
  const int64_t axis = c.axis("dim", -1);
  return {ops::unsqueeze(found[0], axis), ops::unsqueeze(found[1], axis)};
}

Tensors kth_value(const Call& c) {
  if (c.x().rank() == 0) return both(ops::sort(c.x()));
  const int64_t axis = c.axis("dim", -1);
  Tensors found;
  for (const Tensor& t : both(ops::sort(c.x(), {.axis = axis}))) {
    const Tensor kth = ops::select(t, c.integer("k", 1) - 1, axis);
    found.push_back(c.flag("keepdim") ? ops::unsqueeze(kth, axis) : kth);
  }
  return found;
}

Tensor bincount(const Call& c) {
  const auto elements = static_cast<size_t>(c.x().shape().elements());
  int64_t size = c.integer("minlength", 0);
  for (size_t i = 0; i < elements; ++i) size = std::max<int64_t>(size, c.line().labels[i] + 1);
  if (!c.has("weights")) return ops::bincount(c.x(), size);
  return ops::add_along_axis(ops::cast(c["weights"], f32), c.x(), {.axis = 0, .size = size});
}

void add_sorts(BuildTable& t) {
  t["sort"] = row([](const Call& c) { return both(ops::sort(c.x(), sort_options(c))); });
  t["argsort"] = row([](const Call& c) { return ops::argsort(c.x(), sort_options(c)); });
  t["msort"] = row([](const Call& c) { return ops::sort(c.x(), {.axis = 0}).values; });
  t["topk"] = row([](const Call& c) {
    return both(ops::topk(c.x(), c.integer("k", 1), c.integer("dim", -1), c.flag("largest", true)));
  });
  t["median"] = row(median);
  t["kthvalue"] = row(kth_value);
  t["histc"] = row([](const Call& c) {
    return ops::histogram(c.x(), c.integer("bins", 100), c.number("min", 0), c.number("max", 0));
  });
  t["bincount"] = row(bincount);
}

}  // namespace

BuildTable row_operators() {
  BuildTable table;
  add_products(table);
  add_softmax(table);
  add_reductions(table);
  add_sorts(table);
  return table;
}

}  // namespace sluice::test
