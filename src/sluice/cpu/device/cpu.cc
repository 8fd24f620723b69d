#include "sluice/cpu/device/cpu.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "sluice/base/sys.h"
#include "sluice/cpu/device/select_kernel.h"
#include "sluice/cpu/device/signature.h"
#include "sluice/cpu/device/team.h"
#include "sluice/cpu/kernels/kernel_list.h"
#include "sluice/cpu/layout/layouts.h"
#include "sluice/cpu/layout/memory.h"
#include "sluice/cpu/simd/isa.h"
#include "sluice/ops/op.h"

namespace sluice::cpu {
namespace {

// A kernel that supports panels of any width supports this width.
constexpr int64_t kAnyPanel = 32;

// Returns whether each task touches the same bytes of operands `a` and `b`.
bool cut_alike(const KernelChoice& choice, int a, int b) {
  const auto cut = [](const std::vector<int64_t>& of, int operand) {
    return of.empty() ? 0 : at(of, operand);
  };
  return choice.tasks == 1 || (cut(choice.task_stride, a) == cut(choice.task_stride, b) &&
                               cut(choice.task_pitch, a) == cut(choice.task_pitch, b));
}

KernelChoice choice_of(const CpuKernel& kernel, const OpView& op) {
  KernelChoice choice = choose_kernel(kernel, op);
  choice.key = kernel.key;
  choice.may_coincide = coinciding_operands(op);
  std::erase_if(choice.may_coincide, [&](const std::pair<int, int>& pair) {
    return !cut_alike(choice, pair.first, op.inputs() + pair.second);
  });
  return choice;
}

class CpuTarget : public Target {
 public:
  std::string kind() const override { return "cpu"; }
  std::string isa() const override { return std::string(to_string(current_isa())); }

  KernelChoice choose(const OpView& op) const override {
    if (const CpuKernel* const kernel = select_kernel(op)) return choice_of(*kernel, op);
    fail(ErrorKind::kUsage, "the cpu has no kernel for {} on {}", op.def().type,
         op.inputs() > 0 ? to_string(op.input(0)) : "no operands");
  }

  bool fuses(const FusedOp& op) const override { return fused_kernel_supports(op); }
  KernelChoice choose_fused(const FusedOp& op) const override { return choose_fused_kernel(op); }

  bool has_layouts(const TensorSpec& spec) const override {
    return may_be_in_panels(spec) || may_be_in_taps(spec);
  }
  int64_t buffer_bytes(const TensorSpec& spec, const Layout& layout) const override {
    return cpu::buffer_bytes(spec, layout);
  }
  bool fuses_in_all_layouts(const FusedOp& op) const override {
    const bool matrix = op.stages.front().spec.shape.rank() == 2;
    return fuses(op.with_layout(matrix ? in_panels(kAnyPanel) : in_taps()));
  }
  Layout preferred_layout(const FusedOp& op, int operand) const override {
    return preferred_fused_layout(op, operand);
  }

  KernelChoice copy(const TensorSpec& spec, const Layout& from, const Layout& to) const override {
    return choose_copy_kernel(spec, from, to);
  }
};

/// Memory of a CPU device, at first zeros.
class CpuMemory {
 public:
  explicit CpuMemory(int64_t bytes)
      : alignment_{static_cast<size_t>(bytes >= sys::kLargePage ? sys::kLargePage : kPage)} {
    try {
      data_ = static_cast<std::byte*>(::operator new[](static_cast<size_t>(bytes), alignment_));
    } catch (const std::bad_alloc&) {
      fail(ErrorKind::kDoesNotFit, "the system refuses {} bytes of device memory", bytes);
    }
    if (bytes >= sys::kLargePage) sys::prefer_large_pages(data_, bytes);
    std::fill_n(data_, bytes, std::byte{0});
  }
  ~CpuMemory() { ::operator delete[](data_, alignment_); }
  CpuMemory(const CpuMemory&) = delete;
  CpuMemory& operator=(const CpuMemory&) = delete;
  std::byte* data() const { return data_; }

 private:
  static constexpr int64_t kPage = 4096;
  std::align_val_t alignment_;
  std::byte* data_ = nullptr;
};

class OpenCpu : public runtime::OpenDevice {
 public:
  runtime::DeviceAddress allocate(int64_t bytes) override {
    return address_of(memory_.emplace_back(std::make_unique<CpuMemory>(bytes))->data());
  }
  void read(runtime::DeviceAddress tensor, const TensorSpec& spec, std::string_view layout,
            int64_t begin, std::span<std::byte> out) override {
    read_elements(spec, parse_layout(layout), pointer_to(tensor), begin, out);
  }
  void write(runtime::DeviceAddress tensor, const TensorSpec& spec, std::string_view layout,
             int64_t begin, std::span<const std::byte> in) override {
    write_elements(spec, parse_layout(layout), pointer_to(tensor), begin, in);
  }
  std::span<std::byte> host_bytes(runtime::DeviceAddress begin, int64_t bytes) override {
    return {pointer_to(begin), pointer_to(begin) + bytes};
  }
  std::unique_ptr<runtime::Strand> strand(runtime::RunState& run, exe::DeviceId device,
                                          int worker) override {
    return make_strand(run, device, worker);
  }

 private:
  std::vector<std::unique_ptr<CpuMemory>> memory_;
};

void run_index(const void*, const runtime::KernelBlock& block, int64_t) {
  const auto value = static_cast<int32_t>(block.scalars[0]);
  std::memcpy(block.operands[0], &value, sizeof value);
}

FusedOp fused_op_of(const exe::Kernel& kernel) {
  FusedOp op;
  for (const exe::Operand& o : kernel.operands) {
    op.operands.push_back(o.spec);
    op.layouts.push_back(parse_layout(o.layout));
    op.inputs += o.access == exe::Access::kRead;
  }
  for (const exe::Stage& stage : kernel.stages) {
    const OpDef* def = ops::find_op(stage.op);
    require(def != nullptr, "executable: there is no operator '{}'", stage.op);
    op.stages.push_back({def, stage.attrs, stage.inputs, stage.output, stage.spec});
  }
  require(!op.stages.empty() && fused_kernel_supports(op),
          "executable: kernel {} does not support {} on these operands", kernel.key, kernel.op);
  return op;
}

/// Returns the kernel with that key, or null if kernel_list() does not contain one.
const CpuKernel* find_kernel(std::string_view key) {
  for (const CpuKernel& k : kernel_list()) {
    if (k.key == key) return &k;
  }
  return nullptr;
}

class CpuDevice : public runtime::Device {
 public:
  std::string kind() const override { return "cpu"; }
  std::unique_ptr<runtime::OpenDevice> open() override { return std::make_unique<OpenCpu>(); }

  runtime::BoundKernel bind(const exe::Kernel& kernel) override {
    const CpuKernel* const listed = find_kernel(kernel.key);
    const bool special =
        kernel.key == "cpu.copy" || kernel.key == "cpu.fused" || kernel.key == "cpu.index";
    require(special || listed != nullptr, "executable: the cpu has no kernel '{}'", kernel.key);
    check_signature(kernel);
    if (kernel.key == "cpu.copy") {
      const TensorSpec& spec = kernel.operands[0].spec;
      const Layout from = parse_layout(kernel.operands[0].layout);
      const Layout to = parse_layout(kernel.operands[1].layout);
      check_choice(kernel, choose_copy_kernel(spec, from, to));
      return bind_copy_kernel(spec, from, to);
    }
    if (kernel.key == "cpu.fused") {
      const FusedOp op = fused_op_of(kernel);
      check_choice(kernel, choose_fused_kernel(op));
      return bind_fused_kernel(op);
    }
    if (kernel.key == "cpu.index") return {run_index, nullptr};
    auto op = std::make_shared<OpRecord>();
    op->def = ops::find_op(kernel.op);
    require(op->def != nullptr, "executable: there is no operator '{}'", kernel.op);
    op->attrs = kernel.attrs;
    for (const exe::Operand& o : kernel.operands) {
      (o.access == exe::Access::kRead ? op->inputs : op->outputs).push_back(o.spec);
    }
    require(can_run(*listed, op->view()),
            "executable: kernel {} does not support {} on these operands", kernel.key, kernel.op);
    check_choice(kernel, choice_of(*listed, op->view()));
    return bind_kernel(*listed, std::move(op));
  }

  runtime::BoundCollective bind(const exe::Collective& collective,
                                const exe::ReplicaGroup& group) override {
    check_signature(collective, group);
    return bind_collective(collective, group);
  }
};

}  // namespace

std::shared_ptr<const Target> make_target() { return std::make_shared<CpuTarget>(); }
std::shared_ptr<runtime::Device> make_device() { return std::make_shared<CpuDevice>(); }

}  // namespace sluice::cpu
