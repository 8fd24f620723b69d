#pragma once
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "python/bindings/graphs.h"
#include "sluice/ops/hypers.h"

/// Arguments of operators as Python passes them.
namespace sluice::python {

/// Returns the name of an object's type, for errors.
std::string python_type(nb::handle object);

/// Whether an object is a tensor or an array: a list, numpy's, torch's.
bool is_array_operand(nb::handle object);
/// Whether an object is a number or an array, but no tensor: it can become a constant operand.
bool is_constant_operand(nb::handle object);
/// Returns an operand. A number or an array becomes a constant of the dtype of `like`. `what`
/// begins errors: "add: operand 1".
Tensor operand_like(const Tensor& like, nb::handle object, std::string_view what);
/// Returns the first tensor among operands. ArgumentTypeError if there is none.
const Tensor& first_tensor(const std::vector<nb::handle>& operands, std::string_view what);

/// Returns integers; Python may give one integer or a sequence. `what` begins errors.
std::vector<int64_t> ints_argument(nb::handle object, std::string_view what);

/// A list of integers, for which Python may give one.
struct Ints {
  std::vector<int64_t> values;
};

/// A hyperparameter: a scalar tensor or a number.
using Hyper = std::variant<Tensor, double>;
inline ops::HyperArg hyper_arg(const Hyper& value) {
  if (const auto* tensor = std::get_if<Tensor>(&value)) return {*tensor};
  return {std::get<double>(value)};
}

}  // namespace sluice::python

namespace nanobind::detail {

template <>
struct type_caster<sluice::python::Ints> {
  NB_TYPE_CASTER(sluice::python::Ints, const_name("int | Sequence[int]"))

  bool from_python(handle source, uint8_t, cleanup_list*) noexcept {
    try {
      value.values = sluice::python::ints_argument(source, "");
      return true;
    } catch (python_error& error) {
      return false;
    } catch (const std::exception&) {
      return false;
    }
  }
};

}  // namespace nanobind::detail
