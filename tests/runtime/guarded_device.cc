#include "guarded_device.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "sluice/base/error.h"
#include "sluice/cpu/device/cpu.h"

namespace sluice::test {
namespace {

// Bytes between two pages without access. They end as close to the second page as alignment allows.
class Guarded {
 public:
  explicit Guarded(int64_t bytes) : bytes_(static_cast<size_t>(bytes)) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    // Aligned to 8 bytes, not 64, so that the last byte is close to the guard page. Kernels must
    // support this.
    const size_t padded = (bytes_ + 7) / 8 * 8;
    inner_ = std::max<size_t>((padded + page - 1) / page * page, page);
    mapped_ = inner_ + 2 * page;
    void* p = mmap(nullptr, mapped_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    SLUICE_CHECK(p != MAP_FAILED);
    base_ = static_cast<std::byte*>(p) + page;
    data_ = base_ + inner_ - padded;
    allow(PROT_READ | PROT_WRITE);
  }
  ~Guarded() { munmap(base_ - (mapped_ - inner_) / 2, mapped_); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  std::byte* data() { return data_; }
  size_t size() const { return bytes_; }
  void allow(int protection) { SLUICE_CHECK(mprotect(base_, inner_, protection) == 0); }

 private:
  size_t bytes_;
  size_t inner_ = 0;
  size_t mapped_ = 0;
  std::byte* base_ = nullptr;
  std::byte* data_ = nullptr;
};

struct GuardedKernel {
  exe::Kernel kernel;
  runtime::BoundKernel inner;
  std::shared_ptr<int64_t> tasks;
  mutable std::vector<std::unique_ptr<Guarded>> operands;
  mutable std::unique_ptr<Guarded> workspace;
};

bool is_read(const exe::Operand& o) { return o.access == exe::Access::kRead; }

void run(const void* state, const runtime::KernelBlock& block, int64_t task) {
  const auto& g = *static_cast<const GuardedKernel*>(state);
  ++*g.tasks;
  const auto& plan = g.kernel.operands;
  std::vector<std::byte*> addresses(plan.size());
  std::vector<size_t> alias_of(plan.size());
  for (size_t i = 0; i < plan.size(); ++i) {
    // Operands that coincide share one writable copy.
    alias_of[i] = i;
    for (size_t j = 0; j < plan.size(); ++j) {
      if (j != i && !is_read(plan[j]) && block.operands[j] == block.operands[i] &&
          plan[i].bytes > 0)
        alias_of[i] = j;
    }
  }
  for (size_t i = 0; i < plan.size(); ++i) {
    Guarded& copy = *g.operands[i];
    copy.allow(PROT_READ | PROT_WRITE);
    const bool update = std::find(alias_of.begin(), alias_of.end(), i) != alias_of.end() &&
                        alias_of[i] == i && std::count(alias_of.begin(), alias_of.end(), i) > 1;
    if (!is_read(plan[i]) && !update && task == 0)
      std::memset(block.operands[i], 0xff, copy.size());
    std::memcpy(copy.data(), block.operands[i], copy.size());
    if (is_read(plan[i])) copy.allow(PROT_READ);
  }
  for (size_t i = 0; i < plan.size(); ++i) addresses[i] = g.operands[alias_of[i]]->data();
  if (task == 0) std::memset(g.workspace->data(), 0xff, g.workspace->size());
  g.inner.run(g.inner.state.get(), {addresses.data(), g.workspace->data(), block.scalars}, task);
  for (size_t i = 0; i < plan.size(); ++i) {
    if (!is_read(plan[i]))
      std::memcpy(block.operands[i], g.operands[i]->data(), g.operands[i]->size());
  }
}

class GuardedDevice : public runtime::Device {
 public:
  explicit GuardedDevice(std::shared_ptr<int64_t> tasks) : tasks_(std::move(tasks)) {}
  std::string kind() const override { return cpu_->kind(); }
  std::unique_ptr<runtime::OpenDevice> open() override { return cpu_->open(); }
  runtime::BoundCollective bind(const exe::Collective& collective,
                                const exe::ReplicaGroup& group) override {
    return cpu_->bind(collective, group);
  }
  runtime::BoundKernel bind(const exe::Kernel& kernel) override {
    auto state = std::make_shared<GuardedKernel>();
    state->kernel = kernel;
    state->inner = cpu_->bind(kernel);
    state->tasks = tasks_;
    for (const exe::Operand& o : kernel.operands)
      state->operands.push_back(std::make_unique<Guarded>(o.bytes));
    state->workspace = std::make_unique<Guarded>((kernel.workspace_bytes + 63) / 64 * 64);
    return {run, state};
  }

 private:
  std::shared_ptr<runtime::Device> cpu_ = cpu::make_device();
  std::shared_ptr<int64_t> tasks_;
};

}  // namespace

std::shared_ptr<runtime::Device> guarded_device(std::shared_ptr<int64_t> tasks) {
  return std::make_shared<GuardedDevice>(std::move(tasks));
}

}  // namespace sluice::test
