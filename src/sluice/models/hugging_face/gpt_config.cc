// Sizes of language models in the config.json of a checkpoint.
#include "sluice/base/error.h"
#include "sluice/base/sys.h"
#include "sluice/models/hugging_face/checkpoint.h"
#include "sluice/models/hugging_face/config_file.h"
#include "sluice/models/hugging_face/hugging_face.h"

namespace sluice::models {
namespace {

using Json = nlohmann::json;

void read_gpt2(const ConfigFile& c, GptSizes& s) {
  c.require_known("activation_function", {"gelu_new", "gelu_pytorch_tanh"});
  c.require_known("scale_attn_weights", {true});
  c.require_known("scale_attn_by_inverse_layer_idx", {false});
  c.require_known("add_cross_attention", {false});
  c.require_known("tie_word_embeddings", {true});
  s.blocks = c.size("n_layer");
  s.heads = c.size("n_head");
  s.kv_heads = s.heads;
  s.width = c.size("n_embd");
  s.hidden = c.size_or("n_inner", 4 * s.width);
  s.context = c.size("n_positions");
  s.epsilon = c.positive_or("layer_norm_epsilon", 1e-5);
}

// Newer checkpoints have the object "rope_parameters". Older ones have "rope_theta", and
// "rope_scaling" unless positions are rotated as in the first version of Llama.
void read_rotary(const ConfigFile& c, GptSizes& s) {
  s.rotary_base = c.positive_or("rope_theta", 10000);
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (!c.has(key)) continue;
    const ConfigFile rotary = c.member(key);
    rotary.require_known("type", {"default"});
    rotary.require_known("rope_type", {"default"});
    s.rotary_base = rotary.positive_or("rope_theta", s.rotary_base);
  }
}

void read_llama(const ConfigFile& c, GptSizes& s) {
  c.require_known("hidden_act", {"silu"});
  c.require_known("attention_bias", {false});
  c.require_known("mlp_bias", {false});
  s.blocks = c.size("num_hidden_layers");
  s.heads = c.size("num_attention_heads");
  s.kv_heads = c.size_or("num_key_value_heads", s.heads);
  s.width = c.size("hidden_size");
  s.hidden = c.size("intermediate_size");
  s.context = c.size("max_position_embeddings");
  s.epsilon = c.positive_or("rms_norm_eps", 1e-6);
  s.tied = c.boolean_or("tie_word_embeddings", false);
  c.require_known("head_dim", {s.width / s.heads});
  read_rotary(c, s);
}

// Returns the size of an axis of a weight, whose name may lack the layout's prefix.
int64_t axis_of(const train::WeightFiles& files, const WeightLayout& layout, std::string name,
                int axis) {
  if (!files.has(name)) name = without_prefix(layout, name);
  const Shape& shape = files.spec(name).shape;
  if (shape.rank() != 2) {
    fail(ErrorKind::kBadFile, "{}: '{}' must be a matrix, got {}", files.name(), name,
         to_string(shape));
  }
  return shape[axis];
}

int64_t blocks_of(const train::WeightFiles& files, const WeightLayout& layout,
                  std::string_view pattern) {
  int64_t blocks = 0;
  for (const std::string& name : files.tensors()) {
    if (match_name(without_prefix(layout, pattern), without_prefix(layout, name))) ++blocks;
  }
  return blocks;
}

GptSizes sizes_of_shapes(const std::string& path, const GptSizes& given) {
  const train::WeightFiles files = open_checkpoint(path);
  const WeightLayout* layout = find_layout(files.tensors());
  const WeightLayout& gpt2 = weight_layout(Arch::kGpt2);
  if (layout == nullptr || (layout != &gpt2 && layout != &weight_layout(Arch::kLlama))) {
    fail(ErrorKind::kBadFile, "{}: must have the weights of GPT-2 or Llama, got {}", path,
         layout == nullptr ? "other names" : fmt::format("names of {}", layout->model));
  }
  require(given.heads >= 1, "{}: heads must be given, because there is no {}", path,
          config_path(path));
  const auto axis = [&](const char* name, int i) { return axis_of(files, *layout, name, i); };
  GptSizes s = given;
  if (layout == &gpt2) {
    s.arch = Arch::kGpt2;
    s.blocks = blocks_of(files, *layout, "transformer.h.{}.ln_1.weight");
    s.vocabulary = axis("transformer.wte.weight", 0);
    s.width = axis("transformer.wte.weight", 1);
    s.context = axis("transformer.wpe.weight", 0);
    s.hidden = axis("transformer.h.0.mlp.c_fc.weight", 1);
    s.kv_heads = s.heads;
    return s;
  }
  s.arch = Arch::kLlama;
  s.blocks = blocks_of(files, *layout, "model.layers.{}.input_layernorm.weight");
  s.vocabulary = axis("model.embed_tokens.weight", 0);
  s.width = axis("model.embed_tokens.weight", 1);
  s.hidden = axis("model.layers.0.mlp.gate_proj.weight", 0);
  s.tied = !files.has("lm_head.weight");
  const int64_t kv_width = axis("model.layers.0.self_attn.k_proj.weight", 0);
  require(s.width % s.heads == 0 && kv_width % (s.width / s.heads) == 0,
          "{}: heads must divide the width, {}, into parts that divide that of the keys, {}, got "
          "{}",
          path, s.width, kv_width, s.heads);
  s.kv_heads = kv_width / (s.width / s.heads);
  return s;
}

}  // namespace

GptSizes read_gpt_sizes(const std::string& path, const GptSizes& given) {
  const std::string config = config_path(path);
  if (!sys::exists(config)) return sizes_of_shapes(path, given);
  const ConfigFile c(config);
  GptSizes s = given;
  s.tied = false;
  if (!c.has("model_type")) c.refuse("model_type", "\"gpt2\" or \"llama\"");
  c.require_known("model_type", {"gpt2", "llama"});
  s.arch = c.value("model_type") == "gpt2" ? Arch::kGpt2 : Arch::kLlama;
  s.arch == Arch::kGpt2 ? read_gpt2(c, s) : read_llama(c, s);
  s.vocabulary = c.size("vocab_size");
  require(given.heads == 0 || given.heads == s.heads,
          "{}: heads must be those of the file, {}, or not given, got {}", config, s.heads,
          given.heads);
  return s;
}

void write_gpt_config(const GptSizes& sizes, const std::string& path) {
  const GptSizes s = complete_sizes(sizes);
  Json json{{"vocab_size", s.vocabulary},
            {"bos_token_id", nullptr},
            {"eos_token_id", nullptr},
            {"initializer_range", 0.02}};
  if (s.arch == Arch::kGpt2) {
    require(s.kv_heads == s.heads,
            "write_gpt_config: kv_heads of GPT-2 must be the heads, {}, in a checkpoint, got {}",
            s.heads, s.kv_heads);
    json.update({{"architectures", {"GPT2LMHeadModel"}},
                 {"model_type", "gpt2"},
                 {"n_layer", s.blocks},
                 {"n_head", s.heads},
                 {"n_embd", s.width},
                 {"n_inner", s.hidden},
                 {"n_positions", s.context},
                 {"activation_function", "gelu_new"},
                 {"layer_norm_epsilon", s.epsilon},
                 {"attn_pdrop", s.dropout},
                 {"embd_pdrop", s.dropout},
                 {"resid_pdrop", s.dropout},
                 {"tie_word_embeddings", true}});
  } else {
    json.update({{"architectures", {"LlamaForCausalLM"}},
                 {"model_type", "llama"},
                 {"num_hidden_layers", s.blocks},
                 {"num_attention_heads", s.heads},
                 {"num_key_value_heads", s.kv_heads},
                 {"hidden_size", s.width},
                 {"intermediate_size", s.hidden},
                 {"max_position_embeddings", s.context},
                 {"hidden_act", "silu"},
                 {"rms_norm_eps", s.epsilon},
                 {"rope_theta", s.rotary_base},
                 {"attention_dropout", s.dropout},
                 {"attention_bias", false},
                 {"mlp_bias", false},
                 {"tie_word_embeddings", s.tied}});
  }
  write_json(json, path);
}

}  // namespace sluice::models
