// A program that neither includes a device's header nor links a device by name.
#include <gtest/gtest.h>

#include "sluice/exe/executable.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/session/session.h"

namespace sluice {
namespace {

TEST(DefaultDevice, IsTheCpuWhateverHeadersAProgramIncludes) {
  Ir ir;
  Graph& main = ir.main_graph();
  const H2dStream input = ir.h2d_stream({{2}, f32}, "x");
  const Tensor x = main.host_load(input);
  const D2hStream sum = main.host_store(x + x, "sum");
  Session session(ir);
  EXPECT_EQ(session.executable().devices.front().kind, "cpu");
  HostTensor array(input.spec);
  array.as<float>()[1] = 3;
  HostTensors results = session.run({{input, array}});
  EXPECT_EQ(results[sum].to_doubles(), (std::vector<double>{0, 6}));
  EXPECT_EQ(SessionOptions{}.device.memory, -1);
}

}  // namespace
}  // namespace sluice
