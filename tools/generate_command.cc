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
#include "sluice/data/text/tokenizer.h"
#include "sluice/models/gpt/generate.h"
#include "sluice/models/hugging_face/hugging_face.h"
#include "tools/data/saved_sizes.h"
#include "tools/data/token_data.h"
#include "tools/json_record.h"
#include "tools/options.h"

namespace sluice::tool {
namespace {

using TokenizerPointer = std::shared_ptr<const data::Tokenizer>;

models::GptSizes generator_sizes(const ToolOptions& o) {
  models::GptSizes sizes = models::gpt_sizes(o.model.sizes);
  if (is_checkpoint(o.model)) sizes = models::read_gpt_sizes(o.model.weights);
  sizes.dropout = 0;
  return sizes;
}

// The tokenizer of --tokenizer, of the weights, or of the folder of a checkpoint.
TokenizerPointer tokenizer_of(const ToolOptions& o) {
  const ModelOptions& m = o.model;
  const bool is_folder = is_checkpoint(m);
  std::string name = m.tokenizer;
  for (const char* file : {"/tokenizer.json", "/vocab.json"}) {
    if (is_folder && name.empty() && sys::exists(m.weights + file)) name = m.weights + file;
  }
  TokenizerPointer found = find_tokenizer(name, is_folder ? "" : m.weights, "");
  require(found != nullptr,
          "{}: has no tokenizer; use --tokenizer with bytes, a tokenizer.json or a vocab.json",
          m.weights);
  return found;
}

void load(models::Generator& generator, const ToolOptions& o) {
  if (is_checkpoint(o.model))
    generator.load_hugging_face(o.model.weights);
  else
    generator.load(o.model.weights);
}

}  // namespace

int run_generate(const ToolOptions& o) {
  const models::GptSizes sizes = generator_sizes(o);
  const TokenizerPointer tokenizer = tokenizer_of(o);
  require(tokenizer->vocabulary_size() <= sizes.vocabulary,
          "--tokenizer: must have at most {} tokens, the vocabulary of the model, got {}",
          sizes.vocabulary, tokenizer->vocabulary_size());
  const std::vector<int32_t> prompt = tokenizer->encode(o.generate.prompt);
  models::GenerateOptions sampling = o.generate.sampling;
  if (sampling.tokens == 0)
    sampling.tokens = std::max<int64_t>(sizes.context - std::ssize(prompt), 1);
  models::Generator generator(sizes, o.step.session);
  load(generator, o);

  std::string text;
  const bool prints = !o.output.json && o.speaks();
  bool begins = true;
  const auto begin = std::chrono::steady_clock::now();
  const int64_t tokens = generator.generate(prompt, sampling, [&](int32_t token) {
    // A model may have more tokens than its tokenizer.
    const bool is_known = token < tokenizer->vocabulary_size();
    const std::string piece = is_known ? tokenizer->decode({&token, 1}) : std::string();
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
  if (!o.output.json) {
    if (prints) fmt::print("\n");
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
