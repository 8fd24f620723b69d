#include "tools/data/token_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "sluice/base/error.h"
#include "sluice/base/safetensors.h"
#include "sluice/base/sys.h"
#include "sluice/models/texts.h"

namespace sluice::tool {
namespace {

using data::Tokenizer;
using TokenizerPointer = std::shared_ptr<const Tokenizer>;

constexpr std::string_view kBytes = "bytes", kCharacters = "characters";
constexpr std::string_view kSavedCharacters = "characters:";
constexpr std::string_view kFile = "file";  // Ids of a file, or of a tokenizer's file.

TokenizerPointer tokenizer_of_metadata(const std::string& text, const std::string& file) {
  if (text == kBytes) return std::make_shared<data::ByteTokenizer>();
  if (text.starts_with(kSavedCharacters) && text.size() > kSavedCharacters.size())
    return std::make_shared<data::CharacterTokenizer>(
        std::string_view(text).substr(kSavedCharacters.size()));
  fail(ErrorKind::kBadFile, "{}: {} must be bytes, file or characters:CHARACTERS, got '{}'", file,
       kTokenizerKey, text);
}

// The metadata of weights with their tokenizer; empty without.
std::string saved_tokenizer(const std::string& file) {
  if (file.empty()) return "";
  const SafetensorsReader reader(file);
  const auto found = reader.index().metadata.find(kTokenizerKey);
  return found == reader.index().metadata.end() ? "" : found->second;
}

TokenizerPointer tokenizer_of_file(const std::string& file) {
  if (!file.ends_with("vocab.json"))
    return std::make_shared<data::BpeTokenizer>(data::BpeTokenizer::read_json(file));
  const std::string merges = file.substr(0, file.rfind("vocab.json")) + "merges.txt";
  return std::make_shared<data::BpeTokenizer>(data::BpeTokenizer::read_gpt2(file, merges));
}

// Metadata of a tokenizer. A tokenizer of a file is not saved: kFile says that it is required.
std::string metadata_of(const Tokenizer* tokenizer) {
  if (dynamic_cast<const data::ByteTokenizer*>(tokenizer) != nullptr) return std::string(kBytes);
  const auto* characters = dynamic_cast<const data::CharacterTokenizer*>(tokenizer);
  if (characters == nullptr) return std::string(kFile);
  return std::string(kSavedCharacters) + characters->vocabulary();
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
  const data::Tokens tokens = data::text_tokens(path, *tokenizer);
  return models::with_vocabulary(tokens, vocabulary);
}

}  // namespace

TokenizerPointer find_tokenizer(const std::string& name, const std::string& weights,
                                const std::string& text_file) {
  const std::string saved = saved_tokenizer(weights);
  if (name.empty() && saved == kFile) {
    require(text_file.empty(),
            "--tokenizer is required: {} was trained on the tokens of another tokenizer's file",
            weights);
    return nullptr;
  }
  if (!saved.empty() &&
      (name.empty() || (name == kCharacters && saved != kFile && saved != kBytes)))
    return tokenizer_of_metadata(saved, weights);
  if (name == kBytes) return std::make_shared<data::ByteTokenizer>();
  if (!name.empty() && name != kCharacters) return tokenizer_of_file(name);
  if (text_file.empty()) return nullptr;
  return data::text_tokens(text_file, data::TextUnit::kCharacter).tokenizer;
}

void require_bytes(const std::string& weights) {
  const std::string saved = saved_tokenizer(weights);
  require(saved.empty() || saved == kBytes,
          "--weights {}: require --dataset text:FILE, as their tokens are not bytes", weights);
}

std::shared_ptr<const UserData> load_tokens(const std::string& path, bool is_text,
                                            const DataChoice& choice) {
  require(is_text || choice.tokenizer != kCharacters,
          "--tokenizer characters requires --dataset text:FILE (it is {})", choice.source);
  const TokenizerPointer tokenizer =
      find_tokenizer(choice.tokenizer, choice.weights, is_text ? path : "");
  const data::Tokens all = open_tokens(path, is_text, choice, tokenizer.get());
  const auto result = std::make_shared<UserData>();
  result->metadata = {{kTokenizerKey, metadata_of(tokenizer.get())}};
  if (choice.test_all) {
    result->tokens = {all.range(0, 0), all, tokenizer};
  } else if (choice.validation) {
    const auto size = static_cast<double>(all.size());
    const auto tests = static_cast<int64_t>(std::llround(size * *choice.validation));
    result->tokens = {all.range(0, all.size() - tests), all.range(all.size() - tests, all.size()),
                      tokenizer};
  } else {
    data::TokenSplit both = data::split_tokens(all);
    result->tokens = {std::move(both.training), std::move(both.test), tokenizer};
  }
  return result;
}

}  // namespace sluice::tool
