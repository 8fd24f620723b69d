#include "python/bindings/options.h"

#include <fmt/ranges.h>
#include <nanobind/stl/string.h>

#include "python/bindings/graphs.h"

namespace sluice::python {

OptionTexts option_texts(nb::handle value) {
  if (nb::isinstance<nb::bool_>(value)) return {nb::cast<bool>(value) ? "true" : "false"};
  if (nb::isinstance<nb::list>(value) || nb::isinstance<nb::tuple>(value)) {
    OptionTexts texts;
    for (const nb::handle item : value) texts.push_back(nb::cast<std::string>(nb::str(item)));
    return texts;
  }
  return {nb::cast<std::string>(nb::str(value))};
}

std::string keyword_of(const std::string& name) { return name.substr(name.rfind('.') + 1); }

const char* type_of(OptionType type) {
  switch (type) {
    case OptionType::kFlag:
      return "bool";
    case OptionType::kInteger:
      return "int | str";
    case OptionType::kNumber:
      return "float | str";
    case OptionType::kList:
      return "list[str]";
    case OptionType::kText:
      break;
  }
  return "str | int";
}

void refuse_keyword(const std::string& what, const std::string& keyword,
                    const std::vector<std::string>& known) {
  refuse_type(fmt::format("{}: keyword must be one of {}, got '{}'", what, fmt::join(known, ", "),
                          keyword));
}

}  // namespace sluice::python
