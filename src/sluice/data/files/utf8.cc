#include "sluice/data/files/utf8.h"

namespace sluice::data {

size_t character_size(std::string_view text) {
  const auto byte = [&](size_t i) -> unsigned {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0;
  };
  const auto continues = [&](size_t i) { return (byte(i) & 0xc0u) == 0x80u; };
  const unsigned first = byte(0);
  const unsigned second = byte(1);
  if (first < 0x80) return 1;
  if (first < 0xc2 || first > 0xf4 || !continues(1)) return 0;
  if (first < 0xe0) return 2;
  if (first < 0xf0) {
    const bool is_overlong = first == 0xe0 && second < 0xa0;
    const bool is_surrogate = first == 0xed && second >= 0xa0;
    return continues(2) && !is_overlong && !is_surrogate ? 3 : 0;
  }
  const bool is_overlong = first == 0xf0 && second < 0x90;
  const bool is_too_large = first == 0xf4 && second >= 0x90;
  return continues(2) && continues(3) && !is_overlong && !is_too_large ? 4 : 0;
}

std::u32string code_points(std::string_view text) {
  std::u32string points;
  while (!text.empty()) {
    const size_t size = character_size(text);
    constexpr unsigned kLeadBits[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    char32_t point = size == 0 ? 0xfffd : static_cast<unsigned char>(text[0]) & kLeadBits[size];
    for (size_t i = 1; i < size; ++i)
      point = point << 6 | (static_cast<unsigned char>(text[i]) & 0x3fu);
    points += point;
    text.remove_prefix(size == 0 ? 1 : size);
  }
  return points;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t size = character_size(text);
    if (size == 0) return false;
    text.remove_prefix(size);
  }
  return true;
}

}  // namespace sluice::data
