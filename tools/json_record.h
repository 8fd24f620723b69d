#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace sluice::tool {

/// One JSON object for stdout, keys in the order given.
class JsonRecord {
 public:
  using Value = std::variant<std::string, int64_t, double, bool, std::vector<JsonRecord>>;
  void add(std::string key, Value value);
  /// Bytes of texts that are not UTF-8 become U+FFFD.
  std::string text() const;
  const std::vector<std::pair<std::string, Value>>& items() const { return items_; }

 private:
  std::vector<std::pair<std::string, Value>> items_;
};

}  // namespace sluice::tool
