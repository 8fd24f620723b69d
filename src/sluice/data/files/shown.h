#pragma once
#include <string>
#include <string_view>

namespace sluice::data {

/// Returns text from a file for a message: without control characters.
inline std::string printable(std::string_view text) {
  std::string out;
  for (const char c : text) out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  return out;
}

/// Quotes text from a file for a message: at most 40 bytes, without control characters.
inline std::string shown(std::string_view text) {
  return "'" + printable(text.substr(0, 40)) + (text.size() > 40 ? "...'" : "'");
}

}  // namespace sluice::data
