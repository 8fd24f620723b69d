#include "sluice/data/window/narrow.h"

#include <cstring>

#include "sluice/base/error.h"

namespace sluice::data {
namespace {

template <typename To, typename From>
void convert(DType to, std::span<const std::byte> bytes, int64_t first, std::byte* out,
             const std::string& file) {
  for (size_t i = 0; i < bytes.size() / sizeof(From); ++i) {
    From value;
    std::memcpy(&value, bytes.data() + i * sizeof(From), sizeof(From));
    if (!can_store(to, static_cast<double>(value))) {
      fail(ErrorKind::kBadFile, "{}: element {} must be {}, got {}", file,
           first + static_cast<int64_t>(i), taken_by(to), value);
    }
    const To stored = static_cast<To>(value);
    std::memcpy(out + i * sizeof(To), &stored, sizeof(To));
  }
}

}  // namespace

void narrow(DType stored, std::span<const std::byte> bytes, int64_t first, std::byte* out,
            const std::string& file) {
  if (stored == f64) {
    convert<float, double>(f32, bytes, first, out, file);
  } else {
    SLUICE_CHECK(stored == i64);
    convert<int32_t, int64_t>(i32, bytes, first, out, file);
  }
}

HostTensor narrowed(HostTensor array, const std::string& file) {
  if (array.dtype() != f64 && array.dtype() != i64) return array;
  HostTensor out({array.shape(), array.dtype() == f64 ? f32 : i32, {}});
  narrow(array.dtype(), array.bytes(), 0, out.bytes().data(), file);
  return out;
}

}  // namespace sluice::data
