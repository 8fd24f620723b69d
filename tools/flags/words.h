#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace sluice::tool {

/// Error{kUsage} with the words and the nearest one unless `text` is one of them.
void require_one_of(std::string_view option, std::string_view text,
                    const std::vector<std::string>& words);

/// "; did you mean --seed?" for the word that takes the fewest edits to become `text`: insertions,
/// deletions, replacements and swaps of neighbours, at most one for each three characters. Empty if
/// every word takes more.
std::string suggestion(std::string_view text, const std::vector<std::string>& words);

/// The parts of `text` between commas. Error{kUsage} if one is empty.
std::vector<std::string> split_list(std::string_view option, const std::string& text);

}  // namespace sluice::tool
