#include "sluice/data/table/csv_records.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "sluice/data/files/shown.h"

namespace sluice::data {

namespace {

constexpr int64_t kBufferBytes = int64_t{256} << 10;
constexpr int64_t kMaxRecordBytes = int64_t{16} << 20;

}  // namespace

CsvRecords::CsvRecords(const CsvText& text, char separator)
    : CsvRecords(text, separator, text.begin(), text.end(), 1) {}

CsvRecords::CsvRecords(const CsvText& text, char separator, int64_t begin, int64_t end,
                       int64_t line)
    : text_of_file_(text), separator_(separator), base_(begin), end_(end), next_line_(line) {
  if (separator_ == '\t') spaces_ = " ";
  if (text.is_held())
    text_ = text.held().substr(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
}

/// Continues the buffer from the next record on.
void CsvRecords::refill() {
  const int64_t kept = std::ssize(text_) - static_cast<int64_t>(at_);
  if (kept > kMaxRecordBytes)
    bad("a record must have at most {} bytes, got more; does a quote have its end?",
        kMaxRecordBytes);
  buffer_.erase(0, at_);
  base_ += static_cast<int64_t>(at_);
  at_ = 0;
  const int64_t added =
      std::min({std::max(kBufferBytes, kept), kMaxRecordBytes + 1 - kept, end_ - base_ - kept});
  buffer_.resize(static_cast<size_t>(kept + added));
  text_of_file_.read(base_ + kept, std::span(buffer_).subspan(static_cast<size_t>(kept)));
  text_ = buffer_;
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

bool CsvRecords::plain_cell(std::vector<std::string_view>& cells) {
  const size_t begin = at_;
  while (at_ < text_.size() && text_[at_] != separator_ && text_[at_] != '\n') ++at_;
  if (at_ == text_.size() && has_more()) return false;
  std::string_view cell = text_.substr(begin, at_ - begin);
  if (at_line_end() && cell.ends_with('\r')) cell.remove_suffix(1);
  cells.push_back(trimmed(cell));
  return true;
}

bool CsvRecords::quoted_cell(std::vector<std::string_view>& cells) {
  const size_t begin = ++at_;
  size_t end = text_.find('"', begin);
  bool has_doubled = false;
  while (end != text_.npos && end + 1 < text_.size() && text_[end + 1] == '"') {
    has_doubled = true;
    end = text_.find('"', end + 2);
  }
  if ((end == text_.npos || end + 1 == text_.size()) && has_more()) return false;
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
  // A CR may be half of a CRLF.
  if (has_more() && (at_ == text_.size() || text_.substr(at_) == "\r")) return false;
  check_separator_after_quote(column);
  return true;
}

void CsvRecords::check_separator_after_quote(size_t column) const {
  if (at_line_end() || text_[at_] == separator_) return;
  const char other = text_[at_];
  const bool may_separate = std::string_view(";,|\t").find(other) != std::string_view::npos;
  bad("column {}: a separator must follow the quote, got '{}'{}", column,
      printable(text_.substr(at_, 1)),
      may_separate
          ? fmt::format("; give --separator {}", other == '\t' ? "tab" : fmt::format("'{}'", other))
          : "");
}

bool CsvRecords::record(std::vector<std::string_view>& cells) {
  while (true) {
    const size_t first = std::min(text_.find_first_not_of(spaces_, at_), text_.size());
    if (first == text_.size() && has_more()) return false;
    if (first < text_.size() && text_[first] == '"') {
      at_ = first;
      if (!quoted_cell(cells)) return false;
    } else if (!plain_cell(cells)) {
      return false;
    }
    const bool is_last = at_ == text_.size() || text_[at_] != separator_;
    if (!is_last) {
      ++at_;
      continue;
    }
    if (at_ < text_.size() && text_[at_] == '\r') ++at_;
    if (at_ < text_.size()) ++at_;
    ++next_line_;
    return true;
  }
}

void CsvRecords::next(std::vector<std::string_view>& cells) {
  line_ = next_line_;
  while (true) {
    const size_t begin = at_;
    cells.clear();
    unescaped_.clear();
    if (record(cells)) return;
    at_ = begin;
    next_line_ = line_;
    refill();
  }
}

void CsvRecords::skip(int64_t count) {
  std::vector<std::string_view> cells;
  size_t quote = text_.find('"', at_);
  for (; count > 0; --count) {
    const size_t line_end = text_.find('\n', at_);
    if (line_end < quote && line_end != text_.npos) {  // npos is greater than each position.
      at_ = line_end + 1;
      line_ = next_line_++;
      continue;
    }
    next(cells);
    quote = text_.find('"', at_);
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
