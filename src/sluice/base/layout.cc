#include "sluice/base/layout.h"

#include <algorithm>
#include <charconv>

#include "sluice/base/error.h"

namespace sluice {
namespace {

constexpr std::string_view kRow = "row";
constexpr std::string_view kDigits = "0123456789";

bool is_kind(std::string_view text) {
  return !text.empty() && text != kRow && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || c == '_';
  });
}

// Appends the numbers of "16x8" to `numbers`; false if `text` is anything else.
bool read_numbers(std::string_view text, std::vector<int64_t>& numbers) {
  for (;;) {
    int64_t n = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
    if (error != std::errc() || n < 0) return false;
    numbers.push_back(n);
    text = std::string_view(end, text.data() + text.size());
    if (text.empty()) return true;
    if (text.front() != 'x') return false;
    text.remove_prefix(1);
  }
}

}  // namespace

Layout::Layout(std::string_view kind, const std::vector<int64_t>& parameters) : text_(kind) {
  require(is_kind(kind), "layout: the kind must be lower-case letters other than row, got '{}'",
          kind);
  for (size_t i = 0; i < parameters.size(); ++i) {
    require(parameters[i] >= 0, "layout {}: parameters must be 0 or more, got {}", kind,
            parameters[i]);
    text_ += (i == 0 ? "" : "x") + std::to_string(parameters[i]);
  }
}

std::string_view Layout::kind() const {
  if (is_row_major()) return kRow;
  return std::string_view(text_).substr(0, text_.find_first_of(kDigits));
}

std::vector<int64_t> Layout::parameters() const {
  std::vector<int64_t> numbers;
  const std::string_view rest = std::string_view(text_).substr(is_row_major() ? 0 : kind().size());
  if (!rest.empty()) SLUICE_CHECK(read_numbers(rest, numbers));
  return numbers;
}

std::string to_string(const Layout& layout) {
  return layout.is_row_major() ? std::string(kRow) : layout.text_;
}

Layout parse_layout(std::string_view text) {
  if (text == kRow) return {};
  const std::string_view kind = text.substr(0, text.find_first_of(kDigits));
  std::vector<int64_t> parameters;
  const bool good =
      is_kind(kind) && (kind == text || read_numbers(text.substr(kind.size()), parameters));
  const Layout layout = good ? Layout(kind, parameters) : Layout();
  require(good && to_string(layout) == text,
          "layout: must be row or a kind with its numbers, as panels32 or tiles16x8, got '{}'",
          text);
  return layout;
}

}  // namespace sluice
