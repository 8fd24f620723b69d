#include "tools/flags/flag_table.h"

namespace sluice::tool {
namespace {

constexpr auto of_model(auto... members) { return member_path(&ToolOptions::model, members...); }
constexpr auto of_sampling(auto member) {
  return member_path(&ToolOptions::generate, &GenerateFlags::sampling, member);
}

}  // namespace

void add_generate_flags(FlagTable& table) {
  using models::GenerateOptions;
  Section model(table, kGenerate, "Model", Common::kYes);
  model
      .add("model", of_model(&ModelOptions::name), forms::words<std::string>({{"gpt", "gpt"}}),
           "Use this model: gpt")
      .named("model")
      .defaults_to("gpt")
      .placeholder = "MODEL";
  model.add("weights", of_model(&ModelOptions::weights), forms::texts("FILE"),
            "Use the weights or a checkpoint of sluice train, or a folder with a checkpoint of "
            "Hugging Face's GPT-2 or Llama");
  model.last().required = true;
  model
      .add("tokenizer", of_model(&ModelOptions::tokenizer), forms::texts("NAME"),
           "Read the prompt as characters, bytes, or tokens of a tokenizer.json or a vocab.json")
      .defaults_to("that of --weights");
  Section text(table, kGenerate, "Text", Common::kYes);
  text.add("prompt", member_path(&ToolOptions::generate, &GenerateFlags::prompt),
           forms::texts("TEXT"), "Continue TEXT")
      .defaults_to("a line break");
  text.add("tokens", of_sampling(&GenerateOptions::tokens), forms::integers<int64_t>(1),
           "Generate N tokens; with those of the prompt at most --context of the training")
      .defaults_to("up to the end of the context");
  text.add("temperature", of_sampling(&GenerateOptions::temperature), forms::floats({}, "T"),
           "Divide the logits by T; 0: always use the most probable token");
  text.add("top_k", of_sampling(&GenerateOptions::top_k), forms::integers<int64_t>(1),
           "Draw from the N most probable tokens")
      .defaults_to("all");
  text.add("top_p", of_sampling(&GenerateOptions::top_p),
           forms::floats({.max = 1, .excludes_min = true}, "P"),
           "Draw from the fewest tokens whose probabilities add up to P");
  text.add_library("seed").help = "Draw the tokens from this seed";
}

}  // namespace sluice::tool
