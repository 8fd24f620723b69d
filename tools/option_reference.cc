// Prints the options of training and inference as a Markdown table, from their own definitions.
#include <fmt/core.h>

#include <string>

#include "sluice/train/options/option_table.h"

namespace sluice::train {
namespace {

std::string values_of(const Option<Options>& option) {
  if (option.read == nullptr) return "an object of C++";
  if (option.type == OptionType::kFlag) return "true, false";
  std::string text = option.placeholder;
  for (size_t at = 0; (at = text.find('|', at)) != text.npos; at += 2) text.replace(at, 1, ", ");
  return text;
}

void print_reference() {
  fmt::print("| option | values | default | effect | requires |\n|---|---|---|---|---|\n");
  for (const Option<Options>& option : options_table()) {
    std::string required;
    for (const Requirement<Options>& r : option.requirements)
      required +=
          (required.empty() ? "" : ", ") + options_table().text_of(r, OptionNames::kMembers);
    fmt::print("| `{}` | {} | {} | {} | {} |\n", option.name, values_of(option),
               option.print(Options()), option.help, required);
  }
}

}  // namespace
}  // namespace sluice::train

int main() { sluice::train::print_reference(); }
