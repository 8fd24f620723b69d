#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "device.h"
#include "sluice/base/error.h"
#include "sluice/ir/op_def.h"
#include "sluice/ops/op.h"
#include "target.h"

/// Helpers for tests of the opaque device.
namespace sluice::opaque {

using runtime::DeviceAddress;
using runtime::Queue;
using runtime::QueuedDevice;

/// Two devices and pinned memory of the host.
class Rig {
 public:
  static constexpr int64_t kBytes = 1024;

  /// If `held`, no launch or copy runs on its own before release(): in lazy mode, only calls that
  /// must run commands do.
  explicit Rig(Mode mode, Options options = {}, bool held = false) {
    options.mode = mode;
    if (held && mode == Mode::kLazy) options.eagerness = 0;
    if (!held) release();
    if (mode == Mode::kThreads) {
      options.hook = [this, hook = options.hook](int queue, int64_t command,
                                                 std::string_view name) {
        while (command > allowed_.load(std::memory_order_acquire))
          std::this_thread::sleep_for(std::chrono::microseconds(100));
        if (hook) hook(queue, command, name);
      };
    }
    device_ = make_device(std::move(options));
    for (int d = 0; d < 2; ++d) {
      open_.push_back(device_->open());
      device(d).pin(host_);
      memory_.push_back(device(d).allocate(kBytes));
    }
  }
  ~Rig() { release(); }

  /// Lets each queue run its first `commands` launches and copies.
  void release(int64_t commands = std::numeric_limits<int64_t>::max()) {
    allowed_.store(commands, std::memory_order_release);
  }

  runtime::Device& family() { return *device_; }
  QueuedDevice& device(int d = 0) {
    return dynamic_cast<QueuedDevice&>(*open_[static_cast<size_t>(d)]);
  }
  std::unique_ptr<Queue> queue(int d = 0) { return device(d).queue(); }
  DeviceAddress memory(int d = 0) { return memory_[static_cast<size_t>(d)]; }
  /// kBytes bytes that all devices know.
  std::byte* host() { return host_.data(); }
  void fill(int value) { std::fill(host_.begin(), host_.end(), static_cast<std::byte>(value)); }

  /// Returns bytes of device memory, between runs.
  std::vector<std::byte> read(int d, DeviceAddress at, int64_t bytes) {
    std::vector<std::byte> out(static_cast<size_t>(bytes));
    device(d).read(at, {{bytes / 4}, i32, {}}, "row", 0, out);
    return out;
  }

 private:
  std::atomic<int64_t> allowed_{0};
  std::vector<std::byte> host_ = std::vector<std::byte>(kBytes);
  std::shared_ptr<runtime::Device> device_;
  std::vector<std::unique_ptr<runtime::OpenDevice>> open_;
  std::vector<DeviceAddress> memory_;
};

inline std::vector<std::byte> bytes(int64_t n, int value) {
  return std::vector<std::byte>(static_cast<size_t>(n), static_cast<std::byte>(value));
}

/// Returns the text of the error that f throws, with its kind: "internal: …". Empty if none.
template <typename F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return std::string(to_string(e.kind())) + ": " + e.what();
  }
  return "";
}

/// Asks a queue until the mark has passed.
inline void poll(Queue& queue, int64_t mark) {
  while (!queue.passed(mark)) std::this_thread::yield();
}

/// Returns the plan's kernel for a choice, with operands in this order: inputs, then outputs.
inline exe::Kernel plan_of(const Target& target, const KernelChoice& choice, std::string op,
                           const std::vector<TensorSpec>& specs, const std::vector<Layout>& layouts,
                           size_t inputs) {
  exe::Kernel k;
  k.key = choice.key;
  k.op = std::move(op);
  k.tasks = choice.tasks;
  k.workspace_bytes = choice.workspace_bytes;
  for (size_t i = 0; i < specs.size(); ++i) {
    exe::Operand& o = k.operands.emplace_back();
    o.spec = specs[i];
    o.layout = to_string(layouts[i]);
    o.bytes = target.buffer_bytes(specs[i], layouts[i]);
    o.access = i < inputs ? exe::Access::kRead : exe::Access::kWrite;
    if (!choice.task_stride.empty()) o.task_stride = choice.task_stride[i];
    if (!choice.task_pitch.empty()) o.task_pitch = choice.task_pitch[i];
  }
  for (const auto& [in, out] : choice.may_coincide)
    k.may_coincide.emplace_back(in, static_cast<int32_t>(inputs) + out);
  return k;
}

/// Returns the plan's kernel for one op.
inline exe::Kernel plan_of(const Target& target, const OpDef& def, const Attrs& attrs,
                           const std::vector<TensorSpec>& inputs) {
  std::vector<TensorSpec> specs = inputs;
  const std::vector<TensorSpec> outputs = def.infer(OpView(def, attrs, inputs));
  const KernelChoice choice = target.choose(OpView(def, attrs, inputs, outputs));
  specs.insert(specs.end(), outputs.begin(), outputs.end());
  exe::Kernel k =
      plan_of(target, choice, def.type, specs, std::vector<Layout>(specs.size()), inputs.size());
  k.attrs = attrs;
  return k;
}

/// An elementwise op on vectors of f32.
inline runtime::BoundKernel elementwise(runtime::Device& device, const char* op, int64_t elements) {
  const OpDef& def = *ops::find_op(op);
  const std::vector<TensorSpec> inputs(def.inputs.size(), TensorSpec{{elements}, f32, {}});
  return device.bind(plan_of(*make_target(), def, def.options, inputs));
}

/// Launches a kernel.
inline void launch(Queue& queue, const runtime::BoundKernel& kernel,
                   std::vector<DeviceAddress> operands, DeviceAddress workspace) {
  queue.launch({kernel.state.get(), operands, workspace, {}});
}

inline std::string mode_name(const testing::TestParamInfo<Mode>& info) {
  return info.param == Mode::kLazy ? "Lazy" : "Threads";
}

}  // namespace sluice::opaque
