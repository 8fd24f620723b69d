#include "tools/aliases.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

namespace sluice::tool {
namespace {

constexpr std::pair<std::string_view, std::string_view> kAliases[] = {
    {"--batch-size", "--micro-batch"},
    {"--test-batch-size", "--test-batch"},
    {"--learning-rate", "--lr"},
    {"--offload-optimiser", "--offload=optimizer"},
    {"--debug", "--log-level=debug"}};

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
  std::string text = "Other names of options:";
  for (const auto& [alias, name] : kAliases) text += fmt::format("\n  {:<24}{}", alias, name);
  return text;
}

}  // namespace sluice::tool
