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
  using Value = std::variant<std::string, int64_t, double>;
  void add(std::string key, Value value) { items_.emplace_back(std::move(key), std::move(value)); }
  std::string text() const;

 private:
  std::vector<std::pair<std::string, Value>> items_;
};

}  // namespace sluice::tool
