#include "sluice/nn/dot_tree.h"

namespace sluice::nn::internal {

void check_key(std::string_view key) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const auto is_letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  const bool number = !key.empty() && std::all_of(key.begin(), key.end(), is_digit);
  const bool identifier =
      !key.empty() && !is_digit(key[0]) &&
      std::all_of(key.begin(), key.end(), [&](char c) { return is_digit(c) || is_letter(c); });
  require((number && key.size() <= 18) || identifier,
          "tree: key must be an identifier or a number of at most 18 digits, got '{}'", key);
}

std::string index_key(int64_t index) {
  require(index >= 0, "tree: key must be at least 0, got {}", index);
  return std::to_string(index);
}

std::pair<std::string_view, std::string_view> split_key(std::string_view key) {
  const size_t dot = key.find('.');
  if (dot == key.npos) return {key, {}};
  return {key.substr(0, dot), key.substr(dot + 1)};
}

std::string join_keys(const std::vector<std::string>& keys) {
  std::string text;
  for (const std::string& key : keys) text += (text.empty() ? "" : ", ") + key;
  return text.empty() ? "none" : text;
}

std::string dict_text(const std::vector<std::pair<std::string, std::string>>& leaves) {
  std::string text;
  for (const auto& [key, leaf] : leaves)
    text += fmt::format("{}'{}': {}", text.empty() ? "" : ", ", key, leaf);
  return "{" + text + "}";
}

std::string keys_text(const std::vector<std::string>& keys) {
  std::string text;
  for (const std::string& key : keys) text += (text.empty() ? "'" : ", '") + key + "'";
  return "dict_keys([" + text + "])";
}

}  // namespace sluice::nn::internal
