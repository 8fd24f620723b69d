#include "device.h"

#include "code.h"
#include "family.h"
#include "queue.h"
#include "sluice/base/error.h"
#include "sluice/cpu/layout/layouts.h"
#include "target.h"

namespace sluice::opaque {
namespace {

using runtime::DeviceAddress;

class OpenOpaque final : public runtime::QueuedDevice {
 public:
  explicit OpenOpaque(std::shared_ptr<Family> family)
      : state_(std::make_shared<DeviceState>(std::move(family))) {}

  DeviceAddress allocate(int64_t bytes) override {
    const auto lock = begin_setup("allocate");
    return state_->memory.allocate(bytes);
  }
  std::unique_ptr<runtime::Queue> queue() override {
    const auto lock = begin_setup("queue");
    return make_queue(state_);
  }
  void pin(std::span<std::byte> memory) override {
    const auto lock = begin_setup("pin");
    state_->memory.pin(memory);
  }
  int64_t available_memory() const override { return state_->family->options.memory; }

  void read(DeviceAddress tensor, const TensorSpec& spec, std::string_view layout, int64_t begin,
            std::span<std::byte> out) override {
    const auto lock = begin_transfer();
    const Layout on_cpu = parse_layout(to_cpu(layout));
    cpu::read_elements(spec, on_cpu, touch(tensor, spec, on_cpu, false), begin, out);
  }
  void write(DeviceAddress tensor, const TensorSpec& spec, std::string_view layout, int64_t begin,
             std::span<const std::byte> in) override {
    const auto lock = begin_transfer();
    const Layout on_cpu = parse_layout(to_cpu(layout));
    cpu::write_elements(spec, on_cpu, touch(tensor, spec, on_cpu, true), begin, in);
  }

  std::span<std::byte> host_bytes(DeviceAddress, int64_t) override {
    fail(ErrorKind::kUsage,
         "opaque: the host cannot touch memory of this device; copy it by read() and write(), or "
         "by a queue to pinned memory");
  }

  DeviceState& state() { return *state_; }

 private:
  // Begins a call that prepares a device.
  std::unique_lock<std::mutex> begin_setup(const char* call) {
    auto lock = state_->family->enter();
    if (state_->family->count_call())
      fail(ErrorKind::kDoesNotFit, "opaque: {}() fails, as fail_at requires", call);
    if (state_->failed()) state_->rethrow();
    return lock;
  }

  std::unique_lock<std::mutex> begin_transfer() {
    auto lock = state_->family->enter();
    state_->count_call();
    if (state_->failed()) state_->rethrow();
    return lock;
  }

  // Returns the bytes of a tensor, which the host touches now.
  std::byte* touch(DeviceAddress tensor, const TensorSpec& spec, const Layout& on_cpu,
                   bool writes) const {
    const int64_t bytes = cpu::buffer_bytes(spec, on_cpu);
    state_->family->races.touch_by_host({range_of(tensor, bytes), writes});
    return state_->memory.bytes_at(tensor, bytes);
  }

  const std::shared_ptr<DeviceState> state_;
};

class OpaqueDevice final : public runtime::Device {
 public:
  explicit OpaqueDevice(Options options) : family_(std::make_shared<Family>(std::move(options))) {}
  std::string kind() const override { return "opaque"; }
  runtime::BoundKernel bind(const exe::Kernel& kernel) override { return bind_kernel(kernel); }
  runtime::BoundCollective bind(const exe::Collective& collective,
                                const exe::ReplicaGroup& group) override {
    return bind_collective(collective, group);
  }
  std::unique_ptr<runtime::OpenDevice> open() override {
    if (family_->count_call())
      fail(ErrorKind::kDoesNotFit, "opaque: open() fails, as fail_at requires");
    return std::make_unique<OpenOpaque>(family_);
  }

  Family& family() { return *family_; }

 private:
  const std::shared_ptr<Family> family_;
};

Family& family_of(runtime::Device& device) {
  auto* const opaque = dynamic_cast<OpaqueDevice*>(&device);
  require(opaque != nullptr, "opaque: device must be of kind opaque, got {}", device.kind());
  return opaque->family();
}

}  // namespace

std::shared_ptr<runtime::Device> make_device(Options options) {
  return std::make_shared<OpaqueDevice>(std::move(options));
}

void check_host_access(runtime::Device& device, std::span<const std::byte> memory, bool writes) {
  family_of(device).races.touch_by_host(
      {range_of(memory.data(), static_cast<int64_t>(memory.size())), writes});
}

int64_t recordings(runtime::Device& device) { return family_of(device).recordings; }
int64_t enqueued_commands(runtime::Device& device) {
  return family_of(device).enqueued.load(std::memory_order_relaxed);
}
int64_t delayed_commands(runtime::Device& device) {
  return family_of(device).delayed.load(std::memory_order_relaxed);
}
int64_t blocked_calls(runtime::Device& device) {
  return family_of(device).blocked.load(std::memory_order_relaxed);
}

DeviceState& state_of(runtime::QueuedDevice& device) {
  auto* const open = dynamic_cast<OpenOpaque*>(&device);
  if (open == nullptr) fail(ErrorKind::kInternal, "opaque: a peer must be an opaque device");
  return open->state();
}

}  // namespace sluice::opaque
