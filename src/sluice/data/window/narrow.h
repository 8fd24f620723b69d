#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "sluice/base/host_tensor.h"

namespace sluice::data {

/// Returns f64 as f32 and i64 as i32, and any other array as it is. Error{kBadFile} naming `file`
/// and the element if a value does not fit.
HostTensor narrowed(HostTensor array, const std::string& file);

/// Converts stored f64 to f32, or i64 to i32, into `out`. `first` is the index of the first element
/// in its array. Errors as above.
void narrow(DType stored, std::span<const std::byte> bytes, int64_t first, std::byte* out,
            const std::string& file);

}  // namespace sluice::data
