#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>

#include "sluice/base/error.h"
#include "sluice/data/table/csv_records.h"
#include "sluice/data/table/row_reader.h"
#include "sluice/data/table/table.h"

namespace sluice::data {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxSchema = size_t{16} << 20;
constexpr int kVersion = 1;
constexpr const char* kRoles[] = {"input", "target", "ignored"};
constexpr const char* kMissingWords[] = {"refuse", "mean", "drop-row"};

/// Reads the JSON of a schema. Each function throws Error{kBadFile} that names the key.
class SchemaParser {
 public:
  explicit SchemaParser(const std::string& file) : file_(file) {}

  TableSchema parse(std::string_view text) const {
    if (text.size() > kMaxSchema) bad("text", "at most 16 MiB");
    const Json json = Json::parse(text, nullptr, false);
    if (!json.is_object()) bad("text", "a JSON object");
    if (integer(json, "version") != kVersion) bad("version", "1");
    TableSchema schema;
    for (const Json& column : array(json, "columns")) schema.columns.push_back(column_of(column));
    schema.classes = integer(json, "classes");
    schema.labels = texts(json, "labels");
    schema.standardized = boolean_of(json, "standardized");
    schema.missing = static_cast<MissingCells>(word(json, "missing", kMissingWords));
    schema.format.header = boolean_of(json, "header") ? CsvHeader::kYes : CsvHeader::kNo;
    schema.format.separator = character(json, "separator");
    schema.format.decimal = character(json, "decimal");
    check(schema);
    return schema;
  }

 private:
  [[noreturn]] void bad(const char* key, const char* wanted) const {
    fail(ErrorKind::kBadFile, "{}: the table's schema: '{}' must be {}", file_, key, wanted);
  }

  const Json& at(const Json& json, const char* key) const {
    if (!json.is_object() || !json.contains(key)) bad(key, "there");
    return json[key];
  }
  const Json& array(const Json& json, const char* key) const {
    if (!at(json, key).is_array()) bad(key, "a list");
    return json[key];
  }
  std::string text_of(const Json& json, const char* key) const {
    if (!json.is_string()) bad(key, "a text");
    return json.get<std::string>();
  }
  std::vector<std::string> texts(const Json& json, const char* key) const {
    std::vector<std::string> result;
    for (const Json& item : array(json, key)) result.push_back(text_of(item, key));
    if (!std::is_sorted(result.begin(), result.end(), std::less_equal<>()))
      bad(key, "ascending texts");
    return result;
  }
  bool boolean_of(const Json& json, const char* key) const {
    if (!at(json, key).is_boolean()) bad(key, "true or false");
    return json[key].get<bool>();
  }
  int64_t integer(const Json& json, const char* key) const {
    const Json& value = at(json, key);
    if (!value.is_number_unsigned() || value.get<uint64_t>() > 0x7fffffff) {
      bad(key, "an integer from 0 to 2147483647");
    }
    return value.get<int64_t>();
  }
  double real(const Json& json, const char* key) const {
    if (!json.is_number() || !std::isfinite(json.get<double>())) bad(key, "a finite number");
    return json.get<double>();
  }
  char character(const Json& json, const char* key) const {
    const std::string text = text_of(at(json, key), key);
    if (text.size() != 1) bad(key, "one character");
    return text[0];
  }
  template <size_t N>
  size_t word(const Json& json, const char* key, const char* const (&words)[N]) const {
    const std::string text = text_of(at(json, key), key);
    const auto found = std::find(std::begin(words), std::end(words), text);
    if (found == std::end(words)) bad(key, "a known word");
    return std::distance(std::begin(words), found);
  }

  TableColumn column_of(const Json& json) const {
    TableColumn column{.name = text_of(at(json, "name"), "name"),
                       .role = static_cast<ColumnRole>(word(json, "role", kRoles))};
    if (column.role != ColumnRole::kInput) return column;
    column.values = texts(json, "values");
    if (column.values.size() > kMaxCategories) bad("values", "at most 1000 texts");
    for (const Json& mean : array(json, "means")) column.means.push_back(real(mean, "means"));
    column.deviation = real(at(json, "deviation"), "deviation");
    if (column.means.size() != std::max<size_t>(1, column.values.size())) {
      bad("means", "a number for each value");
    }
    if (column.deviation <= 0) bad("deviation", "above 0");
    return column;
  }

  void check(const TableSchema& schema) const {
    const auto targets = schema.names(ColumnRole::kTarget);
    if (schema.inputs() == 0) bad("columns", "at least one input");
    if (schema.classes > 0 && targets.size() > 1) bad("columns", "one target of classes");
    if (!schema.labels.empty() && std::ssize(schema.labels) != schema.classes) {
      bad("labels", "a text for each class");
    }
    std::set<std::string> names;
    for (const TableColumn& column : schema.columns) {
      if (column.role != ColumnRole::kIgnored && !names.insert(column.name).second) {
        bad("columns", "different names");
      }
    }
    try {
      check_separator(schema.format.separator, "schema");
    } catch (const Error&) {
      bad("separator", "a tab or one of ,;:|/&#");
    }
    const char decimal = schema.format.decimal;
    if ((decimal != '.' && decimal != ',') || decimal == schema.format.separator) {
      bad("decimal", "'.' or ',' and not the separator");
    }
  }

  const std::string& file_;
};

}  // namespace

std::string to_json(const TableSchema& schema) {
  Json json{{"version", kVersion}};
  Json columns = Json::array();
  for (const TableColumn& column : schema.columns) {
    Json c{{"name", column.name}, {"role", at(kRoles, column.role)}};
    if (column.role == ColumnRole::kInput) {
      c["values"] = column.values;
      c["means"] = column.means;
      c["deviation"] = column.deviation;
    }
    columns.push_back(std::move(c));
  }
  json["columns"] = std::move(columns);
  json["classes"] = schema.classes;
  json["labels"] = schema.labels;
  json["standardized"] = schema.standardized;
  json["missing"] = at(kMissingWords, schema.missing);
  json["header"] = schema.format.header == CsvHeader::kYes;
  json["separator"] = std::string(1, schema.format.separator);
  json["decimal"] = std::string(1, schema.format.decimal);
  std::string text = json.dump();
  require(text.size() <= kMaxSchema,
          "the table's schema: must have at most 16 MiB of names and texts, got {} bytes; choose "
          "fewer columns",
          text.size());
  return text;
}

TableSchema schema_from_json(std::string_view text, const std::string& file) {
  return SchemaParser(file).parse(text);
}

}  // namespace sluice::data
