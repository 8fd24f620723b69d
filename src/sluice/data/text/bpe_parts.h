#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sluice/data/text/bpe.h"
#include "sluice/data/text/stages.h"

namespace sluice::data {

/// A token that encode() finds in a text before it cuts words.
struct AddedToken {
  std::string text;
  int32_t id = 0;
  bool is_special = false;
  bool is_normalized = false;  ///< It is searched in the normalized text.
  bool strips_left = false;    ///< It covers the white space before it.
  bool strips_right = false;   ///< It covers the white space after it.
};

/// A set of texts that finds the longest one at the beginning of another text.
class TextTrie {
 public:
  /// Adds a text that is not empty. A text that is added again gets the new value.
  void add(std::string_view text, int32_t value);
  bool empty() const { return values_.size() == 1; }
  /// Whether a text of the set begins with `byte`.
  bool begins_with(char byte) const { return firsts_[static_cast<uint8_t>(byte)]; }
  /// Returns the value and the bytes of the longest text that `text` begins with.
  std::optional<std::pair<int32_t, size_t>> longest(std::string_view text) const;

 private:
  std::unordered_map<uint64_t, int64_t> children_;  // By node · 256 + byte.
  std::vector<int32_t> values_ = {-1};              // One for each node; -1 without a text.
  std::array<bool, 256> firsts_{};
};

/// All that a BpeTokenizer has read.
struct BpeParts {
  BpeModel model;
  std::vector<std::string> tokens = {};  ///< By id.
  std::vector<AddedToken> added = {};
  TextTrie raw = {};         ///< Indices in `added` of the tokens that are not normalized.
  TextTrie normalized = {};  ///< Indices of the others, by their normalized texts.
  std::vector<Normalizer> normalizers = {};
  std::vector<PreTokenizer> pre_tokenizers = {};
  std::vector<Decoder> decoders = {};  ///< Without one, spaces separate the tokens.
  std::vector<int32_t> begin = {};     ///< Tokens that the template puts before a text.
  std::vector<int32_t> end = {};

  std::string normalize(std::string text) const;
};

}  // namespace sluice::data
