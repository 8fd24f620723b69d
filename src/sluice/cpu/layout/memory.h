#pragma once
#include <cstddef>
#include <cstdint>

#include "sluice/runtime/device_address.h"

namespace sluice::cpu {

/// The memory of a CPU device is memory of this process, and its device addresses are pointers.
inline std::byte* pointer_to(runtime::DeviceAddress at) {
  return reinterpret_cast<std::byte*>(at.in_device());
}
inline runtime::DeviceAddress address_of(const std::byte* memory) {
  return runtime::DeviceAddress::of_device(reinterpret_cast<uintptr_t>(memory));
}

}  // namespace sluice::cpu
