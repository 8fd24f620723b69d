// Trains in every way that the options allow. Losses and weights must equal the interpreter's, bit
// for bit.

#include <gtest/gtest.h>

#include "../support/mlp.h"
#include "sluice/compiler/compile.h"
#include "sluice/cpu/simd/isa.h"
#include "sluice/interp/interpreter.h"

namespace sluice::test {
namespace {

constexpr int kSteps = 12;

// The width is large enough to cut kernels into several tasks.
constexpr MlpOptions kModel{.layers = 2, .width = 300, .batch = 12};

struct Trained {
  std::vector<float> losses;
  std::vector<std::byte> weights;
  bool operator==(const Trained&) const = default;
};

Trained trained(const MlpOptions& model, SessionOptions options) {
  const MlpProgram p(model);
  if (options.device.target == nullptr) options.device = cpu_device({.threads = 1});
  Session session(p.ir, options);
  Trained result{train(session, p, kSteps), {}};
  result.weights = all_bytes(session);
  return result;
}

const Trained& resident() {
  static const Trained result = trained(kModel, {});
  return result;
}

TEST(SameBits, AsTheInterpreter) {
  const MlpProgram p(kModel);
  Interpreter interpreter(p.ir);
  std::vector<float> losses;
  for (uint64_t i = 0; i < kSteps; ++i) {
    const Batch batch(kModel, i);
    losses.push_back(
        interpreter.run({{p.image, batch.image}, {p.labels, batch.labels}}, "train")[p.loss]
            .as<float>()[0]);
  }
  EXPECT_EQ(resident().losses, losses);
  Session session(p.ir, {.device = cpu_device()});
  for (const Tensor& v : p.variables.tensors()) session.write(v, interpreter.read(v));
  EXPECT_EQ(resident().weights, all_bytes(session));
}

TEST(SameBits, WhateverTheThreads) {
  for (const int threads : {2, 3, 5}) {
    EXPECT_EQ(trained(kModel, {.device = cpu_device({.threads = threads})}), resident()) << threads;
  }
}

TEST(SameBits, WhateverThePasses) {
  std::vector<std::string> all;
  for (const PassDoc& pass : compiler_passes()) {
    if (!pass.optional) continue;
    all.push_back(pass.name);
    EXPECT_EQ(trained(kModel, {.disable = {pass.name}}), resident()) << pass.name;
  }
  EXPECT_GE(all.size(), 4u);
  EXPECT_EQ(trained(kModel, {.disable = all}), resident());
}

TEST(SameBits, WhateverTheGraphs) {
  for (const Layers style : {Layers::kInlined, Layers::kOutlined}) {
    for (const Activations kept : {Activations::kKept, Activations::kRecomputed}) {
      MlpOptions model = kModel;
      model.style = style;
      model.activations = kept;
      EXPECT_EQ(trained(model, {}), resident());
    }
  }
}

TEST(SameBits, WhateverTheInstructionSet) {
  const cpu::Isa before = cpu::current_isa();
  for (const cpu::Isa isa : cpu::available_isas()) {
    cpu::set_isa(isa);
    EXPECT_EQ(trained(kModel, {}), resident()) << cpu::to_string(isa);
  }
  cpu::set_isa(before);
}

TEST(SameBits, AtThePeakAndFarAboveIt) {
  const MlpProgram p(kModel);
  const int64_t peak = Session(p.ir, {.device = cpu_device({.threads = 1})}).planned_bytes();
  for (const int64_t budget : {peak, peak + 12345, 16 * peak}) {
    EXPECT_EQ(trained(kModel, {.device = cpu_device({.memory = budget, .threads = 1})}), resident())
        << budget;
  }
}

}  // namespace
}  // namespace sluice::test
