#include "tools/aliases.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

namespace sluice::tool {
namespace {

constexpr std::pair<std::string_view, std::string_view> kAliases[] = {
    {"--batch-size", "--micro-batch"}, {"--test-batch-size", "--test-batch"},
    {"--learning-rate", "--lr"},       {"--offload-optimiser", "--offload=optimizer"},
    {"--debug", "--log-level=debug"},  {"-h", "--help"}};

}  // namespace

std::vector<std::string> without_aliases(std::vector<std::string> words) {
  for (std::string& word : words) {
    const size_t end = std::min(word.find('='), word.size());
    for (const auto& [alias, name] : kAliases) {
      if (std::string_view(word).substr(0, end) != alias) continue;
      word.replace(0, end, name);
      break;
    }
  }
  return words;
}

std::string aliases_text() {
  constexpr size_t kOfLine = 3;  // So that a line fits a screen.
  std::string text = "Other names: ";
  size_t count = 0;
  for (const auto& [alias, name] : kAliases) {
    if (count > 0) text += count % kOfLine == 0 ? ",\n" : ", ";
    text += fmt::format("{} ({})", alias, name);
    ++count;
  }
  return text;
}

}  // namespace sluice::tool
