#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/bindings/arrays.h"
#include "python/bindings/operands.h"
#include "sluice/ir/op_def.h"
#include "sluice/ops/ops.h"

/// Operators as data: the table of their definitions, and one function that adds an op. From the
/// table, generate/write_operators.py writes a Python function for each operator.
namespace sluice::python {
namespace {

/// Returns the default of an option as a Python value: for an enum, its word.
nb::object to_python(const AttrValue& value, std::string_view words) {
  return std::visit(
      [&](const auto& v) -> nb::object {
        if constexpr (std::is_same_v<std::decay_t<decltype(v)>, int64_t>) {
          if (!words.empty()) return nb::cast(std::string(word_at(words, v)));
        }
        return nb::cast(v);
      },
      value);
}

/// Returns the value that Python gave to an option, in the type of `known`, its default. None is
/// the default.
AttrValue from_python(nb::handle value, const AttrValue& known, std::string_view words,
                      const std::string& what) {
  if (value.is_none()) return known;
  return std::visit(
      [&](const auto& k) -> AttrValue {
        using T = std::decay_t<decltype(k)>;
        T result{};
        if constexpr (std::is_same_v<T, DType>) {
          return dtype_argument(value);
        } else if constexpr (std::is_same_v<T, std::vector<int64_t>>) {
          return ints_argument(value, what);
        } else if constexpr (std::is_same_v<T, int64_t>) {
          std::string word;
          if (!words.empty() && nb::try_cast(value, word)) return index_of_word(words, word, what);
          if (words.empty() && PyIndex_Check(value.ptr()) != 0 && nb::try_cast(value, result))
            return result;
          refuse_type(fmt::format("{}: must be {}, got {}", what,
                                  words.empty() ? "an integer" : "a word", python_type(value)));
        } else {
          if (nb::try_cast(value, result)) return result;
          const char* const type = std::is_same_v<T, bool>          ? "a bool"
                                   : std::is_same_v<T, double>      ? "a number"
                                   : std::is_same_v<T, std::string> ? "a string"
                                                                    : "a list of numbers";
          refuse_type(fmt::format("{}: must be {}, got {}", what, type, python_type(value)));
        }
      },
      known);
}

nb::dict described(const OpDef& def) {
  nb::dict result;
  result["type"] = def.type;
  result["name"] = def.name;
  result["doc"] = def.doc;
  result["public"] = def.audience == Audience::kPrograms;
  nb::list inputs, options;
  for (const InputDef& input : def.inputs) inputs.append(input.name);
  for (size_t i = 0; i < def.options.items.size(); ++i) {
    const auto& [name, value] = def.options.items[i];
    const FieldInfo field = def.fields.empty() ? FieldInfo{} : def.fields[i];
    nb::dict option;
    option["name"] = name;
    option["default"] = to_python(value, field.words);
    option["words"] = std::string(field.words);
    option["doc"] = std::string(field.doc);
    option["required"] = field.required;
    options.append(option);
  }
  result["inputs"] = inputs;
  result["variadic"] = def.variadic;
  result["outputs"] = def.outputs;
  result["options"] = options;
  return result;
}

/// Returns the operands of an op. A number or an array becomes a constant of the first tensor's
/// dtype.
std::vector<TensorArg> operands_of(const OpDef& def, const nb::tuple& given) {
  const std::vector<nb::handle> all(given.begin(), given.end());
  const Tensor& like = first_tensor(all, def.name);
  std::vector<TensorArg> operands;
  for (const nb::handle operand : all) {
    operands.emplace_back(
        operand_like(like, operand, fmt::format("{}: operand {}", def.name, operands.size())));
  }
  return operands;
}

/// Adds an op to the graph of its operands; returns its result, or a tuple of several.
nb::object emit(int index, const nb::tuple& given, const nb::tuple& options,
                const std::string& name) {
  const OpDef& def = *at(ops::all_ops(), index);
  const AtPythonLine line;
  const std::vector<TensorArg> operands = operands_of(def, given);
  Attrs attrs = def.options;
  for (size_t i = 0; i < attrs.items.size(); ++i) {
    auto& [option, value] = attrs.items[i];
    value = from_python(options[i], value,
                        def.fields.empty() ? std::string_view() : def.fields[i].words,
                        fmt::format("{}: {}", def.name, option));
  }
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
