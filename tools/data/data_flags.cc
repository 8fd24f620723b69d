#include "tools/data/data_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "sluice/base/safetensors.h"
#include "sluice/base/sys.h"
#include "tools/data/user_data.h"
#include "tools/flags/flags.h"
#include "tools/numbers.h"

namespace sluice::tool {
namespace {

// Help of the options for the user's own samples.
struct FieldsHelp {
  Common dataset_is = Common::kYes;
  Doc dataset;
  std::string loss;
  Doc input, target;
};

void add_fields(Flags flags, const FieldsHelp& help, ToolOptions& o) {
  flags.group(kModelGroup, help.dataset_is)
      .text("--dataset", "FILE", o.model.dataset, help.dataset);
  flags.group(kModelGroup, Common::kNo)
      .choice("--loss", o.model.sizes.loss,
              {{"mse", models::Loss::kMeanSquaredError},
               {"cross_entropy", models::Loss::kCrossEntropy}},
              {help.loss, "cross_entropy"});
  flags.text("--input", "FIELDS", o.model.input, help.input);
  flags.text("--target", "FIELDS", o.model.target, help.target);
}

void add_weights(Flags flags, const Doc& help, const Doc& torch, ToolOptions& o) {
  flags.group(kModelGroup).text("--weights", "FILE", o.model.weights, help);
  flags.group(kModelGroup, Common::kNo)
      .text("--torch-weights", "FILE", o.model.torch_weights, torch);
}

void add_table(Flags flags, ToolOptions& o) {
  TableFlags& table = o.model.table;
  flags.group(kModelGroup, Common::kNo)
      .choice("--header", table.header,
              {{"yes", data::CsvHeader::kYes}, {"no", data::CsvHeader::kNo}},
              {"Read line 1 of a CSV file as the names of its columns (yes) or as a sample (no)",
               "by its cells, refused if it may be either"});
  flags.value("--separator", "CHAR",
              {"Cut the lines of a CSV file at CHAR: one of ,;|:/&# or tab",
               "that of the weights' table, or ','"},
              [&table](const std::string& text) {
                const bool known =
                    text.size() == 1 && std::string(",;|:/&#\t").find(text) != std::string::npos;
                require(text == "tab" || known,
                        "--separator: must be one of ,;|:/&# or tab, got "
                        "'{}'",
                        text);
                table.separator = text == "tab" ? '\t' : text[0];
              });
  flags.choice(
      "--decimal", table.decimal, {{".", '.'}, {",", ','}},
      {"Read this mark as the decimal point of a CSV file", "that of the weights' table, or '.'"});
  flags.choice("--missing", table.missing,
               {{"refuse", data::MissingCells::kRefuse},
                {"mean", data::MissingCells::kMean},
                {"drop-row", data::MissingCells::kDropRow}},
               {"Refuse a CSV file with missing cells, replace them by the mean of the training "
                "samples, or leave out their rows",
                "that of the weights' table, or refuse"});
}

bool given(const CLI::App& command, const char* name) {
  return command.get_option_no_throw(name) != nullptr && command.count(name) > 0;
}

DataChoice choice_of(const CLI::App& command, const ToolOptions& o) {
  const ModelOptions& m = o.model;
  return {.place = m.dataset,
          .input = m.input,
          .target = m.target,
          .validation = m.validation,
          .loss = m.sizes.loss,
          .test_all = m.test_all,
          .trains = command.get_name() == "train" || command.get_name() == "plan",
          .table = m.table,
          .weights = m.weights + m.torch_weights};
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

void add_user_data(Flags flags, ToolOptions& o) {
  add_fields(
      flags,
      {.dataset_is = Common::kNo,
       .dataset = {"Use the samples of csv:FILE, npz:FILE, safetensors:FILE or idx:DIR",
                   "the model's"},
       .loss = "Compare predictions with classes (cross_entropy) or real numbers (mse, the mean "
               "squared error); only for mlp; mse requires --dataset",
       .input =
           {"Take the inputs from this field, or these columns of a CSV file; requires --dataset",
            "input, image, or all other columns"},
       .target = {"Take the labels from this field or column, or the targets of --loss mse from "
                  "these columns; requires --dataset",
                  "target, label, or the last column"}},
      o);
  add_table(flags, o);
  flags.group(kModelGroup, Common::kNo)
      .value("--validation", "SHARE",
             {"Test on this share of the samples; requires --dataset",
              "0.1, or the test files of idx:DIR"},
             [&o](const std::string& text) {
               o.model.validation = parse_real("--validation", text);
               require(*o.model.validation > 0 && *o.model.validation < 1,
                       "--validation: must be above 0 and below 1, got '{}'", text);
             });
}

void add_standardize(Flags flags, ToolOptions& o) {
  flags.group(kModelGroup, Common::kNo)
      .flag("--standardize",
            "Scale the columns of a CSV file to mean 0 and standard deviation 1 of the training "
            "samples, and save this scaling with the weights",
            [&o] { o.model.table.standardize = true; });
}

void add_test_all(Flags flags, ToolOptions& o) {
  flags.group(kModelGroup).flag("--all", "Test on every sample of --dataset", [&o] {
    o.model.test_all = true;
  });
}

void add_samples(Flags flags, ToolOptions& o) {
  flags.group(kModelGroup)
      .text("--data", "DIR", o.model.data,
            {"Read the samples from DIR",
             "$SLUICE_DATA, data/mnist or data/cifar10, else generated ones"});
  add_weights(flags, {"Start from the variables in this safetensors file", "random ones"},
              {"Start from the state_dict of the same PyTorch module, as safetensors", "none"}, o);
  flags.group(kModelGroup, Common::kNo)
      .flag(
          "--fresh-optimizer",
          "Start the optimizer's state anew, whether --weights has one or not; requires --weights",
          [&o] { o.model.fresh_optimizer = true; });
  flags.group(kModelGroup, Common::kNo)
      .flag("--synthetic", "Use generated samples even if real ones are found",
            [&o] { o.model.synthetic = true; });
}

void add_predict(Flags flags, ToolOptions& o) {
  add_fields(
      flags,
      {.dataset =
           "Predict for each sample of csv:FILE, npz:FILE, safetensors:FILE, idx:FILE, or of "
           "the training images of idx:DIR",
       .loss = "Predict classes (cross_entropy) or real numbers (mse), as mlp was trained",
       .input = {"Take the inputs from this field, or these columns of a CSV file",
                 "input, or the columns with the names of the weights' table"},
       .target = {"Leave out these columns of a CSV file, if the weights name no columns",
                  "the last one, if there is one more than inputs"}},
      o);
  add_table(flags, o);
  add_weights(
      flags, "Take the variables from this safetensors file",
      "Take the state_dict of the same PyTorch module, as safetensors, instead of --weights", o);
  flags.group(kModelGroup)
      .text("--to", "FILE", o.to,
            "Write the predictions to FILE.npz, an array for each one, or to FILE.csv, a line for "
            "each sample");
}

void use_dataset(const CLI::App& command, ToolOptions& o) {
  ModelOptions& m = o.model;
  if (m.dataset.empty()) return;
  m.user_data = load_user_data(choice_of(command, o));
  const bool has_classes = read_sizes(command, o);
  fit_sizes(models::find_model(m.name), *m.user_data, has_classes, m.sizes);
  if (!o.output.speaks()) return;
  print_notes(m);
  const bool classes = m.sizes.loss == models::Loss::kCrossEntropy;
  const int64_t trained = m.user_data->train.size();
  sys::print_stderr("{}: {}{} to test on, {}\n", m.dataset,
                    trained == 0 ? "" : fmt::format("{} samples to train on, ", trained),
                    trained == 0 ? fmt::format("{} samples", m.user_data->test.size())
                                 : fmt::format("{}", m.user_data->test.size()),
                    classes ? fmt::format("{} classes", m.user_data->classes)
                            : fmt::format("targets of {} numbers", m.user_data->classes));
}

void use_inputs(const CLI::App& command, ToolOptions& o) {
  ModelOptions& m = o.model;
  require(!m.weights.empty() || !m.torch_weights.empty(),
          "sluice predict requires --weights FILE or --torch-weights FILE (both are absent)");
  require(!m.dataset.empty(),
          "sluice predict requires --dataset csv:FILE, or another (it is absent)");
  require(!o.to.empty(), "sluice predict requires --to FILE.npz or FILE.csv (it is absent)");
  require(o.to.ends_with(".npz") || o.to.ends_with(".csv"),
          "--to: must end with .npz or .csv, got '{}'", o.to);
  read_sizes(command, o);
  require(m.sizes.classes > 1 || m.sizes.loss == models::Loss::kMeanSquaredError,
          "{}: must have at least 2 classes in its last layer, got {}; a regression is --loss mse",
          m.weights + m.torch_weights, m.sizes.classes);
  m.user_data =
      load_inputs(choice_of(command, o), elements_of_sample(models::find_model(m.name), m.sizes));
  if (o.output.speaks()) print_notes(m);
}

}  // namespace sluice::tool
