#pragma once
#include <compare>
#include <cstdint>
#include <type_traits>

namespace sluice::runtime {

/// An address in the memory of a device: a number that the host cannot dereference. Everyone may
/// add offsets to it. Only the folder of its device knows what the number means.
class DeviceAddress {
 public:
  constexpr DeviceAddress() = default;
  /// Returns the address that the device of this folder assigns to its own memory.
  static constexpr DeviceAddress of_device(uint64_t number) { return DeviceAddress(number); }
  /// Returns the number of of_device(), for the same folder.
  constexpr uint64_t in_device() const { return number_; }

  constexpr DeviceAddress operator+(int64_t bytes) const {
    return DeviceAddress(number_ + static_cast<uint64_t>(bytes));
  }
  constexpr DeviceAddress operator-(int64_t bytes) const { return *this + -bytes; }
  constexpr auto operator<=>(const DeviceAddress&) const = default;

 private:
  constexpr explicit DeviceAddress(uint64_t number) : number_(number) {}
  uint64_t number_ = 0;
};

static_assert(!std::is_convertible_v<DeviceAddress, const void*> &&
              !std::is_constructible_v<const void*, DeviceAddress>);

}  // namespace sluice::runtime
