#include "python/bindings/operands.h"

#include <nanobind/stl/string.h>

#include <cstring>

#include "python/bindings/arrays.h"
#include "sluice/ops/arithmetic.h"

namespace sluice::python {

std::string python_type(nb::handle object) {
  return nb::cast<std::string>(object.type().attr("__name__"));
}

bool is_array_operand(nb::handle object) {
  // numpy's scalars have no length.
  return !PyUnicode_Check(object.ptr()) && !PyBytes_Check(object.ptr()) &&
         !PyDict_Check(object.ptr()) && nb::hasattr(object, "__len__");
}

namespace {

bool is_number(nb::handle object) {
  return PyFloat_Check(object.ptr()) || PyLong_Check(object.ptr()) ||
         (nb::hasattr(object, "__float__") && !is_array_operand(object));
}

}  // namespace

bool is_constant_operand(nb::handle object) {
  return is_number(object) || (is_array_operand(object) && !nb::isinstance<Tensor>(object));
}

Tensor operand_like(const Tensor& like, nb::handle object, std::string_view what) {
  const Tensor* tensor = nullptr;
  if (nb::try_cast(object, tensor, /*convert=*/false) && tensor != nullptr) return *tensor;
  if (is_number(object)) return ops::scalar_like(like, nb::cast<double>(object));
  if (!is_array_operand(object)) {
    refuse_type(fmt::format("{}: must be a tensor, a number or an array, got {}", what,
                            python_type(object)));
  }
  const ArgumentArray array = array_argument(object, Access::kRead, std::string(what));
  HostTensor value(array.spec);
  const std::span<std::byte> bytes = value.bytes();
  if (!bytes.empty()) std::memcpy(bytes.data(), array.data, bytes.size());
  return like.graph().constant(value.cast(like.dtype()));
}

const Tensor& first_tensor(const std::vector<nb::handle>& operands, std::string_view what) {
  const Tensor* tensor = nullptr;
  for (const nb::handle operand : operands) {
    if (nb::try_cast(operand, tensor, /*convert=*/false) && tensor != nullptr) return *tensor;
  }
  refuse_type(fmt::format("{}: at least one operand must be a tensor", what));
}

std::vector<int64_t> ints_argument(nb::handle object, std::string_view what) {
  const auto is_integer = [](nb::handle item) {
    return PyIndex_Check(item.ptr()) != 0 && !nb::hasattr(item, "__len__") &&
           !nb::isinstance<Tensor>(item);
  };
  const auto integer = [](nb::handle item) {
    return nb::cast<int64_t>(nb::int_(nb::borrow(item)));
  };
  if (is_integer(object)) return {integer(object)};
  const auto refuse = [&](nb::handle got) {
    refuse_type(fmt::format("{}: must be an integer or a list of integers, got {}", what,
                            python_type(got)));
  };
  if (!is_array_operand(object) || nb::isinstance<Tensor>(object)) refuse(object);
  std::vector<int64_t> values;
  for (const nb::handle item : object) {
    if (!is_integer(item)) refuse(item);
    values.push_back(integer(item));
  }
  return values;
}

}  // namespace sluice::python
