#include "tools/data/table_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "sluice/base/options/words.h"
#include "sluice/base/safetensors.h"
#include "sluice/data/files/shown.h"
#include "sluice/data/pipeline/node.h"
#include "sluice/data/table/indexed_table.h"
#include "sluice/data/window/folder_parts.h"
#include "tools/data/divide.h"

namespace sluice::tool {
namespace {

constexpr const char* kTableKey = "sluice.table";  // Metadata with the schema of a table.

data::TableFormat format_of(const DataChoice& choice) {
  const data::TableFormat saved = choice.schema ? choice.schema->format : data::TableFormat();
  return {.header = choice.table.header.value_or(data::CsvHeader::kDetect),
          .separator = choice.table.separator.value_or(saved.separator),
          .decimal = choice.table.decimal.value_or(saved.decimal)};
}

std::vector<std::string> names_of(const std::string& option, const std::string& list) {
  return list.empty() ? std::vector<std::string>() : split_list(option, list);
}

// Opens the table. Its header is known if it names the inputs of the model.
data::Table open_table(const std::string& path, const DataChoice& choice) {
  if (data::is_folder(path)) {
    fail(ErrorKind::kUsage,
         "--dataset: csv must be one file, got the folder {}; join its files under one header, or "
         "read it with data::from_csv() in C++",
         path);
  }
  std::vector<std::string> known = names_of("--input", choice.input);
  if (known.empty() && choice.schema && choice.schema->format.header == data::CsvHeader::kYes)
    known = choice.schema->names(data::ColumnRole::kInput);
  return data::Table(path, format_of(choice), known);
}

// Adds a note with the columns of the table that neither the model nor --target names.
void note_others(const data::Table& table, const DataChoice& choice, UserData& data) {
  std::vector<std::string> used = names_of("--input", choice.input);
  if (used.empty()) used = data.schema->names(data::ColumnRole::kInput);
  std::vector<std::string> targets = names_of("--target", choice.target);
  if (targets.empty()) targets = data.schema->names(data::ColumnRole::kTarget);
  used.insert(used.end(), targets.begin(), targets.end());
  std::vector<std::string> others;
  for (const std::string& name : table.names()) {
    if (std::find(used.begin(), used.end(), name) == used.end())
      others.push_back(data::printable(name));
  }
  if (others.empty()) return;
  constexpr size_t kMax = 20;
  const size_t count = others.size();
  others.resize(std::min(count, kMax));
  data.notes.push_back(fmt::format("{} column{} left out, which the model does not read: {}{}",
                                   count, count == 1 ? "" : "s", fmt::join(others, ", "),
                                   count > kMax ? ", ..." : ""));
}

void note_rows(const data::IndexedTable& rows, UserData& data) {
  if (rows.dropped() > 0)
    data.notes.push_back(fmt::format("{} of {} rows dropped for missing cells", rows.dropped(),
                                     rows.dropped() + rows.rows()));
  if (rows.filled() > 0)
    data.notes.push_back(fmt::format("{} missing cells replaced by means", rows.filled()));
}

// Refuses a choice that contradicts the table of the weights.
void check_schema(const DataChoice& choice, const data::TableSchema& schema) {
  const bool classes = choice.loss == models::Loss::kCrossEntropy;
  require(schema.names(data::ColumnRole::kTarget).empty() || (schema.classes > 0) == classes,
          "--loss: must be {}, as the weights were trained, got {}",
          classes ? "mse" : "cross_entropy", classes ? "cross_entropy" : "mse");
  require(!choice.table.standardize || schema.standardized,
          "--standardize: the weights were trained on a table that was not standardised; leave it "
          "out");
}

// The classes of the samples. Their texts or numbers are already checked.
LabelRange label_range(const data::IndexedTable& rows, const data::Dataset& samples,
                       const Parts& parts) {
  LabelRange labels;
  for (int64_t k = 0; k < parts.trained && !labels.several; ++k)
    labels.add(samples.node()->at(at(*parts.order, k), 0)["labels"].as<int32_t>()[0], true);
  labels.largest = rows.largest_class();
  return labels;
}

// The inputs of a table with or without targets, by the schema of the weights.
void load_known_inputs(const data::Table& table, const DataChoice& choice, int64_t elements,
                       UserData& data) {
  data.schema = choice.schema;
  check_schema(choice, *choice.schema);
  require(choice.schema->inputs() == elements,
          "--weights: the table's schema must have {} inputs like the model, got {}", elements,
          choice.schema->inputs());
  table.columns_of(names_of("--target", choice.target), "--target");
  // Each row has its prediction, so that none is dropped.
  const data::MissingCells saved = choice.schema->missing == data::MissingCells::kMean
                                       ? data::MissingCells::kMean
                                       : data::MissingCells::kRefuse;
  const data::IndexedTable rows(table, *data.schema,
                                {.inputs = names_of("--input", choice.input),
                                 .has_targets = false,
                                 .missing = choice.table.missing.value_or(saved)});
  rows.check_scaling(*data.schema);
  note_others(table, choice, data);
  note_rows(rows, data);
  data.test = user_samples(rows.samples(*data.schema));
}

// The inputs of a table for weights that have no schema: columns of numbers, by their indices.
void load_placed_inputs(const data::Table& table, const DataChoice& choice, int64_t elements,
                        UserData& data) {
  require(choice.table.missing.value_or(data::MissingCells::kRefuse) == data::MissingCells::kRefuse,
          "--missing mean requires weights that were trained on a table (they have no means)");
  std::vector<std::string> inputs = names_of("--input", choice.input);
  std::vector<std::string> targets = names_of("--target", choice.target);
  table.columns_of(targets, "--target");
  const std::vector<std::string>& names = table.names();
  if (inputs.empty() && targets.empty() && std::ssize(names) == elements + 1) {
    targets = {names.back()};
    data.notes.push_back(fmt::format("the weights name no columns: the last one, {}, is left out",
                                     data::printable(names.back())));
  }
  if (inputs.empty()) {
    for (const std::string& name : names) {
      if (std::find(targets.begin(), targets.end(), name) == targets.end()) inputs.push_back(name);
    }
  }
  const data::TableSchema schema = data::infer_schema(table, {.inputs = inputs});
  for (const data::TableColumn& column : schema.columns)
    require(column.values.empty(),
            "--input: column {} must be numbers, as the weights have no categories, got text",
            column.name);
  data.test = user_samples(data::IndexedTable(table, schema).samples(schema));
}

}  // namespace

std::optional<data::TableSchema> schema_of_weights(const std::string& file) {
  if (file.empty()) return std::nullopt;
  const SafetensorsReader reader(file);
  const auto found = reader.index().metadata.find(kTableKey);
  if (found == reader.index().metadata.end()) return std::nullopt;
  return data::schema_from_json(found->second, file);
}

std::shared_ptr<const UserData> load_table(const std::string& path, const DataChoice& choice) {
  const auto result = std::make_shared<UserData>();
  const data::Table table = open_table(path, choice);
  const std::vector<std::string> inputs = names_of("--input", choice.input);
  std::vector<std::string> targets = names_of("--target", choice.target);
  const data::MissingCells missing = choice.table.missing.value_or(
      choice.schema ? choice.schema->missing : data::MissingCells::kRefuse);
  data::RowChoice columns{.missing = missing};
  if (choice.schema) {
    result->schema = choice.schema;
    check_schema(choice, *choice.schema);
    columns.inputs = inputs;
    columns.targets = targets;
  } else {
    if (targets.empty()) targets = {table.names().back()};
    result->schema =
        data::infer_schema(table, {.inputs = inputs,
                                   .targets = targets,
                                   .classes = choice.loss == models::Loss::kCrossEntropy,
                                   .standardize = choice.table.standardize,
                                   .missing = missing});
  }
  const data::IndexedTable rows(table, *result->schema, columns);
  if (choice.schema) note_others(table, choice, *result);
  const Parts parts = divide(rows.rows(), choice);
  if (choice.schema) {
    rows.check_scaling(*result->schema);
  } else {
    rows.fit_scaling(*result->schema,
                     parts.order == nullptr
                         ? std::span<const uint32_t>()
                         : std::span(*parts.order).first(static_cast<size_t>(parts.trained)));
  }
  result->notes.insert(result->notes.begin(), data::to_string(*result->schema));
  note_rows(rows, *result);
  const data::Dataset samples = rows.samples(*result->schema);
  set_parts(samples, parts, *result);
  const bool classes = choice.loss == models::Loss::kCrossEntropy;
  count_classes(choice, classes ? label_range(rows, samples, parts) : LabelRange(), *result);
  result->metadata = {{kTableKey, data::to_json(*result->schema)}};
  return result;
}

std::shared_ptr<const UserData> load_table_inputs(const std::string& path, const DataChoice& choice,
                                                  int64_t elements) {
  require(choice.table.missing != data::MissingCells::kDropRow,
          "--missing: must be refuse or mean in sluice predict, as each row has its prediction, "
          "got drop-row");
  const auto result = std::make_shared<UserData>();
  const data::Table table = open_table(path, choice);
  choice.schema ? load_known_inputs(table, choice, elements, *result)
                : load_placed_inputs(table, choice, elements, *result);
  return result;
}

}  // namespace sluice::tool
