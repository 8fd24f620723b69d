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

TokenizerPointer tokenizer_of_metadata(const std::string& text, const std::string& file) {
  if (text == kBytes) return std::make_shared<data::ByteTokenizer>();
  if (text.starts_with(kSavedCharacters) && text.size() > kSavedCharacters.size())
    return std::make_shared<data::CharacterTokenizer>(
        std::string_view(text).substr(kSavedCharacters.size()));
  fail(ErrorKind::kBadFile, "{}: {} must be bytes or characters:CHARACTERS, got '{}'", file,
       kTokenizerKey, text);
}

TokenizerPointer tokenizer_of_weights(const std::string& file) {
  if (file.empty()) return nullptr;
  const SafetensorsReader reader(file);
  const auto found = reader.index().metadata.find(kTokenizerKey);
  if (found == reader.index().metadata.end()) return nullptr;
  return tokenizer_of_metadata(found->second, file);
}

TokenizerPointer tokenizer_of_file(const std::string& file) {
  if (!file.ends_with("vocab.json"))
    return std::make_shared<data::BpeTokenizer>(data::BpeTokenizer::read_json(file));
  const std::string merges = file.substr(0, file.rfind("vocab.json")) + "merges.txt";
  return std::make_shared<data::BpeTokenizer>(data::BpeTokenizer::read_gpt2(file, merges));
}

// Metadata of a tokenizer; one of a file is not saved.
std::map<std::string, std::string> metadata_of(const Tokenizer& tokenizer) {
  if (dynamic_cast<const data::ByteTokenizer*>(&tokenizer) != nullptr)
    return {{kTokenizerKey, std::string(kBytes)}};
  const auto* characters = dynamic_cast<const data::CharacterTokenizer*>(&tokenizer);
  if (characters == nullptr) return {};
  return {{kTokenizerKey, std::string(kSavedCharacters) + characters->vocabulary()}};
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
  if (name.empty()) {
    if (TokenizerPointer saved = tokenizer_of_weights(weights)) return saved;
  }
  if (name == kBytes) return std::make_shared<data::ByteTokenizer>();
  if (!name.empty() && name != kCharacters) return tokenizer_of_file(name);
  if (text_file.empty()) return nullptr;
  return data::text_tokens(text_file, data::TextUnit::kCharacter).tokenizer;
}

std::shared_ptr<const UserData> load_tokens(const std::string& path, bool is_text,
                                            const DataChoice& choice) {
  const TokenizerPointer tokenizer =
      find_tokenizer(choice.tokenizer, choice.weights, is_text ? path : "");
  const data::Tokens all = open_tokens(path, is_text, choice, tokenizer.get());
  const auto result = std::make_shared<UserData>();
  if (tokenizer) result->metadata = metadata_of(*tokenizer);
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
