#include "tools/data/token_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "sluice/base/bytes.h"
#include "sluice/base/error.h"
#include "sluice/base/safetensors.h"
#include "sluice/base/sys.h"
#include "sluice/data/files/contents.h"
#include "sluice/data/files/shown.h"
#include "sluice/data/files/utf8.h"

namespace sluice::tool {
namespace {

using data::Tokenizer;
using TokenizerPointer = std::shared_ptr<const Tokenizer>;
using Metadata = std::map<std::string, std::string>;

constexpr std::string_view kBytes = "bytes", kCharacters = "characters";
constexpr std::string_view kSavedCharacters = "characters:";
constexpr std::string_view kIds = "file";             // Ids of a file, without a tokenizer.
constexpr std::string_view kNotSaved = "file:";       // The path of a file that is too large.
constexpr std::string_view kJson = "tokenizer.json";  // Its text is below kJsonKey.
constexpr std::string_view kGpt2 = "vocab.json";      // Its texts are below the other keys.
constexpr const char* kJsonKey = "sluice.tokenizer.json";
constexpr const char* kVocabularyKey = "sluice.tokenizer.vocab";
constexpr const char* kMergesKey = "sluice.tokenizer.merges";
constexpr size_t kMaxSavedBytes = size_t{16} << 20;  // Bytes of files that are saved.

// The metadata of weights with their tokenizer; empty without.
Metadata saved_metadata(const std::string& weights) {
  if (weights.empty()) return {};
  const SafetensorsReader reader(weights);
  Metadata found = reader.index().metadata;
  std::erase_if(found, [](const auto& entry) { return !entry.first.starts_with(kTokenizerKey); });
  return found;
}

std::string saved_tokenizer(const Metadata& metadata) {
  const auto found = metadata.find(kTokenizerKey);
  return found == metadata.end() ? "" : found->second;
}

TokenizerPointer tokenizer_of_metadata(const Metadata& metadata, const std::string& file) {
  const std::string text = saved_tokenizer(metadata);
  const auto saved_file = [&](const char* key) -> const std::string& {
    const auto found = metadata.find(key);
    if (found == metadata.end())
      fail(ErrorKind::kBadFile, "{}: must have the metadata {} for {} '{}', got none", file, key,
           kTokenizerKey, text);
    return found->second;
  };
  if (text == kBytes) return std::make_shared<data::ByteTokenizer>();
  if (text.starts_with(kSavedCharacters) && text.size() > kSavedCharacters.size())
    return std::make_shared<data::CharacterTokenizer>(
        std::string_view(text).substr(kSavedCharacters.size()));
  const std::string name = fmt::format("{}: {}", file, kTokenizerKey);
  if (text == kJson)
    return std::make_shared<data::BpeTokenizer>(
        data::BpeTokenizer::parse_json(saved_file(kJsonKey), name));
  if (text == kGpt2)
    return std::make_shared<data::BpeTokenizer>(
        data::BpeTokenizer::parse_gpt2(saved_file(kVocabularyKey), saved_file(kMergesKey), name));
  fail(ErrorKind::kBadFile, "{}: {} must be bytes, {}, {}, file or characters:CHARACTERS, got '{}'",
       file, kTokenizerKey, kJson, kGpt2, text);
}

std::string text_of_file(const std::string& path, std::string_view wanted) {
  const std::vector<std::byte> bytes = data::read_contents(path, Contents::kText, wanted);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Returns the metadata of a file's tokenizer, with the file's texts unless they are too large.
Metadata metadata_of_file(const std::string& file, std::string_view type, Metadata texts) {
  size_t bytes = 0;
  bool is_text = true;
  for (const auto& [key, text] : texts) {
    bytes += text.size();
    is_text = is_text && data::is_utf8(text);
  }
  if (!is_text || bytes > kMaxSavedBytes) {
    // Metadata are UTF-8.
    return {{kTokenizerKey, std::string(kNotSaved) + data::printable(file)}};
  }
  texts.emplace(kTokenizerKey, type);
  return texts;
}

TextTokenizer tokenizer_of_file(const std::string& file) {
  using data::BpeTokenizer;
  if (!file.ends_with(kGpt2)) {
    const std::string text = text_of_file(file, "a tokenizer.json");
    return {std::make_shared<BpeTokenizer>(BpeTokenizer::parse_json(text, file)),
            metadata_of_file(file, kJson, {{kJsonKey, text}})};
  }
  const std::string merges = file.substr(0, file.size() - kGpt2.size()) + "merges.txt";
  return {std::make_shared<BpeTokenizer>(BpeTokenizer::read_gpt2(file, merges)),
          metadata_of_file(file, kGpt2,
                           {{kVocabularyKey, text_of_file(file, "GPT-2's vocab.json")},
                            {kMergesKey, text_of_file(merges, "GPT-2's merges.txt")}})};
}

TextTokenizer byte_tokenizer() {
  return {std::make_shared<data::ByteTokenizer>(), {{kTokenizerKey, std::string(kBytes)}}};
}

TextTokenizer tokenizer_of_characters(const std::string& text_file) {
  const TokenizerPointer found = data::text_tokens(text_file, data::TextUnit::kCharacter).tokenizer;
  const auto& characters = dynamic_cast<const data::CharacterTokenizer&>(*found);
  return {found, {{kTokenizerKey, std::string(kSavedCharacters) + characters.vocabulary()}}};
}

data::Tokens open_tokens(const std::string& path, bool is_text, const DataChoice& choice,
                         const Tokenizer* tokenizer) {
  const int64_t known = tokenizer == nullptr ? 0 : tokenizer->vocabulary_size();
  const int64_t vocabulary = choice.vocabulary > 0 ? choice.vocabulary : known;
  require(vocabulary > 0, "--dataset tokens:{} requires --vocab N or --tokenizer FILE", path);
  require(vocabulary >= known,
          "--vocab: must be at least {}, the vocabulary of the tokenizer, got {}", known,
          vocabulary);
  if (!is_text) return data::tokens_file(path, vocabulary);
  return data::text_tokens(path, *tokenizer).with_vocabulary(vocabulary);
}

}  // namespace

TextTokenizer find_tokenizer(const std::string& name, const std::string& weights,
                             const std::string& text_file) {
  const Metadata metadata = saved_metadata(weights);
  const std::string saved = saved_tokenizer(metadata);
  const bool has_tokenizer = !saved.empty() && saved != kIds && !saved.starts_with(kNotSaved);
  if (name.empty() && !saved.empty() && !has_tokenizer) {
    if (!text_file.empty()) refuse_missing_tokenizer(weights);
    return {nullptr, metadata};
  }
  if (has_tokenizer &&
      (name.empty() || (name == kCharacters && saved.starts_with(kSavedCharacters))))
    return {tokenizer_of_metadata(metadata, weights), metadata};
  if (name == kBytes) return byte_tokenizer();
  if (!name.empty() && name != kCharacters) return tokenizer_of_file(name);
  if (text_file.empty()) return {nullptr, {{kTokenizerKey, std::string(kIds)}}};
  return tokenizer_of_characters(text_file);
}

void refuse_missing_tokenizer(const std::string& weights) {
  const std::string saved =
      saved_tokenizer(sys::exists(weights + "/.") ? Metadata() : saved_metadata(weights));
  if (saved.starts_with(kNotSaved))
    fail(ErrorKind::kUsage,
         "--tokenizer: must be {}, the tokenizer of {}, got none: weights keep files of at most {} "
         "bytes in UTF-8",
         saved.substr(kNotSaved.size()), weights, kMaxSavedBytes);
  if (saved == kIds)
    fail(ErrorKind::kUsage,
         "--tokenizer: must be the file whose ids {} was trained on, got none: they had no "
         "tokenizer",
         weights);
  fail(ErrorKind::kUsage,
       "{}: has no tokenizer; use --tokenizer with bytes, a tokenizer.json or a vocab.json",
       weights);
}

void require_bytes(const std::string& weights) {
  const std::string saved = saved_tokenizer(saved_metadata(weights));
  require(saved.empty() || saved == kBytes,
          "--weights {}: require --dataset text:FILE, as their tokens are not bytes", weights);
}

std::shared_ptr<const UserData> load_tokens(const std::string& path, bool is_text,
                                            const DataChoice& choice) {
  require(is_text || choice.tokenizer != kCharacters,
          "--tokenizer characters requires --dataset text:FILE (it is {})", choice.source);
  TextTokenizer found = find_tokenizer(choice.tokenizer, choice.weights, is_text ? path : "");
  const TokenizerPointer& tokenizer = found.tokenizer;
  const data::Tokens all = open_tokens(path, is_text, choice, tokenizer.get());
  const auto result = std::make_shared<UserData>();
  result->metadata = std::move(found.metadata);
  if (choice.test_all) {
    result->tokens = {all.range(0, 0), all, tokenizer};
    return result;
  }
  const auto size = static_cast<double>(all.size());
  data::TokenSplit both =
      choice.validation
          ? data::split_tokens(all, static_cast<int64_t>(std::llround(size * *choice.validation)))
          : data::split_tokens(all);
  result->tokens = {std::move(both.training), std::move(both.test), tokenizer};
  return result;
}

}  // namespace sluice::tool
