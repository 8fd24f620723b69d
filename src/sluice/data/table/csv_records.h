#pragma once
#include <fmt/format.h>

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sluice/base/error.h"

namespace sluice::data {

/// Reads the records of a CSV text one by one. Source: RFC 4180. A cell in quotes may contain
/// separators, line breaks and doubled quotes. Lines end with LF or CRLF. Spaces and tabs around a
/// cell, a byte order mark and empty lines at the end are ignored.
class CsvRecords {
 public:
  /// `text` is that of `file`. Both must outlive the object.
  CsvRecords(const std::string& file, std::string_view text, char separator);

  bool done() const { return at_ == text_.size(); }
  /// Line of the file in which the last record begins, from 1; 0 before the first record.
  int64_t line() const { return line_; }

  /// Stores the cells of the next record in `cells`. They are valid until the next call.
  /// Error{kBadFile} naming line and column for a quote without an end, or text after one.
  void next(std::vector<std::string_view>& cells);

  /// Throws Error{kBadFile} "FILE: line N: …" for the last record.
  template <typename... Args>
  [[noreturn]] void bad(fmt::format_string<Args...> format, Args&&... args) const {
    fail(ErrorKind::kBadFile, "{}: line {}: {}", file_, line_,
         fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  std::string_view trimmed(std::string_view text) const;
  bool at_line_end() const;
  void plain_cell(std::vector<std::string_view>& cells);
  void quoted_cell(std::vector<std::string_view>& cells);

  const std::string& file_;
  std::string_view text_;
  char separator_;
  std::string_view spaces_ = " \t";
  size_t at_ = 0;
  int64_t line_ = 0;
  int64_t next_line_ = 1;
  std::deque<std::string> unescaped_;  ///< Cells of the last record that had doubled quotes.
};

/// Throws Error{kUsage} unless a table may have this separator: a tab or one of ,;:|/&#.
void check_separator(char separator, std::string_view what);

/// Parses a finite number that fills the whole cell, except for spaces. `decimal` is the decimal
/// mark, '.' or ','.
std::optional<double> parse_number(std::string_view cell, char decimal = '.');

}  // namespace sluice::data
