#include "sluice/base/options/option_file.h"

#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "sluice/base/sys.h"

namespace sluice {
namespace {

using nlohmann::json;

// Collects the values of nested objects under names with points. The name of an option has two
// points at most, so an object in a deeper one is a value, which every option refuses.
void flatten(const json& j, const std::string& prefix,
             std::vector<std::pair<std::string, json>>& values) {
  for (const auto& [key, value] : j.items()) {
    const std::string name = prefix.empty() ? key : prefix + "." + key;
    if (value.is_object() && std::count(name.begin(), name.end(), '.') < 3) {
      flatten(value, name, values);
    } else {
      values.emplace_back(name, value);
    }
  }
}

std::string text_of(const json& j) { return j.is_string() ? j.get<std::string>() : j.dump(); }

OptionTexts texts_of(const json& j, OptionType type) {
  const auto is_text = [](const json& item) { return item.is_string(); };
  if (type == OptionType::kText) require(j.is_string(), "must be a string, got {}", j.dump());
  if (type != OptionType::kList || j.is_string() || j.is_number_integer()) return {text_of(j)};
  require(j.is_array() && std::all_of(j.begin(), j.end(), is_text),
          "must be a list of strings, got {}", j.dump());
  return j.get<OptionTexts>();
}

std::string quoted_text(const std::string& text) {
  try {
    return json(text).dump();
  } catch (const json::exception&) {
    fail(ErrorKind::kUsage, "options: a text must be UTF-8, got other bytes");
  }
}

std::string json_value(const OptionValue& option) {
  if (option.type == OptionType::kText) return quoted_text(internal::only_text(option.texts));
  if (option.type != OptionType::kList) return internal::only_text(option.texts);
  std::vector<std::string> items;
  for (const std::string& text : option.texts) items.push_back(quoted_text(text));
  return fmt::format("[{}]", fmt::join(items, ", "));
}

}  // namespace

std::string to_json(const std::vector<OptionValue>& options) {
  std::string text;
  for (const OptionValue& o : options) {
    text +=
        fmt::format("{}  {}: {}", text.empty() ? "" : ",\n", quoted_text(o.name), json_value(o));
  }
  return "{\n" + text + "\n}\n";
}

FileOptions parse_option_file(const std::string& path,
                              const std::vector<std::pair<std::string, OptionType>>& known) {
  const std::vector<std::byte> bytes = sys::read_file(path);
  const auto* const begin = reinterpret_cast<const char*>(bytes.data());
  json file;
  try {
    file = json::parse(begin, begin + bytes.size());
  } catch (const json::exception& e) {
    fail(ErrorKind::kBadFile, "{}: must be JSON, got: {}", path, e.what());
  }
  if (!file.is_object())
    fail(ErrorKind::kBadFile, "{}: must be an object of options, got {}", path, file.type_name());
  std::vector<std::pair<std::string, json>> values;
  flatten(file, "", values);
  FileOptions options;
  for (const auto& [name, value] : values) {
    const auto found = std::find_if(known.begin(), known.end(),
                                    [&](const auto& option) { return option.first == name; });
    if (found == known.end()) {
      std::vector<std::string> names;
      for (const auto& option : known) names.push_back(option.first);
      fail(ErrorKind::kBadFile, "{}: an option must be one of {}, got '{}'", path,
           fmt::join(names, ", "), name);
    }
    try {
      options.emplace_back(name, texts_of(value, found->second));
    } catch (const Error& e) {
      fail(ErrorKind::kBadFile, "{}: {}: {}", path, name, e.what());
    }
  }
  return options;
}

}  // namespace sluice
