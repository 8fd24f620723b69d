#include "sluice/models/gpt.h"

#include "sluice/models/gpt/gpt_module.h"
#include "sluice/models/model.h"

namespace sluice::models {
namespace {

constexpr int64_t kMaxWidth = int64_t{1} << 32;  // The bytes of a layer do not overflow.

}  // namespace

GptSizes complete_sizes(const GptSizes& sizes) {
  GptSizes s = sizes;
  require(s.width >= 1 && s.width <= kMaxWidth, "gpt: width must be from 1 to {}, got {}",
          kMaxWidth, s.width);
  if (s.kv_heads == 0) s.kv_heads = s.heads;
  if (s.hidden == 0) s.hidden = s.arch == Arch::kGpt2 ? 4 * s.width : (8 * s.width + 2) / 3;
  for (const auto& [name, size] : {std::pair<const char*, int64_t>{"blocks", s.blocks},
                                   {"heads", s.heads},
                                   {"kv_heads", s.kv_heads},
                                   {"hidden", s.hidden},
                                   {"context", s.context},
                                   {"vocabulary", s.vocabulary},
                                   {"micro_batch", s.micro_batch},
                                   {"eval_batch", s.eval_batch}})
    require(size >= 1, "gpt: {} must be at least 1, got {}", name, size);
  require(s.width % s.heads == 0, "gpt: heads must divide the width, {}, got {}", s.width, s.heads);
  require(s.heads % s.kv_heads == 0, "gpt: kv_heads must divide the heads, {}, got {}", s.heads,
          s.kv_heads);
  require(s.dropout >= 0 && s.dropout < 1, "gpt: dropout must be in [0, 1), got {}", s.dropout);
  require(s.epsilon > 0, "gpt: epsilon must be positive, got {}", s.epsilon);
  if (s.arch == Arch::kLlama) {
    require(s.width / s.heads % 2 == 0,
            "gpt: a head of Llama must have an even number of elements, got {} of width {}",
            s.width / s.heads, s.width);
    require(s.rotary_base > 0, "gpt: rotary_base must be positive, got {}", s.rotary_base);
  }
  return s;
}

train::Network gpt(const GptSizes& sizes) {
  const GptSizes s = complete_sizes(sizes);
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
