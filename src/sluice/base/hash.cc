#include "sluice/base/hash.h"

#define XXH_INLINE_ALL
#include <fmt/core.h>
#include <xxhash.h>

#include <charconv>
#include <system_error>

namespace sluice {

uint64_t hash64(std::string_view text) { return XXH3_64bits(text.data(), text.size()); }

std::string Hash128::hex() const { return fmt::format("{:016x}{:016x}", high, low); }

std::optional<Hash128> Hash128::parse(std::string_view hex) {
  Hash128 hash;
  if (hex.size() != 32) return std::nullopt;
  for (uint64_t* const word : {&hash.high, &hash.low}) {
    const char* const end = hex.data() + 16;
    const auto [stop, error] = std::from_chars(hex.data(), end, *word, 16);
    if (error != std::errc() || stop != end) return std::nullopt;
    hex.remove_prefix(16);
  }
  return hash;
}

Hash128 hash128(std::span<const std::byte> bytes) {
  const XXH128_hash_t h = XXH3_128bits(bytes.data(), bytes.size());
  return {h.high64, h.low64};
}

struct Digest::State {
  XXH3_state_t xxh;
};

Digest::Digest() : state_(std::make_unique<State>()) { XXH3_128bits_reset(&state_->xxh); }
Digest::~Digest() = default;
Digest::Digest(Digest&&) noexcept = default;
Digest& Digest::operator=(Digest&&) noexcept = default;

void Digest::add(std::span<const std::byte> bytes) {
  XXH3_128bits_update(&state_->xxh, bytes.data(), bytes.size());
}

std::string Digest::hex() const {
  const XXH128_hash_t h = XXH3_128bits_digest(&state_->xxh);
  return Hash128{h.high64, h.low64}.hex();
}

}  // namespace sluice
