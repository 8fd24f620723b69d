// Compares kernels that are bound through the opaque target with the same kernels on the CPU.
// Their bits must be equal.
#include <random>

#include "../ops/random_fused_op.h"
#include "opaque_test_util.h"
#include "sluice/base/flush_to_zero.h"
#include "sluice/cpu/device/cpu.h"
#include "sluice/cpu/layout/layouts.h"
#include "sluice/ops/collectives.h"

namespace sluice::opaque {
namespace {

/// Returns inputs in the sample's domain.
HostTensor draw(const Sample& sample, size_t i, std::mt19937& random) {
  if (i < sample.values.size() && sample.values[i]) return *sample.values[i];
  const TensorSpec& spec = sample.inputs[i];
  std::uniform_real_distribution<> domain(sample.domain.first, sample.domain.second);
  std::vector<double> values(static_cast<size_t>(spec.elements()));
  for (double& v : values) {
    v = domain(random);
    if (spec.dtype == boolean) v = v < 0.5;
    if (is_integer(spec.dtype) && spec.dtype != i32) v = std::abs(v);
  }
  return HostTensor::of<double>(spec.shape, f64, values).cast(spec.dtype);
}

/// Runs a kernel of a plan on a device. `alias_of` names for each operand the operand whose memory
/// it has. Returns all operands in row-major order.
std::vector<HostTensor> run(runtime::Device& device, const exe::Kernel& kernel,
                            const std::vector<HostTensor>& inputs,
                            const std::vector<size_t>& alias_of) {
  const auto bound = device.bind(kernel);
  const auto open = device.open();
  std::vector<DeviceAddress> at;
  for (size_t i = 0; i < kernel.operands.size(); ++i) {
    const exe::Operand& o = kernel.operands[i];
    at.push_back(alias_of[i] == i ? open->allocate(o.bytes) : at[alias_of[i]]);
    if (i < inputs.size()) open->write(at[i], o.spec, o.layout, 0, inputs[i].bytes());
  }
  const DeviceAddress workspace = open->allocate(kernel.workspace_bytes);
  if (auto* const queued = dynamic_cast<QueuedDevice*>(open.get())) {
    const auto queue = queued->queue();
    launch(*queue, bound, at, workspace);
    queue->drain();
  } else {
    std::vector<std::byte*> pointers;
    for (size_t i = 0; i < at.size(); ++i)
      pointers.push_back(open->host_bytes(at[i], kernel.operands[i].bytes).data());
    std::byte* const scratch = open->host_bytes(workspace, kernel.workspace_bytes).data();
    const FlushToZero flush;
    for (int64_t task = 0; task < kernel.tasks; ++task)
      bound.run(bound.state.get(), {pointers.data(), scratch, nullptr}, task);
  }
  std::vector<HostTensor> all;
  for (size_t i = 0; i < at.size(); ++i) {
    const exe::Operand& o = kernel.operands[i];
    open->read(at[i], o.spec, o.layout, 0, all.emplace_back(o.spec).bytes());
  }
  return all;
}

/// Compares the opaque kernel with the CPU's. Returns a description of the first error.
std::string compare(const exe::Kernel& kernel, const exe::Kernel& on_cpu,
                    const std::vector<HostTensor>& inputs, const std::vector<size_t>& alias_of,
                    Mode mode) {
  if (kernel.key.substr(7) != on_cpu.key.substr(4)) return kernel.key + " is not " + on_cpu.key;
  if (kernel.workspace_bytes <= on_cpu.workspace_bytes) return "the workspaces are alike";
  if (kernel.tasks != on_cpu.tasks) return "the numbers of tasks differ";
  const auto device = make_device({.mode = mode});
  const auto have = run(*device, kernel, inputs, alias_of);
  const auto want = run(*cpu::make_device(), on_cpu, inputs, alias_of);
  for (size_t i = 0; i < have.size(); ++i) {
    if (!have[i].same_bits(want[i])) return fmt::format("operand {} differs", i);
  }
  return "";
}

std::vector<size_t> no_aliases(size_t operands) {
  std::vector<size_t> alias_of(operands);
  for (size_t i = 0; i < operands; ++i) alias_of[i] = i;
  return alias_of;
}

TEST(OpaqueKernels, HaveTheBitsOfTheCpuOnTheSamplesOfEachOperator) {
  std::mt19937 random(5);
  int kernels = 0;
  for (const OpDef* def : ops::all_ops()) {
    if (def->has(Trait::kCollective)) continue;
    for (const Sample& sample : def->samples) {
      const Attrs& attrs = sample.options.items.empty() ? def->options : sample.options;
      const exe::Kernel kernel = plan_of(*make_target(), *def, attrs, sample.inputs);
      std::vector<HostTensor> inputs;
      for (size_t i = 0; i < sample.inputs.size(); ++i) inputs.push_back(draw(sample, i, random));
      std::vector<size_t> alias_of = no_aliases(kernel.operands.size());
      for (const Alias& a : def->aliases)
        alias_of[inputs.size() + static_cast<size_t>(a.output)] = static_cast<size_t>(a.input);
      EXPECT_EQ(compare(kernel, plan_of(*cpu::make_target(), *def, attrs, sample.inputs), inputs,
                        alias_of, kernels % 2 == 0 ? Mode::kLazy : Mode::kThreads),
                "")
          << def->type;
      ++kernels;
    }
  }
  EXPECT_GT(kernels, 200);
}

exe::Kernel plan_of_fused(const Target& target, const FusedOp& op) {
  std::string name;
  for (const OpStage& stage : op.stages) name += (name.empty() ? "" : "+") + stage.op->type;
  exe::Kernel k = plan_of(target, target.choose_fused(op), name, op.operands, op.layouts,
                          static_cast<size_t>(op.inputs));
  for (const OpStage& s : op.stages)
    k.stages.push_back({s.op->type, s.attrs, s.inputs, s.output, s.spec});
  if (op.stages.size() == 1) k.attrs = op.stages[0].attrs;
  return k;
}

TEST(OpaqueKernels, HaveTheBitsOfTheCpuOnRandomFusedOps) {
  const auto target = make_target();
  int kernels = 0, strips = 0, planes = 0;
  for (uint64_t seed = 0; seed < 600; ++seed) {
    const std::optional<FusedOp> op = cpu::RandomFusedOp(seed).make();
    if (!op || op->stages.empty() || !cpu::make_target()->fuses(*op)) continue;
    FusedOp translated = *op;
    for (Layout& layout : translated.layouts) {
      layout = from_cpu(layout);
      strips += layout.kind() == "strips";
      planes += layout.kind() == "planes";
    }
    ASSERT_TRUE(target->fuses(translated));
    EXPECT_EQ(target->fuses_in_all_layouts(translated),
              cpu::make_target()->fuses_in_all_layouts(*op));
    std::mt19937 random(static_cast<uint32_t>(seed));
    std::vector<HostTensor> inputs;
    for (int32_t i = 0; i < op->inputs; ++i) {
      EXPECT_EQ(to_cpu(target->preferred_layout(translated, i)),
                cpu::make_target()->preferred_layout(*op, i));
      const Sample any{.inputs = {op->operands[static_cast<size_t>(i)]}};
      inputs.push_back(draw(any, 0, random));
    }
    EXPECT_EQ(compare(plan_of_fused(*target, translated), plan_of_fused(*cpu::make_target(), *op),
                      inputs, no_aliases(op->operands.size()), Mode::kLazy),
              "")
        << "seed " << seed;
    ++kernels;
  }
  EXPECT_GT(kernels, 200);
  EXPECT_GT(strips, 50);
  EXPECT_GT(planes, 10);
}

TEST(OpaqueKernels, CopyBetweenLayouts) {
  const TensorSpec spec{{9, 40}, f32, {}};
  const auto plan = [&](const Target& target, const Layout& from, const Layout& to) {
    return plan_of(target, target.copy(spec, from, to), "Copy", {spec, spec}, {from, to}, 1);
  };
  std::mt19937 random(1);
  const std::vector<HostTensor> inputs{draw({.inputs = {spec}}, 0, random)};
  const Layout strips("strips", {16}), panels = cpu::in_panels(16);
  EXPECT_EQ(compare(plan(*make_target(), {}, strips), plan(*cpu::make_target(), {}, panels), inputs,
                    {0, 1}, Mode::kLazy),
            "");
  EXPECT_EQ(compare(plan(*make_target(), strips, {}), plan(*cpu::make_target(), panels, {}), inputs,
                    {0, 1}, Mode::kThreads),
            "");
}

TEST(OpaqueTarget, SharesNoWordWithTheCpu) {
  const auto target = make_target();
  EXPECT_EQ(target->kind(), "opaque");
  EXPECT_EQ(target->alignment(), 256);
  EXPECT_NE(target->alignment(), cpu::make_target()->alignment());
  const TensorSpec matrix{{4, 4}, f32, {}};
  EXPECT_THROW(target->buffer_bytes(matrix, cpu::in_panels(16)), Error);
  EXPECT_THROW(cpu::make_target()->buffer_bytes(matrix, Layout("strips", {16})), Error);
  const OpDef& neg = *ops::find_op("Neg");
  const exe::Kernel own = plan_of(*target, neg, neg.options, {matrix});
  const exe::Kernel other = plan_of(*cpu::make_target(), neg, neg.options, {matrix});
  const auto device = make_device();
  EXPECT_NO_THROW(device->bind(own));
  EXPECT_THROW(device->bind(other), Error);
  EXPECT_THROW(cpu::make_device()->bind(own), Error);
  exe::Kernel small = own;
  small.workspace_bytes = kCanaryBytes - 1;
  EXPECT_THROW(device->bind(small), Error);
  exe::Kernel wrong = own;
  wrong.operands[0].layout = "panels16";
  EXPECT_THROW(device->bind(wrong), Error);
}

// Runs the shares of an all-reduce and a reduce-scatter of two members, each on a device of its own
// with a copy of the part of the peer's input that it reads.
TEST(OpaqueKernels, RunSharesOfCollectives) {
  constexpr int64_t kElements = 256;
  const TensorSpec spec{{kElements}, f32, {}}, half{{kElements / 2}, f32, {}};
  for (const bool scatter : {false, true}) {
    const OpDef& def = *ops::find_op(scatter ? "ReplicatedReduceScatter" : "ReplicatedAllReduce");
    exe::Collective c;
    c.op = def.type;
    c.attrs = def.options;
    for (auto& [name, value] : c.attrs.items) {
      if (name == "size") value = int64_t{2};
    }
    for (const exe::Access access : {exe::Access::kRead, exe::Access::kWrite}) {
      exe::Operand& o = c.operands.emplace_back();
      o.access = access;
      o.spec = scatter && access == exe::Access::kWrite ? half : spec;
      o.bytes = o.spec.bytes();
    }
    const auto device = make_device();
    const auto bound = device->bind(c, {1, 2});
    EXPECT_THROW(bound.run(bound.state.get(), {}), Error);
    for (int64_t member = 0; member < 2; ++member) {
      const auto open = device->open();
      const auto queue = dynamic_cast<QueuedDevice&>(*open).queue();
      const runtime::ByteRange part = bound.reads(bound.state.get(), member);
      EXPECT_EQ(part.begin, member * kElements * 2);
      EXPECT_EQ(part.end, (member + 1) * kElements * 2);
      const DeviceAddress own = open->allocate(spec.bytes()), out = open->allocate(spec.bytes());
      const DeviceAddress room = open->allocate(part.end - part.begin);
      const DeviceAddress free = open->allocate(half.bytes());
      const std::vector<float> x(kElements, 1.5f), y(kElements / 2, 2.0f);
      open->write(own, spec, "row", 0, std::as_bytes(std::span(x)));
      open->write(room, half, "row", 0, std::as_bytes(std::span(y)));
      std::vector<DeviceAddress> operands(4);
      operands[static_cast<size_t>(member)] = own;
      operands[static_cast<size_t>(1 - member)] = room - part.begin;
      operands[static_cast<size_t>(2 + member)] = out;
      std::vector<int64_t> scalars{member};
      queue->launch({bound.state.get(), operands, {}, scalars});
      // The share touches only its part of the whole tensors.
      const auto other = dynamic_cast<QueuedDevice&>(*open).queue();
      const int64_t rest = kElements * 2 - part.begin;
      EXPECT_NO_THROW(other->copy(free, own + rest, kElements * 2));
      EXPECT_NO_THROW(other->copy(own + rest, free, kElements * 2));
      if (!scatter) {
        EXPECT_NO_THROW(other->copy(out + rest, free, kElements * 2));
      }
      queue->drain();
      std::vector<float> z(kElements / 2);
      open->read(scatter ? out : out + part.begin, half, "row", 0,
                 std::as_writable_bytes(std::span(z)));
      EXPECT_EQ(z, std::vector<float>(kElements / 2, 3.5f)) << def.type << " " << member;
    }
  }
}

}  // namespace
}  // namespace sluice::opaque
