#pragma once
#include <map>
#include <memory>
#include <string>

#include "tools/data/user_data.h"

namespace sluice::tool {

/// Metadata of weights with the tokenizer of their text.
inline constexpr const char* kTokenizerKey = "sluice.tokenizer";

/// Returns the tokenizer of a text: "bytes", "characters", a tokenizer.json, or a vocab.json with a
/// merges.txt in its folder. An empty name is the tokenizer of `weights`, if that file has one, or
/// "characters". The characters come from `weights`, or else from `text_file`; null without both.
/// Error{kUsage} for an empty name and a text if the weights were trained with the tokenizer of a
/// file. Error{kIo} and Error{kBadFile} as for the readers.
std::shared_ptr<const data::Tokenizer> find_tokenizer(const std::string& name,
                                                      const std::string& weights,
                                                      const std::string& text_file);

/// Error{kUsage} if the weights were trained with another tokenizer than bytes.
void require_bytes(const std::string& weights);

/// Loads a text, or a file of 16-bit ids, for load_user_data().
std::shared_ptr<const UserData> load_tokens(const std::string& path, bool is_text,
                                            const DataChoice& choice);

}  // namespace sluice::tool
