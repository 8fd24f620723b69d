#include "text_damage.h"

#include <fmt/format.h>

#include <cctype>
#include <map>
#include <set>

namespace sluice::property {
namespace {

/// A range of a line: a number, a word, or a string with its quotes.
struct Token {
  enum class Type { kNumber, kWord, kString };
  Type kind = Type::kWord;
  size_t begin = 0;
  size_t end = 0;
};

bool is_word(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) ||
         std::string("_.+:").find(c) != std::string::npos;
}
bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

std::vector<Token> tokens_of(const std::string& line) {
  std::vector<Token> tokens;
  for (size_t i = 0; i < line.size();) {
    const size_t begin = i;
    if (line[i] == '"') {
      for (++i; i < line.size() && line[i] != '"'; ++i) i += line[i] == '\\';
      tokens.push_back({Token::Type::kString, begin, std::min(++i, line.size())});
    } else if (is_digit(line[i])) {
      while (i < line.size() && is_digit(line[i])) ++i;
      tokens.push_back({Token::Type::kNumber, begin, i});
    } else if (is_word(line[i])) {
      while (i < line.size() && (is_word(line[i]) || is_digit(line[i]))) ++i;
      // A base and its index, as in "arena1", are two fields.
      size_t end = i;
      while (end > begin && is_digit(line[end - 1])) --end;
      const std::string word = line.substr(begin, end - begin);
      if (word != "arena" && word != "param" && word != "p") end = i;
      tokens.push_back({Token::Type::kWord, begin, end});
      i = end;
    } else {
      ++i;
    }
  }
  return tokens;
}

/// The context of a word in its line. Words in equal contexts can replace each other.
std::string context_of(const std::string& line, const std::vector<Token>& tokens, size_t t) {
  const std::string before =
      t == 0 ? "" : line.substr(tokens[t - 1].begin, tokens[t - 1].end - tokens[t - 1].begin);
  const bool named = t > 0 && tokens[t - 1].kind == Token::Type::kWord;
  return fmt::format("{} {}", line.substr(0, line.find_first_not_of(' ')), named ? before : "");
}

class Damager {
 public:
  explicit Damager(const std::vector<std::string>& lines) : lines_(lines) {
    for (const std::string& line : lines_) {
      const std::vector<Token> tokens = tokens_of(line);
      for (size_t t = 0; t < tokens.size(); ++t) {
        if (tokens[t].kind != Token::Type::kWord) continue;
        std::set<std::string>& words = words_[context_of(line, tokens, t)];
        if (words.size() < 6)
          words.insert(line.substr(tokens[t].begin, tokens[t].end - tokens[t].begin));
      }
    }
  }

  std::vector<TextDamage> run() {
    for (size_t i = 0; i < lines_.size(); ++i) {
      fields(i);
      out_.push_back({i, 1, {}});
      out_.push_back({i, 1, {lines_[i], lines_[i]}});
      if (i + 1 < lines_.size()) out_.push_back({i, 2, {lines_[i + 1], lines_[i]}});
    }
    return std::move(out_);
  }

 private:
  void fields(size_t i) {
    const std::string& line = lines_[i];
    const std::vector<Token> tokens = tokens_of(line);
    for (size_t t = 0; t < tokens.size(); ++t) {
      const Token& token = tokens[t];
      const std::string now = line.substr(token.begin, token.end - token.begin);
      std::set<std::string> others{""};
      switch (token.kind) {
        case Token::Type::kNumber: {
          const uint64_t n = now.size() < 19 ? std::stoull(now) : 7;
          for (const uint64_t other : {n + 1, n == 0 ? 2 : n - 1, uint64_t{0}, 2 * n, n + 64,
                                       uint64_t{1} << 31, uint64_t{1} << 62})
            others.insert(std::to_string(other));
          others.insert("-" + now);
          others.insert(now + ".5");
          break;
        }
        case Token::Type::kWord: {
          const std::set<std::string>& words = words_[context_of(line, tokens, t)];
          others.insert(words.begin(), words.end());
          others.insert(now + "x");
          for (const char* const word : {"int32", "float32", "uint32", "true", "false", "update"})
            if (now != "sync") others.insert(word);
          break;
        }
        case Token::Type::kString:
          others.insert("\"\"");
          others.insert("\"x" + now.substr(1));
          break;
      }
      others.erase(now);
      for (const std::string& other : others)
        out_.push_back({i, 1, {line.substr(0, token.begin) + other + line.substr(token.end)}});
    }
  }

  const std::vector<std::string>& lines_;
  std::map<std::string, std::set<std::string>> words_;  ///< Keyed by context.
  std::vector<TextDamage> out_;
};

}  // namespace

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    std::string line = text.substr(at, end - at);
    const size_t comment = line.find("  # ");
    if (comment != std::string::npos) line.resize(comment);
    lines.push_back(std::move(line));
    at = end + 1;
  }
  return lines;
}

std::vector<TextDamage> text_damages(const std::vector<std::string>& lines) {
  return Damager(lines).run();
}

std::string damaged(const std::vector<std::string>& lines, const TextDamage& damage) {
  std::string text;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i == damage.line) {
      for (const std::string& line : damage.after) text += line + '\n';
    }
    if (i < damage.line || i >= damage.line + damage.lines) text += lines[i] + '\n';
  }
  return text;
}

std::string describe(const std::vector<std::string>& lines, const TextDamage& damage) {
  std::string after;
  for (const std::string& line : damage.after) after += fmt::format(" '{}'", line);
  return fmt::format("line {}: '{}' ->{}", damage.line + 1, lines[damage.line],
                     after.empty() ? " nothing" : after);
}

}  // namespace sluice::property
