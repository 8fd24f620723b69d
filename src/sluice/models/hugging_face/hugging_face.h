#pragma once
#include <string>

#include "sluice/models/encoders/bert.h"
#include "sluice/models/encoders/vit.h"
#include "sluice/models/gpt.h"
#include "sluice/models/hugging_face/weight_layout.h"
#include "sluice/train/training_step.h"

/// Checkpoints of Hugging Face's transformers: safetensors files with names and layouts of their
/// own, and a `config.json` with the sizes of the model.
///
///     models::GptSizes sizes = models::read_gpt_sizes("gpt2/");
///     auto model = train::inference_model(models::gpt(sizes), {});
///     models::load_hugging_face(model.session(), model.programs(),
///                               models::weight_layout(sizes.arch), "gpt2/");
namespace sluice::models {

/// The errors of load_hugging_face() for names of another architecture, and for a weight that is
/// missing or has another shape. Reads the indices of the files alone.
void check_hugging_face(const train::Training& training, const WeightLayout& layout,
                        const std::string& path);

/// Sets the weights of a session on these programs from a checkpoint. `path` is a safetensors file,
/// an index of several files (`*.index.json`) or a folder with one of them. Values are converted to
/// the dtypes of the variables. Optimizer state does not change. Error{kBadFile} if a weight is
/// missing or has another shape, if a tensor belongs to no variable, if tied weights differ, and
/// for names of another architecture; then no weight is set. Error{kUsage} if processes read
/// different values.
void load_hugging_face(Session& session, const train::Training& training,
                       const WeightLayout& layout, const std::string& path);

/// Writes the weights to a safetensors file that load_state_dict(…, strict=True) and
/// from_pretrained() of the layout's class accept. It has tied weights under both names. The first
/// process of a group writes it; the others return after it is written. Error{kDiverged} if a
/// variable of the training is not finite; then no file is written.
void save_hugging_face(Session& session, const train::Training& training,
                       const WeightLayout& layout, const std::string& path);

/// Reads the sizes of a language model from a checkpoint. `path` is as for load_hugging_face(). The
/// file `config.json` in the folder of the weights has all sizes except batches and dropout, which
/// `given` sets. Without that file, the sizes follow from the shapes of the weights, except heads,
/// rotary base, epsilon and Llama's context, which `given` sets. Heads of 0 are absent.
/// Error{kBadFile} for another architecture, for sizes that are not positive integers, and for a
/// setting that gpt() lacks. Error{kUsage} if heads are neither in a file nor given, or differ.
GptSizes read_gpt_sizes(const std::string& path, const GptSizes& given = {.heads = 0});

/// Writes the sizes as a `config.json` for from_pretrained(). Error{kUsage} for GPT-2 with grouped
/// heads, which Hugging Face's class lacks.
void write_gpt_config(const GptSizes& sizes, const std::string& path);

/// Reads the sizes of an encoder from the `config.json` in the folder of a checkpoint. `path` is as
/// for load_hugging_face(). `given` sets batches, dropout and the loss. Without `pad_token_id`,
/// BERT has no padding. Error{kIo} without the file. Error{kBadFile} for another architecture, for
/// sizes that are not positive integers or do not divide, and for a setting that the model lacks.
BertSizes read_bert_sizes(const std::string& path, const BertSizes& given = {});
VitSizes read_vit_sizes(const std::string& path, const VitSizes& given = {});

/// Writes the sizes as a `config.json` for from_pretrained() of BertForPreTraining or
/// ViTForImageClassification.
void write_bert_config(const BertSizes& sizes, const std::string& path);
void write_vit_config(const VitSizes& sizes, const std::string& path);

}  // namespace sluice::models
