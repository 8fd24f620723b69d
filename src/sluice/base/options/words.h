#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

/// Requires that `text` is one of the words. Error{kUsage} with the words and the nearest one.
void require_one_of(std::string_view option, std::string_view text,
                    const std::vector<std::string>& words);

/// Returns "; did you mean --seed?" for the word with the smallest edit distance to `text`
/// (insertions, deletions, replacements, swaps of neighbours), or an empty text if every distance
/// exceeds a third of the characters of `text`.
std::string suggestion(std::string_view text, const std::vector<std::string>& words);

/// Splits `text` at commas. Error{kUsage} for an empty part.
std::vector<std::string> split_list(std::string_view option, const std::string& text);

}  // namespace sluice
