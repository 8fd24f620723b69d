#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tools/flags/flag_table.h"

namespace sluice::tool {
namespace {

using models::Sizes;
constexpr unsigned kOfDatasets = kTrain | kEval | kPlan;

constexpr auto of_model(auto... members) { return member_path(&ToolOptions::model, members...); }
constexpr auto of_sizes(auto member) { return of_model(&ModelOptions::sizes, member); }
constexpr auto of_table(auto member) { return of_model(&ModelOptions::table, member); }

TextForm<std::string> model_names() {
  forms::Words<std::string> names;
  for (const models::Model& m : models::all_models())
    names.emplace_back(std::string(m.name), std::string(m.name));
  return forms::words(names);
}

TextForm<char> separators() {
  TextForm<char> form = forms::words<char>({{"tab", '\t'}, {"\t", '\t'}});
  for (const char c : std::string(",;|:/&#")) form.words.emplace_back(1, c);
  form.placeholder = "CHAR";
  form.values = "one of ,;|:/&# or tab";
  form.parse = [words = form.words](const std::string& text) -> std::optional<char> {
    if (std::find(words.begin(), words.end(), text) == words.end()) return std::nullopt;
    return text == "tab" ? '\t' : text[0];
  };
  return form;
}

// The flags for samples, whose help differs between commands.
struct DatasetHelp {
  const char* dataset;
  const char* usual_dataset = "";
  const char* loss;
  const char* input;
  const char* usual_input;
  const char* target;
  const char* usual_target;
};

void add_dataset(FlagTable& table, unsigned commands, Common common, const DatasetHelp& help) {
  Section(table, commands, "Model", common)
      .add("dataset", of_model(&ModelOptions::dataset), forms::texts("FILE"), help.dataset)
      .defaults_to(help.usual_dataset);
  Section s(table, commands, "Model", Common::kNo);
  s.add("loss", of_sizes(&Sizes::loss),
        forms::words<models::Loss>({{"mse", models::Loss::kMeanSquaredError},
                                    {"cross_entropy", models::Loss::kCrossEntropy}}),
        help.loss)
      .that_decides_bits();
  const Requirement<ToolOptions> dataset{
      "{dataset}", [](const ToolOptions& o) { return !o.model.dataset.empty(); }};
  s.add("input", of_model(&ModelOptions::input), forms::texts("FIELDS"), help.input)
      .require(dataset)
      .defaults_to(help.usual_input);
  s.add("target", of_model(&ModelOptions::target), forms::texts("FIELDS"), help.target)
      .require(dataset)
      .defaults_to(help.usual_target);
  const Requirement<ToolOptions> csv{"{dataset} csv:FILE", [](const ToolOptions& o) {
                                       return o.model.dataset.starts_with("csv:");
                                     }};
  s.add("header", of_table(&TableFlags::header),
        forms::words<data::CsvHeader>(
            {{"yes", data::CsvHeader::kYes}, {"no", data::CsvHeader::kNo}}),
        "Read line 1 of a CSV file as the names of its columns (yes) or as a sample (no)")
      .require(csv)
      .defaults_to("by its cells, refused if it may be either");
  const auto or_table = [](const char* value) {
    return fmt::format("that of the weights' table, or {}", value);
  };
  s.add("separator", of_table(&TableFlags::separator), separators(),
        "Split the lines of a CSV file at CHAR: one of ,;|:/&# or tab")
      .require(csv)
      .defaults_to(or_table("','"));
  s.add("decimal", of_table(&TableFlags::decimal), forms::words<char>({{".", '.'}, {",", ','}}),
        "Read this mark as the decimal point of a CSV file")
      .require(csv)
      .defaults_to(or_table("'.'"));
  s.add(
       "missing", of_table(&TableFlags::missing),
       forms::words<data::MissingCells>({{"refuse", data::MissingCells::kRefuse},
                                         {"mean", data::MissingCells::kMean},
                                         {"drop-row", data::MissingCells::kDropRow}}),
       "Refuse a CSV file with missing cells, replace them by the mean of the training samples, or "
       "omit their rows")
      .require(csv)
      .defaults_to(or_table("refuse"));
}

}  // namespace

void add_model_flags(FlagTable& table) {
  Section s(table, kWithModel, "Model", Common::kYes);
  const TextForm<std::string> names = model_names();
  s.add("model", of_model(&ModelOptions::name), names,
        fmt::format("Use this model: {}", fmt::join(names.words, ", ")))
      .named("model")
      .that_decides_bits()
      .placeholder = "MODEL";
  s.add("layers", of_sizes(&Sizes::layers), forms::integers<int64_t>(1, 100000),
        "Set the number of linear layers")
      .that_decides_bits();
  s.add("width", of_sizes(&Sizes::width), forms::integers<int64_t>(1),
        "Set the features or channels of a layer")
      .that_decides_bits();
  Section rare(table, kWithModel, "Model", Common::kNo);
  rare.add("arch", of_sizes(&Sizes::arch),
           forms::words<models::Arch>(
               {{"gpt2", models::Arch::kGpt2}, {"llama", models::Arch::kLlama}}),
           "Build the language model like GPT-2 (learned positions, layer norms, GELU, tied head) "
           "or "
           "Llama (rotary positions, RMS norms, SwiGLU)")
      .that_decides_bits();
  rare.add("blocks", of_sizes(&Sizes::blocks), forms::integers<int64_t>(1, 100000),
           "Set the number of transformer blocks")
      .that_decides_bits();
  rare.add("heads", of_sizes(&Sizes::heads), forms::integers<int64_t>(1),
           "Set the heads of an attention; they divide --width")
      .that_decides_bits();
  rare.add("kv_heads", of_sizes(&Sizes::kv_heads), forms::integers<int64_t>(0),
           "Set the heads of keys and values; they divide --heads; 0: as many as --heads")
      .that_decides_bits();
  rare.add("context", of_sizes(&Sizes::context), forms::integers<int64_t>(1),
           "Set the tokens of a sample")
      .that_decides_bits();
  rare.add("vocab", of_sizes(&Sizes::vocabulary), forms::integers<int64_t>(1, 1 << 30),
           "Set the number of different tokens; --dataset text:FILE sets it by default")
      .that_decides_bits();
  Section(table, kWithModel & ~kPredict, "Model", Common::kNo)
      .add("dropout", of_sizes(&Sizes::dropout),
           forms::floats({.max = 1, .excludes_max = true}, "P"),
           "Drop hidden features with probability P while training")
      .that_decides_bits();
}

void add_data_flags(FlagTable& table) {
  add_dataset(
      table, kOfDatasets, Common::kNo,
      {.dataset = "Use the samples of csv:FILE, npz:FILE, safetensors:FILE or idx:DIR; gpt "
                  "and bert read text:FILE, or tokens:FILE of 16-bit or .npy ids",
       .usual_dataset = "the model's",
       .loss = "Compare predictions with classes (cross_entropy) or real numbers (mse, the mean "
               "squared error); only for mlp; mse requires --dataset",
       .input = "Read the inputs from this field, or these columns of a CSV file",
       .usual_input = "input, image, or all other columns",
       .target = "Read the labels from this field or column, or the targets of --loss mse from "
                 "these columns",
       .usual_target = "target, label, or the last column"});
  const Requirement<ToolOptions> dataset{
      "{dataset}", [](const ToolOptions& o) { return !o.model.dataset.empty(); }};
  Section(table, kOfDatasets, "Model", Common::kNo)
      .add("tokenizer", of_model(&ModelOptions::tokenizer), forms::texts("NAME"),
           "Cut a text into characters, bytes, or the tokens of a tokenizer.json or a vocab.json "
           "with its merges.txt")
      .require(dataset)
      .defaults_to("that of --weights, or characters");
  Section(table, kOfDatasets, "Model", Common::kNo)
      .add("validation", of_model(&ModelOptions::validation),
           forms::floats({.max = 1, .excludes_min = true, .excludes_max = true}, "SHARE"),
           "Test on this share of the samples")
      .require(dataset)
      .defaults_to("0.1, or the test files of idx:DIR");
  Section(table, kTrain, "Model", Common::kNo)
      .add("standardize", of_table(&TableFlags::standardize), forms::flags(),
           "Scale the columns of a CSV file to mean 0 and standard deviation 1 of the training "
           "samples, and save this scaling with the weights")
      .require({"{dataset} csv:FILE",
                [](const ToolOptions& o) { return o.model.dataset.starts_with("csv:"); }});
  Section(table, kEval, "Model", Common::kYes)
      .add("all", of_model(&ModelOptions::test_all), forms::flags(),
           "Test on every sample of --dataset")
      .require(dataset);
  Section s(table, kTrain | kEval, "Model", Common::kYes);
  s.add("data", of_model(&ModelOptions::data), forms::texts("DIR"), "Read the samples from DIR")
      .defaults_to("$SLUICE_DATA, data/mnist or data/cifar10, else generated ones");
  s.add("weights", of_model(&ModelOptions::weights), forms::texts("FILE"),
        "Start from this safetensors file or checkpoint")
      .defaults_to("random variables");
  Section rare(table, kTrain | kEval, "Model", Common::kNo);
  rare.add("torch_weights", of_model(&ModelOptions::torch_weights), forms::texts("FILE"),
           "Start from the state_dict of the same PyTorch module, as safetensors")
      .defaults_to("none");
  const Requirement<ToolOptions> weights{
      "{weights}", [](const ToolOptions& o) { return !o.model.weights.empty(); }};
  rare.add("load_strict", of_model(&ModelOptions::load_strict),
           forms::words<bool>({{"yes", true}, {"no", false}}),
           "Refuse --weights that lack a variable (yes), or keep and list its first value (no)")
      .require(weights);
  rare.add_list("load_names", of_model(&ModelOptions::load_names), "PAIRS",
                "Load tensors of --weights to variables of other names by pairs NAME=PATH, or "
                "leave them out (NAME=); one * on both sides represents any characters")
      .require(weights);
  rare.add("fresh_optimizer", of_model(&ModelOptions::fresh_optimizer), forms::flags(),
           "Initialise the optimizer's state, whether --weights has one or not")
      .require(weights);
  rare.add("synthetic", of_model(&ModelOptions::synthetic), forms::flags(),
           "Use generated samples even if real ones are found");
}

void add_predict_flags(FlagTable& table) {
  add_dataset(table, kPredict, Common::kYes,
              {.dataset = "Predict for each sample of csv:FILE, npz:FILE, safetensors:FILE, "
                          "idx:FILE, or of the training images of idx:DIR",
               .loss = "Predict classes (cross_entropy) or real numbers (mse), as mlp was trained",
               .input = "Read the inputs from this field, or these columns of a CSV file",
               .usual_input = "input, or the columns with the names of the weights' table",
               .target = "Omit these columns of a CSV file, if the weights name no columns",
               .usual_target = "the last one, if there is one more than inputs"});
  Section s(table, kPredict, "Model", Common::kYes);
  s.add("weights", of_model(&ModelOptions::weights), forms::texts("FILE"),
        "Load the variables from this safetensors file or checkpoint");
  Section(table, kPredict, "Model", Common::kNo)
      .add("torch_weights", of_model(&ModelOptions::torch_weights), forms::texts("FILE"),
           "Load the state_dict of the same PyTorch module, as safetensors, instead of --weights");
  s.add("to", &ToolOptions::to, forms::texts("FILE"),
        "Write the predictions to FILE.npz, an array for each one, or to FILE.csv, a line for each "
        "sample");
  s.add_library("replicas").help = "Compute on N replicas, each on samples of its own";
}

}  // namespace sluice::tool
