#include "sluice/exe/line_reader.h"

#include <fmt/format.h>

#include <charconv>
#include <limits>

namespace sluice::exe {
namespace {

/// Whether an integer is written in its only valid form: without leading zeros, and zero without a
/// sign.
bool is_plain(std::string_view digits) {
  if (digits.starts_with('-')) return digits.size() > 1 && digits[1] != '0';
  return digits.size() == 1 || !digits.starts_with('0');
}

/// Parses all of `text` as an integer; returns false if it is not one.
bool to_integer(std::string_view text, int64_t& value) {
  const auto r = std::from_chars(text.data(), text.data() + text.size(), value);
  return r.ec == std::errc{} && r.ptr == text.data() + text.size() && is_plain(text);
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

}  // namespace

void LineReader::bad_at(int64_t line, std::string_view message) const {
  fail(ErrorKind::kBadFile, "{}:{}: {}", file_, line, message);
}

void LineReader::bad_word(std::string_view found, std::string_view what,
                          std::span<const std::string_view> known) const {
  bad("{} must be one of {}, got '{}'", what, fmt::join(known, ", "), found);
}

bool LineReader::next_line() {
  while (!rest_.empty()) {
    const size_t end = std::min(rest_.find('\n'), rest_.size());
    current_ = rest_.substr(0, end);
    rest_.remove_prefix(std::min(end + 1, rest_.size()));
    ++line_;
    split(current_);
    if (!words_.empty()) return true;
  }
  return false;
}

void LineReader::split(std::string_view line) {
  words_.clear();
  at_ = 0;
  // Do not split attributes: their text has its own quoting, and parse_attrs reads it.
  const size_t first = std::min(line.find_first_not_of(' '), line.size());
  for (const std::string_view word : {"attrs", "stage_attrs"}) {
    if (!line.substr(first).starts_with(std::string(word) + ' ')) continue;
    words_.push_back({std::string(word), false});
    return;
  }
  for (size_t i = first; i < line.size();) {
    if (line[i] == ' ') {
      ++i;
      continue;
    }
    if (line[i] == '#') return;
    Word word;
    if (line[i] == '"') {
      word.quoted = true;
      for (++i;; ++i) {
        if (i >= line.size()) bad("a string must end in '\"'");
        if (line[i] == '"') break;
        if (line[i] != '\\') {
          word.text += line[i];
          continue;
        }
        if (++i >= line.size()) bad("a string must end in '\"'");
        if (line[i] != 'x') {
          word.text += line[i];
          continue;
        }
        const int high = i + 2 < line.size() ? hex_digit(line[i + 1]) : -1;
        const int low = i + 2 < line.size() ? hex_digit(line[i + 2]) : -1;
        if (high < 0 || low < 0) bad("\\x needs two hexadecimal digits");
        word.text += static_cast<char>(high * 16 + low);
        i += 2;
      }
      ++i;
      if (i < line.size() && line[i] != ' ') bad("a space must follow a string");
    } else {
      const size_t end = std::min(line.find(' ', i), line.size());
      word.text = line.substr(i, end - i);
      i = end;
    }
    words_.push_back(std::move(word));
  }
}

std::string_view LineReader::raw_rest() const {
  std::string_view text = current_;
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  text.remove_prefix(std::min(text.find(' '), text.size()));
  return text;
}

const LineReader::Word& LineReader::take(std::string_view what) {
  if (done()) bad("{} is missing", what);
  return words_[at_++];
}

bool LineReader::peek(std::string_view keyword) const {
  return !done() && !words_[at_].quoted && words_[at_].text == keyword;
}

bool LineReader::eat(std::string_view keyword) {
  if (!peek(keyword)) return false;
  ++at_;
  return true;
}

void LineReader::expect(std::string_view keyword) {
  if (!eat(keyword))
    bad("'{}' expected, found '{}'", keyword, done() ? "the end" : words_[at_].text);
}

void LineReader::expect_end() {
  if (!done()) bad("the end of the line expected, found '{}'", words_[at_].text);
}

std::string LineReader::string(std::string_view what) { return take(what).text; }

int64_t LineReader::integer(std::string_view what) {
  const Word& w = take(what);
  int64_t value = 0;
  if (w.quoted || !to_integer(w.text, value))
    bad("{} must be an integer, found '{}'", what, w.text);
  return value;
}

int32_t LineReader::integer32(std::string_view what) {
  const int64_t value = integer(what);
  if (value < std::numeric_limits<int32_t>::min() || value > std::numeric_limits<int32_t>::max()) {
    bad("{} must fit 32 bits, got {}", what, value);
  }
  return static_cast<int32_t>(value);
}

std::pair<int32_t, int32_t> LineReader::pair(std::string_view what) {
  const Word& w = take(what);
  const size_t colon = w.text.find(':');
  int64_t a = 0;
  int64_t b = 0;
  constexpr int64_t max = std::numeric_limits<int32_t>::max();
  if (colon == std::string::npos || !to_integer(std::string_view(w.text).substr(0, colon), a) ||
      !to_integer(std::string_view(w.text).substr(colon + 1), b) || a < 0 || b < 0 || a > max ||
      b > max) {
    bad("{} must be a pair 'a:b', found '{}'", what, w.text);
  }
  return {static_cast<int32_t>(a), static_cast<int32_t>(b)};
}

Shape LineReader::dims(std::string_view& text) const {
  std::vector<int64_t> dims;
  if (!text.starts_with('(')) bad("a shape '(2,3)' expected, found '{}'", text);
  const size_t close = text.find(')');
  if (close == text.npos) bad("a shape must end in ')', got '{}'", text);
  std::string_view body = text.substr(1, close - 1);
  text.remove_prefix(close + 1);
  while (!body.empty()) {
    const std::string_view word = body.substr(0, body.find(','));
    int64_t d = 0;
    if (!to_integer(word, d) || d < 0) bad("a dimension must be an integer >= 0, got '{}'", word);
    dims.push_back(d);
    if (word.size() + 1 == body.size()) bad("a shape must not end in ','");
    body.remove_prefix(std::min(word.size() + 1, body.size()));
  }
  return Shape(std::move(dims));
}

TensorSpec LineReader::spec() {
  const Word& w = take("a tensor spec");
  std::string_view text = w.text;
  const std::string_view name = text.substr(0, text.find('('));
  text.remove_prefix(name.size());
  TensorSpec spec;
  try {
    spec.dtype = dtype_from_name(name);
  } catch (const Error& e) {
    bad("{}", e.what());
  }
  spec.shape = dims(text);
  if (text.starts_with("of")) {
    text.remove_prefix(2);
    spec.meta_shape = dims(text);
  }
  if (!text.empty()) bad("a tensor spec must end after its shape, got '{}'", text);
  return spec;
}

IndexExpr LineReader::expression() {
  const Word& w = take("an index expression");
  try {
    return parse_index_expr(w.text);
  } catch (const Error& e) {
    bad("{}", e.what());
  }
}

std::vector<IndexExpr> LineReader::expressions() {
  std::vector<IndexExpr> all;
  while (!done()) all.push_back(expression());
  return all;
}

Address LineReader::address() {
  const Word& w = take("an address");
  std::string_view text = w.text;
  Address a;
  const auto require = [&](bool good) {
    if (!good)
      bad("an address must be arenaN+K, frame+K or paramN+K, or one of these with "
          "@ring(depth,stride,slot), got '{}'",
          w.text);
  };
  const auto number = [&](int64_t& value) {
    const auto r = std::from_chars(text.data(), text.data() + text.size(), value);
    const auto digits = static_cast<size_t>(r.ptr - text.data());
    require(r.ec == std::errc{} && is_plain(text.substr(0, digits)));
    text.remove_prefix(digits);
  };
  const auto eat = [&](std::string_view s) {
    if (!text.starts_with(s)) return false;
    text.remove_prefix(s.size());
    return true;
  };
  int64_t index = 0;
  if (eat("arena")) {
    a.base = Address::Base::kArena;
    number(index);
  } else if (eat("param")) {
    a.base = Address::Base::kParam;
    number(index);
  } else {
    require(eat("frame"));
  }
  require(index >= 0 && index <= std::numeric_limits<int32_t>::max());
  a.index = static_cast<int32_t>(index);
  require(eat("+"));
  number(a.offset);
  if (eat("@ring(")) {
    number(a.depth);
    require(eat(","));
    number(a.stride);
    require(eat(",") && text.ends_with(')'));
    text.remove_suffix(1);
    try {
      a.slot = parse_index_expr(text);
    } catch (const Error& e) {
      bad("{}", e.what());
    }
    text = {};
  }
  require(text.empty());
  return a;
}

ValueId LineReader::value(std::string_view text) const {
  int64_t v = 0;
  if (text == "%-") return kNoValue;
  if (!text.starts_with('%') || !to_integer(text.substr(1), v) || v < 0 ||
      v > std::numeric_limits<int32_t>::max()) {
    bad("a value '%N' expected, found '{}'", text);
  }
  return static_cast<ValueId>(v);
}

std::pair<ValueId, ValueId> LineReader::values() {
  const Word& w = take("a value");
  const std::string_view text = w.text;
  const size_t arrow = text.find('>');
  if (arrow == text.npos) return {value(text), kNoValue};
  return {value(text.substr(0, arrow)), value(text.substr(arrow + 1))};
}

std::vector<std::byte> LineReader::hex() {
  const Word& w = take("data");
  std::vector<std::byte> bytes;
  if (w.text == "-") return bytes;
  if (w.text.size() % 2 != 0)
    bad("data must have an even number of hexadecimal digits, got {}", w.text.size());
  bytes.reserve(w.text.size() / 2);
  for (size_t i = 0; i < w.text.size(); i += 2) {
    const int high = hex_digit(w.text[i]);
    const int low = hex_digit(w.text[i + 1]);
    if (high < 0 || low < 0)
      bad("data must be hexadecimal (0-9, a-f), got '{}'", w.text.substr(i, 2));
    bytes.push_back(static_cast<std::byte>(high * 16 + low));
  }
  return bytes;
}

}  // namespace sluice::exe
