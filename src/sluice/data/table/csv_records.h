#pragma once
#include <fmt/format.h>

#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sluice/base/error.h"
#include "sluice/data/table/csv_text.h"

namespace sluice::data {

/// Reads the records of a CSV text one by one, with a buffer of 256 KiB, or of the longest record.
/// Source: RFC 4180. A cell in quotes may contain separators, line breaks and doubled quotes. Lines
/// end with LF or CRLF. Spaces and tabs around a cell are ignored.
class CsvRecords {
 public:
  /// Reads all records. `text` must outlive the object.
  CsvRecords(const CsvText& text, char separator);
  /// Reads the records in bytes [begin, end) of the text. `line` is that of the first record.
  CsvRecords(const CsvText& text, char separator, int64_t begin, int64_t end, int64_t line);
  CsvRecords(const CsvRecords&) = delete;
  CsvRecords& operator=(const CsvRecords&) = delete;

  bool done() const { return offset() == end_; }
  /// Line of the file in which the last record begins, from 1; 0 before the first record.
  int64_t line() const { return line_; }
  /// Line and byte of the file in which the next record begins.
  int64_t next_line() const { return next_line_; }
  int64_t offset() const { return base_ + static_cast<int64_t>(at_); }
  const CsvText& text() const { return text_of_file_; }

  /// Stores the cells of the next record in `cells`. They are valid until the next call.
  /// Error{kBadFile} naming line and column for a quote without an end, or text after one; naming
  /// the line for a record of more than 16 MiB.
  void next(std::vector<std::string_view>& cells);
  /// Skips `count` records, of which there must be as many. A record without a quote is not parsed,
  /// since it ends with its line. Errors as next().
  void skip(int64_t count);

  /// Throws Error{kBadFile} "FILE: line N: …" for the last record.
  template <typename... Args>
  [[noreturn]] void bad(fmt::format_string<Args...> format, Args&&... args) const {
    fail(ErrorKind::kBadFile, "{}: line {}: {}", text_of_file_.path(), line_,
         fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  std::string_view trimmed(std::string_view text) const;
  /// Whether the text goes on after the buffer.
  bool has_more() const { return base_ + static_cast<int64_t>(text_.size()) < end_; }
  bool at_line_end() const;
  /// These read a cell, or all cells of a record. They return false if the buffer ends before it is
  /// certain where they end.
  bool plain_cell(std::vector<std::string_view>& cells);
  bool quoted_cell(std::vector<std::string_view>& cells);
  bool record(std::vector<std::string_view>& cells);
  void check_separator_after_quote(size_t column) const;
  void refill();

  const CsvText& text_of_file_;
  char separator_;
  std::string_view spaces_ = " \t";
  std::string buffer_;
  std::string_view text_;  ///< The buffer, or a text in memory.
  int64_t base_ = 0;       ///< Byte offset of `text_` in the file.
  int64_t end_ = 0;        ///< Byte offset of the end of the last record.
  size_t at_ = 0;
  int64_t line_ = 0;
  int64_t next_line_ = 1;
  std::list<std::string> unescaped_;  ///< Cells of the last record that had doubled quotes.
};

/// Throws Error{kUsage} unless a table may have this separator: a tab or one of ,;:|/&#.
void check_separator(char separator, std::string_view what);

/// Parses a finite number that fills the whole cell, except for spaces. `decimal` is the decimal
/// mark, '.' or ','.
std::optional<double> parse_number(std::string_view cell, char decimal = '.');

}  // namespace sluice::data
