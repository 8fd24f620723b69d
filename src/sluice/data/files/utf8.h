#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace sluice::data {

/// Returns the bytes of the character in UTF-8 that `text` begins with, 0 if it is not one.
/// Source: RFC 3629, section 4.
size_t character_size(std::string_view text);

/// Returns the code points of a text in UTF-8. Bytes that are not UTF-8 become U+FFFD.
std::u32string code_points(std::string_view text);

/// Whether `text` is UTF-8.
bool is_utf8(std::string_view text);

}  // namespace sluice::data
