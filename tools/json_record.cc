#include "tools/json_record.h"

#include <nlohmann/json.hpp>

namespace sluice::tool {

namespace {

nlohmann::ordered_json json_of(const JsonRecord& record) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const auto& [key, value] : record.items()) {
    if (const auto* rows = std::get_if<std::vector<JsonRecord>>(&value)) {
      json[key] = nlohmann::ordered_json::array();
      for (const JsonRecord& row : *rows) json[key].push_back(json_of(row));
    } else {
      std::visit(
          [&, &name = key](const auto& v) {
            if constexpr (!std::is_same_v<std::decay_t<decltype(v)>, std::vector<JsonRecord>>)
              json[name] = v;
          },
          value);
    }
  }
  return json;
}

}  // namespace

void JsonRecord::add(std::string key, Value value) {
  items_.emplace_back(std::move(key), std::move(value));
}

std::string JsonRecord::text() const {
  using Json = nlohmann::ordered_json;
  return json_of(*this).dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace sluice::tool
