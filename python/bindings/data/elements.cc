#include "python/bindings/data/elements.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <cstring>

#include "python/bindings/arrays.h"

namespace sluice::python {
namespace {

std::string class_name(nb::handle object) {
  return nb::cast<std::string>(nb::type_name(object.type()));
}

nb::object numpy(const char* name) { return nb::module_::import_("numpy").attr(name); }

/// Whether an array is of integers that the library does not have.
bool is_other_integer(nb::dlpack::dtype type) {
  using nb::dlpack::dtype_code;
  const auto code = static_cast<dtype_code>(type.code);
  if (code == dtype_code::Int) return type.bits != 32 && type.bits != 64;
  return code == dtype_code::UInt && type.bits != 8 && type.bits != 32;
}

/// Converts float64 and int64 to what devices have.
HostTensor narrowed(HostTensor array, const std::string& what) {
  if (array.dtype() == f64) return array.cast(f32);
  if (array.dtype() != i64) return array;
  for (const int64_t value : array.as<int64_t>()) {
    require(value >= std::numeric_limits<int32_t>::min() &&
                value <= std::numeric_limits<int32_t>::max(),
            "{}: integers must be in the range of int32, got {}", what, value);
  }
  return array.cast(i32);
}

/// Whether an entry of a list makes the list a tuple of arrays: an array, but not numpy's number.
bool is_array(nb::handle entry) {
  if (nb::isinstance<nb::float_>(entry) || nb::isinstance<nb::int_>(entry)) return false;
  return nb::hasattr(entry, "shape") && !nb::isinstance(entry, numpy("generic"));
}

bool is_tuple(nb::handle value) {
  if (nb::isinstance<nb::tuple>(value)) return true;
  return nb::isinstance<nb::list>(value) && nb::len(value) > 0 && is_array(value[0]);
}

void add_field(data::Element& element, nb::handle name, nb::handle value) {
  require(nb::isinstance<nb::str>(name), "element: names of fields must be str, got {}",
          class_name(name));
  element.names.push_back(nb::cast<std::string>(name));
  element.arrays.push_back(array_of(value, "field '" + element.names.back() + "'"));
}

}  // namespace

HostTensor array_of(nb::handle object, const std::string& what) {
  const bool is_text = nb::isinstance<nb::str>(object) || nb::isinstance<nb::bytes>(object);
  require(!object.is_none() && !is_text && !nb::isinstance<nb::dict>(object) &&
              !nb::isinstance<nb::tuple>(object),
          "{}: must be an array or a number, got {}", what, class_name(object));
  nb::object array = nb::borrow(object);
  nb::ndarray<nb::ro, nb::device::cpu> any;
  if (!nb::try_cast(array, any, /*convert=*/false)) {
    array = numpy("asarray")(array);
    const nb::object dtype = array.attr("dtype");
    require(nb::try_cast(array, any, /*convert=*/false),
            "{}: must be an array of numbers, got an array of {}", what, nb::str(dtype).c_str());
  }
  if (is_other_integer(any.dtype())) array = numpy("asarray")(array).attr("astype")("int64");
  const ArgumentArray found = array_argument(array, Access::kRead, what);
  HostTensor copy(found.spec);
  if (!copy.bytes().empty()) std::memcpy(copy.bytes().data(), found.data, copy.bytes().size());
  return narrowed(std::move(copy), what);
}

data::Element element_of(nb::handle value) {
  data::Element element;
  if (nb::isinstance<nb::dict>(value)) {
    for (const auto [name, array] : nb::borrow<nb::dict>(value)) add_field(element, name, array);
  } else if (nb::isinstance<nb::tuple>(value) && nb::hasattr(value, "_fields")) {
    size_t i = 0;
    for (const nb::handle name : value.attr("_fields")) add_field(element, name, value[i++]);
  } else if (is_tuple(value)) {
    for (const nb::handle entry : value)
      element.arrays.push_back(
          array_of(entry, "array " + std::to_string(element.arrays.size()) + " of the element"));
  } else {
    element.arrays.push_back(array_of(value, "element"));
  }
  return element;
}

nb::object to_python(data::Element element) {
  if (!element.names.empty()) {
    nb::dict fields;
    for (size_t i = 0; i < element.arrays.size(); ++i)
      fields[element.names[i].c_str()] = to_numpy(std::move(element.arrays[i]));
    return fields;
  }
  if (element.arrays.size() == 1) return to_numpy(std::move(element.arrays[0]));
  nb::list arrays;
  for (HostTensor& array : element.arrays) arrays.append(to_numpy(std::move(array)));
  return nb::tuple(arrays);
}

std::optional<data::ElementSpecs> specs_argument(nb::handle specs) {
  if (specs.is_none()) return std::nullopt;
  data::ElementSpecs result;
  const auto add = [&](nb::handle spec) {
    TensorSpec known;
    require(nb::try_cast(spec, known), "specs: must be TensorSpec, a tuple or a dict of it, got {}",
            class_name(spec));
    result.arrays.push_back(known);
  };
  if (nb::isinstance<nb::dict>(specs)) {
    for (const auto [name, spec] : nb::borrow<nb::dict>(specs)) {
      result.names.push_back(nb::cast<std::string>(nb::str(name)));
      add(spec);
    }
  } else if (nb::isinstance<nb::tuple>(specs) || nb::isinstance<nb::list>(specs)) {
    for (const nb::handle spec : specs) add(spec);
  } else {
    add(specs);
  }
  return result;
}

nb::object to_python(const data::ElementSpecs& specs) {
  if (!specs.names.empty()) {
    nb::dict fields;
    for (size_t i = 0; i < specs.arrays.size(); ++i)
      fields[specs.names[i].c_str()] = nb::cast(specs.arrays[i]);
    return fields;
  }
  if (specs.arrays.size() == 1) return nb::cast(specs.arrays[0]);
  nb::list arrays;
  for (const TensorSpec& spec : specs.arrays) arrays.append(nb::cast(spec));
  return nb::tuple(arrays);
}

}  // namespace sluice::python
