#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "sluice/base/error.h"

namespace sluice {

/// Reads the bytes of an untrusted file from front to back, and never past the end. Every error is
/// Error{kBadFile} naming the file and the byte offset.
class ByteReader {
 public:
  ByteReader(std::string file, std::span<const std::byte> bytes)
      : file_(std::move(file)), bytes_(bytes) {}

  int64_t offset() const { return offset_; }
  int64_t remaining() const { return static_cast<int64_t>(bytes_.size()) - offset_; }

  /// Returns the next `count` bytes and moves past them. `what` names them in errors.
  /// Error{kBadFile} if fewer are left.
  std::span<const std::byte> take(int64_t count, std::string_view what);
  uint8_t u8(std::string_view what);
  uint32_t u32_be(std::string_view what);
  uint32_t u32_le(std::string_view what);
  uint64_t u64_le(std::string_view what);

  /// Throws Error{kBadFile} with the text "<file>: byte <offset>: <message>".
  template <typename... Args>
  [[noreturn]] void bad(fmt::format_string<Args...> format, Args&&... args) const {
    fail(ErrorKind::kBadFile, "{}: byte {}: {}", file_, offset_,
         fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  std::string file_;
  std::span<const std::byte> bytes_;
  int64_t offset_ = 0;
};

/// The contents that a reader accepts.
enum class Contents : uint8_t {
  kBinary,   ///< A binary format with a signature of its own.
  kText,     ///< A table or another text format.
  kAnyText,  ///< Any text, HTML too.
};

/// Whether the bytes begin with the signature of gzip. Source: RFC 1952, section 2.3.1.
bool is_gzip(std::span<const std::byte> head);

/// Throws Error{kBadFile} if `head`, the first bytes of `file`, are the signature of another kind
/// of file. For every reader these are gzip, a Git LFS pointer and, except for kAnyText, an HTML
/// page, which downloads leave under the name of the file. For text they are also the signatures of
/// archives, of binary formats and of UTF-16. The message is "FILE: byte 0: must be `wanted`, got
/// an HTML page; download the file itself".
void refuse_other_kind(std::span<const std::byte> head, const std::string& file, Contents contents,
                       std::string_view wanted);

/// Appends the lowest `bytes` bytes of a number to `out`, the lowest byte first.
inline void put_le(std::string& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i));
}

}  // namespace sluice
