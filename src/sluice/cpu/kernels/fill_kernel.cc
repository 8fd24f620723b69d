#include <cstring>

#include "sluice/cpu/kernels/kernel_list.h"
#include "sluice/ir/builtin.h"

namespace sluice::cpu {
namespace {

// Fills a tensor with `count` copies of one element.
struct Fill {
  HostTensor element;
  int64_t count;
};

void run(const void* state, const runtime::KernelBlock& block, int64_t) {
  const auto& fill = *static_cast<const Fill*>(state);
  const auto element = fill.element.bytes();
  for (int64_t i = 0; i < fill.count; ++i) {
    std::memcpy(block.operands[0] + i * static_cast<int64_t>(element.size()), element.data(),
                element.size());
  }
}

}  // namespace

CpuKernel fill_kernel() {
  return {"cpu.fill", [](const OpView& op) { return &op.def() == &builtin::init(); },
          [](const OpView&) { return KernelChoice{}; },
          [](std::shared_ptr<const OpRecord> op) {
            const auto options = from_attrs<builtin::InitOptions>(op->attrs);
            auto fill = std::make_shared<Fill>();
            fill->element = HostTensor::of<double>({}, f64, {options.value}).cast(options.dtype);
            fill->count = options.shape.elements();
            return runtime::BoundKernel{run, fill};
          }};
}

}  // namespace sluice::cpu
