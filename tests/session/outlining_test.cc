// Layers that share one graph have the same bits as layers with separate ops. The program grows
// less per layer.

#include <gtest/gtest.h>

#include <iostream>

#include "../support/mlp.h"
#include "sluice/check/checker.h"
#include "sluice/compiler/compile.h"
#include "sluice/report/plan_report.h"

namespace sluice::test {
namespace {

SessionOptions plain(std::vector<std::string> disable = {}, int threads = 1) {
  return {.device = cpu_device({.threads = threads}), .disable = std::move(disable)};
}

TEST(Outlining, GivesTheBitsOfInlinedLayers) {
  const MlpProgram inlined;
  const MlpProgram outlined({.style = Layers::kOutlined});
  Session a(inlined.ir, plain());
  Session b(outlined.ir, plain());
  Session c(outlined.ir, plain({"inline"}, 2));
  EXPECT_EQ(all_bytes(a), all_bytes(b)) << "first values";
  const std::vector<float> losses = train(a, inlined, 50);
  EXPECT_EQ(train(b, outlined, 50), losses);
  EXPECT_EQ(train(c, outlined, 50), losses);
  EXPECT_EQ(all_bytes(a), all_bytes(b));
  EXPECT_EQ(all_bytes(a), all_bytes(c));
}

int64_t program_bytes(int layers, Layers style) {
  const MlpProgram p({.layers = layers, .style = style});
  const Session session(p.ir, plain());
  return report::plan_report(session.executable()).program_bytes;
}

TEST(Outlining, ProgramsGrowByLessPerLayer) {
  int64_t inlined[3];
  int64_t outlined[3];
  constexpr int kLayers[] = {4, 8, 16};
  for (int i = 0; i < 3; ++i) {
    inlined[i] = program_bytes(kLayers[i], Layers::kInlined);
    outlined[i] = program_bytes(kLayers[i], Layers::kOutlined);
    std::cout << fmt::format("{:2} layers: inlined {} B, outlined {} B\n", kLayers[i], inlined[i],
                             outlined[i]);
  }
  for (int i = 1; i < 3; ++i) {
    const int more = kLayers[i] - kLayers[i - 1];
    const int64_t in = (inlined[i] - inlined[i - 1]) / more;
    const int64_t out = (outlined[i] - outlined[i - 1]) / more;
    std::cout << fmt::format("from {} to {} layers: {} B a layer inlined, {} B outlined\n",
                             kLayers[i - 1], kLayers[i], in, out);
    EXPECT_LT(out, in);
  }
}

// Compiles and proves a program. Expects at most `max_steps` steps in its functions, and that the
// proof walks at most `max_walked`. `sluice bench --only compile` measures times.
std::unique_ptr<Session> proved(const Ir& ir, size_t max_steps, int64_t max_walked) {
  SessionOptions options = plain();
  options.proof = SessionOptions::Proof::kTrust;
  auto session = std::make_unique<Session>(ir, options);
  const auto violations = check::violations(session->executable(), {.max_steps = max_walked});
  EXPECT_TRUE(violations.empty()) << violations[0].rule << ": " << violations[0].message;
  size_t steps = 0;
  for (const exe::Function& f : session->executable().functions) steps += f.steps.size();
  EXPECT_LE(steps, max_steps);
  EXPECT_GT(steps, max_steps / 2) << "the bound is outdated";
  return session;
}

TEST(LongPrograms, HaveFewStepsForAThousandOutlinedLayers) {
  const MlpProgram p({.layers = 1000, .style = Layers::kOutlined});
  auto session = proved(p.ir, 7'100, 30'000);
  EXPECT_TRUE(std::isfinite(train(*session, p, 1)[0]));
}

TEST(LongPrograms, HaveFewerStepsThanOps) {
  Ir ir;
  Graph& main = ir.main_graph();
  const H2dStream in = ir.h2d_stream(f32_spec({16}), "in");
  std::vector<Tensor> values{main.host_load(in)};
  for (size_t i = 0; i < 10000; ++i) {
    const Tensor& a = values.back();
    const Tensor& b = values[values.size() - 1 -
                             random_bits(Seed{5, 6}, i) % std::min<size_t>(values.size(), 50)];
    values.push_back(i % 3 == 0 ? ops::tanh(a) : i % 3 == 1 ? ops::maximum(a, b) : a * 0.5 + b);
  }
  const D2hStream out = main.host_store(values.back(), "out");
  auto session = proved(ir, 1'700, 1'700);
  session->run({{in, HostTensor(in.spec)}})[out];
}

}  // namespace
}  // namespace sluice::test
