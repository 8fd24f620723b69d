#include "tools/json_record.h"

#include <nlohmann/json.hpp>

namespace sluice::tool {

std::string JsonRecord::text() const {
  nlohmann::ordered_json json;
  for (const auto& [key, value] : items_) {
    std::visit([&](const auto& v) { json[key] = v; }, value);
  }
  return json.dump();
}

}  // namespace sluice::tool
