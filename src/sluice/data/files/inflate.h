#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace sluice::data {

/// Returns the checksum CRC-32 of `bytes` appended to bytes with the checksum `before`.
uint32_t crc32_of(std::span<const std::byte> bytes, uint32_t before = 0);

/// Expands a DEFLATE stream piece by piece, so that memory grows only with the bytes that are
/// expanded. Errors are Error{kBadFile} naming the file and the byte offset.
class Inflater {
 public:
  enum class Format : uint8_t {
    kGzip,  ///< One or more members; zero bytes may follow them. Source: RFC 1952, section 2.2.
    kRaw,   ///< Without a header and a checksum, as in a zip archive.
  };
  /// Largest number of bytes that the constructor accepts.
  static constexpr int64_t kMaxInput = 0x7fffffff;
  /// Largest number of bytes that a byte expands to. Source: zlib's technical details (1032:1).
  static constexpr int64_t kMaxExpansion = 1032;

  /// `bytes` are those of `file` from byte `offset` on; both must outlive the object.
  Inflater(std::span<const std::byte> bytes, const std::string& file, Format format,
           int64_t offset = 0);
  ~Inflater();
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  /// Appends the next `count` bytes to `out`, or fewer if the stream ends earlier.
  void append(std::vector<std::byte>& out, int64_t count);
  /// Checks that the stream ends here with a valid checksum, and that the bytes end with it.
  void finish();

 private:
  struct State;

  bool next_member();
  [[noreturn]] void bad(const std::string& message) const;

  std::unique_ptr<State> state_;
};

}  // namespace sluice::data
