#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace sluice {

/// Returns the XXH3-64 hash of the bytes of `text`.
uint64_t hash64(std::string_view text);

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
