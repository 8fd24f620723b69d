#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <deque>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "sluice/base/bytes.h"
#include "sluice/base/sys.h"
#include "sluice/data/dataset.h"
#include "sluice/data/files/inflate.h"
#include "sluice/data/files/npy.h"
#include "sluice/data/files/utf8.h"

namespace sluice::data {
namespace {

static_assert(std::endian::native == std::endian::little, "the arrays are little-endian");

constexpr int64_t kMaxBytes = 0xffffffff;  // Larger archives need the records of zip64.
constexpr size_t kMaxMembers = 0xffff - 1;

/// A member of the archive in front of the bytes of its array.
struct Member {
  std::string name;
  std::string header;  ///< Spec of the array.
  std::span<const std::byte> bytes;
  uint32_t crc32 = 0;
  int64_t size = 0;
};

/// Appends what the local header and the entry of the central directory have in common.
void put_description(std::string& out, const Member& m) {
  put_le(out, 20, 2);    // The version that a reader needs: 2.0.
  put_le(out, 0, 2);     // Flags.
  put_le(out, 0, 2);     // Stored.
  put_le(out, 0, 2);     // Midnight
  put_le(out, 0x21, 2);  // of January 1, 1980, so that equal arrays produce equal bytes.
  put_le(out, m.crc32, 4);
  put_le(out, static_cast<uint64_t>(m.size), 4);
  put_le(out, static_cast<uint64_t>(m.size), 4);
  put_le(out, m.name.size(), 2);
  put_le(out, 0, 2);  // Bytes of the extra field.
}

std::string local_header(const Member& m) {
  std::string out;
  put_le(out, 0x04034b50, 4);
  put_description(out, m);
  return out + m.name;
}

std::string directory_entry(const Member& m, int64_t begin) {
  std::string out;
  put_le(out, 0x02014b50, 4);
  put_le(out, 20, 2);  // The version of the writer.
  put_description(out, m);
  put_le(out, 0, 2);  // Bytes of the comment.
  put_le(out, 0, 2);  // The disk.
  put_le(out, 0, 2);  // Attributes.
  put_le(out, 0, 4);
  put_le(out, static_cast<uint64_t>(begin), 4);
  return out + m.name;
}

std::string end_record(size_t members, int64_t begin, int64_t size) {
  std::string out;
  put_le(out, 0x06054b50, 4);
  put_le(out, 0, 4);  // The disks.
  put_le(out, members, 2);
  put_le(out, members, 2);
  put_le(out, static_cast<uint64_t>(size), 4);
  put_le(out, static_cast<uint64_t>(begin), 4);
  put_le(out, 0, 2);  // Bytes of the comment.
  return out;
}

Member member_of(const std::string& name, std::string header, std::span<const std::byte> bytes) {
  Member m{.name = name + ".npy", .header = std::move(header), .bytes = bytes};
  m.crc32 = crc32_of(bytes, crc32_of(std::as_bytes(std::span(m.header))));
  m.size = static_cast<int64_t>(m.header.size() + bytes.size());
  return m;
}

/// Texts as NumPy's dtype <U stores them: code points of 32 bits, each text padded with zeros.
struct Characters {
  std::string header;
  std::vector<std::byte> bytes;
};

Characters characters_of(const std::vector<std::string>& texts) {
  std::vector<std::u32string> all;
  size_t width = 1;
  for (const std::string& text : texts) {
    all.push_back(code_points(text));
    width = std::max(width, all.back().size());
  }
  Characters c{
      .header = npy_header(fmt::format("<U{}", width), Shape{static_cast<int64_t>(texts.size())})};
  for (std::u32string& text : all) {
    text.resize(width);
    const auto bytes = std::as_bytes(std::span(text));
    c.bytes.insert(c.bytes.end(), bytes.begin(), bytes.end());
  }
  return c;
}

void check(const std::string& path, std::span<const NamedArray> arrays,
           std::span<const NamedTexts> texts) {
  require(arrays.size() <= kMaxMembers, "{}: must have at most {} arrays, got {}", path,
          kMaxMembers, arrays.size());
  std::set<std::string> names;
  int64_t bytes = 0;
  for (const NamedArray& a : arrays) {
    require(!a.name.empty() && a.name.size() <= kMaxMembers && names.insert(a.name).second,
            "{}: arrays must have different names, got '{}'{}", path, a.name,
            names.contains(a.name) ? " twice" : "");
    constexpr int64_t kMaxHeader = 1024;  // Local header, header of the array, directory's entry.
    bytes += static_cast<int64_t>(a.array.bytes().size() + 2 * a.name.size()) + kMaxHeader;
  }
  for (const NamedTexts& t : texts) {
    require(!t.name.empty() && names.insert(t.name).second,
            "{}: arrays must have different names, got '{}'", path, t.name);
    for (const std::string& text : t.texts) bytes += static_cast<int64_t>(4 * text.size());
  }
  require(bytes < kMaxBytes,
          "{}: must have less than 4 GiB, got about {} bytes; write fewer arrays", path, bytes);
}

}  // namespace

void write_npz(const std::string& path, std::span<const NamedArray> arrays,
               std::span<const NamedTexts> texts) {
  check(path, arrays, texts);
  std::vector<Member> members;
  for (const NamedArray& a : arrays)
    members.push_back(member_of(a.name, npy_header(a.array.spec()), a.array.bytes()));
  std::deque<Characters> characters;
  for (const NamedTexts& t : texts) {
    const Characters& c = characters.emplace_back(characters_of(t.texts));
    members.push_back(member_of(t.name, c.header, c.bytes));
  }
  sys::replace_file(path, [&](const sys::File& file, const std::string& name) {
    int64_t at = 0;
    const auto write = [&](std::span<const std::byte> bytes) {
      sys::write_exactly(file, name, at, bytes);
      at += static_cast<int64_t>(bytes.size());
    };
    std::string directory;
    for (const Member& m : members) {
      directory += directory_entry(m, at);
      const std::string local = local_header(m);
      write(std::as_bytes(std::span(local)));
      write(std::as_bytes(std::span(m.header)));
      write(m.bytes);
    }
    const int64_t begin = at;
    const std::string end =
        end_record(members.size(), begin, static_cast<int64_t>(directory.size()));
    write(std::as_bytes(std::span(directory)));
    write(std::as_bytes(std::span(end)));
  });
}

}  // namespace sluice::data
