#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "sluice/base/hash.h"
#include "sluice/base/options/read_number.h"
#include "sluice/base/sys.h"
#include "sluice/data/dataset.h"
#include "sluice/runtime/process_group.h"
#include "sluice/train/fit.h"
#include "tools/data/predictions.h"
#include "tools/data/user_data.h"
#include "tools/json_record.h"
#include "tools/plan/profile.h"
#include "tools/programs.h"

namespace sluice::tool {
namespace {

constexpr const char* kClass = "class";

std::string_view module_of(std::string_view name) { return name.substr(0, name.rfind('.') + 1); }

// Whether a tensor of a file is a variable of the training, or state of its optimizer.
bool is_trained(const std::string& name, const train::NetworkGraph& training, bool torch) {
  bool found = false;
  training.factories.for_each([&](const std::string& key, const nn::VariableFactory&) {
    found = found || name == key || name.starts_with(key + ".") ||
            (torch && module_of(name) == module_of(key));
  });
  return found;
}

// Loads the weights. Variables of the training alone and optimizer state are not used; other names
// in the file are reported.
void load(train::InferenceModel& model, const ToolOptions& o) {
  const bool torch = !o.model.torch_weights.empty();
  const std::string& file = torch ? o.model.torch_weights : o.model.weights;
  const std::vector<std::string> unknown =
      torch ? train::load_torch_weights(model.session(), model.programs(), file) : model.load(file);
  if (unknown.empty() || !o.output.speaks()) return;
  const train::NetworkGraph training =
      models::find_model(o.model.name).build(o.model.sizes).build(Ir(), nn::RunMode::kTrain);
  for (const std::string& name : unknown) {
    if (!is_trained(name, training, torch))
      sys::print_stderr("{}: '{}' is not part of this model and was left out\n", file, name);
  }
}

// Adds the class of each sample to the first scores of classes.
void add_classes(const std::vector<train::Labelled>& labelled,
                 std::vector<NamedArray>& predictions) {
  for (const train::Labelled& l : labelled) {
    for (const NamedArray& p : predictions) {
      const bool has_scores = p.array.dtype() == f32 && p.array.shape().rank() == 2;
      if (p.name != l.prediction || l.regression || !has_scores) continue;
      predictions.push_back({kClass, classes_of(p.array)});
      return;
    }
  }
}

// The cells of an array's row, with the shortest digits that give the same number.
template <typename T>
void append_row(std::string& line, const std::vector<T>& values, size_t row, size_t columns) {
  for (size_t c = 0; c < columns; ++c)
    fmt::format_to(std::back_inserter(line), "{}{}", line.empty() || line.back() == '\n' ? "" : ",",
                   values[row * columns + c]);
}

// A cell as RFC 4180 writes it.
std::string csv_cell(const std::string& text) {
  const bool is_plain =
      text.find_first_of(",;\"\r\n") == text.npos && !text.starts_with(' ') && !text.ends_with(' ');
  if (is_plain) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

// The cells of an array: float32, integers, or the texts of classes.
struct Cells {
  Cells(const NamedArray& a, const std::vector<std::string>& labels)
      : name(a.name), columns(static_cast<size_t>(a.array.elements() / a.array.shape()[0])) {
    if (is_float(a.array.dtype())) {
      const HostTensor values = a.array.cast(f32);
      reals.assign(values.as<float>().begin(), values.as<float>().end());
    } else {
      const HostTensor values = a.array.cast(i64);
      integers.assign(values.as<int64_t>().begin(), values.as<int64_t>().end());
    }
    if (a.name != kClass || labels.empty()) return;
    for (const int64_t k : std::exchange(integers, {})) texts.push_back(csv_cell(at(labels, k)));
  }
  // The name of a column. Scores of classes in text have their names.
  std::string title(size_t c, const std::vector<std::string>& labels) const {
    if (columns == 1) return csv_cell(name);
    return csv_cell(columns == labels.size() ? fmt::format("{}.{}", name, labels[c])
                                             : fmt::format("{}.{}", name, c));
  }
  std::string name;
  size_t columns;
  std::vector<float> reals;
  std::vector<int64_t> integers;
  std::vector<std::string> texts;
};

// A header "logits.0,logits.1,class" and a line for each sample. `labels` are the texts of the
// classes, if they have texts: "logits.no,logits.yes,class".
std::string csv_of(const std::vector<NamedArray>& predictions,
                   const std::vector<std::string>& labels) {
  std::vector<Cells> all;
  for (const NamedArray& a : predictions) all.emplace_back(a, labels);
  std::vector<std::string> names;
  for (const Cells& cells : all) {
    for (size_t c = 0; c < cells.columns; ++c) names.push_back(cells.title(c, labels));
  }
  std::string text = fmt::format("{}\n", fmt::join(names, ","));
  const auto rows = static_cast<size_t>(predictions[0].array.shape()[0]);
  for (size_t row = 0; row < rows; ++row) {
    for (const Cells& cells : all) {
      append_row(text, cells.reals, row, cells.reals.empty() ? 0 : cells.columns);
      append_row(text, cells.integers, row, cells.integers.empty() ? 0 : cells.columns);
      append_row(text, cells.texts, row, cells.texts.empty() ? 0 : cells.columns);
    }
    text += '\n';
  }
  return text;
}

// Writes the predictions. An archive has the texts of the classes as the array "classes".
void write(const std::string& path, const std::vector<NamedArray>& predictions,
           const std::vector<std::string>& labels) {
  if (path.ends_with(".npz")) {
    std::vector<data::NamedTexts> texts;
    if (!labels.empty()) texts.push_back({"classes", labels});
    data::write_npz(path, predictions, texts);
  } else {
    const std::string text = csv_of(predictions, labels);
    sys::replace_file(path, std::as_bytes(std::span(text)));
  }
}

void report(const ToolOptions& o, const Session& session, int64_t samples,
            const std::vector<NamedArray>& predictions, const std::vector<std::string>& labels) {
  const int64_t bytes = sys::size(sys::open_for_read(o.to), o.to);
  if (!o.output.json) {
    std::vector<std::string> names;
    for (const NamedArray& p : predictions) names.push_back(p.name);
    fmt::print("{} samples, {} bytes in {}: {}\n", samples, bytes, o.to, fmt::join(names, ", "));
    return;
  }
  JsonRecord record;
  record.add("model", o.model.name);
  record.add("samples", samples);
  std::vector<JsonRecord> arrays;
  for (const NamedArray& p : predictions) {
    arrays.emplace_back().add("name", p.name);
    arrays.back().add("dtype", std::string(name_of(p.array.dtype())));
    arrays.back().add("numbers", p.array.elements() / samples);
  }
  record.add("predictions", std::move(arrays));
  if (!labels.empty()) {
    std::vector<JsonRecord> classes;
    for (const std::string& label : labels) classes.emplace_back().add("label", label);
    record.add("classes", std::move(classes));
  }
  record.add("file", o.to);
  record.add("bytes", bytes);
  record.add("planned_bytes", session.planned_bytes());
  record.add("measured_bytes", session.measured_bytes());
  fmt::print("{}\n", record.text());
}

// The texts of the classes, by the schema of the weights; empty if the classes are numbers.
std::vector<std::string> labels_of(const ToolOptions& o) {
  const auto& schema = o.model.user_data->schema;
  if (!schema || o.model.sizes.loss != models::Loss::kCrossEntropy) return {};
  std::vector<std::string> labels = schema->labels;
  if (labels.empty()) return labels;
  const auto classes = static_cast<size_t>(o.model.sizes.classes);
  if (labels.size() > classes) {
    fail(ErrorKind::kBadFile, "{}: the table's schema must have at most {} classes, got {}",
         o.model.weights + o.model.torch_weights, classes, labels.size());
  }
  // A model of a fixed size may have more classes than the table.
  while (labels.size() < classes) labels.push_back(std::to_string(labels.size()));
  return labels;
}

// Error{kUsage} unless all processes have the same samples.
void require_same_samples(Session& session, const UserSamples& samples) {
  if (session.agreement().size() == 1) return;
  Digest digest;
  for (const data::Element& e : *samples.dataset) digest.add(e.arrays[0].bytes());
  session.agreement().require_same("samples of --dataset", digest.hex());
}

}  // namespace

int run_predict(const ToolOptions& o) {
  if (o.speaks()) sys::check_replaceable(o.to);
  Programs programs = build_programs(o);
  log_offload(o, programs);
  train::InferenceModel model = open_inference(programs, o);
  Session& session = model.session();
  const bool has_report = write_profile(o, programs, session);
  load(model, o);
  const UserSamples& inputs = o.model.user_data->test;
  const int64_t samples = inputs.size;
  const int64_t numbers = elements_of_sample(models::find_model(o.model.name), o.model.sizes);
  require(samples > 0 && inputs.dataset->element_specs()->arrays[0].elements() == numbers,
          "--dataset: samples must have {} numbers, as the model's input, got {} samples of {}",
          numbers, samples,
          samples == 0 ? 0 : inputs.dataset->element_specs()->arrays[0].elements());
  require_same_samples(session, inputs);
  Measuring measuring(session, "eval", has_report);
  data::Element results = train::predict(
      model, *inputs.dataset, o.output.speaks() ? train::Show::kProgress : train::Show::kNo,
      [&] { measuring.after_run(); });
  if (has_report) write_measured(o, programs, session, measuring.take());
  std::vector<NamedArray> predictions;
  for (size_t i = 0; i < results.arrays.size(); ++i)
    predictions.push_back({results.names[i], std::move(results.arrays[i])});
  add_classes(programs.training.eval_labelled, predictions);
  const std::vector<std::string> labels = labels_of(o);
  if (o.speaks()) write(o.to, predictions, labels);
  session.agreement().any(false);  // A barrier: the others return after the file is written.
  if (o.speaks()) report(o, session, samples, predictions, labels);
  return 0;
}

}  // namespace sluice::tool
