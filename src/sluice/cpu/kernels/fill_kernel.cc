#include <algorithm>
#include <vector>

#include "sluice/cpu/kernels/kernel_list.h"
#include "sluice/ir/builtin.h"

namespace sluice::cpu {
namespace {

constexpr int64_t kPieceBytes = 4096;  // A multiple of each element's size.

// Fills a tensor with copies of one element, a piece of them at a time.
struct Fill {
  std::vector<std::byte> piece;
  int64_t bytes;  // Bytes of the tensor.
};

void run_fill(const void* state, const runtime::KernelBlock& block, int64_t) {
  const auto& fill = *static_cast<const Fill*>(state);
  for (int64_t at = 0; at < fill.bytes; at += kPieceBytes) {
    const int64_t bytes = std::min(kPieceBytes, fill.bytes - at);
    std::copy_n(fill.piece.data(), bytes, block.operands[0] + at);
  }
}

}  // namespace

CpuKernel fill_kernel() {
  return {"cpu.fill", [](const OpView& op) { return &op.def() == &builtin::init(); },
          [](const OpView&) { return KernelChoice{}; },
          [](std::shared_ptr<const OpRecord> op) {
            const auto options = from_attrs<builtin::InitOptions>(op->attrs);
            auto fill = std::make_shared<Fill>();
            const auto element =
                HostTensor::of<double>({}, f64, {options.value}).cast(options.dtype);
            const auto bytes = element.bytes();
            const auto width = static_cast<int64_t>(bytes.size());
            fill->bytes = options.shape.elements() * width;
            fill->piece.resize(kPieceBytes);
            for (int64_t at = 0; at < kPieceBytes; at += width)
              std::copy(bytes.begin(), bytes.end(), fill->piece.begin() + at);
            return runtime::BoundKernel{run_fill, fill};
          }};
}

}  // namespace sluice::cpu
