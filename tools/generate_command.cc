#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sluice/base/error.h"
#include "sluice/base/sys.h"
#include "sluice/data/files/shown.h"
#include "sluice/data/text/tokenizer.h"
#include "sluice/models/gpt/generate.h"
#include "sluice/models/hugging_face/checkpoint.h"
#include "sluice/models/hugging_face/hugging_face.h"
#include "tools/data/saved_sizes.h"
#include "tools/data/token_data.h"
#include "tools/json_record.h"
#include "tools/options.h"

namespace sluice::tool {
namespace {

using data::Tokenizer;
using TokenizerPointer = std::shared_ptr<const Tokenizer>;

models::GptSizes generator_sizes(const ToolOptions& o) {
  const std::string& file = o.model.weights;
  models::GptSizes sizes = models::gpt_sizes(o.model.sizes);
  if (is_checkpoint(o.model)) {
    if (!sys::exists(file + "/config.json"))
      fail(ErrorKind::kBadFile, "{}: must contain config.json", file);
    sizes = models::read_gpt_sizes(file);
    const auto tensors = std::ssize(models::open_checkpoint(file).tensors());
    if (sizes.blocks > tensors)
      fail(ErrorKind::kBadFile, "{}: must have at most {} blocks, its number of tensors, got {}",
           file, tensors, sizes.blocks);
  }
  sizes.dropout = 0;
  try {
    return models::complete_sizes(sizes);
  } catch (const Error& e) {
    fail(ErrorKind::kBadFile, "{}: {}", file, e.what());
  }
}

// The tokenizer of --tokenizer, of the weights, or of the folder of a checkpoint.
TokenizerPointer tokenizer_of(const ToolOptions& o) {
  const ModelOptions& m = o.model;
  const bool is_folder = is_checkpoint(m);
  std::string name = m.tokenizer;
  for (const char* file : {"/tokenizer.json", "/vocab.json"}) {
    if (is_folder && name.empty() && sys::exists(m.weights + file)) name = m.weights + file;
  }
  TokenizerPointer found = find_tokenizer(name, is_folder ? "" : m.weights, "").tokenizer;
  if (found == nullptr) refuse_missing_tokenizer(m.weights);
  return found;
}

std::vector<int32_t> encoded(const Tokenizer& tokenizer, const std::string& prompt) {
  try {
    return tokenizer.encode(prompt);
  } catch (const Error& e) {
    fail(ErrorKind::kUsage, "--prompt: {}", data::printable(e.what()));
  }
}

// The text of tokens, which grows by a token at a time. A token may be a part of a character, and
// the text of a token may depend on those before it.
class GrowingText {
 public:
  GrowingText(const Tokenizer& tokenizer, const std::vector<int32_t>& prompt)
      : tokenizer_(tokenizer), ids_(prompt), returned_(tokenizer.decode(ids_).size()) {}

  /// Adds a token. Returns the whole characters that follow the text returned before.
  std::string add(int32_t token) {
    // A model may have more tokens than its tokenizer.
    if (token < tokenizer_.vocabulary_size()) ids_.push_back(token);
    const std::string text = tokenizer_.decode(ids_);
    return take(text, text.size() - cut_bytes(text));
  }
  /// Returns the rest, which may end in a part of a character.
  std::string rest() {
    const std::string text = tokenizer_.decode(ids_);
    return take(text, text.size());
  }

 private:
  // The bytes at the end of `text` that are the beginning of a character.
  static size_t cut_bytes(const std::string& text) {
    for (size_t n = 1; n <= std::min<size_t>(3, text.size()); ++n) {
      const auto lead = static_cast<unsigned char>(text[text.size() - n]);
      if (lead < 0x80) return 0;
      if (lead >= 0xc0) return n < (lead >= 0xf0 ? 4U : lead >= 0xe0 ? 3U : 2U) ? n : 0;
    }
    return 0;
  }
  std::string take(const std::string& text, size_t end) {
    if (end <= returned_) return "";
    const size_t begin = std::exchange(returned_, end);
    return text.substr(begin, end - begin);
  }

  const Tokenizer& tokenizer_;
  std::vector<int32_t> ids_;
  size_t returned_;
};

models::Generator open_generator(const models::GptSizes& sizes, const ToolOptions& o) {
  using models::Generator;
  const std::string& weights = o.model.weights;
  return is_checkpoint(o.model) ? Generator::open_hugging_face(sizes, weights, o.step.session)
                                : Generator::open(sizes, weights, o.step.session);
}

}  // namespace

int run_generate(const ToolOptions& o) {
  const models::GptSizes sizes = generator_sizes(o);
  const TokenizerPointer tokenizer = tokenizer_of(o);
  require(tokenizer->vocabulary_size() <= sizes.vocabulary,
          "--tokenizer: must have at most {} tokens, the vocabulary of the model, got {}",
          sizes.vocabulary, tokenizer->vocabulary_size());
  const std::vector<int32_t> prompt = encoded(*tokenizer, o.generate.prompt);
  const auto length = std::ssize(prompt);
  require(length >= 1 && length < sizes.context,
          "--prompt: must have from 1 to {} tokens, fewer than the context, got {}",
          sizes.context - 1, length);
  models::GenerateOptions sampling = o.generate.sampling;
  if (sampling.tokens == 0) sampling.tokens = sizes.context - length;
  models::Generator generator = open_generator(sizes, o);

  GrowingText growing(*tokenizer, prompt);
  std::string text;
  const bool prints = !o.output.json && o.speaks();
  bool begins = true;
  const auto begin = std::chrono::steady_clock::now();
  const int64_t tokens = generator.generate(prompt, sampling, [&](int32_t token) {
    const std::string piece = growing.add(token);
    if (prints) {
      if (std::exchange(begins, false)) fmt::print("{}", o.generate.prompt);
      fmt::print("{}", piece);
      std::fflush(stdout);
    } else {
      text += piece;
    }
    return true;
  });
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  const Session& session = generator.session();
  text += growing.rest();
  if (!o.output.json) {
    if (prints) fmt::print("{}\n", text);
    return 0;
  }
  JsonRecord record;
  record.add("model", o.model.name);
  record.add("prompt_tokens", static_cast<int64_t>(prompt.size()));
  record.add("tokens", tokens);
  record.add("text", text);
  record.add("tokens_per_second", static_cast<double>(tokens) / seconds.count());
  record.add("planned_bytes", session.planned_bytes());
  record.add("measured_bytes", session.measured_bytes());
  fmt::print("{}\n", record.text());
  return 0;
}

}  // namespace sluice::tool
