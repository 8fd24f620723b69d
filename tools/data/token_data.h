#pragma once
#include <map>
#include <memory>
#include <string>

#include "tools/data/user_data.h"

namespace sluice::tool {

/// Metadata of weights with the tokenizer of their text. Names of further metadata begin with it.
inline constexpr const char* kTokenizerKey = "sluice.tokenizer";

/// A tokenizer, and the metadata to save with weights that are trained on its tokens.
struct TextTokenizer {
  std::shared_ptr<const data::Tokenizer> tokenizer;  ///< Null for a file of ids without one.
  std::map<std::string, std::string> metadata;
};

/// Returns the tokenizer of a text: "bytes", "characters", a tokenizer.json, or a vocab.json with a
/// merges.txt in its folder. An empty name is the tokenizer of `weights`, if that file has one, or
/// "characters". The characters come from `weights`, or else from `text_file`; null without both.
/// Error{kUsage} for an empty name and a text if `weights` name a tokenizer that they do not have.
/// Error{kIo} and Error{kBadFile} as for the readers.
TextTokenizer find_tokenizer(const std::string& name, const std::string& weights,
                             const std::string& text_file);

/// Throws Error{kUsage} that says which file --tokenizer must name for `weights` without one.
[[noreturn]] void refuse_missing_tokenizer(const std::string& weights);

/// Error{kUsage} if the weights were trained with another tokenizer than bytes.
void require_bytes(const std::string& weights);

/// Loads a text, or a file of 16-bit ids, for load_user_data().
std::shared_ptr<const UserData> load_tokens(const std::string& path, bool is_text,
                                            const DataChoice& choice);

}  // namespace sluice::tool
