#include "sluice/data/text/tokenizer.h"

#include <algorithm>
#include <array>
#include <set>

#include "sluice/base/error.h"
#include "sluice/data/files/utf8.h"

namespace sluice::data {
namespace {

/// Calls f(character, byte offset) for each character of a text.
template <typename F>
void each_character(std::string_view text, F f) {
  for (size_t at = 0; at < text.size();) {
    const size_t size = character_size(text.substr(at));
    require(size > 0, "text: byte {}: must be UTF-8", at);
    f(text.substr(at, size), at);
    at += size;
  }
}

void check_id(int32_t id, int64_t index, int64_t vocabulary) {
  require(id >= 0 && id < vocabulary, "token {}: must be in [0, {}), got {}", index, vocabulary,
          id);
}

}  // namespace

CharacterTokenizer::CharacterTokenizer(std::string_view text) {
  std::set<std::string_view> characters;
  each_character(text, [&](std::string_view character, size_t) { characters.insert(character); });
  require(!characters.empty(), "text: must have a character for the vocabulary, got none");
  characters_.assign(characters.begin(), characters.end());
}

std::vector<int32_t> CharacterTokenizer::encode(std::string_view text) const {
  std::vector<int32_t> ids;
  ids.reserve(text.size());
  each_character(text, [&](std::string_view character, size_t at) {
    const auto found = std::lower_bound(characters_.begin(), characters_.end(), character);
    require(found != characters_.end() && *found == character,
            "text: byte {}: must be one of the {} characters of the vocabulary, got '{}'", at,
            characters_.size(), character);
    ids.push_back(static_cast<int32_t>(found - characters_.begin()));
  });
  return ids;
}

std::string CharacterTokenizer::decode(std::span<const int32_t> ids) const {
  std::string text;
  for (size_t i = 0; i < ids.size(); ++i) {
    check_id(ids[i], static_cast<int64_t>(i), vocabulary_size());
    text += characters_[static_cast<size_t>(ids[i])];
  }
  return text;
}

std::string CharacterTokenizer::vocabulary() const {
  std::string text;
  for (const std::string& character : characters_) text += character;
  return text;
}

std::vector<int32_t> ByteTokenizer::encode(std::string_view text) const {
  std::vector<int32_t> ids(text.size());
  std::transform(text.begin(), text.end(), ids.begin(),
                 [](char byte) { return static_cast<uint8_t>(byte); });
  return ids;
}

std::string ByteTokenizer::decode(std::span<const int32_t> ids) const {
  std::string text;
  for (size_t i = 0; i < ids.size(); ++i) {
    check_id(ids[i], static_cast<int64_t>(i), vocabulary_size());
    text += static_cast<char>(ids[i]);
  }
  return text;
}

}  // namespace sluice::data
