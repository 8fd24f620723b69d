#include "sluice/data/text/tokens.h"

#include <algorithm>
#include <limits>
#include <string_view>
#include <utility>

#include "sluice/base/error.h"
#include "sluice/base/sys.h"
#include "sluice/data/draw.h"
#include "sluice/data/files/contents.h"

namespace sluice::data {

namespace internal {

/// All tokens of a file or an array.
class TokenSource {
 public:
  TokenSource(std::string file, int64_t size, int64_t vocabulary)
      : file_(std::move(file)), size_(size), vocabulary_(vocabulary) {}
  virtual ~TokenSource() = default;
  TokenSource(const TokenSource&) = delete;
  TokenSource& operator=(const TokenSource&) = delete;

  /// Reads tokens [begin, begin + out.size()), which are in the source.
  virtual void read(int64_t begin, std::span<int32_t> out) const = 0;

  const std::string& file() const { return file_; }  ///< Empty for tokens of a user's array.
  int64_t size() const { return size_; }
  int64_t vocabulary() const { return vocabulary_; }

  /// Throws Error{kBadFile} naming the file, or Error{kUsage} for an array.
  template <typename... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    const std::string message = fmt::format(format, std::forward<Args>(args)...);
    if (file_.empty()) fail(ErrorKind::kUsage, "tokens: {}", message);
    fail(ErrorKind::kBadFile, "{}: {}", file_, message);
  }
  /// Requires that the ids of tokens `begin`, begin + 1, … are in the vocabulary.
  void check(int64_t begin, std::span<const int32_t> ids) const {
    for (size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] < 0 || ids[i] >= vocabulary_) {
        refuse("token {}: must be in [0, {}), got {}", begin + static_cast<int64_t>(i), vocabulary_,
               ids[i]);
      }
    }
  }

 private:
  std::string file_;
  int64_t size_;
  int64_t vocabulary_;
};

}  // namespace internal

namespace {

using internal::TokenSource;

class TokenArray final : public TokenSource {
 public:
  TokenArray(std::string file, std::vector<int32_t> ids, int64_t vocabulary)
      : TokenSource(std::move(file), std::ssize(ids), vocabulary), ids_(std::move(ids)) {
    check(0, ids_);
  }
  void read(int64_t begin, std::span<int32_t> out) const override {
    std::copy_n(ids_.begin() + begin, out.size(), out.begin());
  }

 private:
  std::vector<int32_t> ids_;
};

class TokenFile final : public TokenSource {
 public:
  TokenFile(const std::string& path, sys::File file, int64_t size, int64_t vocabulary)
      : TokenSource(path, size, vocabulary), handle_(std::move(file)) {}
  void read(int64_t begin, std::span<int32_t> out) const override {
    std::vector<std::byte> bytes(2 * out.size());
    sys::read_exactly(handle_, file(), 2 * begin, bytes);
    for (size_t i = 0; i < out.size(); ++i) {
      const auto low = std::to_integer<int32_t>(bytes[2 * i]);
      out[i] = low | std::to_integer<int32_t>(bytes[2 * i + 1]) << 8;
    }
    check(begin, out);
  }

 private:
  sys::File handle_;
};

/// Returns the number of possible beginnings of a window and its target.
int64_t window_starts(const Tokens& tokens, int64_t context) {
  require(context >= 1, "context: must be at least 1 token, got {}", context);
  tokens.require_size(static_cast<uint64_t>(context) + 1, "context + 1");
  return tokens.size() - context;
}

/// Makes element k of the window that begins at start(k).
template <typename Start>
Dataset token_windows(const Tokens& tokens, int64_t count, int64_t context, Start start) {
  const TensorSpec spec{{context}, i32, {}};
  const auto cut = [tokens, spec, start](int64_t k) {
    HostTensor input(spec);
    HostTensor target(spec);
    const auto x = input.as<int32_t>();
    const auto y = target.as<int32_t>();
    const int64_t begin = start(k);
    tokens.read(begin, x);
    std::copy(x.begin() + 1, x.end(), y.begin());
    tokens.read(begin + std::ssize(x), y.last(1));
    return Element{{"input", std::move(input)}, {"target", std::move(target)}};
  };
  return from_function(count, cut, ElementSpecs{{spec, spec}, {"input", "target"}});
}

std::string text_of_file(const std::string& path) {
  const std::vector<std::byte> bytes = read_contents(path, Contents::kAnyText, "text");
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Calls f(), and names the file in errors about the text.
template <typename F>
auto for_text_of(const std::string& path, F f) -> decltype(f()) {
  try {
    return f();
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::kUsage) throw;
    constexpr std::string_view kText = "text: ";
    std::string_view message = e.what();
    if (message.starts_with(kText)) message.remove_prefix(kText.size());
    fail(ErrorKind::kBadFile, "{}: {}", path, message);
  }
}

Tokens tokens_of_text(const std::string& path, const std::string& text,
                      const Tokenizer& tokenizer) {
  auto ids = for_text_of(path, [&] { return tokenizer.encode(text); });
  return Tokens(
      std::make_shared<const TokenArray>(path, std::move(ids), tokenizer.vocabulary_size()));
}

}  // namespace

Tokens::Tokens(std::vector<int32_t> ids, int64_t vocabulary)
    : Tokens(std::make_shared<const TokenArray>("", std::move(ids), vocabulary)) {}

Tokens::Tokens(std::shared_ptr<const internal::TokenSource> source)
    : source_(std::move(source)), end_(source_->size()) {}

int64_t Tokens::vocabulary() const { return source_->vocabulary(); }

Tokens Tokens::range(int64_t begin, int64_t end, std::string_view name) const {
  require(0 <= begin && begin <= end && end <= size(),
          "tokens: a range must be in [0, {}), got [{}, {})", size(), begin, end);
  Tokens part = *this;
  part.begin_ = begin_ + begin;
  part.end_ = begin_ + end;
  if (part.size() < source_->size()) part.name_ = name;
  return part;
}

Tokens Tokens::with_vocabulary(int64_t vocabulary) const {
  if (vocabulary == this->vocabulary()) return *this;
  std::vector<int32_t> ids(static_cast<size_t>(source_->size()));
  source_->read(0, ids);
  Tokens result = *this;
  result.source_ = std::make_shared<const TokenArray>(source_->file(), std::move(ids), vocabulary);
  return result;
}

void Tokens::read(int64_t begin, std::span<int32_t> out) const {
  const auto count = static_cast<int64_t>(out.size());
  require(0 <= begin && begin <= size() && count <= size() - begin,
          "tokens: must be read in [0, {}), got {} tokens from {}", size(), count, begin);
  source_->read(begin_ + begin, out);
}

void Tokens::require_size(uint64_t min, std::string_view reason) const {
  if (static_cast<uint64_t>(size()) >= min) return;
  if (name_.empty())
    source_->refuse("must have at least {} tokens, {}, got {}", min, reason, size());
  source_->refuse("{}: must have at least {} tokens, {}, got {} of the {} tokens", name_, min,
                  reason, size(), source_->size());
}

TextTokens text_tokens(const std::string& path, TextUnit unit) {
  const std::string text = text_of_file(path);
  std::shared_ptr<const Tokenizer> tokenizer;
  if (unit == TextUnit::kByte) {
    tokenizer = std::make_shared<const ByteTokenizer>();
  } else {
    tokenizer = for_text_of(path, [&] { return std::make_shared<const CharacterTokenizer>(text); });
  }
  return {tokenizer, tokens_of_text(path, text, *tokenizer)};
}

Tokens text_tokens(const std::string& path, const Tokenizer& tokenizer) {
  return tokens_of_text(path, text_of_file(path), tokenizer);
}

Tokens tokens_file(const std::string& path, int64_t vocabulary) {
  require(vocabulary >= 1 && vocabulary <= 65536,
          "tokens_file: vocabulary must be in [1, 65536], got {}", vocabulary);
  sys::File file = sys::open_for_read(path);
  const int64_t bytes = sys::size(file, path);
  if (bytes % 2 != 0) {
    fail(ErrorKind::kBadFile, "{}: must have 2 bytes for each token, got {} bytes", path, bytes);
  }
  return Tokens(std::make_shared<const TokenFile>(path, std::move(file), bytes / 2, vocabulary));
}

TokenSplit split_tokens(const Tokens& tokens) {
  return split_tokens(tokens, tokens.size() / 10 + (tokens.size() % 10 != 0));
}

TokenSplit split_tokens(const Tokens& tokens, int64_t tests) {
  const int64_t begin = tokens.size() - tests;
  return {tokens.range(0, begin, "training part"), tokens.range(begin, tokens.size(), "test part")};
}

Dataset random_windows(const Tokens& tokens, const WindowOptions& options) {
  const auto starts = static_cast<uint64_t>(window_starts(tokens, options.context));
  const Seed key = fold(
      {static_cast<uint32_t>(options.seed >> 32), static_cast<uint32_t>(options.seed)}, "windows");
  return token_windows(tokens, kForever, options.context, [key, starts](int64_t k) {
    return static_cast<int64_t>(random_below(key, static_cast<uint64_t>(k), starts));
  });
}

Dataset consecutive_windows(const Tokens& tokens, int64_t context) {
  const int64_t count = (window_starts(tokens, context) - 1) / context + 1;
  return token_windows(tokens, count, context, [context](int64_t k) { return k * context; });
}

}  // namespace sluice::data
