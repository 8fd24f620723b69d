#include "python/bindings/indexing.h"

#include <cstring>
#include <optional>

#include "python/bindings/arrays.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/compare.h"
#include "sluice/ops/gather.h"
#include "sluice/ops/reshape.h"
#include "sluice/ops/slice.h"

namespace sluice::python {
namespace {

bool is_integer(nb::handle key) {
  return PyIndex_Check(key.ptr()) != 0 && !PyBool_Check(key.ptr()) && !nb::hasattr(key, "__len__");
}

std::optional<int64_t> bound_of(nb::handle slice, const char* name) {
  const nb::object bound = slice.attr(name);
  if (bound.is_none()) return std::nullopt;
  if (!is_integer(bound))
    refuse_type(fmt::format("[]: {} must be an integer, got {}", name, python_type(bound)));
  return nb::cast<int64_t>(nb::int_(bound));
}

/// Returns the part of t that integers and slices select, one for each of the first axes.
Tensor basic(const Tensor& t, const std::vector<nb::handle>& keys) {
  require(std::ssize(keys) <= t.rank(), "[]: must have at most {} indices for shape {}, got {}",
          t.rank(), to_string(t.shape()), keys.size());
  ops::SliceBounds start, stop, step;
  std::vector<int64_t> dropped;
  for (const nb::handle key : keys) {
    const auto axis = static_cast<int>(start.size());
    if (PySlice_Check(key.ptr())) {
      start.push_back(bound_of(key, "start"));
      stop.push_back(bound_of(key, "stop"));
      step.push_back(bound_of(key, "step"));
      continue;
    }
    const auto index = nb::cast<int64_t>(nb::int_(nb::borrow(key)));
    const int64_t size = t.shape()[axis];
    require(index >= -size && index < size,
            "[]: index must be in [{}, {}) on axis {} of {}, got {}", -size, size, axis,
            to_string(t.shape()), index);
    start.emplace_back(index < 0 ? index + size : index);
    stop.emplace_back(*start.back() + 1);
    step.emplace_back();
    dropped.push_back(axis);
  }
  const Tensor part = ops::slice(t, start, stop, step);
  return dropped.empty() ? part : ops::squeeze(part, dropped);
}

/// Returns integers of the host as int32 indices along an axis of `size` elements. Negative ones
/// count from the end.
HostTensor host_indices(const ArgumentArray& array, int64_t size) {
  HostTensor given(array.spec);
  if (!given.bytes().empty()) std::memcpy(given.bytes().data(), array.data, given.bytes().size());
  HostTensor indices = given.cast(i32);
  for (int32_t& index : indices.as<int32_t>()) {
    require(index >= -size && index < size, "[]: index must be in [{}, {}) on axis 0, got {}",
            -size, size, index);
    if (index < 0) index += static_cast<int32_t>(size);
  }
  return indices;
}

Tensor masked(const Tensor& t, const Tensor& mask) {
  return ops::where(mask, t, ops::scalar_like(t, 0));
}

/// Returns t indexed by a tensor or an array.
Tensor by_array(const Tensor& t, nb::handle key) {
  const Tensor* tensor = nullptr;
  if (nb::try_cast(key, tensor, /*convert=*/false) && tensor != nullptr) {
    if (tensor->dtype() == boolean) return masked(t, *tensor);
    if (is_float(tensor->dtype()))
      refuse_type(fmt::format("[]: a tensor must be of integers or bool, got {}",
                              name_of(tensor->dtype())));
    return ops::gather(t, *tensor);
  }
  const ArgumentArray array = array_argument(key, Access::kRead, "[]: index");
  if (array.spec.dtype == boolean) {
    HostTensor mask(array.spec);
    if (!mask.bytes().empty()) std::memcpy(mask.bytes().data(), array.data, mask.bytes().size());
    return masked(t, t.graph().constant(std::move(mask)));
  }
  if (is_float(array.spec.dtype))
    refuse_type(
        fmt::format("[]: an array must be of integers or bool, got {}", name_of(array.spec.dtype)));
  require(t.rank() > 0, "[]: a scalar has no axis to index");
  return ops::gather(t, t.graph().constant(host_indices(array, t.shape()[0])));
}

}  // namespace

Tensor index_tensor(const Tensor& t, nb::handle key) {
  const auto is_basic = [](nb::handle k) { return PySlice_Check(k.ptr()) || is_integer(k); };
  const auto refuse = [](nb::handle k) {
    refuse_type(
        fmt::format("[]: an index must be an integer, a slice, a tuple of both, or a tensor, array "
                    "or list of integers or bool, got {}",
                    python_type(k)));
  };
  if (is_basic(key)) return basic(t, {key});
  if (PyTuple_Check(key.ptr())) {
    std::vector<nb::handle> keys;
    for (const nb::handle k : nb::borrow<nb::tuple>(key)) {
      if (!is_basic(k)) refuse(k);
      keys.push_back(k);
    }
    return basic(t, keys);
  }
  if (PyBool_Check(key.ptr()) || !is_array_operand(key)) refuse(key);
  return by_array(t, key);
}

}  // namespace sluice::python
