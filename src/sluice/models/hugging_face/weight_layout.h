#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/models/gpt.h"

namespace sluice::models {

/// How a checkpoint of Hugging Face's transformers stores a tensor.
enum class Stored : uint8_t {
  kSame,        ///< As the variable.
  kTransposed,  ///< As the variable with its axes exchanged.
  /// As the variable, under a second name (tied weights). A checkpoint may lack the tensor.
  kTied,
  kBuffer,  ///< A constant of the module, not a weight: never read, never written.
};

/// A tensor of a checkpoint and the variable that it belongs to. "{}" stands for the number of a
/// block.
struct WeightName {
  std::string_view name;  ///< In the checkpoint: "transformer.h.{}.ln_1.bias".
  Stored stored = Stored::kSame;
  std::string_view variable = {};  ///< In the model. Empty: the name without the layout's prefix.
};

/// The tensors of the checkpoints of one architecture.
struct WeightLayout {
  std::string_view model;   ///< Name of the architecture, for errors: "GPT-2".
  std::string_view prefix;  ///< Variables, and names in some checkpoints, lack it: "transformer.".
  std::span<const WeightName> names;
};

/// The layout of GPT2LMHeadModel or LlamaForCausalLM. A head of Llama rotates the pairs (x[i],
/// x[i + size/2]) in both libraries, so its weights need no permutation.
const WeightLayout& weight_layout(Arch arch);
/// The layouts of BertForPreTraining and ViTForImageClassification.
const WeightLayout& bert_weight_layout();
const WeightLayout& vit_weight_layout();

/// Returns the number that "{}" stands for in `name`, or 0 if the pattern has none. Absent: the
/// pattern does not match.
std::optional<int64_t> match_name(std::string_view pattern, std::string_view name);
/// Returns the name that the pattern has for block `block`.
std::string numbered_name(std::string_view pattern, int64_t block);
/// Returns the variable of a tensor.
std::string_view variable_of(const WeightLayout& layout, const WeightName& name);
/// Returns the name without the layout's prefix, or the name itself if it lacks the prefix.
std::string_view without_prefix(const WeightLayout& layout, std::string_view name);
/// Returns the layout whose names match most of these names. Null if not one name matches.
const WeightLayout* find_layout(const std::vector<std::string>& names);

}  // namespace sluice::models
