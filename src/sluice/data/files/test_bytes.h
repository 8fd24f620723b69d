#pragma once
#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/base/bytes.h"
#include "sluice/base/error.h"

namespace sluice::data::test {

/// The header that numpy.save writes: padded with spaces to a multiple of 64 bytes.
inline std::string npy_header(std::string dictionary, int major = 1) {
  const size_t lengths = major == 1 ? 2 : 4;
  while ((8 + lengths + dictionary.size() + 1) % 64 != 0) dictionary += ' ';
  dictionary += '\n';
  std::string out = "\x93NUMPY";
  put_le(out, static_cast<uint64_t>(major), 2);
  put_le(out, dictionary.size(), static_cast<int>(lengths));
  return out + dictionary;
}

/// An array in C order; `shape` as numpy writes it: "(2, 3)".
inline std::string npy(std::string_view descr, std::string_view shape, std::string_view payload,
                       int major = 1) {
  return npy_header(
             fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': {}, }}", descr, shape),
             major) +
         std::string(payload);
}

template <typename T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

/// A DEFLATE stream: `bits` as of zlib's deflateInit2 (-15: raw, 31: gzip).
inline std::string deflated(const std::string& plain, int bits = -15) {
  z_stream stream{};
  SLUICE_CHECK(deflateInit2(&stream, 9, Z_DEFLATED, bits, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string out(deflateBound(&stream, plain.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(plain.data()));
  stream.avail_in = static_cast<uInt>(plain.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  SLUICE_CHECK(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

/// A member of a zip archive; zip_file() computes the fields that are -1.
struct Member {
  std::string name;
  std::string plain;
  bool is_deflated = false;
  int64_t size = -1;
  int64_t stored_size = -1;
  int64_t begin = -1;
  uint16_t flags = 0;
  int method = -1;
};

/// Whether the central directory of an archive has the records of ZIP64, as streaming writers add
/// them for small files too.
enum class Zip64 { kNo, kYes };

/// An archive as numpy.savez writes it: sizes of local headers are in a zip64 extra field.
inline std::string zip_file(const std::vector<Member>& members, const std::string& comment = "",
                            Zip64 zip64 = Zip64::kNo) {
  const bool is_64 = zip64 == Zip64::kYes;
  std::string out;
  std::string directory;
  for (const Member& m : members) {
    const std::string stored = m.is_deflated ? deflated(m.plain) : m.plain;
    const auto crc = static_cast<uint32_t>(::crc32(
        0, reinterpret_cast<const Bytef*>(m.plain.data()), static_cast<uInt>(m.plain.size())));
    const auto or_else = [](int64_t value, size_t usual) {
      return value >= 0 ? static_cast<uint64_t>(value) : usual;
    };
    const uint64_t method = or_else(m.method, m.is_deflated ? 8 : 0);
    const size_t begin = out.size();
    put_le(out, 0x04034b50, 4);
    put_le(out, 45, 2);
    put_le(out, m.flags, 2);
    put_le(out, method, 2);
    put_le(out, 0, 4);
    put_le(out, crc, 4);
    put_le(out, 0xffffffff, 4);
    put_le(out, 0xffffffff, 4);
    put_le(out, m.name.size(), 2);
    put_le(out, 20, 2);
    out += m.name;
    put_le(out, 1, 2);
    put_le(out, 16, 2);
    put_le(out, m.plain.size(), 8);
    put_le(out, stored.size(), 8);
    out += stored;

    put_le(directory, 0x02014b50, 4);
    put_le(directory, 0x002d002d, 4);
    put_le(directory, m.flags, 2);
    put_le(directory, method, 2);
    put_le(directory, 0, 4);
    put_le(directory, crc, 4);
    const uint64_t values[] = {or_else(m.size, m.plain.size()),
                               or_else(m.stored_size, stored.size()), or_else(m.begin, begin)};
    put_le(directory, is_64 ? 0xffffffff : values[1], 4);
    put_le(directory, is_64 ? 0xffffffff : values[0], 4);
    put_le(directory, m.name.size(), 2);
    put_le(directory, is_64 ? 33 : 0, 2);
    put_le(directory, 0, 4);
    put_le(directory, 0, 2);
    put_le(directory, 0, 4);
    put_le(directory, is_64 ? 0xffffffff : values[2], 4);
    directory += m.name;
    if (!is_64) continue;
    put_le(directory, 0x5455, 2);  // Another extra field comes first.
    put_le(directory, 1, 2);
    directory += 'x';
    put_le(directory, 1, 2);
    put_le(directory, 24, 2);
    for (const uint64_t value : values) put_le(directory, value, 8);
  }
  const size_t begin = out.size();
  out += directory;
  if (is_64) {
    const size_t end = out.size();
    put_le(out, 0x06064b50, 4);
    put_le(out, 44, 8);
    put_le(out, 0x002d002d, 4);
    put_le(out, 0, 8);
    for (const size_t value : {members.size(), members.size(), directory.size(), begin})
      put_le(out, value, 8);
    put_le(out, 0x07064b50, 4);
    put_le(out, 0, 4);
    put_le(out, end, 8);
    put_le(out, 1, 4);
  }
  put_le(out, 0x06054b50, 4);
  put_le(out, 0, 4);
  put_le(out, is_64 ? 0xffff : members.size(), 2);
  put_le(out, is_64 ? 0xffff : members.size(), 2);
  put_le(out, is_64 ? 0xffffffff : directory.size(), 4);
  put_le(out, is_64 ? 0xffffffff : begin, 4);
  put_le(out, comment.size(), 2);
  return out + comment;
}

/// An IDX file of bytes.
inline std::string idx(const std::vector<uint32_t>& dims, std::string_view payload) {
  std::string out("\0\0\x08", 3);
  out += static_cast<char>(dims.size());
  for (const uint32_t dim : dims) {
    for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(dim >> shift);
  }
  return out + std::string(payload);
}

}  // namespace sluice::data::test
