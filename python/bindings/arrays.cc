#include "python/bindings/arrays.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <optional>

#include "sluice/base/dtype.h"
#include "sluice/base/shape.h"

namespace sluice::python {
namespace {

using AnyArray = nb::ndarray<nb::device::cpu>;
using ReadableArray = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;
using WritableArray = nb::ndarray<nb::c_contig, nb::device::cpu>;

/// Returns the dtype of DLPack's description, if the library has it.
std::optional<DType> from_dlpack(nb::dlpack::dtype type) {
  using nb::dlpack::dtype_code;
  if (type.lanes != 1) return std::nullopt;
  switch (static_cast<dtype_code>(type.code)) {
    case dtype_code::Float:
      if (type.bits == 16) return f16;
      if (type.bits == 32) return f32;
      if (type.bits == 64) return f64;
      return std::nullopt;
    case dtype_code::Bfloat:
      return type.bits == 16 ? std::optional(bf16) : std::nullopt;
    case dtype_code::Int:
      if (type.bits == 32) return i32;
      if (type.bits == 64) return i64;
      return std::nullopt;
    case dtype_code::UInt:
      if (type.bits == 8) return u8;
      if (type.bits == 32) return u32;
      return std::nullopt;
    case dtype_code::Bool:
      return boolean;
    default:
      return std::nullopt;
  }
}

nb::dlpack::dtype to_dlpack(DType dtype) {
  using nb::dlpack::dtype_code;
  const auto code = dtype == bf16                 ? dtype_code::Bfloat
                    : is_float(dtype)             ? dtype_code::Float
                    : dtype == boolean            ? dtype_code::Bool
                    : dtype == u8 || dtype == u32 ? dtype_code::UInt
                                                  : dtype_code::Int;
  return {static_cast<uint8_t>(code), static_cast<uint8_t>(8 * size_of(dtype)), 1};
}

template <typename Array>
ArgumentArray described(const Array& array, const std::string& what) {
  const std::optional<DType> dtype = from_dlpack(array.dtype());
  require(dtype.has_value(),
          "{}: must be float16, bfloat16, float32, float64, int32, int64, uint8, uint32 or bool, "
          "got an array of {} bits of another type",
          what, static_cast<int>(array.dtype().bits));
  std::vector<int64_t> dims;
  for (size_t i = 0; i < array.ndim(); ++i) dims.push_back(static_cast<int64_t>(array.shape(i)));
  return {nb::cast(array, nb::rv_policy::reference),
          {Shape(std::move(dims)), *dtype, {}},
          const_cast<void*>(static_cast<const void*>(array.data()))};
}

}  // namespace

ArgumentArray array_argument(nb::handle object, Access access, const std::string& what) {
  if (access == Access::kWrite) {
    WritableArray array;
    require(nb::try_cast(object, array, /*convert=*/false),
            "{}: must be a writable row-major array in host memory, got {}", what,
            nb::cast<std::string>(nb::str(object.type())));
    ArgumentArray result = described(array, what);
    result.owner = nb::borrow(object);
    return result;
  }
  ReadableArray array;
  if (nb::try_cast(object, array, /*convert=*/false)) {
    ArgumentArray result = described(array, what);
    result.owner = nb::borrow(object);
    return result;
  }
  const nb::object copy = nb::module_::import_("numpy").attr("asarray")(object, "order"_a = "C");
  require(nb::try_cast(copy, array, /*convert=*/false),
          "{}: must be an array in host memory, got {}", what,
          nb::cast<std::string>(nb::str(object.type())));
  ArgumentArray result = described(array, what);
  result.owner = copy;
  return result;
}

nb::object numpy_view(const TensorSpec& spec, void* data, nb::handle owner) {
  const std::vector<size_t> dims(spec.shape.begin(), spec.shape.end());
  return nb::cast(
      nb::ndarray<nb::numpy>(data, dims.size(), dims.data(), owner, nullptr, to_dlpack(spec.dtype)),
      nb::rv_policy::reference);
}

nb::object to_numpy(HostTensor array) {
  auto* const moved = new HostTensor(std::move(array));
  const nb::capsule owner(moved, [](void* p) noexcept { delete static_cast<HostTensor*>(p); });
  return numpy_view(moved->spec(), moved->bytes().data(), owner);
}

HostTensor host_value(nb::handle data, nb::handle dtype, const std::string& what) {
  const ArgumentArray array = array_argument(data, Access::kRead, what);
  HostTensor value(array.spec);
  const std::span<std::byte> bytes = value.bytes();
  if (!bytes.empty()) std::memcpy(bytes.data(), array.data, bytes.size());
  if (!dtype.is_none()) return value.cast(dtype_argument(dtype));
  if (value.dtype() == f64) return value.cast(f32);
  if (value.dtype() == i64) return value.cast(i32);
  return value;
}

DType dtype_argument(nb::handle object) {
  DType ours;
  if (nb::try_cast(object, ours, /*convert=*/false)) return ours;
  std::string name;
  if (nb::try_cast(object, name)) return dtype_from_name(name);
  const nb::object known = nb::module_::import_("numpy").attr("dtype")(object);
  return dtype_from_name(nb::cast<std::string>(known.attr("name")));
}

Shape shape_argument(nb::handle object) {
  std::vector<int64_t> dims;
  int64_t single = 0;
  if (nb::try_cast(object, single)) return Shape{single};
  for (const nb::handle d : object) dims.push_back(nb::cast<int64_t>(d));
  return Shape(std::move(dims));
}

nb::tuple to_tuple(const Shape& shape) {
  nb::list dims;
  for (const int64_t d : shape) dims.append(d);
  return nb::tuple(dims);
}

void bind_arrays(nb::module_& m) {
  nb::enum_<DType> dtype(m, "dtype", "Type of the elements of a tensor.");
  for (const DType d : {f32, f16, bf16, i32, u32, u8, boolean, f64, i64})
    dtype.value(d == boolean ? "bool_" : std::string(name_of(d)).c_str(), d);
  dtype.def_prop_ro(
      "itemsize", [](DType d) { return size_of(d); }, "Bytes of an element.");
  nb::class_<TensorSpec>(m, "TensorSpec", "Shape and dtype of a tensor.")
      .def(
          "__init__",
          [](TensorSpec* spec, const nb::object& shape, const nb::object& dtype,
             const nb::object& meta_shape) {
            new (spec) TensorSpec{shape_argument(shape), dtype_argument(dtype),
                                  shape_argument(meta_shape)};
          },
          "shape"_a, "dtype"_a, "meta_shape"_a = nb::tuple())
      .def_prop_ro("shape", [](const TensorSpec& s) { return to_tuple(s.shape); })
      .def_ro("dtype", &TensorSpec::dtype)
      .def_prop_ro("meta_shape", [](const TensorSpec& s) { return to_tuple(s.meta_shape); })
      .def("__eq__", [](const TensorSpec& a, const TensorSpec& b) { return a == b; })
      .def("__hash__", [](const TensorSpec& s) { return std::hash<std::string>()(to_string(s)); })
      .def("__repr__", [](const TensorSpec& s) { return "TensorSpec[" + to_string(s) + "]"; });
}

}  // namespace sluice::python
