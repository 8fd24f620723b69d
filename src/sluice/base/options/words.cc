#include "sluice/base/options/words.h"

#include <fmt/format.h>

#include <algorithm>

#include "sluice/base/error.h"

namespace sluice {
namespace {

// Returns the smallest number of insertions, deletions, replacements and swaps of neighbours that
// turn `a` into `b`. Each part is edited at most once (optimal string alignment: Damerau, 1964).
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = i + j;
        continue;
      }
      const size_t replaced = d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      d[i][j] = std::min({replaced, d[i - 1][j] + 1, d[i][j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

}  // namespace

std::vector<std::string> split_list(std::string_view option, const std::string& text) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    require(end > begin, "{}: must not be empty, nor a part between commas, got '{}'", option,
            text);
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

void require_one_of(std::string_view option, std::string_view text,
                    const std::vector<std::string>& words) {
  if (std::find(words.begin(), words.end(), text) != words.end()) return;
  fail(ErrorKind::kUsage, "{}: must be one of {}, got '{}'{}", option, fmt::join(words, ", "), text,
       suggestion(text, words));
}

std::string suggestion(std::string_view text, const std::vector<std::string>& words) {
  const std::string* best = nullptr;
  size_t fewest = text.size() / 3 + 1;
  for (const std::string& word : words) {
    if (const size_t edits = edit_distance(text, word); edits < fewest) {
      fewest = edits;
      best = &word;
    }
  }
  return best == nullptr ? "" : fmt::format("; did you mean {}?", *best);
}

}  // namespace sluice
