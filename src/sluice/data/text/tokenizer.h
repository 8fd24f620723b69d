#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::data {

/// A token with a meaning for a model, such as the end of a text.
struct SpecialToken {
  std::string text;  ///< "<|endoftext|>".
  int32_t id = 0;
  bool operator==(const SpecialToken&) const = default;
};

/// Maps texts to ids of tokens and back. Objects are immutable; several threads may use one.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// Returns the ids of the tokens of a text in UTF-8, of at most 1 GiB. Error{kUsage} naming the
  /// byte offset if `text` is not UTF-8, or has a character that no token covers.
  virtual std::vector<int32_t> encode(std::string_view text) const = 0;
  /// Returns the bytes of the tokens. They need not be UTF-8, because a token may be a part of a
  /// character. Error{kUsage} naming the index if an id is not in [0, vocabulary_size()).
  virtual std::string decode(std::span<const int32_t> ids) const = 0;
  /// Number of tokens, special ones included. Their ids are 0 to vocabulary_size() - 1.
  virtual int64_t vocabulary_size() const = 0;
  /// Special tokens by their ids; none by default.
  virtual std::vector<SpecialToken> special_tokens() const { return {}; }
};

/// One token for each character (code point) of a vocabulary.
class CharacterTokenizer final : public Tokenizer {
 public:
  /// Makes the vocabulary of all characters of `text`, sorted by code point. Equal sets of
  /// characters make equal tokenizers. Error{kUsage} naming the byte if `text` is not UTF-8 or
  /// empty.
  explicit CharacterTokenizer(std::string_view text);

  std::vector<int32_t> encode(std::string_view text) const override;
  std::string decode(std::span<const int32_t> ids) const override;
  int64_t vocabulary_size() const override { return std::ssize(characters_); }
  /// The vocabulary as a text: character k has id k.
  std::string vocabulary() const;

 private:
  std::vector<std::string> characters_;  // UTF-8 sorts like its code points.
};

/// One token for each byte; the id is its value. encode() accepts any bytes.
class ByteTokenizer final : public Tokenizer {
 public:
  std::vector<int32_t> encode(std::string_view text) const override;
  std::string decode(std::span<const int32_t> ids) const override;
  int64_t vocabulary_size() const override { return 256; }
};

struct BpeParts;

/// Byte-pair encoding with the tokens and merges of a file.
///
/// The readers do not trust the files. They throw Error{kIo} if a file cannot be read, and
/// Error{kBadFile} naming the file and the field or line if it breaks its format. Ids must be 0 to
/// n - 1 for n tokens.
///
/// encode() finds the added tokens of a file in the text; they are not cut. It appends no other
/// token to those of the text. decode() returns the texts of special tokens too.
class BpeTokenizer final : public Tokenizer {
 public:
  /// Reads GPT-2's `vocab.json` and `merges.txt` (byte-level). "<|endoftext|>" is a special token
  /// if the vocabulary has it. Source: Radford et al., "Language Models are Unsupervised Multitask
  /// Learners", 2019.
  static BpeTokenizer read_gpt2(const std::string& vocabulary, const std::string& merges);
  /// Reads the texts of both files; `file` names them in errors.
  static BpeTokenizer parse_gpt2(std::string_view vocabulary, std::string_view merges,
                                 const std::string& file);

  /// Reads a `tokenizer.json` of Hugging Face's tokenizers whose model is BPE. Its ids are those of
  /// that library, where a text has the tokens for it. These components are read:
  ///   normalizers: Sequence, Prepend, Replace;
  ///   pre-tokenizers: Sequence, ByteLevel, Split, Digits, Metaspace;
  ///   decoders: Sequence, ByteLevel, Replace, ByteFallback, Fuse, Strip, Metaspace;
  ///   post-processors: Sequence, ByteLevel, TemplateProcessing.
  /// Any other component, dropout, affixes of subwords and `single_word` are Error{kBadFile} that
  /// names them. `truncation` and `padding` do not apply. Unicode's properties are those of PCRE2.
  static BpeTokenizer read_json(const std::string& path);
  /// Reads the text of such a file, which `file` names in errors.
  static BpeTokenizer parse_json(std::string_view text, const std::string& file);

  std::vector<int32_t> encode(std::string_view text) const override;
  std::string decode(std::span<const int32_t> ids) const override;
  int64_t vocabulary_size() const override;
  std::vector<SpecialToken> special_tokens() const override;

  /// The tokens that the template of `tokenizer.json` puts before and after a text. encode() does
  /// not add them.
  const std::vector<int32_t>& begin_tokens() const;
  const std::vector<int32_t>& end_tokens() const;

  /// For the readers.
  explicit BpeTokenizer(std::shared_ptr<const BpeParts> parts) : parts_(std::move(parts)) {}

 private:
  std::shared_ptr<const BpeParts> parts_;
};

}  // namespace sluice::data
