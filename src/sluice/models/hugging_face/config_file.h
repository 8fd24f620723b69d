#pragma once
#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace sluice::models {

/// The settings of a `config.json`. A setting of null is absent. Errors are Error{kBadFile} with
/// the name of the file and of the setting.
class ConfigFile {
 public:
  /// Reads a file, with the errors of read_json_object().
  explicit ConfigFile(const std::string& path);

  /// Throws the error that a setting must be `wanted`.
  [[noreturn]] void refuse(const char* key, std::string_view wanted) const;
  bool has(const char* key) const { return !value(key).is_null(); }
  /// Returns the setting; null if it is absent.
  const nlohmann::json& value(const char* key) const;
  /// Returns an integer from 1 to 2147483647.
  int64_t size(const char* key) const;
  int64_t size_or(const char* key, int64_t usual) const { return has(key) ? size(key) : usual; }
  /// Returns a positive number.
  double positive_or(const char* key, double usual) const;
  bool boolean_or(const char* key, bool usual) const;
  /// Refuses a setting whose value is not in `known`. An absent setting is accepted.
  void require_known(const char* key, std::initializer_list<nlohmann::json> known) const;
  /// Returns the settings of an object.
  ConfigFile member(const char* key) const;
  const std::string& path() const { return path_; }

 private:
  ConfigFile(std::string path, nlohmann::json json)
      : path_(std::move(path)), json_(std::move(json)) {}

  std::string path_;
  nlohmann::json json_;
};

/// Writes indented JSON.
void write_json(const nlohmann::json& json, const std::string& path);

}  // namespace sluice::models
