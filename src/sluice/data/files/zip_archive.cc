#include "sluice/data/files/zip_archive.h"

#include <algorithm>
#include <limits>
#include <set>

#include "sluice/base/bytes.h"
#include "sluice/base/error.h"
#include "sluice/data/files/inflate.h"

namespace sluice::data {
namespace {

constexpr uint32_t kLocal = 0x04034b50;
constexpr uint32_t kCentral = 0x02014b50;
constexpr uint32_t kEnd = 0x06054b50;
constexpr uint32_t kEnd64 = 0x06064b50;
constexpr uint32_t kLocator64 = 0x07064b50;
constexpr int64_t kLocator64Bytes = 20;
constexpr int64_t kEnd64Bytes = 56;
constexpr uint16_t kExtra64 = 1;  ///< Id of the field of an entry that has its 64-bit values.
constexpr int64_t kLocalBytes = 30;
constexpr int64_t kEndBytes = 22;
constexpr int64_t kMaxComment = 0xffff;
constexpr uint32_t kInZip64 = 0xffffffff;  ///< The value is in a record of ZIP64.
constexpr uint16_t kEncrypted = 1;
constexpr uint16_t kStored = 0;
constexpr uint16_t kDeflated = 8;

uint16_t u16_le(ByteReader& reader, std::string_view what) {
  const auto low = reader.u8(what);
  return static_cast<uint16_t>(low | reader.u8(what) << 8);
}

/// Returns a reader that is at byte `offset`.
ByteReader reader_at(std::span<const std::byte> bytes, const std::string& file, int64_t offset,
                     std::string_view what) {
  ByteReader reader(file, bytes);
  reader.take(offset, what);
  return reader;
}

struct Directory {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t members = 0;
};

/// Reads a u64 that must be at most `limit`.
int64_t u64_up_to(ByteReader& reader, int64_t limit, std::string_view what) {
  const ByteReader here = reader;
  const uint64_t value = reader.u64_le(what);
  if (value > static_cast<uint64_t>(limit)) {
    here.bad("{} must be at most {}, got {}", what, limit, value);
  }
  return static_cast<int64_t>(value);
}

/// Reads the directory's offset from the end record of ZIP64, whose locator ends at byte `end`.
Directory find_directory64(std::span<const std::byte> bytes, const std::string& file, int64_t end) {
  const int64_t at = end - kLocator64Bytes;
  if (at < 0) ByteReader(file, bytes).bad("the locator of ZIP64 must precede the end record");
  ByteReader locator = reader_at(bytes, file, at, "the locator of ZIP64");
  const ByteReader here = locator;
  if (locator.u32_le("the locator of ZIP64") != kLocator64) {
    here.bad("the locator of ZIP64 must begin here");
  }
  locator.take(4, "the disk");
  const int64_t end_record =
      u64_up_to(locator, at - kEnd64Bytes, "the begin of the end record of ZIP64");
  ByteReader reader = reader_at(bytes, file, end_record, "the end record of ZIP64");
  const ByteReader record = reader;
  if (reader.u32_le("the end record of ZIP64") != kEnd64) {
    record.bad("the end record of ZIP64 must begin here");
  }
  reader.take(8 + 4, "the versions");
  const uint64_t disks = reader.u64_le("the disks");
  const uint64_t here_members = reader.u64_le("the number of members");
  const int64_t members = u64_up_to(reader, end_record, "the number of members");
  if (disks != 0 || here_members != static_cast<uint64_t>(members)) {
    record.bad("an archive must be one file");
  }
  const int64_t size = u64_up_to(reader, end_record, "the size of the directory");
  const int64_t begin = u64_up_to(reader, end_record - size, "the begin of the directory");
  return {begin, begin + size, members};
}

/// Finds the end record, which only a comment follows.
Directory find_directory(std::span<const std::byte> bytes, const std::string& file) {
  const auto size = static_cast<int64_t>(bytes.size());
  for (int64_t at = size - kEndBytes; at >= std::max<int64_t>(0, size - kEndBytes - kMaxComment);
       --at) {
    ByteReader reader = reader_at(bytes, file, at, "the end record");
    const ByteReader here = reader;
    if (reader.u32_le("the end record") != kEnd) continue;
    const uint32_t disks = reader.u32_le("the disks");
    const uint16_t here_members = u16_le(reader, "the number of members");
    const uint16_t members = u16_le(reader, "the number of members");
    const uint32_t directory_size = reader.u32_le("the size of the directory");
    const uint32_t begin = reader.u32_le("the begin of the directory");
    if (u16_le(reader, "the size of the comment") != reader.remaining()) continue;
    if (begin == kInZip64 || directory_size == kInZip64 || members == 0xffff) {
      return find_directory64(bytes, file, at);
    }
    if (disks != 0 || here_members != members) here.bad("an archive must be one file");
    if (int64_t{begin} + directory_size > at) {
      here.bad("the central directory must end at byte {} or before, got {} bytes at byte {}", at,
               directory_size, begin);
    }
    return {begin, int64_t{begin} + directory_size, members};
  }
  ByteReader(file, bytes).bad("the file must be a zip archive with a central directory");
}

/// Replaces the values of an entry that are kInZip64 by those of its extra field, in their order.
/// `extra` is at the field, which ends at byte `end`. All values must be at most `limit`, but the
/// size of the expanded bytes.
void read_extra64(ByteReader extra, int64_t end, int64_t limit, ZipMember& member) {
  const auto is_wanted = [](int64_t value) { return value == kInZip64; };
  if (!is_wanted(member.size) && !is_wanted(member.stored_size) && !is_wanted(member.begin)) return;
  const ByteReader here = extra;
  while (extra.offset() < end) {
    const uint16_t id = u16_le(extra, "the id of an extra field");
    const uint16_t bytes = u16_le(extra, "the size of an extra field");
    if (id != kExtra64) {
      extra.take(bytes, "an extra field");
      continue;
    }
    constexpr int64_t kMaxSize = std::numeric_limits<int64_t>::max();
    if (is_wanted(member.size)) member.size = u64_up_to(extra, kMaxSize, "the size");
    if (is_wanted(member.stored_size))
      member.stored_size = u64_up_to(extra, limit, "the stored size");
    if (is_wanted(member.begin)) member.begin = u64_up_to(extra, limit, "the begin");
    if (extra.offset() > end) break;
    return;
  }
  here.bad("a member of 4 GiB must have the extra field of ZIP64");
}

/// Reads an entry of the central directory at byte `limit`. `begin` of the result is that of the
/// local header.
ZipMember read_entry(ByteReader& reader, int64_t limit) {
  const ByteReader here = reader;
  if (reader.u32_le("an entry of the directory") != kCentral) {
    here.bad("an entry of the central directory must begin here");
  }
  reader.take(4, "the versions");
  const uint16_t flags = u16_le(reader, "the flags");
  const uint16_t method = u16_le(reader, "the method");
  reader.take(4, "the time");
  ZipMember member;
  member.crc32 = reader.u32_le("the checksum");
  member.stored_size = reader.u32_le("the stored size");
  member.size = reader.u32_le("the size");
  const uint16_t name = u16_le(reader, "the size of the name");
  const uint16_t extra = u16_le(reader, "the size of the extra field");
  const uint16_t comment = u16_le(reader, "the size of the comment");
  reader.take(8, "the attributes");
  member.begin = reader.u32_le("the begin of the member");
  const auto text = reader.take(name, "the name");
  member.name.assign(reinterpret_cast<const char*>(text.data()), text.size());
  const ByteReader fields = reader;
  reader.take(extra, "the extra field");
  const int64_t fields_end = reader.offset();
  reader.take(comment, "the comment");

  if (std::any_of(text.begin(), text.end(), [](std::byte b) { return b < std::byte{' '}; })) {
    here.bad("the name of a member must not have control characters");
  }
  if ((flags & kEncrypted) != 0) here.bad("a member must not be encrypted");
  if (method != kStored && method != kDeflated) {
    here.bad("a member must be stored (0) or deflated (8), got method {}", method);
  }
  read_extra64(fields, fields_end, limit, member);
  member.is_deflated = method == kDeflated;
  const bool is_possible = member.is_deflated
                               ? member.size / Inflater::kMaxExpansion <= member.stored_size
                               : member.size == member.stored_size;
  if (!is_possible) {
    here.bad("a member of {} bytes cannot hold {} bytes when it is {}", member.stored_size,
             member.size, member.is_deflated ? "deflated" : "stored");
  }
  return member;
}

/// Moves `begin` of a member past its local header, which must match.
void skip_local_header(std::span<const std::byte> bytes, const std::string& file, int64_t end,
                       ZipMember& member) {
  ByteReader reader = reader_at(bytes, file, member.begin, "a local header");
  const ByteReader here = reader;
  if (reader.u32_le("a local header") != kLocal) here.bad("a local header must begin here");
  reader.take(4, "a local header");
  const uint16_t method = u16_le(reader, "the method");
  reader.take(16, "a local header");
  const uint16_t name = u16_le(reader, "the size of the name");
  const uint16_t extra = u16_le(reader, "the size of the extra field");
  const auto text = reader.take(name, "the name");
  const bool same_name =
      std::equal(text.begin(), text.end(), member.name.begin(), member.name.end(),
                 [](std::byte a, char b) { return a == static_cast<std::byte>(b); });
  if (!same_name || method != (member.is_deflated ? kDeflated : kStored)) {
    here.bad("a local header must match its entry in the central directory");
  }
  reader.take(extra, "the extra field");
  member.begin = reader.offset();
  if (member.stored_size > end - member.begin) {
    reader.bad("a member needs {} bytes, {} are left before the central directory",
               member.stored_size, end - member.begin);
  }
}

}  // namespace

std::vector<ZipMember> read_zip(std::span<const std::byte> bytes, const std::string& file) {
  const Directory directory = find_directory(bytes, file);
  ByteReader reader = reader_at({bytes.begin(), bytes.begin() + directory.end}, file,
                                directory.begin, "the central directory");
  std::vector<ZipMember> members;
  std::set<std::string> names;
  int64_t total = 0;
  for (int64_t i = 0; i < directory.members; ++i) {
    const ByteReader here = reader;
    ZipMember& member = members.emplace_back(read_entry(reader, directory.begin));
    if (!names.insert(member.name).second) here.bad("a name must not appear twice");
    total += kLocalBytes + member.stored_size;
    // This refuses members that share bytes: such an archive could expand to more than its size
    // justifies.
    if (total > directory.begin) here.bad("the members must not share bytes");
    skip_local_header(bytes, file, directory.begin, member);
  }
  if (reader.remaining() != 0) {
    reader.bad("{} bytes are left in the central directory", reader.remaining());
  }
  return members;
}

std::vector<std::byte> read_member(std::span<const std::byte> bytes, const std::string& file,
                                   const ZipMember& member) {
  const auto stored =
      reader_at(bytes, file, member.begin, "a member").take(member.stored_size, "a member");
  std::vector<std::byte> plain;
  if (member.is_deflated) {
    Inflater inflater(stored, file, Inflater::Format::kRaw, member.begin);
    inflater.append(plain, member.size);
    inflater.finish();
  } else {
    plain.assign(stored.begin(), stored.end());
  }
  const uint32_t found = crc32_of(plain);
  if (static_cast<int64_t>(plain.size()) != member.size || found != member.crc32) {
    reader_at(bytes, file, member.begin, "a member")
        .bad("a member must have {} bytes with checksum {:#010x}, got {} with {:#010x}",
             member.size, member.crc32, plain.size(), found);
  }
  return plain;
}

}  // namespace sluice::data
