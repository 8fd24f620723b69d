#include "sluice/data/text/tokens.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <string_view>
#include <utility>

#include "sluice/base/bytes.h"
#include "sluice/base/error.h"
#include "sluice/data/draw.h"
#include "sluice/data/files/contents.h"
#include "sluice/data/files/npy.h"
#include "sluice/data/window/file_window.h"
#include "sluice/data/window/folder_parts.h"

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
  /// Returns the same ids in a vocabulary of another size.
  virtual std::shared_ptr<const TokenSource> with_vocabulary(int64_t vocabulary) const = 0;

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
  std::shared_ptr<const TokenSource> with_vocabulary(int64_t vocabulary) const override {
    return std::make_shared<const TokenArray>(file(), ids_, vocabulary);
  }

 private:
  std::vector<int32_t> ids_;
};

/// Ids in a file, of 1, 2, 4 or 8 bytes.
struct StoredIds {
  std::shared_ptr<const FileWindow> window;
  NpyIds layout;
};

/// Converts ids. An id that int32 cannot store becomes -1, which no vocabulary has.
template <typename Stored>
void convert_ids(std::span<const std::byte> bytes, std::span<int32_t> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    Stored id;
    std::memcpy(&id, bytes.data() + i * sizeof(Stored), sizeof(Stored));
    out[i] = std::in_range<int32_t>(id) ? static_cast<int32_t>(id) : -1;
  }
}

void read_ids(const StoredIds& ids, int64_t begin, std::span<int32_t> out) {
  const int64_t size = ids.layout.bytes;
  std::array<std::byte, 8192> part;
  const int64_t step = std::ssize(part) / size;
  for (int64_t i = 0; i < std::ssize(out); i += step) {
    const int64_t count = std::min(step, std::ssize(out) - i);
    const std::span<std::byte> bytes = std::span(part).first(static_cast<size_t>(count * size));
    ids.window->read(ids.layout.begin + (begin + i) * size, bytes);
    const auto to = out.subspan(static_cast<size_t>(i), static_cast<size_t>(count));
    if (size == 1) convert_ids<uint8_t>(bytes, to);
    if (size == 2) convert_ids<uint16_t>(bytes, to);
    if (size == 4)
      ids.layout.is_signed ? convert_ids<int32_t>(bytes, to) : convert_ids<uint32_t>(bytes, to);
    if (size == 8) convert_ids<int64_t>(bytes, to);
  }
}

/// The ids of files, one file after the other.
class TokenFiles final : public TokenSource {
 public:
  TokenFiles(const std::string& path, std::vector<StoredIds> parts, int64_t vocabulary)
      : TokenSource(path, total(parts), vocabulary), parts_(std::move(parts)) {
    for (const StoredIds& part : parts_)
      ends_.push_back((ends_.empty() ? 0 : ends_.back()) + part.layout.count);
  }
  void read(int64_t begin, std::span<int32_t> out) const override {
    const std::span<int32_t> all = out;
    int64_t at_token = begin;
    auto i =
        static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), begin) - ends_.begin());
    for (; !out.empty(); ++i) {
      const int64_t count = std::min(ends_[i] - at_token, std::ssize(out));
      read_ids(parts_[i], at_token - (i == 0 ? 0 : ends_[i - 1]),
               out.first(static_cast<size_t>(count)));
      out = out.subspan(static_cast<size_t>(count));
      at_token += count;
    }
    check(begin, all);
  }
  std::shared_ptr<const TokenSource> with_vocabulary(int64_t vocabulary) const override {
    return std::make_shared<const TokenFiles>(file(), parts_, vocabulary);
  }

 private:
  static int64_t total(const std::vector<StoredIds>& parts) {
    int64_t sum = 0;
    for (const StoredIds& part : parts) sum += part.layout.count;
    return sum;
  }

  std::vector<StoredIds> parts_;
  std::vector<int64_t> ends_;  ///< For each part: the tokens of all parts up to it.
};

constexpr std::string_view kNpyEnding = ".npy";

/// Opens a file of ids: NumPy's if its name ends with .npy, else 16-bit ids without a header.
StoredIds open_ids(const std::string& path, const std::shared_ptr<WindowMemory>& memory) {
  const auto window = std::make_shared<const FileWindow>(path, memory);
  if (path.ends_with(kNpyEnding))
    return {window, read_npy_ids_header(npy_head(*window), window->size(), path)};
  if (window->size() % 2 != 0) {
    fail(ErrorKind::kBadFile, "{}: must have 2 bytes for each token, got {} bytes", path,
         window->size());
  }
  return {window, {.count = window->size() / 2, .bytes = 2}};
}

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
    std::vector<int32_t> ids(x.size() + 1);
    tokens.read(start(k), ids);
    std::copy(ids.begin(), ids.end() - 1, x.begin());
    std::copy(ids.begin() + 1, ids.end(), y.begin());
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
  Tokens result = *this;
  result.source_ = source_->with_vocabulary(vocabulary);
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

namespace {

/// The bytes of a text as ids. They stay in the file unless it is gzip.
Tokens tokens_of_bytes(const std::string& path, const ByteTokenizer& tokenizer) {
  const auto window = std::make_shared<const FileWindow>(path);
  const std::vector<std::byte> head = window->head(4096);
  if (is_gzip(head)) return tokens_of_text(path, text_of_file(path), tokenizer);
  refuse_other_kind(head, path, Contents::kAnyText, "text");
  std::vector<StoredIds> all{{window, {.count = window->size(), .bytes = 1}}};
  return Tokens(
      std::make_shared<const TokenFiles>(path, std::move(all), tokenizer.vocabulary_size()));
}

}  // namespace

TextTokens text_tokens(const std::string& path, TextUnit unit) {
  if (unit == TextUnit::kByte) {
    const auto bytes = std::make_shared<const ByteTokenizer>();
    return {bytes, tokens_of_bytes(path, *bytes)};
  }
  const std::string text = text_of_file(path);
  const auto characters =
      for_text_of(path, [&] { return std::make_shared<const CharacterTokenizer>(text); });
  return {characters, tokens_of_text(path, text, *characters)};
}

Tokens text_tokens(const std::string& path, const Tokenizer& tokenizer) {
  if (const auto* const bytes = dynamic_cast<const ByteTokenizer*>(&tokenizer))
    return tokens_of_bytes(path, *bytes);
  return tokens_of_text(path, text_of_file(path), tokenizer);
}

Tokens tokens_file(const std::string& path, int64_t vocabulary) {
  constexpr int64_t kMaxVocabulary = std::numeric_limits<int32_t>::max();
  require(vocabulary >= 1 && vocabulary <= kMaxVocabulary,
          "tokens_file: vocabulary must be in [1, {}], got {}", kMaxVocabulary, vocabulary);
  const auto memory = std::make_shared<WindowMemory>();
  std::vector<StoredIds> parts;
  for (const std::string& part : parts_of(path, {".bin", kNpyEnding}))
    parts.push_back(open_ids(part, memory));
  return Tokens(std::make_shared<const TokenFiles>(path, std::move(parts), vocabulary));
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
