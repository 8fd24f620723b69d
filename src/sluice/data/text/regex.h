#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::data {

/// The bytes [begin, end) of a text.
struct TextRange {
  size_t begin = 0;
  size_t end = 0;
  bool operator==(const TextRange&) const = default;
};

/// A regular expression over Unicode characters, in the syntax that Oniguruma and PCRE2 share: the
/// files of Hugging Face's tokenizers have expressions for Oniguruma, and PCRE2 runs them here. ^
/// and $ match at the beginning and end of each line. Several threads may use one object.
class Regex {
 public:
  /// Error{kBadFile} naming `file` and the byte of `pattern` if it is not a regular expression, or
  /// if it has \h, \H, {n}+, or a class within a class, which the two libraries read differently.
  Regex(const std::string& pattern, const std::string& file);

  /// Returns the ranges of all matches from front to back. They do not overlap. A match is empty
  /// only if no other match ends there. `text` must be UTF-8. Error{kBadFile} naming the file if a
  /// search needs more than about ten million steps and 64 for each byte, or 16 MiB of stack.
  std::vector<TextRange> matches(std::string_view text) const;

 private:
  struct Code;
  std::shared_ptr<const Code> code_;
};

}  // namespace sluice::data
