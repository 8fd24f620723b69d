#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/base/error.h"
#include "sluice/base/shape.h"
#include "sluice/exe/executable.h"

namespace sluice::exe {

/// Reads the text of an executable line by line and word by word. Every error is Error{kBadFile}
/// with the text "<file>:<line>: …".
class LineReader {
 public:
  LineReader(std::string_view text, std::string file) : rest_(text), file_(std::move(file)) {}

  /// Moves to the next line that has words; returns false at the end of the text.
  bool next_line();
  int64_t line() const { return line_; }
  bool done() const { return at_ == words_.size(); }
  /// The raw text after the first word.
  std::string_view raw_rest() const;

  /// Whether the next word is this keyword, unquoted. Does not consume the word.
  bool peek(std::string_view keyword) const;
  /// Whether the next word names a value ("%3").
  bool peek_value() const {
    return !done() && !words_[at_].quoted && words_[at_].text.starts_with('%');
  }
  bool eat(std::string_view keyword);
  void expect(std::string_view keyword);
  void expect_end();

  std::string string(std::string_view what);
  int64_t integer(std::string_view what);
  int32_t integer32(std::string_view what);
  int64_t labelled(std::string_view keyword) { return expect(keyword), integer(keyword); }
  int32_t labelled32(std::string_view keyword) { return expect(keyword), integer32(keyword); }
  /// Reads an index of the type of `id`.
  template <typename I>
  void read(I& id, std::string_view what) {
    id = I(integer32(what));
  }
  template <typename I>
  void labelled(I& id, std::string_view keyword) {
    expect(keyword);
    read(id, keyword);
  }
  /// Reads one of `words`; returns its position as an enumerator.
  template <typename Enum, size_t N>
  Enum one_of(const std::array<std::string_view, N>& words, std::string_view what) {
    const Word& w = take(what);
    for (size_t i = 0; i < N; ++i) {
      if (!w.quoted && w.text == words[i]) return static_cast<Enum>(i);
    }
    bad_word(w.text, what, words);
  }
  std::pair<int32_t, int32_t> pair(std::string_view what);
  TensorSpec spec();
  Address address();
  IndexExpr expression();
  std::vector<IndexExpr> expressions();
  /// Reads "%3", "%-" or "%3>%4".
  std::pair<ValueId, ValueId> values();
  std::vector<std::byte> hex();

  template <typename... Args>
  [[noreturn]] void bad(fmt::format_string<Args...> format, Args&&... args) const {
    bad_at(line_, fmt::format(format, std::forward<Args>(args)...));
  }
  [[noreturn]] void bad_at(int64_t line, std::string_view message) const;

 private:
  struct Word {
    std::string text;
    bool quoted = false;
  };
  void split(std::string_view line);
  [[noreturn]] void bad_word(std::string_view found, std::string_view what,
                             std::span<const std::string_view> known) const;
  const Word& take(std::string_view what);
  ValueId value(std::string_view text) const;
  Shape dims(std::string_view& text) const;

  std::string_view rest_;
  std::string_view current_;
  std::string file_;
  int64_t line_ = 0;
  std::vector<Word> words_;
  size_t at_ = 0;
};

}  // namespace sluice::exe
