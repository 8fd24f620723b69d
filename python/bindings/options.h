#pragma once
#include <string>
#include <vector>

#include "python/bindings/bindings.h"
#include "sluice/base/options/option.h"

/// Options as keywords. Names, types, defaults and help come from the option table of a struct, as
/// flags and JSON do, so that a new option needs no change here.
namespace sluice::python {

/// Returns the value of a keyword as texts: "true", "4096", "file:/tmp", or those of a list.
OptionTexts option_texts(nb::handle value);
/// Returns the keyword of an option: the last part of its name ("memory" for device.memory).
std::string keyword_of(const std::string& name);
/// Returns Python's type of the values of an option, for signatures.
const char* type_of(OptionType type);
/// Raises ArgumentTypeError for a keyword that is none of `known`.
[[noreturn]] void refuse_keyword(const std::string& what, const std::string& keyword,
                                 const std::vector<std::string>& known);

/// Sets the options that keywords name, in the order of the table: each follows those that it
/// requires. A keyword with None keeps its default. `what` begins errors.
template <typename S>
void set_options(const std::string& what, const OptionTable<S>& table, S& options,
                 const nb::kwargs& keywords) {
  std::vector<std::string> known;
  size_t found = 0;
  for (const Option<S>& option : table) {
    if (option.read == nullptr) continue;
    const std::string keyword = keyword_of(option.name);
    known.push_back(keyword);
    if (!keywords.contains(keyword.c_str())) continue;
    ++found;
    const nb::object value = keywords[keyword.c_str()];
    if (!value.is_none()) table.set(option, options, option_texts(value), OptionNames::kMembers);
  }
  if (found == keywords.size()) return;
  for (const auto [key, value] : keywords) {
    const auto keyword = nb::cast<std::string>(key);
    if (std::find(known.begin(), known.end(), keyword) == known.end())
      refuse_keyword(what, keyword, known);
  }
}

/// Returns the keywords of a table for a signature: "memory: str | int | None = None, …".
template <typename S>
std::string keyword_signature(const OptionTable<S>& table) {
  std::string text;
  for (const Option<S>& option : table) {
    if (option.read == nullptr) continue;
    text += fmt::format("{}{}: {} | None = None", text.empty() ? "" : ", ", keyword_of(option.name),
                        type_of(option.type));
  }
  return text;
}

/// Returns a line of documentation for each keyword: its help and its default.
template <typename S>
std::string keyword_docs(const OptionTable<S>& table) {
  const S defaults;
  std::string text;
  for (const Option<S>& option : table) {
    if (option.read == nullptr) continue;
    const std::string& known = option.default_text;
    text += fmt::format("\n    {}: {} (default: {})", keyword_of(option.name), option.help,
                        known.empty() ? option.print(defaults) : known);
  }
  return text;
}

}  // namespace sluice::python
