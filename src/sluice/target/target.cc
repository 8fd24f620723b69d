#include "sluice/target/target.h"

namespace sluice {

KernelChoice Target::choose_fused(const FusedOp&) const {
  fail(ErrorKind::kInternal, "target {}: has no fused kernels", kind());
}

int64_t Target::buffer_bytes(const TensorSpec& spec, const Layout& layout) const {
  require(layout.is_row_major(), "layout: must be row on a {}, got '{}'", kind(),
          to_string(layout));
  return spec.bytes();
}

std::vector<std::pair<int, int>> coinciding_operands(const OpView& op) {
  std::vector<std::pair<int, int>> pairs;
  for (const auto& [in, out] : op.def().may_coincide) {
    if (in >= op.inputs() || out >= op.outputs()) continue;
    const TensorSpec& a = op.input(in);
    const TensorSpec& b = op.output(out);
    if (a.shape.elements() == b.shape.elements() && size_of(a.dtype) == size_of(b.dtype))
      pairs.emplace_back(in, out);
  }
  return pairs;
}

}  // namespace sluice
