#include "tools/data/user_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "sluice/base/sys.h"
#include "sluice/data/dataset.h"
#include "sluice/data/files/arrays.h"
#include "sluice/data/files/contents.h"
#include "sluice/data/files/idx.h"
#include "sluice/data/window/indexed_rows.h"
#include "tools/data/divide.h"
#include "tools/data/table_data.h"
#include "tools/data/token_data.h"

namespace sluice::tool {
namespace {

constexpr std::string_view kDatasetForms = "csv:FILE, npz:FILE, safetensors:FILE or idx:DIR";
constexpr std::string_view kReadable = "csv:FILE, npz:FILE, safetensors:FILE, text:FILE or idx:DIR";
constexpr std::string_view kTokenForms = "text:FILE or tokens:FILE";

constexpr int64_t kContext = 64;  // Tokens of a window whose reading is measured.

struct DataSource {
  std::string kind;
  std::string path;
};

DataSource parse_source(const std::string& text, std::string_view kinds) {
  const size_t colon = text.find(':');
  const std::string kind = text.substr(0, colon);
  constexpr std::string_view kKinds[] = {"csv", "npz", "safetensors", "idx", "text", "tokens"};
  const bool known = std::find(std::begin(kKinds), std::end(kKinds), kind) != std::end(kKinds);
  require(known && colon != text.npos && colon + 1 < text.size(), "--dataset: must be {}, got '{}'",
          kinds, text);
  return {kind, text.substr(colon + 1)};
}

// A source with separate inputs and targets.
DataSource labelled_source(const std::string& text) {
  DataSource source = parse_source(text, kDatasetForms);
  require(source.kind != "text" && source.kind != "tokens",
          "--dataset: must be {}, got '{}'; gpt and bert read text", kDatasetForms, text);
  return source;
}

// A source of tokens.
DataSource token_source(const DataChoice& choice) {
  const DataSource source = parse_source(choice.source, kTokenForms);
  require(source.kind == "text" || source.kind == "tokens",
          "--dataset: must be {} for a language model, got '{}'", kTokenForms, choice.source);
  require(choice.input.empty() && choice.target.empty(),
          "--input and --target: {} has no fields; leave them out", choice.source);
  return source;
}

struct IdxFiles {
  std::string images;
  std::string labels;
};

// Finds the files "train-…" or "t10k-…" in a folder or its subfolder mnist.
std::optional<IdxFiles> find_idx(const std::string& folder, std::string_view part) {
  sys::check_folder(folder);
  for (const char* sub : {"", "/mnist"}) {
    const auto images =
        data::find_data_file(folder + sub, fmt::format("{}-images-idx3-ubyte", part));
    const auto labels =
        data::find_data_file(folder + sub, fmt::format("{}-labels-idx1-ubyte", part));
    if (images && labels) return IdxFiles{*images, *labels};
  }
  return std::nullopt;
}

IdxFiles training_files(const std::string& folder) {
  const auto files = find_idx(folder, "train");
  if (!files) {
    fail(ErrorKind::kIo,
         "{0} or {0}/mnist must contain train-images-idx3-ubyte and train-labels-idx1-ubyte (each "
         "plain or .gz)",
         folder);
  }
  return *files;
}

// The fields x and y of a dataset as "input" and "target".
data::Dataset renamed(const data::Dataset& fields, const std::string& x, const std::string& y) {
  const data::ElementSpecs specs = *fields.element_specs();
  if (specs.names == std::vector<std::string>{x, y})
    return data::with_names(fields, {"input", "target"});
  const auto spec_of = [&](const std::string& name) {
    const auto found = std::find(specs.names.begin(), specs.names.end(), name);
    require(found != specs.names.end(), "--dataset: the field must be one of {}, got '{}'",
            fmt::join(specs.names, ", "), name);
    return specs.arrays[static_cast<size_t>(found - specs.names.begin())];
  };
  return fields.map(
      [x, y](const data::Element& e) {
        return data::Element{{"input", e[x]}, {"target", e[y]}};
      },
      data::ElementSpecs{{spec_of(x), spec_of(y)}, {"input", "target"}});
}

std::string or_else(const std::string& name, const char* usual) {
  return name.empty() ? usual : name;
}

// The usual names of a field.
struct UsualNames {
  const char* option;
  const char* first;
  const char* second;
};
constexpr UsualNames kInputs{"--input", "input", "image"};
constexpr UsualNames kTargets{"--target", "target", "label"};

// The name that the user gave, or the usual one that a file of arrays has.
std::string field_of(const DataSource& source, const std::string& given, const UsualNames& usual) {
  if (!given.empty()) return given;
  const std::vector<std::string> names =
      source.kind == "npz" ? data::npz_names(source.path) : data::safetensors_names(source.path);
  for (const char* name : {usual.first, usual.second}) {
    if (std::find(names.begin(), names.end(), name) != names.end()) return name;
  }
  constexpr size_t kMaxListed = 20;
  const auto listed = std::span(names).first(std::min(names.size(), kMaxListed));
  fail(ErrorKind::kUsage,
       "{}: must name one of the fields [{}{}] of {}, as it has neither {} nor {}", usual.option,
       fmt::join(listed, ", "), names.size() > kMaxListed ? ", ..." : "", source.path, usual.first,
       usual.second);
}

// A dataset with the fields "input" and "target", not of a table.
data::Dataset labelled(const DataChoice& choice) {
  const DataSource source = labelled_source(choice.source);
  if (source.kind == "idx") {
    const IdxFiles files = training_files(source.path);
    return renamed(data::from_idx(files.images, files.labels), or_else(choice.input, "image"),
                   or_else(choice.target, "label"));
  }
  const std::string x = field_of(source, choice.input, kInputs);
  const std::string y = field_of(source, choice.target, kTargets);
  return renamed(source.kind == "npz" ? data::from_npz(source.path, {x, y})
                                      : data::from_safetensors(source.path, {x, y}),
                 x, y);
}

// The test samples of an idx folder, if they are to be used and are there.
std::optional<data::Dataset> own_tests(const DataChoice& choice) {
  const DataSource source = labelled_source(choice.source);
  if (source.kind != "idx" || choice.validation) return std::nullopt;
  const auto files = find_idx(source.path, "t10k");
  if (!files) return std::nullopt;
  return renamed(data::from_idx(files->images, files->labels), or_else(choice.input, "image"),
                 or_else(choice.target, "label"));
}

int32_t label_of(const HostTensor& target, int64_t row) {
  require(target.shape().elements() == 1 && !is_float(target.dtype()),
          "--target: must be one integer for each sample, got {}; mlp takes real numbers with "
          "--loss mse",
          to_string(target.spec()));
  const int32_t label = target.cast(i32).as<int32_t>()[0];
  require(label >= 0, "--target: labels must be classes from 0, got {} in row {}", label, row);
  return label;
}

void check_finite(const char* option, const HostTensor& array, int64_t row) {
  const auto check = [&](const HostTensor& values) {
    for (const float x : values.as<float>())
      require(std::isfinite(x), "{}: must be finite float32 numbers, got {} in row {} of the file",
              option, x, row);
  };
  array.dtype() == f32 ? check(array) : check(array.cast(f32));
}

// Reads all samples in the order of the file, so that errors name its rows. `trains` tells whether
// a row is for training.
void check_samples(const data::Dataset& dataset, const DataChoice& choice, LabelRange& labels,
                   const std::function<bool(int64_t)>& trains) {
  const bool classes = choice.loss == models::Loss::kCrossEntropy;
  int64_t k = 0;
  for (const data::Element& e : dataset) {
    check_finite("--input", e["input"], k);
    if (classes) {
      labels.add(label_of(e["target"], k), trains(k));
    } else {
      check_finite("--target", e["target"], k);
    }
    ++k;
  }
}

// The samples of a dataset that was checked, as the fields of a network.
data::Dataset network_samples(const data::Dataset& dataset, const DataChoice& choice) {
  const bool classes = choice.loss == models::Loss::kCrossEntropy;
  const std::vector<std::string> names{"input", classes ? "labels" : "target"};
  const data::ElementSpecs stored = *dataset.element_specs();
  const Shape target = classes ? Shape{} : stored.arrays[1].shape;
  const data::ElementSpecs specs{
      {{stored.arrays[0].shape, f32, {}}, {target, classes ? i32 : f32, {}}}, names};
  if (stored.arrays == specs.arrays) return data::with_names(dataset, names);
  return dataset.map(
      [names, target, classes](const data::Element& e) {
        data::Element sample;
        sample.names = names;
        sample.arrays.push_back(e["input"].cast(f32));
        sample.arrays.push_back(e["target"].cast(classes ? i32 : f32).reshaped(target));
        return sample;
      },
      specs);
}

// Adds a note if the weights expect a scaling that arrays do not get.
void note_array(const DataChoice& choice, UserData& data) {
  if (choice.schema && choice.schema->standardized)
    data.notes.push_back(
        "the weights were trained on a standardised table; these arrays must be standardised too");
}

// The inputs of a dataset whose first array has them, in the order of the file.
UserSamples inputs_of(const data::Dataset& dataset) {
  require(dataset.size().value_or(0) > 0, "--dataset: must have at least one sample, got none");
  int64_t k = 0;
  for (const data::Element& e : dataset) check_finite("--input", e.arrays.at(0), k++);
  const TensorSpec spec{dataset.element_specs()->arrays[0].shape, f32, {}};
  if (dataset.element_specs()->arrays[0] == spec)
    return user_samples(data::with_names(dataset, {"input"}));
  return user_samples(dataset.map(
      [](const data::Element& e) {
        return data::Element{{"input", e.arrays.at(0).cast(f32)}};
      },
      data::ElementSpecs{{spec}, {"input"}}));
}

}  // namespace

data::Dataset open_dataset(const std::string& text) {
  const DataSource source = parse_source(text, kReadable);
  if (source.kind == "csv") return data::from_csv(source.path);
  if (source.kind == "npz") return data::from_npz(source.path);
  if (source.kind == "safetensors") return data::from_safetensors(source.path);
  if (source.kind == "text")
    return data::consecutive_windows(
        data::text_tokens(source.path, data::TextUnit::kCharacter).tokens, kContext);
  require(source.kind == "idx", "--dataset: must be {}, got '{}'", kReadable, text);
  const IdxFiles files = training_files(source.path);
  return data::from_idx(files.images, files.labels);
}

std::shared_ptr<const UserData> load_user_data(const DataChoice& given) {
  if (given.kind == models::SampleKind::kTokens) {
    const DataSource tokens = token_source(given);
    return load_tokens(tokens.path, tokens.kind == "text", given);
  }
  const DataSource source = labelled_source(given.source);
  DataChoice choice = given;
  choice.schema = schema_of_weights(choice.weights);
  if (source.kind == "csv") return load_table(source.path, choice);
  const data::Dataset all = labelled(choice);
  const auto result = std::make_shared<UserData>();
  note_array(choice, *result);
  LabelRange labels;
  if (const auto tests = own_tests(choice)) {
    const Shape trained = all.element_specs()->arrays[0].shape;
    const Shape tested = tests->element_specs()->arrays[0].shape;
    require(trained == tested,
            "--dataset: training and test images must have one shape, got {} and {}",
            to_string(trained), to_string(tested));
    check_samples(all, choice, labels, [&](int64_t) { return !choice.test_all; });
    check_samples(*tests, choice, labels, [](int64_t) { return false; });
    const data::Dataset train = network_samples(all, choice);
    const data::Dataset test = network_samples(*tests, choice);
    result->test = user_samples(choice.test_all ? data::join_rows({train, test}) : test);
    if (!choice.test_all) result->train = user_samples(train);
  } else {
    const Parts parts = divide(all.size().value_or(0), choice);
    check_samples(all, choice, labels, [&](int64_t row) {
      return !parts.trains.empty() && parts.trains[static_cast<size_t>(row)];
    });
    set_parts(network_samples(all, choice), parts, *result);
  }
  count_classes(choice, labels, *result);
  return result;
}

std::shared_ptr<const UserData> load_inputs(const DataChoice& given, int64_t elements) {
  const DataSource source = labelled_source(given.source);
  DataChoice choice = given;
  choice.schema = schema_of_weights(choice.weights);
  if (source.kind == "csv") return load_table_inputs(source.path, choice, elements);
  const auto result = std::make_shared<UserData>();
  note_array(choice, *result);
  result->schema = choice.schema;
  if (source.kind == "idx") {
    const bool folder = sys::exists(source.path + "/.");
    result->test = user_samples(data::with_names(
        data::idx_images(folder ? training_files(source.path).images : source.path), {"input"}));
    return result;
  }
  const std::string x = field_of(source, choice.input, kInputs);
  result->test = inputs_of(source.kind == "npz" ? data::from_npz(source.path, {x})
                                                : data::from_safetensors(source.path, {x}));
  return result;
}

int64_t elements_of_sample(const models::Model& model, const models::Sizes& sizes) {
  return model.build(sizes).fields().at(0).spec.shape.elements() / sizes.micro_batch;
}

models::SampleSet sample_set(const models::Model& model, const UserData& data, data::Split split,
                             const models::Sizes& sizes, uint64_t seed) {
  const bool train = split == data::Split::kTrain;
  if (data.tokens) {
    const data::Tokens& tokens = train ? data.tokens->train : data.tokens->test;
    return model.data->from_tokens(tokens, split, sizes, train ? seed : 0);
  }
  const UserSamples& samples = train ? data.train : data.test;
  SLUICE_CHECK(samples.dataset.has_value());
  return {*samples.dataset, samples.size};
}

void fit_sizes(const models::Model& model, const UserData& data, bool has_classes,
               models::Sizes& sizes) {
  if (data.tokens) {
    sizes.vocabulary = data.tokens->test.vocabulary();
    return;
  }
  Shape sample = data.test.dataset->element_specs()->arrays[0].shape;
  if (model.fits_any_samples && !has_classes) {
    sizes.sample = sample.empty() ? Shape{1} : std::move(sample);
    sizes.classes = data.classes;
    return;
  }
  const int64_t elements = elements_of_sample(model, sizes);
  require(sample.elements() == elements,
          "--dataset: samples of {} must have {} numbers, got shape {}; {}", model.name, elements,
          to_string(sample),
          model.fits_any_samples ? "the weights are for others" : "mlp takes any shape");
  if (sizes.loss == models::Loss::kMeanSquaredError) {
    require(data.classes == sizes.classes,
            "--target: must have {} numbers for each sample, as the last layer of the weights, got "
            "{}",
            sizes.classes, data.classes);
    return;
  }
  require(data.classes <= sizes.classes,
          "--dataset: labels of {} must be below its {} classes, got {}", model.name, sizes.classes,
          data.classes - 1);
}

}  // namespace sluice::tool
