#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace sluice {

/// Returns the XXH3-64 hash of the bytes of `text`.
uint64_t hash64(std::string_view text);

/// An XXH3-128 hash.
struct Hash128 {
  uint64_t high = 0;
  uint64_t low = 0;

  /// Returns 32 hexadecimal digits.
  std::string hex() const;
  /// Reads these digits; nothing for another text.
  static std::optional<Hash128> parse(std::string_view hex);
  bool operator==(const Hash128&) const = default;
};

/// Returns the XXH3-128 hash of bytes, as Digest does.
Hash128 hash128(std::span<const std::byte> bytes);

/// Computes the XXH3-128 hash of bytes added in parts; `--digest` prints it.
class Digest {
 public:
  Digest();
  ~Digest();
  Digest(Digest&&) noexcept;
  Digest& operator=(Digest&&) noexcept;

  void add(std::span<const std::byte> bytes);
  /// The hash of all bytes added so far, as 32 hexadecimal digits.
  std::string hex() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace sluice
