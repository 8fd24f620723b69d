#pragma once
#include <string>
#include <vector>

namespace sluice::property {

/// One change of a plan's text.
struct TextDamage {
  size_t line = 0;                 ///< First line, from 0.
  size_t lines = 1;                ///< Number of lines to replace.
  std::vector<std::string> after;  ///< Lines that replace them.
};

/// The lines of a plan's text without comments.
std::vector<std::string> lines_of(const std::string& text);

/// Returns changes of every field of every line. Each number becomes one more, one less, zero, its
/// double and numbers out of range. Each word becomes words that occur in that context. Each string
/// becomes other strings. Each field is also removed, and each line is removed, repeated and
/// swapped with the next one.
std::vector<TextDamage> text_damages(const std::vector<std::string>& lines);

/// The text after a change.
std::string damaged(const std::vector<std::string>& lines, const TextDamage& damage);
/// The change in words: "line 12: 'a' -> 'b'".
std::string describe(const std::vector<std::string>& lines, const TextDamage& damage);

}  // namespace sluice::property
