#include "sluice/check/tensor_bytes.h"

#include <fmt/format.h>

#include "sluice/check/saturating.h"

namespace sluice::check {

std::string wrong_bytes(int64_t bytes, const TensorSpec& spec, std::string_view layout) {
  const bool row = layout == "row";
  int64_t elements = size_of(spec.dtype);
  for (const int64_t d : spec.shape.dims()) elements = saturating_product(elements, d);
  if (row ? bytes == elements : bytes >= elements) return {};
  return fmt::format("must have {}{} bytes for {} '{}', got {}", row ? "" : "at least ", elements,
                     to_string(spec), layout, bytes);
}

}  // namespace sluice::check
