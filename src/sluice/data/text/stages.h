#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/data/text/regex.h"

namespace sluice::data {

// The stages of a tokenizer around its BPE model, as Hugging Face's tokenizers define them. All
// texts are UTF-8, except for the results of decoders.

/// A text that is cut into words.
struct Pieces {
  std::string text;
  std::vector<TextRange> ranges;  ///< The words in `text`, ascending. No word is empty.
  bool at_start = true;           ///< The first word begins the text that a user gave.
};

/// Rewrites a text before it is cut.
using Normalizer = std::function<std::string(std::string)>;
/// Cuts each word into smaller ones, and may rewrite them.
using PreTokenizer = std::function<void(Pieces&)>;
/// Rewrites the texts of consecutive tokens into others that are joined.
using Decoder = std::function<void(std::vector<std::string>&)>;

/// The words that a cut at the matches of an expression makes.
enum class SplitBehavior : uint8_t {
  kRemoved,             ///< The texts between matches.
  kIsolated,            ///< Matches, and the texts between them.
  kMergedWithPrevious,  ///< Each match belongs to the word before it.
  kMergedWithNext,      ///< Each match belongs to the word after it.
  kContiguous,          ///< As kIsolated, but adjacent matches are one word.
};

/// Expression of GPT-2's pre-tokenizer. Source: Radford et al., 2019, encoder.py.
inline constexpr const char* kGpt2Words =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

/// Returns an expression that matches `literal`.
Regex literal_regex(std::string_view literal, const std::string& file);
/// Replaces each match in `text` by `content`.
std::string replaced(std::string_view text, const Regex& pattern, std::string_view content);

/// Cuts at the matches of `pattern`, or at the texts between them if `inverted`.
PreTokenizer split_words(Regex pattern, SplitBehavior behavior, bool inverted = false);
/// Adds a space before each word that does not begin with one.
PreTokenizer add_spaces();
/// Replaces each byte of a word by its byte_character().
PreTokenizer byte_level();

/// Whether Metaspace marks the begin of a word that has no space before it.
enum class MarkedWords : uint8_t {
  kAll,
  kFirst,  ///< The word at the begin of the text alone.
  kNone,
};
/// Replaces spaces by `mark`, and cuts before each mark if `cuts`.
PreTokenizer metaspace(std::string mark, MarkedWords marked, bool cuts, const std::string& file);

/// Converts the characters of byte_level() to bytes and joins all tokens. A token with other
/// characters stays.
Decoder decode_byte_level();
/// Converts tokens <0x00> to <0xFF> to bytes.
Decoder decode_byte_fallback();
/// Joins all tokens into one.
Decoder fuse();
/// Removes at most `begin` and `end` times `character` at the begin and end of each token.
Decoder strip(std::string character, int64_t begin, int64_t end);
/// Replaces `mark` by a space; in the first token it is removed unless `marked` is kNone.
Decoder decode_metaspace(std::string mark, MarkedWords marked);

/// Returns the character that stands for a byte in byte-level vocabularies: itself if it is a
/// printable character of Latin-1 except the space and the soft hyphen, else the next free code
/// point from 256. Source: Radford et al., 2019, encoder.py.
const std::string& byte_character(uint8_t byte);

}  // namespace sluice::data
