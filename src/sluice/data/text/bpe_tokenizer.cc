#include <algorithm>
#include <span>
#include <unordered_map>

#include "sluice/base/error.h"
#include "sluice/data/files/utf8.h"
#include "sluice/data/text/bpe_parts.h"
#include "sluice/data/text/tokenizer.h"

namespace sluice::data {
namespace {

constexpr size_t kMaxEncodedText = size_t{1} << 30;  // Bytes.
constexpr size_t kMinCutWord = 32;                   // Bytes. Shorter words are encoded as a whole.
constexpr size_t kMaxCachedWord = 64;                // Bytes.
constexpr size_t kMaxCachedWords = 1u << 16u;        // Bounds the memory of a call.

/// Encodes words. It stores the tokens of short words, because most words of a text are repeated.
class WordEncoder {
 public:
  explicit WordEncoder(const BpeModel& model) : model_(model) {}

  void encode(std::string_view word, std::vector<int32_t>& ids) {
    if (const auto found = cache_.find(word); found != cache_.end()) {
      const auto [begin, end] = found->second;
      ids.insert(ids.end(), stored_.begin() + static_cast<ptrdiff_t>(begin),
                 stored_.begin() + static_cast<ptrdiff_t>(end));
      return;
    }
    const auto first = static_cast<ptrdiff_t>(ids.size());
    model_.encode(word, ids);
    if (word.size() > kMaxCachedWord || cache_.size() == kMaxCachedWords) return;
    const size_t begin = stored_.size();
    stored_.insert(stored_.end(), ids.begin() + first, ids.end());
    cache_.emplace(word, TextRange{begin, stored_.size()});
  }

 private:
  const BpeModel& model_;
  std::unordered_map<std::string, TextRange, TextHash, std::equal_to<>> cache_;
  std::vector<int32_t> stored_;
};

/// Returns the bytes of the white space that `text` begins with. Source: Unicode's White_Space.
size_t space_size(std::string_view text) {
  const size_t size = character_size(text);
  if (size == 0) return 0;
  const char32_t c = code_points(text.substr(0, size))[0];
  const bool is_space = (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
                        (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
                        c == 0x205f || c == 0x3000;
  return is_space ? size : 0;
}

/// Moves the end of `text` before the white space at its end.
std::string_view without_space_at_end(std::string_view text) {
  while (!text.empty()) {
    size_t begin = text.size() - 1;
    while (begin > 0 && (static_cast<uint8_t>(text[begin]) & 0xc0u) == 0x80u) --begin;
    if (space_size(text.substr(begin)) == 0) break;
    text = text.substr(0, begin);
  }
  return text;
}

/// Finds the added tokens of `trie` in a text. Calls token(id) for each of them, and
/// other(text, whether it is at the begin) for each text between them.
template <typename Token, typename Other>
void find_added(std::string_view text, const TextTrie& trie, const std::vector<AddedToken>& added,
                Token token, Other other) {
  size_t begin = 0;
  for (size_t at = 0; at < text.size() && !trie.empty();) {
    const auto match = trie.begins_with(text[at]) ? trie.longest(text.substr(at)) : std::nullopt;
    if (!match) {
      ++at;
      continue;
    }
    const AddedToken& found = added[static_cast<size_t>(match->first)];
    if (begin < at) {
      std::string_view before = text.substr(begin, at - begin);
      if (found.strips_left) before = without_space_at_end(before);
      if (!before.empty()) other(before, begin == 0);
    }
    token(found.id);
    // White space that this token covers may also be a token.
    at += match->second;
    begin = at;
    while (found.strips_right) {
      const size_t space = space_size(text.substr(begin));
      if (space == 0) break;
      begin += space;
    }
  }
  if (begin < text.size()) other(text.substr(begin), begin == 0);
}

}  // namespace

void TextTrie::add(std::string_view text, int32_t value) {
  SLUICE_CHECK(!text.empty());
  int64_t node = 0;
  for (const char c : text) {
    const uint64_t edge = static_cast<uint64_t>(node) << 8 | static_cast<uint8_t>(c);
    const auto [child, is_new] = children_.emplace(edge, std::ssize(values_));
    if (is_new) values_.push_back(-1);
    node = child->second;
  }
  values_[static_cast<size_t>(node)] = value;
  firsts_[static_cast<uint8_t>(text[0])] = true;
}

std::optional<std::pair<int32_t, size_t>> TextTrie::longest(std::string_view text) const {
  std::optional<std::pair<int32_t, size_t>> found;
  int64_t node = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    const auto child =
        children_.find(static_cast<uint64_t>(node) << 8 | static_cast<uint8_t>(text[at]));
    if (child == children_.end()) break;
    node = child->second;
    const int32_t value = values_[static_cast<size_t>(node)];
    if (value >= 0) found = {value, at + 1};
  }
  return found;
}

std::string BpeParts::normalize(std::string text) const {
  for (const Normalizer& normalizer : normalizers) text = normalizer(std::move(text));
  return text;
}

std::vector<int32_t> BpeTokenizer::encode(std::string_view text) const {
  require(text.size() <= kMaxEncodedText,
          "text: must have at most 1 GiB, got {} bytes; encode it in parts", text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t size = character_size(text.substr(at));
    require(size > 0, "text: byte {}: must be UTF-8", at);
    at += size;
  }
  const BpeParts& parts = *parts_;
  std::vector<int32_t> ids;
  WordEncoder encoder(parts.model);
  const auto token = [&](int32_t id) { ids.push_back(id); };
  const auto encode_words = [&](std::string_view part, bool at_start) {
    Pieces pieces{std::string(part), {{0, part.size()}}, at_start};
    for (const PreTokenizer& pre_tokenizer : parts.pre_tokenizers) pre_tokenizer(pieces);
    for (const auto& [begin, end] : pieces.ranges) {
      std::string_view word = std::string_view(pieces.text).substr(begin, end - begin);
      const bool is_cut = word.size() >= kMinCutWord;
      while (!word.empty()) {
        const size_t size = is_cut ? parts.model.separable_size(word) : word.size();
        encoder.encode(word.substr(0, size), ids);
        word.remove_prefix(size);
      }
    }
  };
  find_added(text, parts.raw, parts.added, token, [&](std::string_view part, bool at_start) {
    const std::string normalized = parts.normalize(std::string(part));
    find_added(
        normalized, parts.normalized, parts.added, token,
        [&](std::string_view piece, bool is_first) { encode_words(piece, at_start && is_first); });
  });
  return ids;
}

std::string BpeTokenizer::decode(std::span<const int32_t> ids) const {
  std::vector<std::string> tokens;
  tokens.reserve(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    require(ids[i] >= 0 && ids[i] < vocabulary_size(), "token {}: must be in [0, {}), got {}", i,
            vocabulary_size(), ids[i]);
    tokens.push_back(parts_->tokens[static_cast<size_t>(ids[i])]);
  }
  for (const Decoder& decoder : parts_->decoders) decoder(tokens);
  std::string text;
  for (const std::string& token : tokens) {
    if (parts_->decoders.empty() && !text.empty()) text += ' ';
    text += token;
  }
  return text;
}

int64_t BpeTokenizer::vocabulary_size() const { return std::ssize(parts_->tokens); }

std::vector<SpecialToken> BpeTokenizer::special_tokens() const {
  std::vector<SpecialToken> special;
  for (const AddedToken& token : parts_->added) {
    if (token.is_special) special.push_back({token.text, token.id});
  }
  std::sort(special.begin(), special.end(), [](auto& a, auto& b) { return a.id < b.id; });
  return special;
}

const std::vector<int32_t>& BpeTokenizer::begin_tokens() const { return parts_->begin; }
const std::vector<int32_t>& BpeTokenizer::end_tokens() const { return parts_->end; }

}  // namespace sluice::data
