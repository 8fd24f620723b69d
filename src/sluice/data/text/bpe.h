#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace sluice::data {

/// A hash for look-ups by std::string_view.
struct TextHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};
using TokenIds = std::unordered_map<std::string, int32_t, TextHash, std::equal_to<>>;

/// The choices of a BPE model. Source: models/bpe of Hugging Face's tokenizers.
struct BpeOptions {
  std::optional<int32_t> unknown = {};  ///< Token of a character that the vocabulary lacks.
  bool fuses_unknown = false;           ///< One token for consecutive unknown characters.
  bool byte_fallback = false;           ///< Tokens <0x00> to <0xFF> cover an unknown character.
  bool ignores_merges = false;          ///< A word that is a token is not cut.
};

/// Byte-pair encoding of words. Immutable.
class BpeModel {
 public:
  BpeModel() = default;
  /// `merges` has pairs of tokens from the first to the last merge. Error{kBadFile} naming `file`
  /// and the merge, counted from 1, if a token or the result of a merge is not in the vocabulary.
  BpeModel(TokenIds vocabulary, const std::vector<std::pair<std::string, std::string>>& merges,
           const BpeOptions& options, const std::string& file);

  /// Appends the ids of the tokens of a word in UTF-8. Takes O(n log n) steps for n characters.
  /// Error{kUsage} naming a character that the vocabulary does not cover.
  void encode(std::string_view word, std::vector<int32_t>& ids) const;
  std::optional<int32_t> find(std::string_view token) const;
  /// Returns the bytes of a beginning of `word`, the shortest that is known, whose tokens are those
  /// of encode(word): no merge joins its last character to the next one.
  size_t separable_size(std::string_view word) const;

 private:
  struct Merge {
    int32_t rank = 0;
    int32_t result = 0;
  };

  void characters(std::string_view word, std::vector<int32_t>& ids) const;
  const Merge* merge_of(int32_t left, int32_t right) const;

  TokenIds vocabulary_;
  std::unordered_map<uint64_t, Merge> merges_;  // By the ids of both tokens.
  // For each merge, the last character of the left token and the first one of the right token.
  std::unordered_set<std::string, TextHash, std::equal_to<>> joints_;
  BpeOptions options_;
};

}  // namespace sluice::data
