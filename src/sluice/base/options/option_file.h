#pragma once
#include <string>
#include <utility>
#include <vector>

#include "sluice/base/options/option.h"

namespace sluice {

/// The values of options in a file, as texts, by name.
using FileOptions = std::vector<std::pair<std::string, OptionTexts>>;

/// Reads a JSON object of options. Names with points may be nested objects. `known` has the name
/// and type of each option. Error{kIo} if the file cannot be read; Error{kBadFile} for another name
/// and for a JSON value of another type.
FileOptions parse_option_file(const std::string& path,
                              const std::vector<std::pair<std::string, OptionType>>& known);

/// An option with its value, as texts.
struct OptionValue {
  std::string name;  ///< As in Option.
  OptionType type = OptionType::kText;
  OptionTexts texts;
};

/// Formats options as a JSON object, which parse_option_file() reads: one line each, in this order.
/// Error{kUsage} for a text that is not UTF-8.
std::string to_json(const std::vector<OptionValue>& options);

/// Sets the options that a JSON file names, in the order of the table. Errors as above, and
/// Error{kBadFile} for a wrong value.
template <typename S>
void read_option_file(const std::string& path, const OptionTable<S>& table, S& options) {
  std::vector<std::pair<std::string, OptionType>> known;
  for (const Option<S>& o : table) {
    if (o.read != nullptr) known.emplace_back(o.name, o.type);
  }
  const FileOptions given = parse_option_file(path, known);
  for (const Option<S>& o : table) {
    for (const auto& [name, texts] : given) {
      if (name != o.name) continue;
      try {
        table.set(o, options, texts, OptionNames::kMembers);
      } catch (const Error& e) {
        fail(ErrorKind::kBadFile, "{}: {}", path, e.what());
      }
    }
  }
}

}  // namespace sluice
