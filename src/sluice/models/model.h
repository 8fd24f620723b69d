#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/base/safetensors.h"
#include "sluice/data/dataset.h"
#include "sluice/data/mnist.h"
#include "sluice/data/text/tokens.h"
#include "sluice/models/gpt.h"
#include "sluice/train/training_step.h"

namespace sluice::models {

/// The loss of a model that supports several.
enum class Loss {
  kCrossEntropy,      ///< Compares logits with classes.
  kMeanSquaredError,  ///< Compares predictions with targets, float32 vectors.
};

/// Sizes of a model's network and of its batches. A model ignores sizes that it does not have.
struct Sizes {
  int64_t micro_batch = 8;  ///< Samples of a micro-batch.
  int64_t eval_batch = 80;  ///< Samples of an evaluation step.
  int64_t layers = 4;       ///< Layers with weights.
  int64_t width = 512;      ///< Features of a hidden layer, or elements of an embedding.
  double dropout = 0;       ///< Probability after each hidden layer.
  Shape sample = {28, 28};  ///< Shape of a sample, for a perceptron.
  int64_t classes = 10;     ///< Classes of the samples, for a perceptron; elements of a target,
                            ///< for kMeanSquaredError.
  Loss loss = Loss::kCrossEntropy;
  Arch arch = Arch::kGpt2;   ///< Architecture of a language model.
  int64_t blocks = 4;        ///< Blocks of a transformer.
  int64_t heads = 4;         ///< Heads of an attention; divides `width`.
  int64_t kv_heads = 0;      ///< Heads of keys and values; 0: `heads`.
  int64_t context = 64;      ///< Tokens of a sample.
  int64_t vocabulary = 256;  ///< Different tokens.
};

/// Returns the sizes of a language model.
GptSizes gpt_sizes(const Sizes& sizes);

/// Samples whose elements have the fields of a model's network.
struct SampleSet {
  data::Dataset dataset;
  int64_t size = 0;  ///< Samples of an epoch; a dataset without an end yields more.
};

/// The samples that a model reads.
enum class SampleKind : uint8_t {
  kLabelled,  ///< Arrays of real numbers, with a class or a target each.
  kTokens,    ///< Tokens of a text.
};

/// The source of a model's samples.
struct Data {
  std::string_view name;  ///< For example "digits".
  SampleKind kind = SampleKind::kLabelled;
  std::string_view missing;  ///< Message if find() returns no folder and samples are generated.
  /// Returns the folder of the real samples, if there is one.
  std::optional<std::string> (*find)(const std::string& explicit_folder) = nullptr;
  /// Loads the samples of a folder. `seed` sets their order if they are drawn.
  SampleSet (*load)(const std::string& folder, data::Split split, const Sizes& sizes,
                    uint64_t seed) = nullptr;
  SampleSet (*generate)(int64_t samples, uint64_t seed, const Sizes& sizes) = nullptr;
  /// Makes samples of the tokens of a part; null unless `kind` is kTokens. `seed` sets what is
  /// drawn. A test is drawn with seed 0, so that it has the same samples in each run.
  SampleSet (*from_tokens)(const data::Tokens& tokens, data::Split split, const Sizes& sizes,
                           uint64_t seed) = nullptr;
};

/// MNIST, or generated digits that look like it.
extern const Data kDigits;
/// CIFAR-10, or generated images of coloured objects.
extern const Data kObjects;
/// The bytes of a text, or generated sentences, as windows of tokens.
extern const Data kTexts;
/// Segment pairs of such a text with masked tokens.
extern const Data kMaskedTexts;

/// The value of a command-line flag, e.g. "--replicas", that is used unless the flag is given.
struct Default {
  std::string_view flag;
  std::string_view text;
};

/// A network that the command line, tests and benches train.
struct Model {
  std::string_view name;  ///< For example "mnist-rts".
  std::string_view doc;   ///< One line, for `sluice --list`.
  const Data* data = nullptr;
  std::vector<Default> defaults;  ///< Flags whose default differs from `sluice train --help`.
  /// Flags of the sizes of the network, in addition to its batches.
  std::vector<std::string_view> sizes = {"--layers", "--width", "--dropout"};
  Sizes test_sizes;               ///< A small network that has every part of the real one.
  bool saves_sizes = false;       ///< Whether files of weights have the flags `sizes`.
  bool fits_any_samples = false;  ///< Whether Sizes::sample and Sizes::classes set its shape.
  bool has_loss_option = false;   ///< Whether Sizes::loss sets its loss.
  /// Sets the sizes to those of weights with these names and shapes. Throws Error{kUsage} if they
  /// are not those of this model. Null if the model has no such rule.
  void (*read_sizes)(const std::vector<NamedSpec>& weights, Sizes& sizes) = nullptr;
  train::Network (*build)(const Sizes& sizes) = nullptr;
};

/// All models, in the order of MODELS in CMakeLists.txt.
const std::vector<Model>& all_models();

/// Finds a model by its name. Error{kUsage}, which lists all names, if there is no such model.
const Model& find_model(std::string_view name);

}  // namespace sluice::models
