#include "code.h"

#include <algorithm>
#include <cstring>

#include "sluice/base/error.h"
#include "sluice/cpu/device/cpu.h"
#include "target.h"

namespace sluice::opaque {
namespace {

using runtime::DeviceAddress;

constexpr auto kCanary = std::byte{0xc5};

void check_counts(const Code& code, const Arguments& a, size_t operands, size_t scalars) {
  if (a.operands.size() == operands && a.scalars.size() == scalars) return;
  fail(ErrorKind::kInternal, "opaque: {} must have {} operands and {} scalars, got {} and {}",
       code.name(), operands, scalars, a.operands.size(), a.scalars.size());
}

class KernelCode final : public Code {
 public:
  explicit KernelCode(const exe::Kernel& kernel)
      : kernel_(kernel),
        bound_(cpu::make_device()->bind(to_cpu(kernel))),
        canary_(canary_bytes(kernel)) {}
  const std::string& name() const override { return kernel_.key; }

  std::vector<Touch> touches(const Arguments& a, const Memory& memory) const override {
    check_counts(*this, a, kernel_.operands.size(), kernel_.scalars.size());
    std::vector<Touch> all;
    for (size_t i = 0; i < a.operands.size(); ++i) {
      const exe::Operand& o = kernel_.operands[i];
      memory.bytes_at(a.operands[i], o.bytes);
      all.push_back({range_of(a.operands[i], o.bytes), o.access != exe::Access::kRead});
    }
    if (kernel_.workspace_bytes == 0) return all;
    memory.bytes_at(a.workspace, kernel_.workspace_bytes);
    if (a.workspace.in_device() % kAlignment != 0) {
      fail(ErrorKind::kInternal, "opaque: {}: workspace must be aligned to {} bytes, got {:#x}",
           name(), kAlignment, a.workspace.in_device());
    }
    all.push_back({range_of(a.workspace, kernel_.workspace_bytes), true});
    return all;
  }

  void run(const Arguments& a, const Memory& memory) const override {
    std::vector<std::byte*> operands;
    for (size_t i = 0; i < a.operands.size(); ++i)
      operands.push_back(memory.bytes_at(a.operands[i], kernel_.operands[i].bytes));
    std::byte* workspace = nullptr;
    const auto scratch = static_cast<size_t>(kernel_.workspace_bytes - canary_);
    if (kernel_.workspace_bytes > 0) {
      workspace = memory.bytes_at(a.workspace, kernel_.workspace_bytes);
      std::memset(workspace, 0xff, scratch);
      std::fill_n(workspace + scratch, canary_, kCanary);
    }
    // Tasks may run in any order.
    for (int64_t task = kernel_.tasks; task-- > 0;)
      bound_.run(bound_.state.get(), {operands.data(), workspace, a.scalars.data()}, task);
    for (int64_t i = 0; i < canary_; ++i) {
      if (workspace[scratch + static_cast<size_t>(i)] != kCanary)
        fail(ErrorKind::kInternal, "opaque: {} wrote behind its workspace", name());
    }
  }

 private:
  const exe::Kernel kernel_;
  const runtime::BoundKernel bound_;
  const int64_t canary_;
};

class CollectiveCode final : public Code {
 public:
  CollectiveCode(const exe::Collective& collective, const exe::ReplicaGroup& group)
      : name_("opaque." + collective.op),
        bound_(cpu::make_device()->bind(collective, group)),
        members_(group.size),
        in_(collective.operands.front().bytes),
        out_(collective.operands.back().bytes) {
    for (int64_t m = 0; m < members_; ++m) {
      cuts_input_ = cuts_input_ || reads(m).begin != reads(m).end;
      cuts_output_ = cuts_output_ || writes(m).begin != writes(m).end;
    }
  }
  const std::string& name() const override { return name_; }
  runtime::ByteRange reads(int64_t member) const {
    return bound_.reads(bound_.state.get(), member);
  }
  runtime::ByteRange writes(int64_t member) const {
    return bound_.writes(bound_.state.get(), member);
  }

  std::vector<Touch> touches(const Arguments& a, const Memory& memory) const override {
    check_counts(*this, a, static_cast<size_t>(2 * members_), 1);
    std::vector<Touch> all;
    for (size_t i = 0; i < a.operands.size(); ++i) {
      const runtime::ByteRange part = part_of(a, i);
      if (part.begin == part.end) continue;
      const DeviceAddress begin = a.operands[i] + part.begin;
      memory.bytes_at(begin, part.end - part.begin);
      all.push_back({range_of(begin, part.end - part.begin), !is_input(i)});
    }
    return all;
  }

  void run(const Arguments& a, const Memory& memory) const override {
    std::vector<DeviceAddress> operands(a.operands.size());
    for (size_t i = 0; i < operands.size(); ++i) {
      const runtime::ByteRange part = part_of(a, i);
      if (part.begin == part.end) continue;
      const std::byte* const bytes =
          memory.bytes_at(a.operands[i] + part.begin, part.end - part.begin);
      // The function of the CPU adds the begin of the part to the address of the whole tensor.
      operands[i] = DeviceAddress::of_device(reinterpret_cast<uintptr_t>(bytes)) - part.begin;
    }
    bound_.run(bound_.state.get(),
               {operands.data(), operands.data() + members_, a.scalars[0], 0, 1});
  }

 private:
  bool is_input(size_t operand) const { return operand < static_cast<size_t>(members_); }

  // Returns the bytes of an operand that the share touches.
  runtime::ByteRange part_of(const Arguments& a, size_t operand) const {
    const int64_t member = a.scalars[0];
    const bool own = static_cast<int64_t>(operand) % members_ == member;
    if (is_input(operand)) return own && !cuts_input_ ? runtime::ByteRange{0, in_} : reads(member);
    if (own) return cuts_output_ ? writes(member) : runtime::ByteRange{0, out_};
    return a.operands[operand] == DeviceAddress{} ? runtime::ByteRange{} : writes(member);
  }

  const std::string name_;
  const runtime::BoundCollective bound_;
  const int64_t members_;
  const int64_t in_, out_;
  bool cuts_input_ = false;   ///< Whether a share touches only a part of the inputs.
  bool cuts_output_ = false;  ///< Whether a share touches only a part of the outputs.
};

/// The state of a bound kernel. It begins with bytes that tell it from other memory.
struct Bound {
  static constexpr uint64_t kSign = 0x0bac'0de0'0bac'0de0;
  explicit Bound(std::unique_ptr<const Code> of) : code(std::move(of)) {}
  ~Bound() { sign = 0; }
  uint64_t sign = kSign;
  std::unique_ptr<const Code> code;
};

const CollectiveCode& collective_of(const void* state) {
  return static_cast<const CollectiveCode&>(code_of(state));
}

[[noreturn]] void refuse() {
  fail(ErrorKind::kInternal, "opaque: the host cannot run a kernel; launch it on a queue");
}

}  // namespace

const Code& code_of(const void* kernel) {
  uint64_t sign = 0;
  if (kernel != nullptr) std::memcpy(&sign, kernel, sizeof sign);
  if (sign != Bound::kSign)
    fail(ErrorKind::kInternal, "opaque: a launch must have a kernel that an opaque device bound");
  return *static_cast<const Bound*>(kernel)->code;
}

runtime::BoundKernel bind_kernel(const exe::Kernel& kernel) {
  auto code = std::make_unique<KernelCode>(kernel);
  return {[](const void*, const runtime::KernelBlock&, int64_t) { refuse(); },
          std::make_shared<Bound>(std::move(code))};
}

runtime::BoundCollective bind_collective(const exe::Collective& collective,
                                         const exe::ReplicaGroup& group) {
  return {[](const void*, const runtime::CollectiveBlock&) { refuse(); },
          std::make_shared<Bound>(std::make_unique<CollectiveCode>(collective, group)),
          [](const void* state, int64_t member) { return collective_of(state).reads(member); },
          [](const void* state, int64_t member) { return collective_of(state).writes(member); }};
}

}  // namespace sluice::opaque
