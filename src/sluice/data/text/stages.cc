#include "sluice/data/text/stages.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>

#include "sluice/base/error.h"
#include "sluice/base/ids/ids.h"
#include "sluice/data/files/utf8.h"

namespace sluice::data {
namespace {

/// A part of a word: a match of an expression, or the text between two matches.
struct SplitPart {
  TextRange range;
  bool is_match = false;
};

std::string utf8(char32_t point) {
  if (point < 0x80) return std::string(1, static_cast<char>(point));
  return {static_cast<char>(0xc0 | point >> 6), static_cast<char>(0x80 | (point & 0x3f))};
}

std::array<std::string, 256> byte_characters() {
  std::array<std::string, 256> characters;
  char32_t next = 256;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const bool is_printable = (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte != 0xad);
    at(characters, byte) = utf8(is_printable ? byte : next++);
  }
  return characters;
}

/// Returns the bytes of a text of byte_character()s; nothing if it has others.
std::optional<std::string> bytes_of_characters(std::string_view text) {
  static const auto kBytes = [] {
    std::unordered_map<char32_t, char> bytes;
    for (unsigned byte = 0; byte < 256; ++byte) {
      const std::string& character = byte_character(static_cast<uint8_t>(byte));
      bytes[code_points(character)[0]] = static_cast<char>(byte);
    }
    return bytes;
  }();
  std::string bytes;
  for (const char32_t point : code_points(text)) {
    const auto found = kBytes.find(point);
    if (found == kBytes.end()) return std::nullopt;
    bytes += found->second;
  }
  return bytes;
}

/// Cuts bytes [0, size) into matches and the texts between them.
std::vector<SplitPart> parts_of(const std::vector<TextRange>& matches, size_t size, bool inverted) {
  std::vector<SplitPart> parts;
  size_t done = 0;
  for (const TextRange& match : matches) {
    if (done < match.begin) parts.push_back({{done, match.begin}, inverted});
    parts.push_back({match, !inverted});
    done = match.end;
  }
  if (done < size) parts.push_back({{done, size}, inverted});
  return parts;
}

/// Joins parts to words. The parts cover a text from front to back.
std::vector<TextRange> words_of(const std::vector<SplitPart>& parts, SplitBehavior behavior) {
  std::vector<TextRange> words;
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto& [range, is_match] = parts[i];
    const bool after_match = i > 0 && parts[i - 1].is_match;
    bool joins = false;
    switch (behavior) {
      case SplitBehavior::kRemoved:
        if (is_match) continue;
        break;
      case SplitBehavior::kIsolated:
        break;
      case SplitBehavior::kMergedWithPrevious:
        joins = is_match && !after_match && i > 0;
        break;
      case SplitBehavior::kMergedWithNext:
        joins = !is_match && after_match;
        break;
      case SplitBehavior::kContiguous:
        joins = i > 0 && is_match == after_match;
        break;
    }
    if (joins) {
      words.back().end = range.end;
    } else {
      words.push_back(range);
    }
  }
  std::erase_if(words, [](const TextRange& word) { return word.begin == word.end; });
  return words;
}

/// Rewrites each word as f(word, whether it is the first one of the user's text).
template <typename F>
void rewrite_words(Pieces& pieces, F f) {
  std::string text;
  text.reserve(pieces.text.size() + pieces.text.size() / 2);
  for (TextRange& range : pieces.ranges) {
    const std::string_view word =
        std::string_view(pieces.text).substr(range.begin, range.end - range.begin);
    const size_t begin = text.size();
    f(word, pieces.at_start && range.begin == 0, text);
    range = {begin, text.size()};
  }
  pieces.text = std::move(text);
}

std::string joined(const std::vector<std::string>& tokens) {
  std::string text;
  for (const std::string& token : tokens) text += token;
  return text;
}

/// Calls f(part of the text, whether it is `mark`) from front to back.
template <typename F>
void for_each_mark(std::string_view text, std::string_view mark, F f) {
  for (size_t at = 0; at < text.size();) {
    const size_t found = std::min(text.find(mark, at), text.size());
    if (found > at) f(text.substr(at, found - at), false);
    if (found < text.size()) f(mark, true);
    at = found + mark.size();
  }
}

}  // namespace

const std::string& byte_character(uint8_t byte) {
  static const std::array<std::string, 256> kCharacters = byte_characters();
  return at(kCharacters, byte);
}

Regex literal_regex(std::string_view literal, const std::string& file) {
  std::string pattern;
  for (const char c : literal) {
    const bool is_special = std::string_view("\\^$.[]|()?*+{}#-&~").find(c) != std::string::npos;
    if (is_special) pattern += '\\';
    pattern += c;
  }
  return Regex(pattern, file);
}

std::string replaced(std::string_view text, const Regex& pattern, std::string_view content) {
  std::string result;
  for (const SplitPart& part : parts_of(pattern.matches(text), text.size(), false))
    result +=
        part.is_match ? content : text.substr(part.range.begin, part.range.end - part.range.begin);
  return result;
}

PreTokenizer split_words(Regex pattern, SplitBehavior behavior, bool inverted) {
  return [pattern = std::move(pattern), behavior, inverted](Pieces& pieces) {
    std::vector<TextRange> ranges;
    for (const TextRange& range : pieces.ranges) {
      const std::string_view word =
          std::string_view(pieces.text).substr(range.begin, range.end - range.begin);
      const auto parts = parts_of(pattern.matches(word), word.size(), inverted);
      for (const TextRange& part : words_of(parts, behavior))
        ranges.push_back({range.begin + part.begin, range.begin + part.end});
    }
    pieces.ranges = std::move(ranges);
  };
}

PreTokenizer add_spaces() {
  return [](Pieces& pieces) {
    rewrite_words(pieces, [](std::string_view word, bool, std::string& text) {
      if (word[0] != ' ') text += ' ';
      text += word;
    });
  };
}

PreTokenizer byte_level() {
  return [](Pieces& pieces) {
    rewrite_words(pieces, [](std::string_view word, bool, std::string& text) {
      for (const char byte : word) text += byte_character(static_cast<uint8_t>(byte));
    });
  };
}

PreTokenizer metaspace(std::string mark, MarkedWords marked, bool cuts, const std::string& file) {
  PreTokenizer cut = split_words(literal_regex(mark, file), SplitBehavior::kMergedWithNext);
  return [mark = std::move(mark), marked, cuts, cut = std::move(cut)](Pieces& pieces) {
    rewrite_words(pieces, [&](std::string_view word, bool is_first, std::string& text) {
      const bool has_mark = word[0] == ' ' || word.starts_with(mark);
      const bool adds_mark =
          marked == MarkedWords::kAll || (marked == MarkedWords::kFirst && is_first);
      if (!has_mark && adds_mark) text += mark;
      for (const char c : word) {
        if (c == ' ') {
          text += mark;
        } else {
          text += c;
        }
      }
    });
    if (cuts) cut(pieces);
  };
}

Decoder decode_byte_level() {
  return [](std::vector<std::string>& tokens) {
    for (std::string& token : tokens) {
      if (auto bytes = bytes_of_characters(token)) token = std::move(*bytes);
    }
    tokens = {joined(tokens)};
  };
}

Decoder decode_byte_fallback() {
  return [](std::vector<std::string>& tokens) {
    for (std::string& token : tokens) {
      if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') continue;
      unsigned byte = 0;
      const char* const end = token.data() + 5;
      const auto [at, error] = std::from_chars(token.data() + 3, end, byte, 16);
      if (error == std::errc() && at == end) token.assign(1, static_cast<char>(byte));
    }
  };
}

Decoder fuse() {
  return [](std::vector<std::string>& tokens) { tokens = {joined(tokens)}; };
}

Decoder strip(std::string character, int64_t begin, int64_t end) {
  return [character = std::move(character), begin, end](std::vector<std::string>& tokens) {
    for (std::string& token : tokens) {
      std::string_view rest = token;
      for (int64_t i = 0; i < begin && rest.starts_with(character); ++i)
        rest.remove_prefix(character.size());
      for (int64_t i = 0; i < end && rest.ends_with(character); ++i)
        rest.remove_suffix(character.size());
      token = std::string(rest);
    }
  };
}

Decoder decode_metaspace(std::string mark, MarkedWords marked) {
  return [mark = std::move(mark), marked](std::vector<std::string>& tokens) {
    bool is_first = true;
    for (std::string& token : tokens) {
      std::string text;
      for_each_mark(token, mark, [&](std::string_view part, bool is_mark) {
        if (!is_mark) {
          text += part;
        } else if (!is_first || marked == MarkedWords::kNone) {
          text += ' ';
        }
      });
      token = std::move(text);
      is_first = false;
    }
  };
}

}  // namespace sluice::data
