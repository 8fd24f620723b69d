#include "sluice/data/text/bpe.h"

#include <fmt/format.h>

#include <algorithm>
#include <queue>
#include <tuple>

#include "sluice/base/error.h"
#include "sluice/data/files/shown.h"
#include "sluice/data/files/utf8.h"

namespace sluice::data {
namespace {

/// A token of a word, in a list of those that are not yet merged.
struct BpeSymbol {
  int32_t id = 0;
  int32_t previous = -1;  // Index of a symbol, or -1.
  int32_t next = -1;
  bool is_merged = false;  // Into the symbol before it.
};

/// A possible merge of the symbol at `index` with the next one.
struct MergeCandidate {
  int32_t rank = 0;
  int32_t index = 0;
  int32_t result = 0;

  bool operator>(const MergeCandidate& other) const {
    return std::tie(rank, index) > std::tie(other.rank, other.index);
  }
};

std::string_view first_character(std::string_view text) {
  return text.substr(0, std::max<size_t>(1, character_size(text)));
}

std::string_view last_character(std::string_view text) {
  size_t begin = text.size() - 1;
  while (begin > 0 && (static_cast<uint8_t>(text[begin]) & 0xc0u) == 0x80u) --begin;
  return text.substr(begin);
}

uint64_t pair_key(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

}  // namespace

BpeModel::BpeModel(TokenIds vocabulary,
                   const std::vector<std::pair<std::string, std::string>>& merges,
                   const BpeOptions& options, const std::string& file)
    : vocabulary_(std::move(vocabulary)), options_(options) {
  merges_.reserve(merges.size());
  int32_t rank = 0;
  const auto id_of = [&](const std::string& token) {
    const std::optional<int32_t> id = find(token);
    if (!id || token.empty()) {
      fail(ErrorKind::kBadFile, "{}: merge {}: {} must be a token of the vocabulary", file,
           rank + 1, shown(token));
    }
    return *id;
  };
  for (const auto& [left, right] : merges) {
    // One after the other, so that errors do not depend on the compiler.
    const int32_t first = id_of(left);
    const int32_t second = id_of(right);
    merges_[pair_key(first, second)] = {rank, id_of(left + right)};
    joints_.emplace(std::string(last_character(left)).append(first_character(right)));
    ++rank;
  }
}

size_t BpeModel::separable_size(std::string_view word) const {
  if (options_.ignores_merges) return word.size();  // The beginning may be a token.
  // Tokens of an unknown character may join or fuse with others: it is not separated.
  for (size_t begin = 0, at = 0; at < word.size();) {
    const size_t size = first_character(word.substr(at)).size();
    if (at > 0 && !joints_.contains(word.substr(begin, at + size - begin))) {
      if (find(word.substr(begin, at - begin)) && find(word.substr(at, size))) return at;
    }
    begin = at;
    at += size;
  }
  return word.size();
}

std::optional<int32_t> BpeModel::find(std::string_view token) const {
  const auto found = vocabulary_.find(token);
  return found == vocabulary_.end() ? std::nullopt : std::optional(found->second);
}

const BpeModel::Merge* BpeModel::merge_of(int32_t left, int32_t right) const {
  const auto found = merges_.find(pair_key(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

void BpeModel::characters(std::string_view word, std::vector<int32_t>& ids) const {
  bool after_unknown = false;
  for (size_t at = 0; at < word.size();) {
    const size_t size = std::max<size_t>(1, character_size(word.substr(at)));
    const std::string_view character = word.substr(at, size);
    at += size;
    if (const std::optional<int32_t> id = find(character)) {
      ids.push_back(*id);
      after_unknown = false;
      continue;
    }
    if (options_.byte_fallback) {
      for (const char byte : character)
        ids.push_back(*find(fmt::format("<0x{:02X}>", static_cast<unsigned char>(byte))));
      after_unknown = false;
      continue;
    }
    require(options_.unknown.has_value(),
            "text: each character must be covered by the tokens of the vocabulary, got '{}', and "
            "the tokenizer has no token for unknown characters",
            character);
    if (!after_unknown || !options_.fuses_unknown) ids.push_back(*options_.unknown);
    after_unknown = true;
  }
}

void BpeModel::encode(std::string_view word, std::vector<int32_t>& ids) const {
  if (options_.ignores_merges) {
    if (const std::optional<int32_t> id = find(word)) return ids.push_back(*id);
  }
  std::vector<int32_t> first;
  characters(word, first);
  const auto count = static_cast<int32_t>(first.size());
  std::vector<BpeSymbol> symbols(first.size());
  std::priority_queue<MergeCandidate, std::vector<MergeCandidate>, std::greater<>> candidates;
  const auto consider = [&](int32_t index) {
    const BpeSymbol& left = symbols[static_cast<size_t>(index)];
    if (left.next < 0) return;
    const Merge* merge = merge_of(left.id, symbols[static_cast<size_t>(left.next)].id);
    if (merge != nullptr) candidates.push({merge->rank, index, merge->result});
  };
  for (int32_t i = 0; i < count; ++i) {
    const auto k = static_cast<size_t>(i);
    symbols[k] = {first[k], i - 1, i + 1 < count ? i + 1 : -1};
  }
  for (int32_t i = 0; i < count; ++i) consider(i);

  while (!candidates.empty()) {
    const MergeCandidate best = candidates.top();
    candidates.pop();
    BpeSymbol& left = symbols[static_cast<size_t>(best.index)];
    if (left.is_merged || left.next < 0) continue;
    BpeSymbol& right = symbols[static_cast<size_t>(left.next)];
    const Merge* merge = merge_of(left.id, right.id);
    if (merge == nullptr || merge->rank != best.rank) continue;  // One of both has changed.
    left.id = merge->result;
    right.is_merged = true;
    left.next = right.next;
    if (right.next >= 0) symbols[static_cast<size_t>(right.next)].previous = best.index;
    if (left.previous >= 0) consider(left.previous);
    consider(best.index);
  }
  for (int32_t i = count > 0 ? 0 : -1; i >= 0; i = symbols[static_cast<size_t>(i)].next)
    ids.push_back(symbols[static_cast<size_t>(i)].id);
}

}  // namespace sluice::data
