#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace sluice::data {

/// A file in a zip archive.
struct ZipMember {
  std::string name;
  bool is_deflated = false;
  uint32_t crc32 = 0;
  int64_t begin = 0;        ///< Byte offset of its bytes in the archive.
  int64_t stored_size = 0;  ///< Bytes in the archive.
  int64_t size = 0;         ///< Bytes after they are expanded.
};

// Format: for each member a local header and its bytes, then the central directory, then its end
// record. Source: PKWARE, APPNOTE.TXT, section 4.3.
//
// The readers accept members that are stored or deflated, in one archive, with or without the
// records of ZIP64 (section 4.3.14 and 4.5.3). Anything else is Error{kBadFile} naming `file` and
// the byte offset: encrypted members, members that share bytes, names that appear twice, sizes and
// headers that do not match.

/// Reads the central directory. The members are in its order.
std::vector<ZipMember> read_zip(std::span<const std::byte> bytes, const std::string& file);

/// Returns the expanded bytes of a member of read_zip(bytes, file), and verifies their checksum.
std::vector<std::byte> read_member(std::span<const std::byte> bytes, const std::string& file,
                                   const ZipMember& member);

}  // namespace sluice::data
