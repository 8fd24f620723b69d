#include "tools/data/user_samples.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "sluice/base/safetensors.h"
#include "sluice/base/sys.h"
#include "tools/data/saved_sizes.h"
#include "tools/data/token_data.h"
#include "tools/data/user_data.h"
#include "tools/flags/help.h"

namespace sluice::tool {
namespace {

bool given(const CLI::App& command, const char* name) {
  return command.get_option_no_throw(name) != nullptr && command.count(name) > 0;
}

// The vocabulary that --vocab or the weights set; else 0.
int64_t vocabulary_of(const CLI::App& command, const ModelOptions& m) {
  const bool is_set = given(command, "--vocab") || has_saved_sizes(m);
  return is_set ? m.sizes.vocabulary : 0;
}

DataChoice choice_of(const CLI::App& command, const ToolOptions& o) {
  const ModelOptions& m = o.model;
  return {.source = m.dataset,
          .input = m.input,
          .target = m.target,
          .validation = m.validation,
          .loss = m.sizes.loss,
          .test_all = m.test_all,
          .trains = command.get_name() == "train" || command.get_name() == "plan",
          .table = m.table,
          .weights = m.weights + m.torch_weights,
          .kind = models::find_model(m.name).data->kind,
          .tokenizer = m.tokenizer,
          .vocabulary = vocabulary_of(command, m)};
}

// The specs of the tensors of --weights, or of --torch-weights, whose matrices are transposed.
std::vector<NamedSpec> weights_of(const ModelOptions& m) {
  const bool torch = !m.torch_weights.empty();
  const SafetensorsReader file(torch ? m.torch_weights : m.weights);
  std::vector<NamedSpec> specs;
  for (const SafetensorsTensor& t : file.index().tensors) {
    TensorSpec spec = t.spec;
    if (torch && spec.shape.rank() == 2) spec.shape = {spec.shape[1], spec.shape[0]};
    specs.push_back({t.name, std::move(spec)});
  }
  return specs;
}

// Sets the sizes of the model to those of the weights, if the model has such a rule and a file is
// given. Returns whether both hold.
bool read_sizes(const CLI::App& command, ToolOptions& o) {
  ModelOptions& m = o.model;
  const models::Model& model = models::find_model(m.name);
  if (model.read_sizes == nullptr || (m.weights.empty() && m.torch_weights.empty())) return false;
  models::Sizes sizes = m.sizes;
  const std::vector<NamedSpec> weights = weights_of(m);
  try {
    model.read_sizes(weights, sizes);
  } catch (const Error& e) {
    fail(ErrorKind::kBadFile, "{}: {}", m.weights + m.torch_weights, e.what());
  }
  if (given(command, "--layers")) sizes.layers = m.sizes.layers;
  if (given(command, "--width")) sizes.width = m.sizes.width;
  m.sizes = sizes;
  return true;
}

void print_notes(const ModelOptions& m) {
  for (const std::string& note : m.user_data->notes) sys::print_stderr("{}: {}\n", m.dataset, note);
}

}  // namespace

void use_dataset(const CLI::App& command, ToolOptions& o) {
  ModelOptions& m = o.model;
  use_checkpoint(o);
  read_saved_sizes(command, o);
  require(
      m.tokenizer.empty() || models::find_model(m.name).data->kind == models::SampleKind::kTokens,
      "--tokenizer: {} does not read text; leave it out", m.name);
  if (m.dataset.empty()) {
    if (models::find_model(m.name).data->kind == models::SampleKind::kTokens)
      require_bytes(m.weights + m.torch_weights);
    return;
  }
  m.user_data = load_user_data(choice_of(command, o));
  const bool has_classes = read_sizes(command, o);
  fit_sizes(models::find_model(m.name), *m.user_data, has_classes, m.sizes);
  if (!o.output.speaks()) return;
  print_notes(m);
  if (m.user_data->tokens) {
    const UserTokens& tokens = *m.user_data->tokens;
    sys::print_stderr("{}: {} tokens to train on, {} to test on, vocabulary {}\n", m.dataset,
                      tokens.train.size(), tokens.test.size(), m.sizes.vocabulary);
    return;
  }
  const bool classes = m.sizes.loss == models::Loss::kCrossEntropy;
  const int64_t trained = m.user_data->train.size;
  sys::print_stderr("{}: {}{} to test on, {}\n", m.dataset,
                    trained == 0 ? "" : fmt::format("{} samples to train on, ", trained),
                    trained == 0 ? fmt::format("{} samples", m.user_data->test.size)
                                 : fmt::format("{}", m.user_data->test.size),
                    classes ? fmt::format("{} classes", m.user_data->classes)
                            : fmt::format("targets of {} numbers", m.user_data->classes));
}

void use_generator(const CLI::App& command, ToolOptions& o) {
  o.generate.sampling.seed = o.step.seed;
  use_checkpoint(o);
  if (!is_checkpoint(o.model)) {
    if (!has_saved_sizes(o.model))
      fail(ErrorKind::kBadFile,
           "{}: must have the sizes of a model, as sluice train gpt --save writes them; a "
           "checkpoint of Hugging Face is a folder",
           o.model.weights);
    read_saved_sizes(command, o);
  }
  if (command.count("--tokens") == 0) o.generate.sampling.tokens = 0;
}

void use_inputs(const CLI::App& command, ToolOptions& o) {
  ModelOptions& m = o.model;
  require(models::find_model(m.name).data->kind == models::SampleKind::kLabelled,
          "sluice predict: {} reads tokens and not a table of inputs", m.name);
  require(!m.weights.empty() || !m.torch_weights.empty(),
          "sluice predict requires --weights FILE or --torch-weights FILE (both are absent)");
  require(!m.dataset.empty(),
          "sluice predict requires --dataset csv:FILE, or another (it is absent)");
  require(!o.to.empty(), "sluice predict requires --to FILE.npz or FILE.csv (it is absent)");
  require(o.to.ends_with(".npz") || o.to.ends_with(".csv"),
          "--to: must end with .npz or .csv, got '{}'", o.to);
  use_checkpoint(o);
  read_sizes(command, o);
  require(m.sizes.classes > 1 || m.sizes.loss == models::Loss::kMeanSquaredError,
          "{}: must have at least 2 classes in its last layer, got {}; a regression is --loss mse",
          m.weights + m.torch_weights, m.sizes.classes);
  m.user_data =
      load_inputs(choice_of(command, o), elements_of_sample(models::find_model(m.name), m.sizes));
  if (o.output.speaks()) print_notes(m);
}

}  // namespace sluice::tool
