#include "sluice/base/attrs.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>

namespace sluice {
namespace {

std::string text_of(double v) {
  if (std::isnan(v)) return "nan.";
  if (std::isinf(v)) return v < 0 ? "-inf." : "inf.";
  std::string text = fmt::format("{}", v);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string text_of(const AttrValue& value) {
  struct Printer {
    std::string operator()(bool v) const { return v ? "true" : "false"; }
    std::string operator()(int64_t v) const { return fmt::format("{}", v); }
    std::string operator()(double v) const { return text_of(v); }
    std::string operator()(const std::string& v) const {
      std::string text = "\"";
      for (const char c : v) {
        if (c == '"' || c == '\\') text += '\\';
        if (c == '\n') {
          text += "\\n";
        } else {
          text += c;
        }
      }
      return text + '"';
    }
    std::string operator()(const std::vector<int64_t>& v) const {
      std::string text = "[";
      for (size_t i = 0; i < v.size(); ++i) text += fmt::format("{}{}", i == 0 ? "" : ",", v[i]);
      return text + "]";
    }
    std::string operator()(const std::vector<double>& v) const {
      if (v.empty()) return "[.]";
      std::string text = "[";
      for (size_t i = 0; i < v.size(); ++i) text += (i == 0 ? "" : ",") + text_of(v[i]);
      return text + "]";
    }
    std::string operator()(DType v) const { return std::string(name_of(v)); }
  };
  return std::visit(Printer{}, value);
}

AttrValue number(std::string_view word) {
  require(!word.empty(), "options: a value is missing");
  if (word == "nan.") return std::nan("");
  if (word == "inf.") return HUGE_VAL;
  if (word == "-inf.") return -HUGE_VAL;
  const char* end = word.data() + word.size();
  if (word.find_first_of(".e") == word.npos) {
    int64_t v = 0;
    const auto r = std::from_chars(word.data(), end, v);
    require(r.ec == std::errc{} && r.ptr == end, "options: '{}' is not an integer", word);
    return v;
  }
  double v = 0;
  const auto r = std::from_chars(word.data(), end, v);
  require(r.ec == std::errc{} && r.ptr == end, "options: '{}' is not a number", word);
  return v;
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Attrs parse() {
    Attrs attrs;
    for (skip_spaces(); !text_.empty(); skip_spaces()) {
      const size_t equals = text_.find('=');
      require(equals != text_.npos && equals > 0, "options: 'name=value' expected at '{}'", text_);
      std::string name(text_.substr(0, equals));
      text_.remove_prefix(equals + 1);
      attrs.items.emplace_back(std::move(name), value());
    }
    return attrs;
  }

 private:
  void skip_spaces() {
    while (!text_.empty() && text_.front() == ' ') text_.remove_prefix(1);
  }

  AttrValue value() {
    if (!text_.empty() && text_.front() == '"') return quoted();
    if (!text_.empty() && text_.front() == '[') return list();
    const std::string_view word = text_.substr(0, text_.find(' '));
    text_.remove_prefix(word.size());
    if (word == "true") return true;
    if (word == "false") return false;
    const char c = word.empty() ? '\0' : word.front();
    if (word.empty() || std::isdigit(static_cast<unsigned char>(c)) || c == '-' || word == "nan." ||
        word == "inf.") {
      return number(word);
    }
    return dtype_from_name(word);
  }

  AttrValue quoted() {
    std::string out;
    for (size_t i = 1; i < text_.size(); ++i) {
      if (text_[i] == '"') {
        text_.remove_prefix(i + 1);
        return out;
      }
      if (text_[i] != '\\') {
        out += text_[i];
        continue;
      }
      require(++i < text_.size(), "options: text ends inside a string");
      out += text_[i] == 'n' ? '\n' : text_[i];
    }
    fail(ErrorKind::kUsage, "options: text ends inside a string");
  }

  AttrValue list() {
    const size_t close = text_.find(']');
    require(close != text_.npos, "options: ']' is missing");
    std::string_view body = text_.substr(1, close - 1);
    text_.remove_prefix(close + 1);
    if (body == ".") return std::vector<double>{};
    std::vector<int64_t> integers;
    std::vector<double> doubles;
    while (!body.empty()) {
      const std::string_view word = body.substr(0, body.find(','));
      const AttrValue v = number(word);
      if (const auto* i = std::get_if<int64_t>(&v)) {
        integers.push_back(*i);
      } else {
        doubles.push_back(std::get<double>(v));
      }
      body.remove_prefix(std::min(body.size(), word.size() + 1));
    }
    require(integers.empty() || doubles.empty(),
            "options: a list must not mix integers and floating-point numbers");
    if (!doubles.empty()) return doubles;
    return integers;
  }

  std::string_view text_;
};

}  // namespace

std::string to_string(const Attrs& attrs) {
  std::string text;
  for (const auto& [name, value] : attrs.items) {
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", name, text_of(value));
  }
  return text;
}

Attrs parse_attrs(std::string_view text) { return Parser(text).parse(); }

namespace internal {

void AttrWriter::add(const char* name, bool value) { attrs.items.emplace_back(name, value); }
void AttrWriter::add(const char* name, int64_t value) { attrs.items.emplace_back(name, value); }
void AttrWriter::add(const char* name, double value) { attrs.items.emplace_back(name, value); }
void AttrWriter::add(const char* name, const std::string& value) {
  attrs.items.emplace_back(name, value);
}
void AttrWriter::add(const char* name, const std::vector<int64_t>& value) {
  attrs.items.emplace_back(name, value);
}
void AttrWriter::add(const char* name, const std::vector<double>& value) {
  attrs.items.emplace_back(name, value);
}
void AttrWriter::add(const char* name, DType value) { attrs.items.emplace_back(name, value); }

template <typename T>
void AttrReader::take(const char* name, T& value) {
  const bool given = next_ < attrs_.items.size();
  const std::string_view found = given ? attrs_.items[next_].first : std::string_view("nothing");
  require(given && found == name, "options: the next field must be '{}', got '{}'", name, found);
  const T* stored = std::get_if<T>(&attrs_.items[next_].second);
  if (stored == nullptr)
    fail(ErrorKind::kUsage, "options: field '{}' has the wrong type, got {}", name,
         to_string(Attrs{{attrs_.items[next_]}}));
  value = *stored;
  ++next_;
}

void AttrReader::read(const char* name, bool& value) { take(name, value); }
void AttrReader::read(const char* name, int64_t& value) { take(name, value); }
void AttrReader::read(const char* name, double& value) { take(name, value); }
void AttrReader::read(const char* name, std::string& value) { take(name, value); }
void AttrReader::read(const char* name, std::vector<int64_t>& value) { take(name, value); }
void AttrReader::read(const char* name, std::vector<double>& value) { take(name, value); }
void AttrReader::read(const char* name, DType& value) { take(name, value); }
void AttrReader::read(const char* name, Shape& value) {
  std::vector<int64_t> dims;
  take(name, dims);
  value = Shape(std::move(dims));
}

void AttrReader::finish() const {
  require(next_ == attrs_.items.size(), "options: unknown field '{}'",
          next_ < attrs_.items.size() ? attrs_.items[next_].first : "");
}

}  // namespace internal
std::string_view word_at(std::string_view words, int64_t index) {
  for (; index > 0; --index) {
    const size_t comma = words.find(',');
    SLUICE_CHECK(comma != words.npos);
    words.remove_prefix(comma + 1);
  }
  return words.substr(0, words.find(','));
}

int64_t index_of_word(std::string_view words, std::string_view word, std::string_view what) {
  const auto count = std::count(words.begin(), words.end(), ',') + 1;
  std::string all;
  for (int64_t i = 0; i < count; ++i) {
    if (word_at(words, i) == word) return i;
    all += i == 0 ? "" : i + 1 == count ? " or " : ", ";
    all += word_at(words, i);
  }
  fail(ErrorKind::kUsage, "{}: must be {}, got '{}'", what, all, word);
}

}  // namespace sluice
