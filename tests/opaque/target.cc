#include "target.h"

#include "memory.h"
#include "sluice/base/error.h"
#include "sluice/cpu/device/cpu.h"
#include "sluice/cpu/kernels/kernel_list.h"
#include "sluice/cpu/layout/layouts.h"
#include "sluice/runtime/queued/meeting.h"

namespace sluice::opaque {
namespace {

constexpr std::string_view kKeys = "opaque.";
constexpr std::string_view kCpuKeys = "cpu.";
// The compiler itself chooses this kernel, without a workspace.
constexpr std::string_view kIndex = "opaque.index";

constexpr std::string_view kStrips = "strips";
constexpr std::string_view kPlanes = "planes";

FusedOp to_cpu(FusedOp op) {
  for (Layout& layout : op.layouts) layout = opaque::to_cpu(layout);
  return op;
}

KernelChoice from_cpu(KernelChoice choice) {
  choice.key = std::string(kKeys) + choice.key.substr(kCpuKeys.size());
  choice.workspace_bytes += kCanaryBytes;
  return choice;
}

class OpaqueTarget : public Target {
 public:
  std::string kind() const override { return "opaque"; }
  std::string isa() const override { return cpu_->isa(); }
  int64_t alignment() const override { return kAlignment; }
  bool is_queued() const override { return true; }

  KernelChoice choose(const OpView& op) const override { return from_cpu(cpu_->choose(op)); }
  bool fuses(const FusedOp& op) const override { return cpu_->fuses(to_cpu(op)); }
  KernelChoice choose_fused(const FusedOp& op) const override {
    return from_cpu(cpu_->choose_fused(to_cpu(op)));
  }
  bool has_layouts(const TensorSpec& spec) const override { return cpu_->has_layouts(spec); }
  int64_t buffer_bytes(const TensorSpec& spec, const Layout& layout) const override {
    return cpu_->buffer_bytes(spec, opaque::to_cpu(layout));
  }
  bool fuses_in_all_layouts(const FusedOp& op) const override {
    return cpu_->fuses_in_all_layouts(to_cpu(op));
  }
  Layout preferred_layout(const FusedOp& op, int operand) const override {
    return opaque::from_cpu(cpu_->preferred_layout(to_cpu(op), operand));
  }
  int64_t collective_workspace(const OpView& op, int32_t members) const override {
    exe::Collective collective;
    collective.op = op.def().type;
    collective.attrs = op.attrs();
    collective.operands.resize(2);
    collective.operands[0].spec = op.input(0);
    collective.operands[1].spec = op.output(0);
    return runtime::room_bytes(cpu::bind_collective(collective, {1, members}), members);
  }
  KernelChoice copy(const TensorSpec& spec, const Layout& from, const Layout& to) const override {
    return from_cpu(cpu_->copy(spec, opaque::to_cpu(from), opaque::to_cpu(to)));
  }

 private:
  std::shared_ptr<const Target> cpu_ = cpu::make_target();
};

}  // namespace

std::shared_ptr<const Target> make_target() { return std::make_shared<OpaqueTarget>(); }

Layout to_cpu(const Layout& layout) {
  if (layout.is_row_major()) return {};
  if (layout == Layout(kPlanes, {})) return cpu::in_taps();
  require(layout.kind() == kStrips && layout.parameters().size() == 1,
          "layout: must be row, planes or strips with a width on an opaque device, got '{}'",
          to_string(layout));
  return cpu::in_panels(layout.parameters()[0]);
}

Layout from_cpu(const Layout& layout) {
  if (layout == cpu::in_taps()) return Layout(kPlanes, {});
  const int64_t width = cpu::panel_width(layout);
  return width == 0 ? Layout() : Layout(kStrips, {width});
}

std::string to_cpu(std::string_view layout) { return to_string(to_cpu(parse_layout(layout))); }

int64_t canary_bytes(const exe::Kernel& kernel) { return kernel.key == kIndex ? 0 : kCanaryBytes; }

exe::Kernel to_cpu(const exe::Kernel& kernel) {
  require(kernel.key.starts_with(kKeys), "executable: an opaque device has no kernel '{}'",
          kernel.key);
  exe::Kernel translated = kernel;
  translated.key = std::string(kCpuKeys) + kernel.key.substr(kKeys.size());
  translated.workspace_bytes -= canary_bytes(kernel);
  for (exe::Operand& o : translated.operands) o.layout = to_cpu(o.layout);
  return translated;
}

}  // namespace sluice::opaque
