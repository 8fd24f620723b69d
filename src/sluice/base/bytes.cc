#include "sluice/base/bytes.h"

namespace sluice {

std::span<const std::byte> ByteReader::take(int64_t count, std::string_view what) {
  if (count < 0 || count > remaining()) {
    bad("{} needs {} bytes, {} are left in the file", what, count, remaining());
  }
  const auto part = bytes_.subspan(static_cast<size_t>(offset_), static_cast<size_t>(count));
  offset_ += count;
  return part;
}

uint8_t ByteReader::u8(std::string_view what) { return static_cast<uint8_t>(take(1, what)[0]); }

uint32_t ByteReader::u32_be(std::string_view what) {
  uint32_t value = 0;
  for (const std::byte b : take(4, what)) value = (value << 8) | static_cast<uint32_t>(b);
  return value;
}

uint32_t ByteReader::u32_le(std::string_view what) {
  const auto part = take(4, what);
  uint32_t value = 0;
  for (size_t i = 4; i-- > 0;) value = (value << 8) | static_cast<uint32_t>(part[i]);
  return value;
}

uint64_t ByteReader::u64_le(std::string_view what) {
  const uint64_t low = u32_le(what);
  return low | (static_cast<uint64_t>(u32_le(what)) << 32);
}

}  // namespace sluice
