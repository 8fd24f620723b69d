#pragma once
#include <string>
#include <vector>

namespace sluice::property {

/// One change of a plan's text.
struct TextDamage {
  size_t line = 0;                 ///< From 0.
  size_t lines = 1;                ///< Lines that are replaced.
  std::vector<std::string> after;  ///< Lines that stand there instead.
};

/// The lines of a plan's text without comments.
std::vector<std::string> lines_of(const std::string& text);

/// Changes of every field of every line: each number to one more, one less, zero, the double and
/// numbers out of range; each word to others that stand in such a place of the text; each string to
/// others; each field missing; each line missing, twice and behind the next one.
std::vector<TextDamage> text_damages(const std::vector<std::string>& lines);

/// The text after a change.
std::string damaged(const std::vector<std::string>& lines, const TextDamage& damage);
/// The change in words: "line 12: 'a' -> 'b'".
std::string describe(const std::vector<std::string>& lines, const TextDamage& damage);

}  // namespace sluice::property
