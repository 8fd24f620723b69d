#include "sluice/models/hugging_face/config_file.h"

#include <cmath>
#include <limits>
#include <span>

#include "sluice/base/error.h"
#include "sluice/base/sys.h"
#include "sluice/models/hugging_face/checkpoint.h"

namespace sluice::models {

using Json = nlohmann::json;

namespace {

std::string setting_text(const Json& v) {
  if (v.is_null()) return "nothing";
  return v.is_primitive() ? v.dump(-1, ' ', true, Json::error_handler_t::replace) : v.type_name();
}

}  // namespace

ConfigFile::ConfigFile(const std::string& path) : ConfigFile(path, read_json_object(path)) {}

void ConfigFile::refuse(const char* key, std::string_view wanted) const {
  fail(ErrorKind::kBadFile, "{}: '{}' must be {}, got {}", path_, key, wanted,
       setting_text(value(key)));
}

const Json& ConfigFile::value(const char* key) const {
  static const Json kAbsent;
  const auto found = json_.find(key);
  return found == json_.end() ? kAbsent : *found;
}

int64_t ConfigFile::size(const char* key) const {
  const Json& v = value(key);
  if (!v.is_number_unsigned() || v.get<uint64_t>() < 1 ||
      v.get<uint64_t>() > std::numeric_limits<int32_t>::max())
    refuse(key, "an integer from 1 to 2147483647");
  return v.get<int64_t>();
}

double ConfigFile::positive_or(const char* key, double usual) const {
  if (!has(key)) return usual;
  const Json& v = value(key);
  if (!v.is_number() || !(v.get<double>() > 0) || !std::isfinite(v.get<double>()))
    refuse(key, "a positive number");
  return v.get<double>();
}

bool ConfigFile::boolean_or(const char* key, bool usual) const {
  if (!has(key)) return usual;
  if (!value(key).is_boolean()) refuse(key, "true or false");
  return value(key).get<bool>();
}

void ConfigFile::require_known(const char* key, std::initializer_list<Json> known) const {
  if (!has(key)) return;
  std::string words;
  for (const Json& v : known) {
    if (value(key) == v) return;
    words += (words.empty() ? "" : " or ") + setting_text(v);
  }
  refuse(key, words);
}

ConfigFile ConfigFile::member(const char* key) const {
  if (!value(key).is_object()) refuse(key, "an object");
  return {path_, value(key)};
}

void write_json(const Json& json, const std::string& path) {
  const std::string text = json.dump(2) + "\n";
  sys::replace_file(path, std::as_bytes(std::span(text)));
}

}  // namespace sluice::models
