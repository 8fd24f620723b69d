#include "sluice/models/gpt.h"

#include "sluice/models/gpt/gpt_module.h"
#include "sluice/models/model.h"

namespace sluice::models {

train::Network gpt(const GptSizes& sizes) {
  const GptSizes s = internal::complete_sizes(sizes);
  const TensorSpec tokens{{s.micro_batch, s.context}, i32, {}};
  const TensorSpec eval{{s.eval_batch, s.context}, i32, {}};
  return train::Network(internal::Gpt(s), {{"tokens", tokens, eval}, {"labels", tokens, eval}});
}

GptSizes gpt_sizes(const Sizes& s) {
  return {.arch = s.arch,
          .blocks = s.blocks,
          .heads = s.heads,
          .kv_heads = s.kv_heads,
          .width = s.width,
          .context = s.context,
          .vocabulary = s.vocabulary,
          .dropout = s.dropout,
          .micro_batch = s.micro_batch,
          .eval_batch = s.eval_batch};
}

Model gpt_model() {
  return {.name = "gpt",
          .doc = "a language model with the architecture of GPT-2 or Llama, on text",
          .data = &kTexts,
          .defaults = {{"--width", "128"},
                       {"--micro-batch", "12"},
                       {"--test-batch", "12"},
                       {"--optimizer", "adamw"}},
          .sizes = {"--arch", "--blocks", "--heads", "--kv-heads", "--width", "--context",
                    "--vocab", "--dropout"},
          .metrics = {Metric::kLoss, Metric::kPerplexity, Metric::kAccuracy},
          .test_sizes = {.micro_batch = 2,
                         .eval_batch = 4,
                         .width = 16,
                         .dropout = 0.25,
                         .blocks = 2,
                         .heads = 4,
                         .kv_heads = 2,
                         .context = 8},
          .saves_sizes = true,
          .build = [](const Sizes& s) { return gpt(gpt_sizes(s)); }};
}

}  // namespace sluice::models
