#include "sluice/base/bytes.h"

#include <algorithm>

namespace sluice {
namespace {

using std::string_view_literals::operator""sv;

constexpr std::string_view kGzip = "\x1f\x8b"sv;
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf"sv;

struct Signature {
  std::string_view bytes;
  std::string_view kind;
  std::string_view remedy;
  bool is_never_right = false;  ///< Wrong for binary readers too.
};

constexpr Signature kSignatures[] = {
    {"version https://git-lfs.github.com/spec/"sv, "a Git LFS pointer",
     "fetch the file itself with git lfs pull", true},
    {"PK\x03\x04"sv, "a ZIP archive or a spreadsheet", "extract it, or export it as CSV"},
    {"PK\x05\x06"sv, "a ZIP archive", "extract it"},
    {"\x93NUMPY"sv, "a NumPy array", "use npz:FILE"},
    {"\xd0\xcf\x11\xe0"sv, "an Office document", "export it as CSV"},
    {"PAR1"sv, "a Parquet file", "export it as CSV"},
    {"ARROW1"sv, "an Arrow file", "export it as CSV"},
    {"SQLite format 3"sv, "an SQLite database", "export it as CSV"},
    {"%PDF"sv, "a PDF document", "export it as CSV"},
    {"\xfd"
     "7zXZ"sv,
     "an XZ file", "extract it"},
    {"BZh"sv, "a bzip2 file", "extract it"},
    {"\x28\xb5\x2f\xfd"sv, "a Zstandard file", "extract it"},
    {"7z\xbc\xaf"sv, "a 7-Zip archive", "extract it"},
    {kGzip, "a gzip file", "extract it with gunzip", true},
    {"\xff\xfe"sv, "UTF-16 text", "save it as UTF-8"},
    {"\xfe\xff"sv, "UTF-16 text", "save it as UTF-8"},
};

bool starts_like(std::string_view text, std::string_view lower_case) {
  return text.size() >= lower_case.size() &&
         std::equal(lower_case.begin(), lower_case.end(), text.begin(), [](char a, char b) {
           return a == (b >= 'A' && b <= 'Z' ? static_cast<char>(b - 'A' + 'a') : b);
         });
}

bool is_html(std::string_view text) {
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  return starts_like(text, "<!doctype html") || starts_like(text, "<html");
}

}  // namespace

std::span<const std::byte> ByteReader::take(int64_t count, std::string_view what) {
  if (count < 0 || count > remaining()) {
    bad("{} needs {} bytes, {} are left in the file", what, count, remaining());
  }
  const auto begin = bytes_.begin() + offset_;
  offset_ += count;
  return {begin, begin + count};
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

bool is_gzip(std::span<const std::byte> head) {
  const std::string_view text(reinterpret_cast<const char*>(head.data()), head.size());
  return text.starts_with(kGzip);
}

void refuse_other_kind(std::span<const std::byte> head, const std::string& file, Contents contents,
                       std::string_view wanted) {
  const std::string_view text(reinterpret_cast<const char*>(head.data()), head.size());
  for (const Signature& s : kSignatures) {
    if (!text.starts_with(s.bytes) || (contents == Contents::kBinary && !s.is_never_right))
      continue;
    fail(ErrorKind::kBadFile, "{}: byte 0: must be {}, got {}; {}", file, wanted, s.kind, s.remedy);
  }
  if (contents != Contents::kAnyText && is_html(text.substr(0, 4096))) {
    fail(ErrorKind::kBadFile,
         "{}: byte 0: must be {}, got an HTML page; download the file itself (its raw link)", file,
         wanted);
  }
}

}  // namespace sluice
