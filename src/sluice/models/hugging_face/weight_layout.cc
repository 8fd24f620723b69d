#include "sluice/models/hugging_face/weight_layout.h"

#include <algorithm>
#include <charconv>

namespace sluice::models {
namespace {

// GPT-2's class Conv1D stores its weight as (in, out), as the model does.
constexpr WeightName kGpt2Names[] = {
    {"transformer.wte.weight"},
    {"transformer.wpe.weight"},
    {"transformer.h.{}.ln_1.weight"},
    {"transformer.h.{}.ln_1.bias"},
    {"transformer.h.{}.attn.c_attn.weight"},
    {"transformer.h.{}.attn.c_attn.bias"},
    {"transformer.h.{}.attn.c_proj.weight"},
    {"transformer.h.{}.attn.c_proj.bias"},
    {"transformer.h.{}.attn.bias", Stored::kBuffer},
    {"transformer.h.{}.attn.masked_bias", Stored::kBuffer},
    {"transformer.h.{}.ln_2.weight"},
    {"transformer.h.{}.ln_2.bias"},
    {"transformer.h.{}.mlp.c_fc.weight"},
    {"transformer.h.{}.mlp.c_fc.bias"},
    {"transformer.h.{}.mlp.c_proj.weight"},
    {"transformer.h.{}.mlp.c_proj.bias"},
    {"transformer.ln_f.weight"},
    {"transformer.ln_f.bias"},
    {"lm_head.weight", Stored::kTied, "wte.weight"},
};

// Linear layers store their weights as (out, in). A model with a tied head has no lm_head.weight.
constexpr WeightName kLlamaNames[] = {
    {"model.embed_tokens.weight"},
    {"model.layers.{}.input_layernorm.weight"},
    {"model.layers.{}.self_attn.q_proj.weight", Stored::kTransposed},
    {"model.layers.{}.self_attn.k_proj.weight", Stored::kTransposed},
    {"model.layers.{}.self_attn.v_proj.weight", Stored::kTransposed},
    {"model.layers.{}.self_attn.o_proj.weight", Stored::kTransposed},
    {"model.layers.{}.self_attn.rotary_emb.inv_freq", Stored::kBuffer},
    {"model.rotary_emb.inv_freq", Stored::kBuffer},
    {"model.layers.{}.post_attention_layernorm.weight"},
    {"model.layers.{}.mlp.gate_proj.weight", Stored::kTransposed},
    {"model.layers.{}.mlp.up_proj.weight", Stored::kTransposed},
    {"model.layers.{}.mlp.down_proj.weight", Stored::kTransposed},
    {"model.norm.weight"},
    {"lm_head.weight", Stored::kTransposed},
    {"lm_head.weight", Stored::kTied, "embed_tokens.weight"},
};

constexpr WeightName kBertNames[] = {
    {"bert.embeddings.word_embeddings.weight"},
    {"bert.embeddings.position_embeddings.weight"},
    {"bert.embeddings.token_type_embeddings.weight"},
    {"bert.embeddings.position_ids", Stored::kBuffer},
    {"bert.embeddings.LayerNorm.weight"},
    {"bert.embeddings.LayerNorm.bias"},
    {"bert.encoder.layer.{}.attention.self.query.weight", Stored::kTransposed},
    {"bert.encoder.layer.{}.attention.self.query.bias"},
    {"bert.encoder.layer.{}.attention.self.key.weight", Stored::kTransposed},
    {"bert.encoder.layer.{}.attention.self.key.bias"},
    {"bert.encoder.layer.{}.attention.self.value.weight", Stored::kTransposed},
    {"bert.encoder.layer.{}.attention.self.value.bias"},
    {"bert.encoder.layer.{}.attention.output.dense.weight", Stored::kTransposed},
    {"bert.encoder.layer.{}.attention.output.dense.bias"},
    {"bert.encoder.layer.{}.attention.output.LayerNorm.weight"},
    {"bert.encoder.layer.{}.attention.output.LayerNorm.bias"},
    {"bert.encoder.layer.{}.intermediate.dense.weight", Stored::kTransposed},
    {"bert.encoder.layer.{}.intermediate.dense.bias"},
    {"bert.encoder.layer.{}.output.dense.weight", Stored::kTransposed},
    {"bert.encoder.layer.{}.output.dense.bias"},
    {"bert.encoder.layer.{}.output.LayerNorm.weight"},
    {"bert.encoder.layer.{}.output.LayerNorm.bias"},
    {"bert.pooler.dense.weight", Stored::kTransposed},
    {"bert.pooler.dense.bias"},
    {"cls.predictions.transform.dense.weight", Stored::kTransposed},
    {"cls.predictions.transform.dense.bias"},
    {"cls.predictions.transform.LayerNorm.weight"},
    {"cls.predictions.transform.LayerNorm.bias"},
    {"cls.predictions.bias"},
    {"cls.predictions.decoder.weight", Stored::kTied, "bert.embeddings.word_embeddings.weight"},
    {"cls.predictions.decoder.bias", Stored::kTied, "cls.predictions.bias"},
    {"cls.seq_relationship.weight", Stored::kTransposed},
    {"cls.seq_relationship.bias"},
};

constexpr WeightName kVitNames[] = {
    {"vit.embeddings.cls_token"},
    {"vit.embeddings.position_embeddings"},
    {"vit.embeddings.patch_embeddings.projection.weight"},
    {"vit.embeddings.patch_embeddings.projection.bias"},
    {"vit.encoder.layer.{}.layernorm_before.weight"},
    {"vit.encoder.layer.{}.layernorm_before.bias"},
    {"vit.encoder.layer.{}.attention.attention.query.weight", Stored::kTransposed},
    {"vit.encoder.layer.{}.attention.attention.query.bias"},
    {"vit.encoder.layer.{}.attention.attention.key.weight", Stored::kTransposed},
    {"vit.encoder.layer.{}.attention.attention.key.bias"},
    {"vit.encoder.layer.{}.attention.attention.value.weight", Stored::kTransposed},
    {"vit.encoder.layer.{}.attention.attention.value.bias"},
    {"vit.encoder.layer.{}.attention.output.dense.weight", Stored::kTransposed},
    {"vit.encoder.layer.{}.attention.output.dense.bias"},
    {"vit.encoder.layer.{}.layernorm_after.weight"},
    {"vit.encoder.layer.{}.layernorm_after.bias"},
    {"vit.encoder.layer.{}.intermediate.dense.weight", Stored::kTransposed},
    {"vit.encoder.layer.{}.intermediate.dense.bias"},
    {"vit.encoder.layer.{}.output.dense.weight", Stored::kTransposed},
    {"vit.encoder.layer.{}.output.dense.bias"},
    {"vit.layernorm.weight"},
    {"vit.layernorm.bias"},
    {"classifier.weight", Stored::kTransposed},
    {"classifier.bias"},
};

constexpr WeightLayout kGpt2Layout{"GPT-2", "transformer.", kGpt2Names};
constexpr WeightLayout kLlamaLayout{"Llama", "model.", kLlamaNames};
constexpr WeightLayout kBertLayout{"BERT", "", kBertNames};
constexpr WeightLayout kVitLayout{"ViT", "", kVitNames};
constexpr const WeightLayout* kLayouts[] = {&kGpt2Layout, &kLlamaLayout, &kBertLayout, &kVitLayout};

constexpr std::string_view kNumber = "{}";

}  // namespace

const WeightLayout& weight_layout(Arch arch) {
  return arch == Arch::kGpt2 ? kGpt2Layout : kLlamaLayout;
}

const WeightLayout& bert_weight_layout() { return kBertLayout; }
const WeightLayout& vit_weight_layout() { return kVitLayout; }

std::optional<int64_t> match_name(std::string_view pattern, std::string_view name) {
  const size_t at = pattern.find(kNumber);
  if (at == pattern.npos) return pattern == name ? std::optional<int64_t>(0) : std::nullopt;
  const std::string_view head = pattern.substr(0, at), tail = pattern.substr(at + kNumber.size());
  if (name.size() <= head.size() + tail.size() || !name.starts_with(head) || !name.ends_with(tail))
    return std::nullopt;
  const std::string_view digits = name.substr(at, name.size() - head.size() - tail.size());
  int32_t number = 0;
  const auto [end, error] = std::from_chars(digits.begin(), digits.end(), number);
  const bool canonical = digits == "0" || (digits[0] >= '1' && digits[0] <= '9');
  if (error != std::errc() || end != digits.end() || !canonical) return std::nullopt;
  return number;
}

std::string numbered_name(std::string_view pattern, int64_t block) {
  std::string name(pattern);
  const size_t at = name.find(kNumber);
  if (at != name.npos) name.replace(at, kNumber.size(), std::to_string(block));
  return name;
}

std::string_view variable_of(const WeightLayout& layout, const WeightName& name) {
  return name.variable.empty() ? without_prefix(layout, name.name) : name.variable;
}

std::string_view without_prefix(const WeightLayout& layout, std::string_view name) {
  if (name.starts_with(layout.prefix)) name.remove_prefix(layout.prefix.size());
  return name;
}

const WeightLayout* find_layout(const std::vector<std::string>& names) {
  const WeightLayout* best = nullptr;
  int64_t most = 0;
  for (const WeightLayout* layout : kLayouts) {
    const int64_t matches = std::ranges::count_if(names, [&](const std::string& name) {
      return std::ranges::any_of(layout->names, [&](const WeightName& row) {
        return match_name(without_prefix(*layout, row.name), without_prefix(*layout, name))
            .has_value();
      });
    });
    if (matches > most) best = layout;
    most = std::max(most, matches);
  }
  return best;
}

}  // namespace sluice::models
