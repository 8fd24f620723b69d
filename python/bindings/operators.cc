#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/bindings/arrays.h"
#include "python/bindings/graphs.h"
#include "sluice/ir/op_def.h"
#include "sluice/ops/ops.h"

/// Operators as data: the table of their definitions, and one function that adds an op. From the
/// table, generate/write_operators.py writes a Python function for each operator.
namespace sluice::python {
namespace {

/// Returns the default of an option as a Python value.
nb::object to_python(const AttrValue& value) {
  return std::visit(
      [](const auto& v) -> nb::object {
        if constexpr (std::is_same_v<std::decay_t<decltype(v)>, DType>) {
          return nb::cast(v);
        } else {
          return nb::cast(v);
        }
      },
      value);
}

/// Returns the value that Python gave to an option, in the option's type.
AttrValue from_python(nb::handle value, const AttrValue& type) {
  return std::visit(
      [&](const auto& t) -> AttrValue {
        using T = std::decay_t<decltype(t)>;
        if constexpr (std::is_same_v<T, DType>) {
          return dtype_argument(value);
        } else if constexpr (std::is_same_v<T, std::vector<int64_t>>) {
          return shape_argument(value).dims();
        } else {
          return nb::cast<T>(value);
        }
      },
      type);
}

nb::dict described(const OpDef& def) {
  nb::dict result;
  result["type"] = def.type;
  result["name"] = def.name;
  result["doc"] = def.doc;
  nb::list inputs, options;
  for (const InputDef& input : def.inputs) inputs.append(input.name);
  for (const auto& [name, value] : def.options.items)
    options.append(nb::make_tuple(name, to_python(value)));
  result["inputs"] = inputs;
  result["variadic"] = def.variadic;
  result["outputs"] = def.outputs;
  result["options"] = options;
  return result;
}

/// Returns the operands of an op. A number becomes a constant of the first tensor's dtype.
std::vector<TensorArg> operands_of(const OpDef& def, const nb::tuple& given) {
  const Tensor* first = nullptr;
  for (const nb::handle operand : given) {
    if (first == nullptr) nb::try_cast(operand, first, /*convert=*/false);
  }
  require(first != nullptr, "{}: at least one operand must be a tensor", def.name);
  std::vector<TensorArg> operands;
  for (const nb::handle operand : given) {
    const Tensor* tensor = nullptr;
    double number = 0;
    if (nb::try_cast(operand, tensor, /*convert=*/false)) {
      operands.emplace_back(*tensor);
    } else if (nb::try_cast(operand, number)) {
      operands.emplace_back(ops::scalar_like(*first, number));
    } else {
      throw nb::type_error(fmt::format("{}: operand {} must be a tensor or a number, got {}",
                                       def.name, operands.size(),
                                       nb::cast<std::string>(nb::str(operand.type())))
                               .c_str());
    }
  }
  return operands;
}

/// Adds an op to the graph of its operands; returns its result, or a tuple of several.
nb::object emit(int index, const nb::tuple& given, const nb::tuple& options,
                const std::string& name) {
  const OpDef& def = *at(ops::all_ops(), index);
  const std::vector<TensorArg> operands = operands_of(def, given);
  Attrs attrs = def.options;
  for (size_t i = 0; i < attrs.items.size(); ++i)
    attrs.items[i].second = from_python(options[i], attrs.items[i].second);
  const AtPythonLine line(operands.front().tensor.graph());
  EmitOptions emit_options;
  emit_options.name = name;
  const Tensors results = ops::emit(def, operands, std::move(attrs), std::move(emit_options));
  if (results.size() == 1) return nb::cast(results[0]);
  return nb::tuple(nb::cast(results));
}

}  // namespace

void bind_operators(nb::module_& m) {
  m.def(
      "operators",
      [] {
        nb::list all;
        for (const OpDef* def : ops::all_ops()) all.append(described(*def));
        return all;
      },
      "Returns the definitions of all operators.");
  m.def("emit", emit, "index"_a, "operands"_a, "options"_a, "name"_a = "",
        "Adds the op of definition `index` of operators().");
}

}  // namespace sluice::python
