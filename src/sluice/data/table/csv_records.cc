#include "sluice/data/table/csv_records.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "sluice/data/files/shown.h"

namespace sluice::data {

CsvRecords::CsvRecords(const std::string& file, std::string_view text, char separator)
    : file_(file), text_(text), separator_(separator) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (text_.starts_with(kByteOrderMark)) text_.remove_prefix(kByteOrderMark.size());
  // Skip empty lines at the end. Do not skip `\t`, which may separate empty cells.
  text_ = text_.substr(0, text_.find_last_not_of(" \r\n") + 1);
  if (separator_ == '\t') spaces_ = " ";
}

std::string_view CsvRecords::trimmed(std::string_view text) const {
  text.remove_prefix(std::min(text.find_first_not_of(spaces_), text.size()));
  return text.substr(0, text.find_last_not_of(spaces_) + 1);
}

/// Whether LF, CRLF or the end of the text is here.
bool CsvRecords::at_line_end() const {
  const std::string_view rest = text_.substr(at_);
  return rest.empty() || rest[0] == '\n' || rest == "\r" || rest.starts_with("\r\n");
}

void CsvRecords::plain_cell(std::vector<std::string_view>& cells) {
  const size_t begin = at_;
  while (at_ < text_.size() && text_[at_] != separator_ && text_[at_] != '\n') ++at_;
  std::string_view cell = text_.substr(begin, at_ - begin);
  if (at_line_end() && cell.ends_with('\r')) cell.remove_suffix(1);
  cells.push_back(trimmed(cell));
}

void CsvRecords::quoted_cell(std::vector<std::string_view>& cells) {
  const size_t begin = ++at_;
  size_t end = text_.find('"', begin);
  bool has_doubled = false;
  while (end != text_.npos && end + 1 < text_.size() && text_[end + 1] == '"') {
    has_doubled = true;
    end = text_.find('"', end + 2);
  }
  const size_t column = cells.size() + 1;
  if (end == text_.npos) bad("column {}: the quote must end, got the end of the file", column);
  const std::string_view inside = text_.substr(begin, end - begin);
  next_line_ += std::count(inside.begin(), inside.end(), '\n');
  cells.push_back(inside);
  if (has_doubled) {
    std::string& cell = unescaped_.emplace_back();
    for (size_t i = 0; i < inside.size(); i += inside[i] == '"' ? 2 : 1) cell += inside[i];
    cells.back() = cell;
  }
  at_ = end + 1;
  while (at_ < text_.size() && spaces_.find(text_[at_]) != spaces_.npos) ++at_;
  if (!at_line_end() && text_[at_] != separator_) {
    const char other = text_[at_];
    const bool may_separate = std::string_view(";,|\t").find(other) != std::string_view::npos;
    bad("column {}: a separator must follow the quote, got '{}'{}", column,
        printable(text_.substr(at_, 1)),
        may_separate ? fmt::format("; give --separator {}",
                                   other == '\t' ? "tab" : fmt::format("'{}'", other))
                     : "");
  }
}

void CsvRecords::next(std::vector<std::string_view>& cells) {
  line_ = next_line_;
  cells.clear();
  unescaped_.clear();
  while (true) {
    const size_t first = std::min(text_.find_first_not_of(spaces_, at_), text_.size());
    if (first < text_.size() && text_[first] == '"') {
      at_ = first;
      quoted_cell(cells);
    } else {
      plain_cell(cells);
    }
    const bool is_last = at_ == text_.size() || text_[at_] != separator_;
    if (!is_last) {
      ++at_;
      continue;
    }
    if (at_ < text_.size() && text_[at_] == '\r') ++at_;
    if (at_ < text_.size()) ++at_;
    ++next_line_;
    return;
  }
}

void check_separator(char separator, std::string_view what) {
  require(
      separator == '\t' || std::string_view(",;:|/&#").find(separator) != std::string_view::npos,
      "{}: the separator must be a tab or one of ,;:|/&#, got byte {}", what,
      static_cast<int>(separator));
}

std::optional<double> parse_number(std::string_view cell, char decimal) {
  constexpr std::string_view kSpaces = " \t";
  cell.remove_prefix(std::min(cell.find_first_not_of(kSpaces), cell.size()));
  cell = cell.substr(0, cell.find_last_not_of(kSpaces) + 1);
  std::string with_point;
  if (decimal != '.') {
    if (cell.find('.') != cell.npos || cell.size() > 400) return std::nullopt;
    with_point = cell;
    if (const size_t mark = with_point.find(decimal); mark != with_point.npos)
      with_point[mark] = '.';
    cell = with_point;
  }
  if (cell.starts_with('+') && !cell.starts_with("+-")) cell.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  const bool is_whole = error == std::errc{} && end == cell.data() + cell.size();
  return is_whole && std::isfinite(value) ? std::optional(value) : std::nullopt;
}

}  // namespace sluice::data
