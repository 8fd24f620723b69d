#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/data/dataset.h"
#include "sluice/data/text/tokenizer.h"

namespace sluice::data {

namespace internal {
class TokenSource;
}  // namespace internal

/// A sequence of ids of tokens, in memory or in a file. A copy is cheap and shares the source.
/// Several threads may use one object.
class Tokens {
 public:
  /// Stores ids in memory. Error{kUsage} naming the index unless each is in [0, vocabulary).
  Tokens(std::vector<int32_t> ids, int64_t vocabulary);
  /// For sources.
  explicit Tokens(std::shared_ptr<const internal::TokenSource> source);

  int64_t size() const { return end_ - begin_; }
  /// All ids are in [0, vocabulary()).
  int64_t vocabulary() const;
  /// Returns tokens [begin, end) of this sequence. Error{kUsage} if they are not in it. `name`
  /// names them in the error of require_size(), for example "test part".
  Tokens range(int64_t begin, int64_t end, std::string_view name = "part") const;
  /// Returns the same ids in a vocabulary of another size. For an id that is not in it, read()
  /// throws its errors; for tokens in memory, this call throws Error{kUsage}.
  Tokens with_vocabulary(int64_t vocabulary) const;
  /// Reads tokens [begin, begin + out.size()). Error{kUsage} if they are not in the sequence.
  /// Error{kBadFile} naming the file and the token's index in it if an id is not in the vocabulary.
  void read(int64_t begin, std::span<int32_t> out) const;

  /// If there are fewer tokens than `min`, Error{kBadFile} naming the file, or Error{kUsage} for
  /// tokens in memory. A range is named, with the number of all tokens. `reason` explains the
  /// number, for example "context + 1".
  void require_size(uint64_t min, std::string_view reason) const;

 private:
  std::shared_ptr<const internal::TokenSource> source_;
  int64_t begin_ = 0;
  int64_t end_ = 0;
  std::string name_;  // Empty for all tokens of the source.
};

/// The unit that is a token of a text.
enum class TextUnit : uint8_t { kCharacter, kByte };

/// The tokens of a text and the tokenizer that made them.
struct TextTokens {
  std::shared_ptr<const Tokenizer> tokenizer;
  Tokens tokens;
};

/// Reads a text, plain or gzip, and makes a CharacterTokenizer of its characters, or a
/// ByteTokenizer. Bytes of a plain file are read when they are asked for; other tokens are held in
/// memory. Error{kIo} if the file cannot be read. Error{kBadFile} naming the byte if a text of
/// characters is not UTF-8 or is empty.
TextTokens text_tokens(const std::string& path, TextUnit unit);
/// Reads a text, plain or gzip, as tokens of `tokenizer`. Error{kIo} and Error{kBadFile} as above,
/// and Error{kBadFile} naming a character that `tokenizer` does not cover.
Tokens text_tokens(const std::string& path, const Tokenizer& tokenizer);
/// Opens a file of ids: 16-bit unsigned integers, little-endian and without a header, as nanoGPT
/// writes them, or, if its name ends with .npy, a NumPy array (n,) of uint8, uint16, int32, uint32
/// or int64. In a folder, files that end with .bin or .npy are read in the order of their names.
/// Each read() reads its part of a file, so memory does not grow with the file. Error{kIo} if a
/// file cannot be opened; Error{kBadFile} if it breaks its format, or if a folder has no file or
/// files of both formats. Error{kUsage} unless `vocabulary` is in [1, 2^31 - 1].
Tokens tokens_file(const std::string& path, int64_t vocabulary = 65536);

/// Tokens for training, and later ones for a test.
struct TokenSplit {
  Tokens training;
  Tokens test;
};
/// Keeps the last tenth of the tokens, rounded up, for the test, or the last `tests` tokens.
/// Error{kUsage} unless 0 <= tests <= tokens.size().
TokenSplit split_tokens(const Tokens& tokens);
TokenSplit split_tokens(const Tokens& tokens, int64_t tests);

struct WindowOptions {
  int64_t context = 64;  ///< Tokens of a window, >= 1.
  uint64_t seed = 0;     ///< Seed of the beginnings of windows.
};

// Elements of the datasets below have the fields "input" and "target", i32 (context): a window, and
// the window that begins one token later. The datasets are indexed. Error{kUsage} if `context` is
// not positive. If `tokens` has fewer than context + 1 tokens, Error{kBadFile} naming the file, or
// Error{kUsage} for tokens in memory. Iterators throw the errors of Tokens::read().

/// Draws windows without end. The begin of window k is uniform over all possible ones, and a pure
/// function of (seed, k): sample s of update u of n samples is window u·n + s in every run.
Dataset random_windows(const Tokens& tokens, const WindowOptions& options = {});
/// Cuts tokens into consecutive windows of `context` tokens that do not overlap, for evaluation.
/// Drops tokens at the end that do not fill a window and its target.
Dataset consecutive_windows(const Tokens& tokens, int64_t context);

}  // namespace sluice::data
